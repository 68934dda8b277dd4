"""How long a pod with one container takes to create on each of several CRI sockets, hooks included.

Every round creates one pod on each socket, in an order drawn by lot; nothing is left out. Only RunPodSandbox and
CreateContainer are timed. Pods carry a QoS label, so that the hook server is asked and the requests are edited.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench import stats
from bench.stats import Estimate
from bench.table import Line, meets
from integration.harness import cgroups
from integration.harness.cri import Cri
from integration.harness.pods import Container, Pod

LABELS = {"koordinator.sh/qosClass": "LS"}
SEED = 1
TARGET_PERCENT = 2.0
RESOLUTION_PERCENT = 1.0


@dataclass(slots=True)
class Times:
    """Milliseconds of the two calls, by creation."""

    sandbox_ms: list[float] = field(default_factory=list)
    container_ms: list[float] = field(default_factory=list)

    @property
    def total_ms(self) -> list[float]:
        return [sum(pair) for pair in zip(self.sandbox_ms, self.container_ms, strict=True)]


def measure(sockets: Mapping[str, Path], rounds: int, cgroup_root: str) -> dict[str, Times]:
    """By the name of the socket; equal indices were measured next to each other."""
    times = {name: Times() for name in sockets}
    chance = random.Random(SEED)
    with ExitStack() as stack:
        clients = {name: stack.enter_context(Cri(socket)) for name, socket in sockets.items()}
        for client in clients.values():
            _create(client, "warm-up", cgroup_root, Times())
        for number in range(rounds):
            for name in chance.sample(sorted(clients), len(clients)):
                _create(clients[name], f"pod-{number}", cgroup_root, times[name])
    return times


def _create(client: Cri, name: str, cgroup_root: str, times: Times) -> None:
    container = Container("main", cpu_limit_milli=500, memory_limit_bytes=64 << 20)
    pod = Pod(name, (container,), labels=LABELS, cgroup_root=cgroup_root)
    cgroups.make_pod(pod)
    started = time.perf_counter()
    sandbox_id = client.run_pod(pod)
    between = time.perf_counter()
    client.create_container(sandbox_id, pod, container)
    ended = time.perf_counter()
    times.sandbox_ms.append((between - started) * 1e3)
    times.container_ms.append((ended - between) * 1e3)
    client.remove(sandbox_id)
    cgroups.remove(pod.cgroup_parent)


def lines(direct: Times, proxied: Times, whose: str = "") -> list[Line]:
    """The whole creation in % of a direct one, then its two calls."""
    added = stats.paired(stats.added_percent, direct.total_ms, proxied.total_ms)
    figure = f"{percent(added)}; direct {statistics.median(direct.total_ms):.1f} ms"
    what, target = f"pod + container with hooks{whose}, {len(direct.total_ms):,} pairs", f"<= {TARGET_PERCENT:g} %"
    total = Line(what, figure, target, meets(added, TARGET_PERCENT, RESOLUTION_PERCENT))
    parts = (
        ("RunPodSandbox", direct.sandbox_ms, proxied.sandbox_ms),
        ("CreateContainer", direct.container_ms, proxied.container_ms),
    )
    return [total, *(_part(f"  of it {name}{whose}", ours, theirs) for name, ours, theirs in parts)]


def compared_line(times: Mapping[str, Times]) -> Line:
    """What a creation costs by "new" and by "old", side by side; the difference in % of a direct one."""
    direct, old, new = (times[name].total_ms for name in ("direct", "old", "new"))

    def difference(direct: Sequence[float], old: Sequence[float], new: Sequence[float]) -> float:
        return 100 * stats.added(old, new) / statistics.median(direct)

    what = "pod + container with hooks, new - old, of direct"
    found = stats.paired(difference, direct, old, new)
    return Line(what, percent(found), "not over 0", found.low <= 0)


def _part(label: str, direct: list[float], proxied: list[float]) -> Line:
    added = stats.paired(stats.added, direct, proxied)
    figure = f"{added.value:+.2f} ms [{added.low:+.2f}, {added.high:+.2f}]; direct {statistics.median(direct):.1f} ms"
    return Line(label, figure)


def percent(estimate: Estimate) -> str:
    return f"{estimate.value:+.1f} % [{estimate.low:+.1f}, {estimate.high:+.1f}]"
