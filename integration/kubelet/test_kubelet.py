"""kubelet runs the same static pods directly on containerd and then through the proxy.

Through the proxy the pods are Ready, exec and logs work, the kernel has the edited limits, and kubelet's log has no
kind of error line that the direct run lacks. Both sets are printed.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration import build
from integration.harness import cgroups, containerd, klog
from integration.harness.containerd import Containerd, Release
from integration.harness.cri import Cri
from integration.harness.kubelet import standalone
from integration.harness.kubelet_api import KubeletApi
from integration.harness.proxy import proxy
from integration.kubelet.staticpods import PODS, Limits, StaticPod

RELEASES: dict[str, Callable[[], Release]] = {
    "containerd-1.6": containerd.installed,
    "containerd-2.x": lambda: containerd.built(build.build("containerd2")),
}
NO_LIMIT_BYTES = 1 << 62
ATTEMPTS = 6  # one race seen through the proxy in every third life or so; six in a row are no chance


@pytest.fixture(scope="module", params=RELEASES)
def own_containerd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containerd]:
    """A containerd that nobody else uses: kubelet removes pods that it does not know."""
    with containerd.private(RELEASES[request.param](), tmp_path_factory.mktemp("kubelet-containerd")) as running:
        yield running


@pytest.fixture
def stay_s(request: pytest.FixtureRequest) -> float:
    """How long the pods run, so that kubelet's periodic work is in the log too."""
    seconds: float = request.config.getoption("--stay")
    return seconds


def test_kubelet_through_the_proxy(own_containerd: Containerd, tmp_path: Path, stay_s: float) -> None:
    """kubelet's own goroutines race when pods are removed, and now and then log it. So a kind of error line counts
    against the proxy if it comes again and again through the proxy, and never without."""
    extra: set[str] | None = None
    for attempt in range(ATTEMPTS):
        direct, proxied = pair(own_containerd, tmp_path / str(attempt), stay_s)
        assert direct.limits == {pod.name: pod.direct for pod in PODS}
        assert proxied.limits == {pod.name: pod.edited for pod in PODS}
        extra = (set(proxied.errors) if extra is None else extra & set(proxied.errors)) - set(direct.errors)
        if not extra:
            return
        print(f"  only through the proxy this time: {sorted(extra)}")
    assert sorted(extra or ()) == []


def pair(own_containerd: Containerd, directory: Path, stay_s: float) -> tuple[Life, Life]:
    """The same pods directly and through the proxy; both are shown."""
    through = proxy(own_containerd.socket, directory / "proxy", hooks=True)
    direct = live(own_containerd, directory / "direct", nullcontext(own_containerd.socket), stay_s)
    proxied = live(own_containerd, directory / "proxied", through, stay_s)
    show(f"{own_containerd.release.name}, direct", direct)
    show(f"{own_containerd.release.name}, through the proxy", proxied)
    return direct, proxied


@dataclass(frozen=True, slots=True)
class Life:
    """What one life of the pods under kubelet showed: limits by pod, and kinds of error lines in kubelet's log."""

    limits: dict[str, Limits]
    errors: Counter[str]


def live(backend: Containerd, directory: Path, runtime: AbstractContextManager[Path], stay_s: float) -> Life:
    """Run the pods on the CRI socket ``runtime`` for ``stay_s`` after they are Ready, then let kubelet stop them."""
    manifests = {pod.name: pod.manifest() for pod in PODS}
    cgroup_root = f"/koordtest-{os.getpid()}-{directory.name}"
    program = build.build("kubelet") / "kubelet"
    with ExitStack() as stack:
        stack.enter_context(cgroups.root(cgroup_root))
        stack.callback(backend.remove_pods)
        cri = stack.enter_context(Cri(backend.socket))
        socket = stack.enter_context(runtime)
        kubelet = stack.enter_context(standalone(program, socket, directory, cgroup_root, manifests))
        kubelet.wait_ready(set(manifests))
        for pod in PODS:
            check_exec_and_log(kubelet.api, pod)
        time.sleep(stay_s)
        kubelet.wait_ready(set(manifests))
        limits = {pod.name: read_limits(cri, pod) for pod in PODS}
        kubelet.remove_pods(cri)
    return Life(limits, klog.error_kinds(kubelet.log))


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


def show(title: str, life: Life) -> None:
    print(f"\n{title}")
    for name, limits in life.limits.items():
        print(f"  {name:4} {limits}")
    print(f"  kinds of error lines in kubelet's log: {len(life.errors)}")
    for kind, count in sorted(life.errors.items()):
        print(f"  {count:4} × {kind}")
