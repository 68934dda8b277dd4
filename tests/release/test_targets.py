"""The targets of the Makefile that write to ``dist/``, below a path that needs quoting."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.docpages import ROOT

PYTHON = """#!/bin/sh
# Builds a wheel where that is asked for, and otherwise writes down what it was asked.
if [ "$2" = build ]; then mkdir -p dist && touch dist/koord-2-py3-none-any.whl; else echo "$@" >>asked; fi
"""
KEPT = ("dist/images/koordlet.tar", "dist/koord_1_amd64.deb", "dist/koord-1-linux-x86_64.tar.gz")
OLD, NEW = "dist/koord-1-py3-none-any.whl", "dist/koord-2-py3-none-any.whl"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The Makefile with an environment that is ready, whose Python only notes what it would do."""
    root = tmp_path / "with spaçe" / "koord"
    for name in ("pyproject.toml", "hatch_build.py", *KEPT, OLD, ".venv/bin/python", ".venv/.ready"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    (root / ".venv/bin/python").write_text(PYTHON)
    (root / ".venv/bin/python").chmod(0o755)
    shutil.copy(ROOT / "Makefile", root)
    return root


@pytest.mark.parametrize(
    ("target", "asked"),
    [
        ("wheel", None),
        ("deb", f"-m release.deb {NEW} --output dist"),
        ("bundle", f"-m release.bundle {NEW} --output dist"),
        ("images", f"-m release.images {NEW} --output dist/images"),
    ],
)
def test_a_target_replaces_the_wheel_and_nothing_that_another_has_made(
    checkout: Path, target: str, asked: str | None
) -> None:
    done = subprocess.run(["make", target], cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = checkout / "asked"
    assert (said.read_text().strip() if said.exists() else None) == asked
    left = {str(path.relative_to(checkout)) for path in (checkout / "dist").rglob("*") if path.is_file()}
    assert left == {*KEPT, NEW}
