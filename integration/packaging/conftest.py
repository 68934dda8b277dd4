"""What is built once for all tests of this folder."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration.packaging import made
from integration.packaging.machine import Machine
from release import deb
from release.run import run
from release.tree import PYTHON
from release.wheels import Wheel, fetch

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session", autouse=True)
def debian() -> None:
    wanted = ("dpkg", "dpkg-deb", "busybox", f"/usr/bin/python{PYTHON}")
    if missing := [name for name in wanted if shutil.which(name) is None]:
        pytest.fail(f"packages cannot be tried here: no {', '.join(missing)}", pytrace=False)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    """Koord's own wheel, of the working tree."""
    directory = tmp_path_factory.mktemp("wheel")
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", directory, ROOT])
    return Wheel.of(next(directory.glob("*.whl")))


@pytest.fixture(scope="session")
def wheels(wheel: Wheel, tmp_path_factory: pytest.TempPathFactory) -> list[Wheel]:
    """It and all that it needs."""
    return fetch(wheel.path, [PYTHON], tmp_path_factory.mktemp("wheelhouse"))


@pytest.fixture(scope="session")
def package(wheels: list[Wheel], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return deb.build(wheels, tmp_path_factory.mktemp("package"), xz_level=0)


@pytest.fixture(scope="session")
def tiny_package(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A package of any version with the real maintainer scripts and next to nothing in it."""
    directory = tmp_path_factory.mktemp("tiny")

    def build(version: str) -> Path:
        target = directory / deb.file_name(version)
        return target if target.exists() else deb.build([made.tiny(version, directory)], directory, xz_level=0)

    return build


@pytest.fixture
def machine() -> Iterator[Machine]:
    """In memory, because dpkg waits for the disk after every step."""
    with tempfile.TemporaryDirectory(prefix="koord-machine-", dir="/dev/shm") as directory:
        yield Machine(Path(directory, "root"))
