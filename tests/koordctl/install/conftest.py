"""Nodes to install on, with one runtime behind all of them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.koordctl.install.world import RUNTIME_SOCKET, Runtime, World


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose sockets have names that the kernel takes (107 bytes), whoever runs the tests."""
    with tempfile.TemporaryDirectory(prefix="k") as directory:
        yield Path(directory)


@pytest.fixture
def runtime(short: Path) -> Iterator[Runtime]:
    with Runtime(short / "r") as serving:
        yield serving


@pytest.fixture
def new_world(short: Path, runtime: Runtime) -> Callable[[], World]:
    """Makes nodes; the runtime's cgroups are those of the newest."""
    numbers = iter(range(100_000))

    def make() -> World:
        world = World(short / f"{next(numbers)}")
        (world.root / RUNTIME_SOCKET.lstrip("/")).symlink_to(runtime.socket)
        runtime.tree = world.root / "sys/fs/cgroup"
        return world

    return make


@pytest.fixture
def world(new_world: Callable[[], World]) -> World:
    return new_world()
