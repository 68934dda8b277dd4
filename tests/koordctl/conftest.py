"""The recorded nodes and the cluster that several tests look at, and whether anything of the nodes changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tests.koordctl.clusters import Cluster
from tests.nodes.build import lay_out
from tests.nodes.cells import CELLS

SOURCES = Path(__file__).parents[2] / "systemd"
UNITS = {f"/usr/lib/systemd/system/{file.name}": file.read_text() for file in SOURCES.iterdir()}

Trees = Callable[[str], Path]


@pytest.fixture(scope="session")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Trees:
    """Cell → its tree with the package's units, written once: nobody may change it."""
    base = tmp_path_factory.mktemp("cells")

    @cache
    def tree(name: str) -> Path:
        node = CELLS[name].node
        return lay_out(base / name.replace("/", "-"), replace(node, extra={**UNITS, **node.extra}))

    return tree


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster()


def everything(root: Path) -> dict[str, tuple[int, ...]]:
    """What any change below ``root`` would change."""
    paths = (os.path.join(here, name) for here, inner, names in os.walk(root) for name in (*inner, *names))
    found = {path: os.lstat(path) for path in paths}
    return {path: (stat.st_ino, stat.st_mode, stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}
