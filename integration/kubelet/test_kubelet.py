"""kubelet runs the same static pods directly on containerd and through the proxy, one generation after the other.

Through the proxy the pods are Ready, exec and logs work, and the kernel has the edited limits. Each generation is a
life: which kinds of error lines kubelet's log gained in it. No kind may show in more lives through the proxy than
chance explains, over both releases of containerd; the table of all kinds is printed.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from integration import build
from integration.harness import cgroups, containerd, klog, rates
from integration.harness.containerd import Containerd, Release
from integration.harness.cri import Cri
from integration.harness.kubelet import Kubelet, standalone
from integration.harness.kubelet_api import KubeletApi
from integration.harness.proxy import proxy
from integration.kubelet.staticpods import PODS, Limits, StaticPod

RELEASES: dict[str, Callable[[], Release]] = {
    "containerd-1.6": containerd.installed,
    "containerd-2.x": lambda: containerd.built(build.build("containerd2")),
}
NO_LIMIT_BYTES = 1 << 62


@dataclass(slots=True)
class Side:
    """``lives``: kinds of error lines with their counts; ``limits``: of each life's pods, by name."""

    lives: list[Counter[str]] = field(default_factory=list)
    limits: list[dict[str, Limits]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Pair:
    direct: Side
    proxied: Side


@pytest.fixture(scope="module")
def pairs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    """Both sides of each release, each with its own containerd: kubelet removes pods that it does not know."""
    lives, stay_s = request.config.getoption("--lives"), request.config.getoption("--stay")
    found = {}
    for name, release in RELEASES.items():
        directory = tmp_path_factory.mktemp("kubelet")
        with containerd.private(release(), directory / "c") as running:
            through = proxy(running.socket, directory / "proxy", hooks=True)
            direct = live(running, directory / "direct", nullcontext(running.socket), lives, stay_s)
            found[name] = Pair(direct, live(running, directory / "proxied", through, lives, stay_s))
    return found


@pytest.mark.parametrize("release", RELEASES)
def test_limits_in_every_life(pairs: dict[str, Pair], release: str) -> None:
    pair = pairs[release]
    assert all(limits == {pod.name: pod.direct for pod in PODS} for limits in pair.direct.limits), pair.direct.limits
    assert all(limits == {pod.name: pod.edited for pod in PODS} for limits in pair.proxied.limits), pair.proxied.limits


def test_no_kind_of_error_line_shows_more_often_through_the_proxy(
    pairs: dict[str, Pair], figure: Callable[[str], None]
) -> None:
    direct = [set(life) for pair in pairs.values() for life in pair.direct.lives]
    proxied = [set(life) for pair in pairs.values() for life in pair.proxied.lives]
    compared = rates.compare(direct, proxied)
    print(f"\nkinds of error lines in kubelet's log, in how many of {len(direct)} lives directly and through the proxy")
    for each in compared:
        print(f"  {each.direct:3} {each.proxied:3}  p={each.p:<8.2g} {each.kind}")
    chances = ", ".join(
        f"{rate:.0%} {rates.power(rate, len(proxied), len(compared)):.0%}" for rate in (0.5, 0.75, 0.9, 1)
    )
    figure(
        f"kubelet's error lines: {len(compared)} kinds in {len(direct)} lives a side, least p "
        f"{min((each.p for each in compared), default=1):.2g}; any false alarm at most {rates.FALSE_ALARM:.0%}, a line "
        f"of the proxy's own in this share of lives is found with: {chances}"
    )
    assert [each for each in compared if each.alarm] == []


def live(
    backend: Containerd, directory: Path, runtime: AbstractContextManager[Path], lives: int, stay_s: float
) -> Side:
    """So many generations of the pods on the CRI socket ``runtime``; the last stays for ``stay_s`` longer."""
    cgroup_root = f"/koordtest-{os.getpid()}-{directory.name}"
    program, side, seen = build.build("kubelet") / "kubelet", Side(), 0
    with ExitStack() as stack:
        stack.enter_context(cgroups.root(cgroup_root))
        stack.callback(backend.remove_pods)
        cri = stack.enter_context(Cri(backend.socket))
        socket = stack.enter_context(runtime)
        kubelet = stack.enter_context(standalone(program, socket, directory, cgroup_root, {}))
        for number in range(lives):
            side.limits.append(_one_life(kubelet, cri, number, stay_s if number + 1 == lives else 0.0))
            side.lives.append(klog.error_kinds(kubelet.log, seen))
            seen = kubelet.log.stat().st_size
    side.lives[-1] += klog.error_kinds(kubelet.log, seen)  # kubelet's own end
    return side


def _one_life(kubelet: Kubelet, cri: Cri, number: int, stay_s: float) -> dict[str, Limits]:
    """A generation has names of its own: kubelet holds back a static pod that was there before."""
    pods = {pod.name: replace(pod, name=f"{pod.name}{number}") for pod in PODS}
    names = {pod.name for pod in pods.values()}
    kubelet.add_pods({pod.name: pod.manifest() for pod in pods.values()})
    kubelet.wait_ready(names)
    for pod in pods.values():
        check_exec_and_log(kubelet.api, pod)
    time.sleep(stay_s)
    kubelet.wait_ready(names)
    limits = {name: read_limits(cri, pod) for name, pod in pods.items()}
    kubelet.remove_pods(cri)
    return limits


def check_exec_and_log(api: KubeletApi, pod: StaticPod) -> None:
    name = f"{pod.name}-node"
    assert api.exec("default", name, "main", "sh", "-c", "echo in $((6 * 7))") == ("in 42\n", "Success")
    assert api.exec("default", name, "main", "false")[1] == "Failure"
    assert api.log("default", name, "main") == "started\n"


def read_limits(cri: Cri, pod: StaticPod) -> Limits:
    """The container's values in the kernel, found by asking containerd itself."""
    labels = {"io.kubernetes.pod.name": f"{pod.name}-node", "io.kubernetes.container.name": "main"}
    (container,) = cri.containers(labels)
    values = cgroups.read(cgroups.of_container(container.id))
    memory = values.memory_limit_bytes if values.memory_limit_bytes < NO_LIMIT_BYTES else None
    cpus = values.cpuset_cpus if values.cpuset_cpus != cgroups.all_cpus() else None
    return Limits(values.cpu_shares, values.cfs_quota_us, memory, cpus)
