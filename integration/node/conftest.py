"""Fixtures of the node tests: containerd 1.6, kubelet's cgroups of a test's own, and koord-qosd that acts on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from integration.harness import cgroups
from integration.harness.containerd import Containerd
from integration.harness.cri import Cri
from integration.harness.pods import Container, Pod
from integration.node.daemon import Daemon

MakeDaemon = Callable[..., Daemon]


@pytest.fixture
def runtime(containerd1: Containerd) -> Path:
    """The CRI socket of the machine's own containerd, run privately; no pod is left on it by an earlier test."""
    with Cri(containerd1.socket) as client:
        client.remove_all()
    return containerd1.socket


@pytest.fixture
def kubepods(cgroup_root: str) -> str:
    """Kubelet's cgroup with its tiers, empty: ``/koordtest-…/kubepods``."""
    for tier in ("", "/burstable", "/besteffort"):
        cgroups.make(cgroup_root + tier)
    return cgroup_root


@pytest.fixture
def cri(runtime: Path, kubepods: str) -> Iterator[Cri]:
    """A client directly on containerd; its pods are gone before their cgroups are."""
    with Cri(runtime) as client:
        yield client
        client.remove_all()


@pytest.fixture
def anchor(cri: Cri, kubepods: str) -> Pod:
    """A pod that runs throughout, so that koord-qosd knows its place, whatever other trees this machine has."""
    pod = Pod("anchor", (Container("main", command=("sleep", "86400")),), cgroup_root=kubepods)
    cgroups.make_pod(pod)
    cri.run(pod)
    return pod


@pytest.fixture
def make_daemon(runtime: Path, kubepods: str, tmp_path: Path) -> Iterator[MakeDaemon]:
    """``make_daemon(rules=…, flags=…)``: a koord-qosd that is not started yet; stopped at the end if it runs then."""
    made: list[Daemon] = []

    def make(rules: str = "", flags: Sequence[str] = (), socket: Path = runtime, module: str = "qosd") -> Daemon:
        made.append(Daemon(socket, tmp_path / f"qosd{len(made)}", rules, flags, module))
        return made[-1]

    yield make
    for daemon in made:
        daemon.stop()


@pytest.fixture
def daemon(make_daemon: MakeDaemon, anchor: Pod) -> Daemon:
    """A running koord-qosd with the default rules, beside the pod ``anchor``."""
    made = make_daemon()
    made.start()
    return made
