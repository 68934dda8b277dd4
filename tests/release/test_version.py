"""The version of a checkout, and what names it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import pytest
from packaging.version import Version

from hatch_build import newest_release, version
from release import stamp
from tests.support.docpages import ROOT
from tests.test_docs import PAGES

CHANGE_LOG = "# Changes\n\n## [Unreleased]\n\n* This.\n\n## [0.3.0] - 2026-01-02\n\n* That.\n\n## [0.2.0]\n"
_IDENTITY = {f"GIT_{who}_{what}": "nobody@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(root: Path, *arguments: str) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(root), "GIT_CONFIG_NOSYSTEM": "1", **_IDENTITY}
    subprocess.run(["git", *arguments], cwd=root, env=environ, check=True, capture_output=True)


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    root = tmp_path / "koord"
    root.mkdir()
    (root / "CHANGELOG.md").write_text(CHANGE_LOG)
    return root


def committed(root: Path, *tags: str) -> None:
    """One more commit, with ``tags``."""
    if not (root / ".git").exists():
        git(root, "init", "--quiet")
        git(root, "add", ".")
    git(root, "commit", "--quiet", "--allow-empty", "--message", "one more")
    for tag in tags:
        git(root, "tag", "--annotate", "--message", tag, tag)


def test_an_archive_is_of_the_newest_release_in_the_change_log(sources: Path) -> None:
    assert version(sources) == "0.3.0"


@pytest.mark.parametrize(
    ("commits", "expected"),
    [
        pytest.param([()], "0.3.0", id="no tag"),
        pytest.param([("v0.4.0",)], "0.4.0", id="the tag's commit"),
        pytest.param([("v1.0.0rc1",)], "1.0.0rc1", id="a candidate"),
        pytest.param([("v0.4.0", "nightly", "verified")], "0.4.0", id="tags of other things"),
        pytest.param([("v0.4.0",), (), ()], r"0\.4\.0\+2\.g[0-9a-f]{7,}", id="two commits later"),
    ],
)
def test_a_checkout_is_of_its_tag(sources: Path, commits: list[tuple[str, ...]], expected: str) -> None:
    for tags in commits:
        committed(sources, *tags)
    assert re.fullmatch(expected, version(sources))


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        pytest.param({"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}, "0.4.0", id="of another user"),
        pytest.param({"GIT_DIR": "/nonexistent"}, "0.4.0", id="from a hook of another repository"),
        pytest.param({"PATH": "/nonexistent"}, "0.3.0", id="without git"),
    ],
)
def test_a_checkout_under(
    sources: Path, environ: Mapping[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed(sources, "v0.4.0")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert version(sources) == expected


def test_copies_and_worktrees_are_of_the_same_version(sources: Path, tmp_path: Path) -> None:
    committed(sources, "v0.4.0")
    git(sources, "worktree", "add", "--quiet", str(tmp_path / "worktree"))
    shutil.copytree(sources, tmp_path / "copy")
    assert {version(tmp_path / name) for name in ("worktree", "copy")} == {"0.4.0"}


def test_a_repository_around_an_archive_has_no_say(sources: Path) -> None:
    committed(sources.parent, "v9.0.0")
    assert version(sources) == "0.3.0"


def test_a_change_log_without_a_release_is_an_error(sources: Path) -> None:
    (sources / "CHANGELOG.md").write_text("# Changes\n\n## [Unreleased]\n")
    with pytest.raises(ValueError, match=r"CHANGELOG\.md has no heading of a release"):
        version(sources)


def test_a_release_is_named_in_the_change_log_the_chart_and_the_pages(sources: Path) -> None:
    (sources / "docs").mkdir()
    for file in stamp.pages(sources):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("version: 0.3.0\n")
    install = sources / "docs" / "install.md"
    install.write_text("koord_0.3.0_amd64.deb koord-manager:v0.3.0 (10.3.0.1, 0.3.0.1, v0.3.0)\n")
    stamp.stamp(sources, "0.4.0", date(2026, 2, 3))
    assert newest_release(sources) == "0.4.0"
    new = "## [Unreleased]\n\n## [0.4.0] - 2026-02-03\n\n* This.\n\n## [0.3.0] - 2026-01-02\n"
    assert new in (sources / "CHANGELOG.md").read_text()
    assert (sources / "charts/koordinator/Chart.yaml").read_text() == "version: 0.4.0\n"
    assert install.read_text() == "koord_0.4.0_amd64.deb koord-manager:v0.4.0 (10.3.0.1, 0.3.0.1, v0.4.0)\n"


@pytest.mark.parametrize(
    ("text", "to", "refusal"),
    [
        pytest.param(CHANGE_LOG, "0.3.0", "no version after 0.3.0", id="the same"),
        pytest.param(CHANGE_LOG, "0.2.9", "no version after 0.3.0", id="an older one"),
        pytest.param(CHANGE_LOG, "0.3.0rc1", "no version after 0.3.0", id="a candidate of the newest"),
        pytest.param(CHANGE_LOG, "v0.4.0", "no version after 0.3.0", id="a tag"),
        pytest.param(CHANGE_LOG.replace("* This.\n\n", ""), "0.4.0", "nothing under", id="nothing is new"),
    ],
)
def test_a_release_is_refused(sources: Path, text: str, to: str, refusal: str) -> None:
    (sources / "CHANGELOG.md").write_text(text)
    with pytest.raises(ValueError, match=refusal):
        stamp.stamp(sources, to, date(2026, 2, 3))
    assert (sources / "CHANGELOG.md").read_text() == text


def test_pages_name_no_file_of_an_older_release() -> None:
    """Upgrades name a later one."""
    files = re.compile(r"koord[-_](\d[\w.+]*)[-_](?:amd64|py3|linux)|:v(\d[\w.]*)")
    named = {found for name in PAGES for pair in files.findall((ROOT / name).read_text()) for found in pair if found}
    assert min(named, key=Version) == newest_release(ROOT)
