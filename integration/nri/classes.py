"""A pod of each QoS class, and what the kernel shall hold for its container through creation, pinning and resize."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from integration.demo import pods
from integration.harness import cgroups
from integration.harness.cgroups import Values
from integration.harness.cri import Cri
from integration.harness.pods import Container, Pod

MIB = 1 << 20
NO_LIMIT = 9223372036854771712
MAKERS: Mapping[str, Callable[[str], Pod]] = {
    "LSR": pods.latency_sensitive_reserved,
    "LS": pods.latency_sensitive,
    "BE": pods.best_effort,
}
ALL = "all"
EXPECTED = {  # cpuset, quota, shares, memory
    ("LSR", "created"): ("0", -1, 1024, 128 * MIB),
    ("LSR", "re-pinned"): ("0", -1, 1024, 128 * MIB),
    ("LSR", "resized"): ("0", -1, 2048, 256 * MIB),
    ("LS", "created"): ("1", 100_000, 512, 128 * MIB),
    ("LS", "re-pinned"): ("1", 100_000, 512, 128 * MIB),
    ("LS", "resized"): ("1", 200_000, 1024, 256 * MIB),
    ("BE", "created"): (ALL, 50_000, 512, 64 * MIB),
    ("BE", "re-pinned"): (ALL, 50_000, 512, 64 * MIB),
    ("BE", "resized"): (ALL, 50_000, 512, 64 * MIB),
}
RESIZED = {
    "LSR": Container("nginx", cpu_limit_milli=2000, memory_limit_bytes=256 * MIB),
    "LS": Container("nginx", cpu_request_milli=1000, cpu_limit_milli=2000, memory_limit_bytes=256 * MIB),
    "BE": Container("worker"),
}


def start(client: Cri, pod: Pod) -> str:
    """The pod as kubelet starts it; the cgroup of its container."""
    cgroups.make_pod(pod)
    _, ids = client.run(pod)
    return f"{pod.cgroup_parent}/{ids[pod.containers[0].name]}"


def held(values: Values) -> tuple[str, int, int, int]:
    return (values.cpuset_cpus, values.cfs_quota_us, values.cpu_shares, values.memory_limit_bytes)


def wanted(qos: str, step: str = "created") -> tuple[str, int, int, int]:
    cpus, quota_us, shares, memory_bytes = EXPECTED[qos, step]
    return (cgroups.all_cpus() if cpus == ALL else cpus, quota_us, shares, memory_bytes)
