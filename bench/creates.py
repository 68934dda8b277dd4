"""How much longer a pod with one container takes to create through the proxy, hooks included.

Pairs are made next to each other and alternate in order; only RunPodSandbox and CreateContainer are timed. Pods carry
a QoS label, so that the hook server is asked and the requests are edited.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from integration.harness import cgroups
from integration.harness.cri import Cri
from integration.harness.pods import Container, Pod

LABELS = {"koordinator.sh/qosClass": "LS"}


@dataclass(slots=True)
class Creates:
    """Milliseconds per creation; equal indices were measured next to each other."""

    direct_ms: list[float] = field(default_factory=list)
    proxied_ms: list[float] = field(default_factory=list)


def measure(direct: Path, proxied: Path, pairs: int, cgroup_root: str) -> Creates:
    """Create ``pairs`` pods on each socket; the runtime behind both is the same."""
    found = Creates()
    with Cri(direct) as plain, Cri(proxied) as relayed:
        for client in (plain, relayed):
            _create(client, "warm-up", cgroup_root)
        for number in range(pairs):
            sides = [(plain, found.direct_ms), (relayed, found.proxied_ms)]
            for client, times in sides if number % 2 else reversed(sides):
                times.append(_create(client, f"pod-{number}", cgroup_root))
    return found


def _create(client: Cri, name: str, cgroup_root: str) -> float:
    container = Container("main", cpu_limit_milli=500, memory_limit_bytes=64 << 20)
    pod = Pod(name, (container,), labels=LABELS, cgroup_root=cgroup_root)
    cgroups.make_pod(pod)
    started = time.perf_counter()
    sandbox_id = client.run_pod(pod)
    client.create_container(sandbox_id, pod, container)
    took_ms = (time.perf_counter() - started) * 1e3
    client.remove(sandbox_id)
    cgroups.remove(pod.cgroup_parent)
    return took_ms
