"""The container images: they run in a root of their own, and the same checkout gives the same ids."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hatch_build import version
from integration import build
from release.images import making
from release.images.making import Made

VERSION = version(making.ROOT)
IMPORTS = {
    "koord-manager": "koord_manager.manager, koord_manager.uninstall",
    "koord-scheduler": "koord_scheduler.component, koord_scheduler.configuration",
    "koordlet": "qosd.daemon, qosd.cluster.session, koordctl.__main__",
}
CACHE = build.cache_directory(os.environ) / "images"
PROGRAMS = {
    "koord-manager": ("koord-manager",),
    "koord-scheduler": ("koord-scheduler",),
    "koordlet": ("koord-qosd", "koordctl"),
}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Made]]:
    directory = tmp_path_factory.mktemp("images")
    made = making.build(directory, cache=CACHE)
    yield {each.archive.stem: each for each in made}
    for each in made:
        each.archive.unlink()


def unpacked(made: Made, root: Path) -> Path:
    root.mkdir()
    with tarfile.open(made.archive) as packed, packed.extractfile("layer.tar") as layer:  # type: ignore[union-attr]
        subprocess.run(["tar", "-xp", "-C", root], input=layer.read(), check=True)
    return root


def run_in(root: Path, *argv: str) -> str:
    """Output of a program that sees nothing but ``root``."""
    argv = (shutil.which("chroot") or "chroot", str(root), *argv)
    done = subprocess.run(argv, check=False, capture_output=True, text=True, env={"PATH": "/usr/bin"})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", IMPORTS)
def test_an_image_runs_by_itself(images: dict[str, Made], name: str, tmp_path: Path) -> None:
    root = unpacked(images[name], tmp_path / "root")
    for program in PROGRAMS[name]:
        assert run_in(root, program, "--version") == f"{program} {VERSION}\n"
    packages = f"/usr/lib/koord/{VERSION}/site-packages"
    page = f"import sys; sys.path.append({packages!r}); import {IMPORTS[name]}, ssl, sqlite3, ctypes; print('imported')"
    assert run_in(root, "python3.11", "-IBSc", page) == "imported\n"


def test_the_same_checkout_gives_the_same_ids(images: dict[str, Made], tmp_path: Path) -> None:
    again = making.build(tmp_path, cache=CACHE)
    assert {each.archive.stem: each.digest for each in again} == {name: made.digest for name, made in images.items()}
