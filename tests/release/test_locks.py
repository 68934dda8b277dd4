"""What release/locks names is what pyproject.toml asks for (`make lock` after each change of a dependency), and what
packages and images are made of is that, byte for byte.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path

import grimp
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from release import wheels
from release.wheels import lock_files

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PINNED = re.compile(r"(?P<name>[a-z0-9-]+)==(?P<version>\S+)(?P<hashes>( \\\n    --hash=sha256:[0-9a-f]{64})+)\n")
EXTRAS = ("node", "cluster", "scheduler")
PACKAGES = ("koord", "runtimeproxy", "qosd", "koordctl", "koord_manager", "koord_scheduler")


def pins(extra: str) -> dict[str, str]:
    """Version by name; fails for a line that is neither a version nor a hash of its files."""
    (lock,) = lock_files(extra)
    text = lock.read_text(encoding="utf-8")
    assert PINNED.sub("", text).strip() == ""
    return {found["name"]: found["version"] for found in PINNED.finditer(text)}


@pytest.mark.parametrize("extra", EXTRAS)
def test_each_dependency_is_locked(extra: str) -> None:
    asked = [Requirement(text) for text in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]]]
    pinned = pins(extra)
    wrong = [str(each) for each in asked if not each.specifier.contains(pinned.get(canonicalize_name(each.name), "0"))]
    assert wrong == []


@pytest.mark.parametrize(
    ("programs", "extra"),
    [
        (("runtimeproxy", "qosd", "koordctl"), "node,cluster"),
        (("koord_manager",), "cluster"),
        (("koord_scheduler",), "scheduler"),
    ],
)
def test_what_a_program_imports_is_locked(programs: tuple[str, ...], extra: str) -> None:
    """In functions, too, and by whatever of ours that it imports."""
    needed = {name for program in programs for name in imported(program)}
    files = importlib.metadata.packages_distributions()
    distributions = {canonicalize_name(each) for name in needed for each in files.get(name, ["nowhere"])}
    assert distributions - {"koord"} - {name for each in extra.split(",") for name in pins(each)} == set()


@cache
def imports() -> grimp.ImportGraph:
    names = [each for each in PACKAGES if each != "koord"]
    return grimp.build_graph(
        "koord", *names, include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )


def imported(program: str) -> set[str]:
    """Returns the packages of others that the program imports. Of ``koord.pb`` each module counts by itself."""
    graph = imports()
    found = graph.find_upstream_modules(program, as_package=True)
    return {name for name in found if "." not in name and name not in {*PACKAGES, *sys.stdlib_module_names}}


def test_the_locks_agree() -> None:
    """What several of them have is of one version."""
    versions = defaultdict[str, set[str]](set)
    for extra in EXTRAS:
        for name, version in pins(extra).items():
            versions[name].add(version)
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


def test_wheels_are_fetched_by_the_hashes_of_the_locks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(wheels, "run", lambda argv: commands.append([*map(str, argv)]))
    wheels.fetch_others(("3.11", "3.12"), tmp_path, "node,cluster")
    locks = list(map(str, lock_files("node,cluster")))
    assert [[each for each in command if each.endswith(".txt")] for command in commands] == [locks, locks]
    assert [command for command in commands if not {"--require-hashes", "--no-deps"} <= {*command}] == []


def test_an_image_is_built_by_the_hashes_of_the_locks() -> None:
    """Everything but our own wheel, of which nobody else has one."""
    text = (ROOT / "release" / "images" / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    (locked,) = re.findall(r'locked="([^"]*)"', text)
    installs = [each.replace("$locked", locked).split() for each in text.split("&&") if "pip install" in each]
    of_others = [command for command in installs if '"$wheel"' not in command]
    assert {each for command in of_others for each in command if each.endswith(".txt")} == {
        f"/wheels/{lock.name}" for lock in lock_files(",".join(EXTRAS))
    }
    assert [command for command in installs if "--no-deps" not in command] == []
    assert [command for command in of_others if "--require-hashes" not in command] == []
