"""Fixtures: a bare and a whole control plane for the session, and a real node; seconds each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from integration.cluster import controlplane
from integration.cluster.api import Api
from integration.cluster.controlplane import WHOLE, ControlPlane
from integration.cluster.node import Node, real_node

NODE_FILES = (
    *("test_quickstart.py", "test_cluster.py", "test_qosd.py", "test_eviction.py", "test_kubelet_reads.py"),
    *("test_node.py", "test_kubelet_restart.py"),
)
"""The tests with a real node; a machine has room for one."""


class _NodeScheduling(LoadScopeScheduling):  # type: ignore[misc] # of any base, since xdist has no types
    """One worker has the nodes, another each file of the rest in turn."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "node" if Path(file).name in NODE_FILES else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return _NodeScheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Runs the guides first, which wait for minutes of reports, and tests that are marked ``soak`` only with SOAK=1."""
    left = [] if os.environ.get("SOAK") else [item for item in items if item.get_closest_marker("soak")]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]
    items.sort(key=lambda item: NODE_FILES.index(item.path.name) if item.path.name in NODE_FILES else len(NODE_FILES))


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver alone: nothing changes objects but the test."""
    with controlplane.private(tmp_path_factory.mktemp("bare") / "plane") as plane:
        yield plane


@pytest.fixture(scope="session")
def whole_control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """With kube-controller-manager and kube-scheduler."""
    with controlplane.private(tmp_path_factory.mktemp("whole") / "plane", WHOLE) as plane:
        yield plane


@pytest.fixture(scope="module")
def node(whole_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A real node of the whole control plane; one module's, since a machine has room for one."""
    with real_node(whole_control_plane, "node-1", tmp_path_factory.mktemp("node")) as joined:
        yield joined


@pytest.fixture
def api(control_plane: ControlPlane) -> Iterator[Api]:
    """The bare control plane's API, as its administrator."""
    with control_plane.api() as client:
        yield client


@pytest.fixture
def whole_api(whole_control_plane: ControlPlane) -> Iterator[Api]:
    """The whole control plane's API, as its administrator."""
    with whole_control_plane.api() as client:
        yield client


@pytest.fixture
def start_figure(figure: Callable[[str], None]) -> Callable[[ControlPlane], None]:
    """Takes a control plane and notes how long each of its servers took to start."""

    def note(plane: ControlPlane) -> None:
        figure("started: " + ", ".join(f"{part.name} {part.start_s:.1f} s" for part in plane.parts))

    return note
