"""Short ways to say pods with samples, evictions under way, shortages, and the tick at which they meet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from msgspec import structs

from koord.model.qos import QoSClass
from qosd.decide.relief import relieve
from qosd.decide.reliefstate import Relief, ReliefState
from qosd.decide.shortage import Measure, OrderKey, ReliefStep, Resource, Shortage, ShortageClaim, Victims
from qosd.model.metric import Scope
from qosd.model.snapshot import EvictionPhase, EvictionState, NodeSnapshot, PodFacts, PodView
from qosd.sense.node import NodeRow
from qosd.sense.usage import USAGE
from tests.fakes.clock import S
from tests.qosd.contexts import V2, policy
from tests.qosd.podviews import RUNNING, machine, snapshot, view

CPU, MEMORY = Resource.CPU_MILLI, Resource.MEMORY_BYTES
MIB = 1 << 20
FILES_V2 = frozenset({"memory.reclaim", "memory.high", "cgroup.freeze"})
FILES_V1 = frozenset({"memory.force_empty", "cgroup.freeze"})
RULES = policy(V2)
TOPOLOGY = machine()
WHO, GATE = "memoryEvict", "MemoryEvict"
BE = Victims(frozenset({QoSClass.BE}), GATE)
BY_AMOUNT = (OrderKey.PRIORITY, OrderKey.AMOUNT)
POLICY_KEY, PRIORITY_KEY = "koordinator.sh/eviction-policy", "koordinator.sh/eviction-priority"
ENABLED_LABEL, SUB_LABEL = "koordinator.sh/eviction-enabled", "koordinator.sh/priority"


def be(
    name: str,
    *,
    qos: str = "BE",
    priority: int | None = 5500,
    is_going: bool = False,
    containers: tuple[tuple[str, str], ...] = (("main", RUNNING),),
    cpu_request_milli: int | None = None,
    state: str = "SANDBOX_READY",
    annotations: Mapping[str, Any] = MappingProxyType({}),
    **said: Any,
) -> PodView:
    """A best-effort pod as kubelet tells it."""
    made = view(name, qos, "BestEffort", containers=containers, state=state, **said, **annotations)
    facts = PodFacts(deletion_unix_s=1.0) if is_going else made.facts
    return structs.replace(made, priority=priority, phase="Running", facts=facts, cpu_request_milli=cpu_request_milli)


def node(
    at_s: float,
    pods: Iterable[PodView],
    memory: Mapping[str, float] = MappingProxyType({}),
    cpu: Mapping[str, float] = MappingProxyType({}),
    containers: Mapping[str, float] = MappingProxyType({}),
    *,
    cache: Mapping[str, float] = MappingProxyType({}),
    cpu_seconds: Mapping[str, float] = MappingProxyType({}),
    swap_free: float = 1 << 50,
    sampled_s: float | None = None,
    evictions: Iterable[EvictionState] = (),
    files: frozenset[str] = FILES_V2,
    version: int = 2,
    is_known: bool = True,
) -> NodeSnapshot:
    """The node at ``at_s``: memory in bytes and CPU in thousandths by pod name, of containers by ``pod/container``.

    ``cache``: bytes that the kernel can take back at once, by pod name. There is swap for all if nobody says otherwise.
    """
    pods = tuple(pods)
    cgroup = {pod.name: pod.cgroup for pod in pods}
    its_rules = replace(RULES, host=replace(RULES.host, files=files, cgroup_version=version))
    values = {
        NodeRow.swap_free_bytes: {"": swap_free},
        USAGE[Scope.POD].memory_reclaimable_bytes: {
            cgroup[name]: value for name, value in cache.items() if name in cgroup
        },
        USAGE[Scope.POD].cpu_seconds: {cgroup[name]: value for name, value in cpu_seconds.items() if name in cgroup},
        USAGE[Scope.POD].memory_usage_bytes: {cgroup[name]: value for name, value in memory.items() if name in cgroup},
        USAGE[Scope.POD].cpu_usage_cores: {cgroup[name]: value / 1000 for name, value in cpu.items() if name in cgroup},
        USAGE[Scope.CONTAINER].cpu_usage_cores: {
            f"{cgroup[name]}/{inner}": value / 1000
            for name, _, inner, value in ((*key.partition("/"), value) for key, value in containers.items())
            if name in cgroup
        },
    }
    return structs.replace(
        snapshot(its_rules, *pods, topology=TOPOLOGY),
        monotonic_ns=int(at_s * S),
        sampled_ns=int((at_s if sampled_s is None else sampled_s) * S),
        values=values,
        evictions={each.uid: each for each in evictions},
        ages_s={"pods": 0.0, "kubelet": 0.0} if is_known else {},
    )


def under_way(name: str, phase: EvictionPhase, since_s: float = 0, retry_s: float = 0) -> EvictionState:
    return EvictionState(name, f"default/{name}", phase, 1, int(since_s * S), int(retry_s * S))


def lacks(
    amount: int,
    resource: Resource = MEMORY,
    *steps: ReliefStep,
    strategy: str = WHO,
    victims: Victims = BE,
    order: tuple[OrderKey, ...] = BY_AMOUNT,
    measure: Measure = Measure.USAGE,
    **more: Any,
) -> ShortageClaim:
    """``strategy`` lacks ``amount``; without ``steps`` all may be taken."""
    allowed = frozenset(steps or ReliefStep)
    said = Shortage(resource, amount, victims, order, "too much", measure, allowed, {"limit": 70}, **more)
    return ShortageClaim(strategy, said)


class Run:
    """Ticks one after another, each with what the last one left; the daemon has run for a while."""

    def __init__(self) -> None:
        self.state = ReliefState(started_ns=-3600 * S)

    def tick(self, at: NodeSnapshot, *claims: ShortageClaim) -> Relief:
        relief, self.state = relieve(claims, at, self.state)
        return relief


def evicted(relief: Relief) -> list[str]:
    return [eviction.uid for eviction in relief.evictions]


def orders(relief: Relief) -> list[tuple[str, str, int | str]]:
    """Pod, file and value of each one-shot."""
    return [(shot.pod.removeprefix("default/"), shot.target.name, shot.value) for shot in relief.one_shots]


def bounds(relief: Relief) -> dict[tuple[str, str], object]:
    """Values by cgroup below the tier and file."""
    return {
        (target.cgroup.removeprefix("/kubepods/besteffort/pod"), target.name): opinion.value
        for target, opinion in relief.opinions.items()
    }
