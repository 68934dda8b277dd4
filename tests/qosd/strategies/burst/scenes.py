"""Short ways to say pods with CPU limits, a node on which some are throttled, and rounds of the strategy on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from koord.host.files import Target, Value
from koord.host.reconcile.state import FileState, Phase
from qosd.decide.decision import Decision, Op, Opinion
from qosd.model.metric import Scope
from qosd.model.pod import Resources
from qosd.model.policy import EffectivePolicy, HostFacts
from qosd.model.snapshot import Aggregate, NodeSnapshot, PodView
from qosd.sense.usage import USAGE
from qosd.strategies.burst.sharepool import NODE_USAGE, POD_USAGE
from qosd.strategies.burst.strategy import BurstStrategy
from tests.fakes.clock import S
from tests.qosd.contexts import policy
from tests.qosd.podviews import RUNNING, machine, snapshot, view

BURST_KEY = "koordinator.sh/cpuBurst"
HOST = HostFacts(cgroup_version=2, files=frozenset({"cpu.max.burst"}))
TOPOLOGY = machine(32)
THROTTLED, USED = USAGE[Scope.CONTAINER].cpu_throttled_ratio, USAGE[Scope.CONTAINER].cpu_usage_cores


def bursting(
    how: str = "auto", host: HostFacts = HOST, node: Mapping[str, Any] | None = None, **more: Any
) -> EffectivePolicy:
    """A policy that bursts so; ``more`` of NodeSLO's ``cpuBurstStrategy``."""
    return policy(host, {"cpuBurstStrategy": {"policy": how, **more}}, **(node or {}))


def limited(name: str = "web", qos: str = "LS", quota_us: int = 100_000, *containers: str, **said: Any) -> PodView:
    """A pod whose containers have a quota each; ``burst``: its annotation."""
    if (burst := said.pop("burst", None)) is not None:
        said[BURST_KEY] = burst
    made = [(each, RUNNING) for each in containers or ("main",)]
    period_us = said.pop("period_us", 100_000)
    requested = Resources(cpu_period_us=period_us, cpu_quota_us=quota_us)
    return view(name, qos, said.pop("tier", "Burstable"), containers=made, container_requested=requested, **said)


def quota(pod: PodView, container: str = "main") -> Target:
    """The container's; of the pod itself with ""."""
    return Target(f"{pod.cgroup}/{container}" if container else pod.cgroup, "cpu_quota")


def buffer(pod: PodView, container: str = "main") -> Target:
    return Target(quota(pod, container).cgroup, "cpu.max.burst")


def mean(value: float) -> Aggregate:
    return Aggregate(5, value, value, 0.0)


@dataclass
class Node:
    """32 CPUs. ``throttled`` and ``used`` (cores) are by the containers' name in every pod, ``pods_used`` by pod.

    None: nobody measured.
    """

    pods: tuple[PodView, ...]
    policy: EffectivePolicy = field(default_factory=bursting)
    node_used: float | None = 1.0
    pods_used: Mapping[str, float] = field(default_factory=dict)
    throttled: Mapping[str, float] = field(default_factory=dict)
    used: Mapping[str, float] = field(default_factory=dict)
    files: Mapping[Target, FileState] = field(default_factory=dict)
    now_ns: int = 1000 * S

    def snapshot(self) -> NodeSnapshot:
        containers = [each for pod in self.pods for each in pod.containers]
        of_pods = {pod.name: pod.cgroup for pod in self.pods}
        windows = {POD_USAGE: {of_pods[name]: mean(cores) for name, cores in self.pods_used.items()}}
        if self.node_used is not None:
            windows[NODE_USAGE] = {"": mean(self.node_used)}
        values = {
            metric: {each.cgroup: said[each.name] for each in containers if each.name in said}
            for metric, said in ((THROTTLED, self.throttled), (USED, self.used))
        }
        made = structs.replace(snapshot(self.policy, *self.pods, topology=TOPOLOGY), pods=self.pods)
        return structs.replace(
            made, sampled_ns=self.now_ns, monotonic_ns=self.now_ns, windows=windows, values=values, files=self.files
        )


@dataclass
class Rounds:
    """The strategy on a node, a second after the other."""

    node: Node
    memory: Any = None
    decision: Decision = field(default_factory=lambda: Decision(""))

    def next(self, seconds: float = 1.0, **changes: Any) -> Decision:
        """One more round, ``changes`` of the node before it."""
        for name, value in changes.items():
            setattr(self.node, name, value)
        self.node.now_ns += round(seconds * S)
        self.decision, self.memory = BurstStrategy().decide(self.node.snapshot(), self.memory)
        return self.decision

    def quota_us(self, target: Target, base_us: int = 100_000) -> int:
        """What the opinion makes of a quota of ``base_us``."""
        return int(made_of(self.decision.opinions.get(target), base_us))


def made_of(opinion: Opinion | None, base_us: int) -> int:
    if opinion is None:
        return base_us
    assert isinstance(opinion.value, int) and opinion.op in (Op.AT_LEAST, Op.ADD)
    return max(base_us, opinion.value) if opinion.op is Op.AT_LEAST else base_us + opinion.value


def held(base: Value, written: Value, *, adopted: bool = False, phase: Phase = Phase.HELD) -> FileState:
    return FileState(phase, base=base, written=written, adopted=adopted)
