"""No message, page or default names a package, an image or a host that is neither ours nor published by others.

Who follows such a name runs what it gets by it, as root: a name that is free belongs to the first who registers it.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
NOT_INSTALLED = ("tests/", "integration/", "bench/")
"""What reaches no user."""

PUBLISHED_IMAGES = ("docker.io/library/python:3.11-slim", "python:3.9", "nginx", "busybox", "busybox:1.36")
PUBLISHED_CHARTS = ("koordinator-sh/koordinator",)
"""To go back to Koordinator."""

OWN_EXTRAS = {"pyproject.toml": "koord[node,cluster,scheduler]", "release/offline/install.sh": "koord[node]"}
"""pip takes the koord of ``pip install '.[dev]'`` itself; the bundle's installer takes that of its wheelhouse alone."""

_PIP = re.compile(r"pip3?[\"',]* (?:install|download)\b([^\n`#&|;]*)")
_EXTRA = re.compile(r"(?<![./\w-])koord\[[\w, ]+\]")
_IMAGE = re.compile(r"^\s*(?:- )?(?:image:|FROM) *[\"']?([\w./:@-]+)[\"']?(?: AS .*)?$", re.MULTILINE)
_CHART = re.compile(r"helm (?:install|upgrade)(?: --?\w[\w-]*(?:=\S+)?)* [\w-]+ ([\w.-]+/\S+)")
_HOSTS = r"aliyuncs\.com|docker\.io|ghcr\.io|quay\.io|gcr\.io|registry(?:\.[\w-]+){2,}"
_REGISTRY = re.compile(rf"\b(?:[\w-]+\.)*(?:{_HOSTS})\b")
_FLAGS_WITH_VALUE = ("--find-links", "--outdir", "-d", "--platform", "--only-binary")


def texts() -> Mapping[str, str]:
    """Every text of the repository that reaches a user, by its path; none outside of a checkout."""
    if not (ROOT / ".git").exists():
        return {}
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    names = [name for name in listed.split("\0") if name and not name.startswith(NOT_INSTALLED)]
    return {name: (ROOT / name).read_text(errors="replace") for name in names if (ROOT / name).is_file()}


TEXTS = texts()
pytestmark = pytest.mark.skipif(not TEXTS, reason="no checkout: which files are ours is not known")


def packages(text: str) -> Iterator[str]:
    """What pip is told to get from an index: no files, and nothing where it may ask none."""
    for found in _PIP.finditer(text.replace("\\\n", " ")):
        words = iter(re.sub("[\"']", "", found[1]).split())
        for word in words if "--no-index" not in found[1] else ():
            if word in _FLAGS_WITH_VALUE:
                next(words, None)
            elif not word.startswith(("-", "/", ".", "$", "{")):
                yield word


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("koordctl top needs it: pip install 'koord[tui]'.", ["koord[tui]."]),
        ("`pip install koord`", ["koord"]),
        ("python -m pip install --quiet --editable '.[dev]'", []),
        ("pip install './dist/koord-0.1.0-py3-none-any.whl[node]'", []),
        ("pip install --no-index --find-links wheels koord", []),
        ("pip install --only-binary :all: \\\n  koord", ["koord"]),
    ],
)
def test_the_scanner_finds_what_it_is_there_for(text: str, found: list[str]) -> None:
    assert list(packages(text)) == found


def test_pip_is_told_of_files_and_of_our_dependencies_alone() -> None:
    """The authors of those that pyproject.toml names have published them."""
    project = tomllib.loads(TEXTS["pyproject.toml"])["project"]
    named = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    dependencies = {re.match(r"[\w-]+", each)[0] for each in named} - {project["name"]}  # type: ignore[index]
    found = {(name, package) for name, text in TEXTS.items() for package in packages(text)}
    assert {each for each in found if each[1] not in dependencies} == set()


def test_an_extra_of_ours_is_asked_for_by_ourselves_alone() -> None:
    assert {name: _EXTRA.findall(text)[0] for name, text in TEXTS.items() if _EXTRA.search(text)} == OWN_EXTRAS


def test_images() -> None:
    manifests = {name: text for name, text in TEXTS.items() if not name.endswith(".py")}
    found = {(name, image) for name, text in manifests.items() for image in _IMAGE.findall(text)}
    assert found, "the scanner finds images"
    assert {each for each in found if each[1] not in PUBLISHED_IMAGES and not each[1].startswith("localhost/")} == set()


def test_registries() -> None:
    found = {(name, host) for name, text in TEXTS.items() for host in _REGISTRY.findall(text)}
    assert found == {("release/images/Containerfile", "docker.io")}


def test_charts() -> None:
    found = {chart for text in TEXTS.values() for chart in _CHART.findall(text)}
    assert found == {"charts/koordinator", *PUBLISHED_CHARTS}


def test_the_charts_images_are_of_no_registry() -> None:
    values = yaml.safe_load(TEXTS["charts/koordinator/values.yaml"])
    assert values["imageRepositoryHost"] == "localhost"
    assert {values[part]["image"]["host"] for part in ("koordlet", "manager")} == {""}
