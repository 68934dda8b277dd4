"""Toy strategies, one for each thing that the frame can say: what they want follows from the load, and from memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any, ClassVar

from koord.host.files import Target, Value
from koord.host.placement import Membership
from koord.model.qos import QoSClass
from qosd.decide.decision import Decision, OneShot, Opinion, Stage, Strategy
from qosd.decide.shortage import OrderKey, Resource, Shortage, Victims
from qosd.model.snapshot import NodeSnapshot, Window
from qosd.sense.node import NodeRow

WEB, JOB = "/kubepods/burstable/podweb", "/kubepods/besteffort/podjob"
QUOTA, SHARES, CPUS, MEMORY, FREEZE = (
    Target(WEB, name) for name in ("cpu_quota", "cpu_shares", "cpuset_cpus", "memory_limit_in_bytes", "cgroup.freeze")
)
LOAD = Window(NodeRow.cpu_usage_cores, 5.0, at_least=2)
BE = Victims(frozenset({QoSClass.BE}), "BEMemoryEvict")
BY_AMOUNT = (OrderKey.AMOUNT,)
Opinions = Mapping[Target, Opinion]


class Toy(Strategy[Any]):
    """``says`` what it wants at a load; a token is all that it remembers."""

    name: ClassVar[str]
    stage: ClassVar[Stage] = Stage.SPEC
    rows: ClassVar[frozenset[str]] = frozenset()
    needs: ClassVar[Mapping[str, float]] = MappingProxyType({})
    windows: ClassVar[tuple[Window, ...]] = (LOAD,)

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        return True

    def decide(self, snapshot: NodeSnapshot, memory: Any) -> tuple[Decision, Any]:
        load = snapshot.window(LOAD)
        if load is None:
            return Decision("nothing has been measured yet"), memory
        return self.says(load.mean, memory, snapshot)

    def says(self, load: float, memory: Any, snapshot: NodeSnapshot) -> tuple[Decision, Any]:
        opinions, memory = self.opinions(load, memory)
        return Decision(f"{len(opinions)} values", opinions), memory

    def opinions(self, load: float, memory: Any) -> tuple[Opinions, Any]:
        raise NotImplementedError


class Setting(Toy):
    name = "toySet"
    rows = frozenset(target.name for target in (QUOTA, SHARES, CPUS, MEMORY))

    def opinions(self, load: float, memory: Any) -> tuple[Opinions, Any]:
        if load < 2:
            return {}, memory
        values: dict[Target, Value] = {QUOTA: 100_000, SHARES: 512, CPUS: "0-2", MEMORY: 64 << 20}
        return {target: Opinion.set(value, "set") for target, value in values.items()}, memory


class Bucket(Toy):
    """A token for each calm sample, one less for each busy one; while there are any, the quota is stretched."""

    name, stage, rows = "toyBucket", Stage.BURST, frozenset({QUOTA.name})

    def opinions(self, load: float, memory: Any) -> tuple[Opinions, Any]:
        tokens = max(0, min(10, (memory or 0) + (1 if load < 5 else -1)))
        return {QUOTA: Opinion.scale(Fraction(6, 5) ** tokens, f"{tokens} tokens")} if tokens else {}, tokens


class Bounding(Toy):
    name, stage, rows = "toyBound", Stage.SUPPRESSION, Setting.rows

    def opinions(self, load: float, memory: Any) -> tuple[Opinions, Any]:
        if load > 7:
            values: dict[Target, Value] = {QUOTA: 50_000, SHARES: 2, CPUS: "0", MEMORY: 32 << 20}
            return {target: Opinion.at_most(value, "busy") for target, value in values.items()}, memory
        if load < 4:
            values = {QUOTA: 150_000, SHARES: 700, CPUS: "3", MEMORY: 96 << 20}
            return {target: Opinion.at_least(value, "calm") for target, value in values.items()}, memory
        return {}, memory


class Freezing(Toy):
    """Three samples long at most."""

    name, stage, rows = "toyFreeze", Stage.SUPPRESSION, frozenset({FREEZE.name})

    def opinions(self, load: float, memory: Any) -> tuple[Opinions, Any]:
        frozen_for = (memory or 0) + 1 if load > 8 else 0
        return {FREEZE: Opinion.set(1, "very busy")} if 0 < frozen_for <= 3 else {}, frozen_for


class Grouping(Toy):
    """Another resctrl group for the job, while there is load."""

    name = "toyGroup"

    def says(self, load: float, memory: Any, snapshot: NodeSnapshot) -> tuple[Decision, Any]:
        if load < 4:
            return Decision("no group"), memory
        return Decision("a group", acts=(Membership(JOB, "LS", "the job has more cache"),)), memory


class Ordering(Toy):
    """An order at each third busy sample."""

    name = "toyOrder"

    def says(self, load: float, memory: Any, snapshot: NodeSnapshot) -> tuple[Decision, Any]:
        busy = (memory or 0) + (load > 6)
        if busy < 3:
            return Decision("no order"), busy
        row, value = ("memory.reclaim", 4096) if snapshot.policy.host.cgroup_version == 2 else ("memory.force_empty", 0)
        return Decision("an order", one_shots=(OneShot(Target(JOB, row), value, "idle pages"),)), 0


class Lacking(Toy):
    """CPU lacks when it is busy, and memory when it is very busy."""

    name = "toyLack"

    def says(self, load: float, memory: Any, snapshot: NodeSnapshot) -> tuple[Decision, Any]:
        lacks = []
        if load > 5:
            lacks.append(Shortage(Resource.CPU_MILLI, 1500, BE, BY_AMOUNT, "busy"))
        if load > 6:
            lacks.append(Shortage(Resource.MEMORY_BYTES, 40 << 20, BE, BY_AMOUNT, "very busy"))
        return Decision(f"{len(lacks)} shortages", shortages=tuple(lacks)), memory


TOYS: Sequence[Toy] = (Setting(), Bucket(), Bounding(), Freezing(), Grouping(), Ordering(), Lacking())
