"""Nodes to install on, with one runtime behind all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.koordctl.install.world import RUNTIME_SOCKET, Runtime, World


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    with Runtime(tmp_path / "r") as serving:
        yield serving


@pytest.fixture
def new_world(tmp_path: Path, runtime: Runtime) -> Callable[[], World]:
    """Makes nodes; the runtime's cgroups are those of the newest."""
    numbers = iter(range(100_000))

    def make() -> World:
        world = World(tmp_path / f"{next(numbers)}")
        (world.root / RUNTIME_SOCKET.lstrip("/")).symlink_to(runtime.socket)
        runtime.root = world.root
        return world

    return make


@pytest.fixture
def world(new_world: Callable[[], World]) -> World:
    return new_world()
