"""A node of plain files whose kernel takes no quota or burst that a real one refuses, and one daemon after another."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import structs

from koord.host.files import Target, Value
from koord.host.undo import UndoRecord
from koord.host.writer import Writer
from koord.model.podtotal import Role
from koord.model.qos import KubeQoS
from koord.model.quantity import MilliCPU
from koord.model.requirements import ContainerAmounts
from qosd.act.actuator import Actuator
from qosd.act.journal import JournalEntry
from qosd.act.ownership import OWNERS, Ownership
from qosd.act.plan import TickResult
from qosd.decide.decision import Decision, Opinion, Opinions, Stage, Strategy
from qosd.loop import NodeLoop, TickInputs
from qosd.model.metric import Metric, Scope
from qosd.model.pod import SpecContainer
from qosd.model.policy import EffectivePolicy, HostFacts
from qosd.model.snapshot import NodeSnapshot, PodView
from qosd.predict.predictor import Predictor
from qosd.sense.build import Sense
from qosd.sense.node import NodeRow
from qosd.sense.row import NO_SAMPLE
from qosd.sense.sampler import Sampler
from qosd.sense.store import SampleStore
from qosd.sense.system import SystemCollector
from qosd.sense.table import PANELS
from qosd.sense.tick import Batch, Tick
from qosd.sense.usage import USAGE
from qosd.strategies import STRATEGIES
from qosd.tickscheduler import TickReason
from tests.fakes.clock import Clock, S
from tests.fakes.kernelwriter import KernelWriter
from tests.qosd.machine import Machine
from tests.qosd.podviews import machine as cpus
from tests.qosd.strategies.burst.scenes import THROTTLED, USED, bursting, limited

CONTAINERS = ("main", "side")
WEB = limited("web", "LS", 100_000, *CONTAINERS)


def resized(limit_milli: int) -> PodView:
    """The pod, in whose spec its first container has another limit by now."""
    limits = zip(CONTAINERS, (limit_milli, 1000), strict=True)
    spec = [SpecContainer(name, Role.MAIN, ContainerAmounts(name, cpu_limit=MilliCPU(limit))) for name, limit in limits]
    return structs.replace(WEB, spec_containers=tuple(spec))


GROUPS = (WEB.cgroup, *(f"{WEB.cgroup}/{name}" for name in CONTAINERS))
QUOTAS_US = (200_000, 100_000, 100_000)
"""kubelet's, of the groups."""
NAMES = ("cpu_quota", "cpu.max.burst")
GAPS_NS = {TickReason.BEAT: S, TickReason.CHANGE: S // 50, TickReason.URGENT: S // 5}


@dataclass
class Meter:
    """A collector: the node uses ``cores`` of 4, the containers of ``throttled`` are."""

    name: str = "usage"
    period_s: float = 1.0
    cores: float = 0.5
    throttled: Mapping[str, float] = field(default_factory=dict)
    panels = (NodeRow.panel, USAGE[Scope.POD].panel, USAGE[Scope.CONTAINER].panel)

    def collect(self, tick: Tick) -> Batch:
        node, pod, container = self.panels
        said = [(f"{WEB.cgroup}/{name}", ratio) for name, ratio in self.throttled.items()]
        rows = {cgroup: _row(container.metrics, {THROTTLED: ratio, USED: 1.0}) for cgroup, ratio in said}
        used = {NodeRow.cpu_usage_cores: self.cores}
        return [
            (node, {"": _row(node.metrics, used)}),
            (pod, {WEB.cgroup: _row(pod.metrics, {USAGE[Scope.POD].cpu_usage_cores: 0.4})}),
            (container, rows),
        ]

    def close(self) -> None:
        pass


def _row(metrics: Sequence[Metric], values: Mapping[Metric, float]) -> Any:
    return tuple(values.get(metric, NO_SAMPLE) for metric in metrics)


class Bounding(Strategy[Any]):
    """Bounds whatever it is told to."""

    name = "suppress"
    stage = Stage.SUPPRESSION
    rows = frozenset({"cpu_quota"})
    needs: Mapping[str, float] = {}

    def __init__(self) -> None:
        self.opinions: Opinions = {}

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        return True

    def decide(self, snapshot: NodeSnapshot, memory: Any) -> tuple[Decision, Any]:
        return Decision("bounded", self.opinions), None


class Node:
    """``rules``, ``pods``, ``meter`` and ``suppress`` may be changed between two ticks.

    ``is_alone``: the pod has its first container only, and so no more quota than that.
    """

    def __init__(self, root: Path, version: int, policy: str = "auto", is_alone: bool = False, **node: Any) -> None:
        self.root, self.version = root, version
        self.machine = Machine(root, version)
        burst_file = "cpu.cfs_burst_us" if version == 1 else "cpu.max.burst"
        for cgroup in GROUPS:
            self.machine.cgroups.make(cgroup)
            self.machine.cgroups.put(cgroup, {burst_file: "0"})
        self.tree = dataclasses.replace(self.machine.locator().tree, resctrl=root / "resctrl")
        self.host = HostFacts(version, files=frozenset({"cpu.max.burst"}))
        self.policy: EffectivePolicy = bursting(policy, self.host, node)
        self.pods: tuple[PodView, ...] = (structs.replace(WEB, containers=WEB.containers[:2]) if is_alone else WEB,)
        self.quotas_us = (100_000, 100_000, 100_000) if is_alone else QUOTAS_US
        self.meter, self.suppress = Meter(), Bounding()
        self.clock, self.entries = Clock(), list[JournalEntry]()
        for cgroup, quota_us in zip(GROUPS, self.quotas_us, strict=True):
            Writer(self.tree).write(Target(cgroup, "cpu_quota"), quota_us)
        self.before = self.state()
        self.start()

    def start(self) -> None:
        """The next daemon."""
        self.undo = UndoRecord(self.root / "undo", "6f1d")
        self.writer = KernelWriter(self.tree, GROUPS, NAMES)
        own = {self.suppress.name: Ownership(self.suppress.stage, self.suppress.rows)}
        self.actuator = Actuator(self.writer, self.undo, self, {**OWNERS, **own})
        store = SampleStore(PANELS)
        sense = Sense(Sampler([self.meter], store, self.clock), store, SystemCollector(None))  # type: ignore[arg-type]
        self.loop = NodeLoop(
            sense, (*STRATEGIES, self.suppress), self.actuator, Predictor(lambda bank: None),
            wall=self.clock, monotonic=self.clock,
        )  # fmt: skip

    def record(self, entry: JournalEntry) -> None:
        self.entries.append(entry)

    def set_rules(self, policy: str = "auto", node: Mapping[str, Any] | None = None, **strategy: Any) -> None:
        self.policy = bursting(policy, self.host, node or {}, **strategy)

    def tick(self, reason: TickReason = TickReason.BEAT) -> list[tuple[str, str, Value]]:
        """What is written: the cgroup below the pod's, the row, the value. Every write succeeds."""
        self.clock.ns += GAPS_NS[reason]
        tiers = {KubeQoS.GUARANTEED: "/kubepods"}
        result = self.loop.tick(TickInputs(self.pods, self.policy, cpus(4), tiers, {}, {"pods": 0.5}), reason)
        assert isinstance(result, TickResult)
        assert set(result.results) <= {"done"}, result.sentence
        writes = [each.write for each in result.outcomes]
        return [(each.target.cgroup.removeprefix(WEB.cgroup), each.target.name, each.after) for each in writes]

    def hot(self, *containers: str) -> list[tuple[str, str, Value]]:
        """A beat at which these are throttled on an idle node."""
        self.meter.cores, self.meter.throttled = 0.5, dict.fromkeys(containers, 0.3)
        return self.tick()

    def overloaded(self) -> list[tuple[str, str, Value]]:
        """A beat with so much use that the average of five is too much as well."""
        self.meter.cores, self.meter.throttled = 16.0, {}
        return self.tick()

    def bound(self, **quotas_us: int) -> None:
        """What a later stage leaves to the containers of that name, from the next tick on."""
        self.suppress.opinions = {
            Target(f"{WEB.cgroup}/{name}", "cpu_quota"): Opinion.at_most(most_us, "busy", pod=WEB.key)
            for name, most_us in quotas_us.items()
        }

    def put(self, target: Target, value: Value) -> None:
        """Somebody else writes, as far as the kernel lets him; inotify tells of it."""
        self.writer.written_by_others(target, value)
        self.actuator.files.touched(str(self.writer.path(target)))

    def us(self, name: str = "cpu_quota") -> list[Any]:
        """What pod, main and side hold."""
        return [Writer(self.tree).read(Target(cgroup, name)) for cgroup in GROUPS]

    def state(self) -> dict[str, list[Value | None]]:
        return {name: self.us(name) for name in NAMES}

    def close(self) -> None:
        self.undo.close()
