"""Fixtures: one containerd of each release for the whole session, a CRI client, and a cgroup for a test's pods.

There is one session at a time on a machine, besides those in guests.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration import build
from integration.harness import cgroups, containerd, machine
from integration.harness.containerd import Containerd
from integration.harness.cri import Cri

_GUESTS = Path(__file__).parent / "guest"
_FIGURES = pytest.StashKey[list[str]]()
_SESSION = pytest.StashKey[contextlib.ExitStack]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--stay", type=float, default=5.0, help="seconds that the kubelet test keeps its last pods; 70 covers its GC"
    )
    parser.addoption("--lives", type=int, default=4, help="how often the kubelet test's pods come and go, on each side")
    parser.addoption("--rounds", type=int, default=12, help="how often the lossless test calls each method of CRI")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_FIGURES] = []
    config.stash[_SESSION] = contextlib.ExitStack()


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _is_in_guests(config: pytest.Config) -> bool:
    return all(Path(argument.partition("::")[0]).resolve().is_relative_to(_GUESTS) for argument in config.args)


def pytest_sessionstart(session: pytest.Session) -> None:
    if not _is_worker(session.config) and not _is_in_guests(session.config) and os.geteuid() == 0:
        session.config.stash[_SESSION].enter_context(machine.sole_session())


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """One of several workers hands its figures over."""
    config = session.config
    if _is_worker(config):
        config.workeroutput["figures"] = config.stash[_FIGURES]  # type: ignore[attr-defined]
    config.stash[_SESSION].close()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes them; a worker that crashed has none."""
    node.config.stash[_FIGURES].extend(getattr(node, "workeroutput", {}).get("figures", ()))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Figures are the last lines of all."""
    if not _is_worker(config):
        for line in config.stash[_FIGURES]:
            print(line)


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Takes a line that says what the test measured."""
    return request.config.stash[_FIGURES].append


@pytest.fixture(scope="session", autouse=True)
def real_machine() -> None:
    """Integration tests fail, rather than skip, where the real parts are missing: a skip would look like a pass."""
    if reasons := machine.missing():
        pytest.fail(f"integration tests cannot run here: {'; '.join(reasons)}", pytrace=False)


@pytest.fixture(scope="session")
def containerd1(real_machine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containerd]:
    """The machine's own containerd 1.6, run privately."""
    with containerd.private(containerd.installed(), tmp_path_factory.mktemp("containerd1")) as running:
        yield running


@pytest.fixture(scope="session")
def containerd2(real_machine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containerd]:
    """containerd 2.x, built from its pinned Go module."""
    release = containerd.built(build.build("containerd2"))
    with containerd.private(release, tmp_path_factory.mktemp("containerd2")) as running:
        yield running


@pytest.fixture(scope="session", params=["containerd1", "containerd2"])
def any_containerd(request: pytest.FixtureRequest) -> Containerd:
    """Each release in turn."""
    running: Containerd = request.getfixturevalue(request.param)
    return running


@pytest.fixture
def cri(any_containerd: Containerd) -> Iterator[Cri]:
    """A client directly on containerd."""
    with Cri(any_containerd.socket) as client:
        yield client


@pytest.fixture
def cgroup_root(tmp_path: Path) -> Iterator[str]:
    """A /kubepods of this test's own: kubelet's cgroup for pods, below another root."""
    with cgroups.root(f"/koordtest-{os.getpid()}-{tmp_path.name}") as path:
        yield f"{path}/kubepods"
