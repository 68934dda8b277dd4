"""Toy strategies, one for each thing that the frame can say, through the whole loop: snapshot, decide, plan, act, undo.

A value set, scaled and bounded on every kind of file, a token bucket over a window, a freeze. Held for 1,000 ticks:
what a plan shows is what the tick does. A SIGKILL at every write of a recorded run, then a restart or ``koordctl
restore``: every file is as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from koord.host.files import Target, Value
from koord.host.restoring import restore
from koord.host.undo import UndoRecord
from koord.host.writer import Writer
from koord.model.qos import KubeQoS
from qosd.act.actuator import Actuator
from qosd.act.journal import Entry
from qosd.act.ownership import Ownership
from qosd.decide.decision import Decision, Opinion, Stage
from qosd.hooks.rules import HostFacts, Rules
from qosd.loop import NodeLoop, TickInputs
from qosd.predict.predictor import Predictor
from qosd.sense import table
from qosd.sense.build import Sense
from qosd.sense.sampler import Sampler
from qosd.sense.store import Store
from qosd.sense.system import System
from qosd.sense.table import PANELS
from qosd.sense.tick import Batch, Tick
from qosd.snapshot import NodeSnapshot, Window
from tests.qosd.machine import Machine
from tests.qosd.podviews import machine as cpus
from tests.qosd.podviews import view

S = 1_000_000_000
POD = "/kubepods/burstable/podweb"
QUOTA, SHARES, CPUS, MEMORY, FREEZE = (
    Target(POD, name) for name in ("cpu_quota", "cpu_shares", "cpuset_cpus", "memory_limit_in_bytes", "cgroup.freeze")
)
FILES = (QUOTA, SHARES, CPUS, MEMORY, FREEZE)
LOAD = Window("node_cpu_usage_cores", 5.0, at_least=2)
Opinions = Mapping[Target, Opinion]


class Toy:
    """Its opinions follow from the load, and from what it remembers."""

    name: ClassVar[str]
    stage: ClassVar[Stage]
    rows: ClassVar[frozenset[str]]
    needs: ClassVar[Mapping[str, float]] = MappingProxyType({})
    windows: ClassVar[tuple[Window, ...]] = (LOAD,)

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        return True

    def decide(self, snapshot: NodeSnapshot, memory: Any) -> tuple[Decision, Any]:
        load = snapshot.window(LOAD)
        assert load is not None, "too few samples freeze it"
        opinions, memory = self.opinions(load.mean, memory)
        return Decision(f"{len(opinions)} values", opinions), memory

    def opinions(self, load: float, memory: Any) -> tuple[Opinions, Any]:
        raise NotImplementedError


class Setting(Toy):
    name, stage = "toySet", Stage.SPEC
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
    name, stage = "toyBound", Stage.SUPPRESSION
    rows = Setting.rows

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


TOYS: Sequence[Toy] = (Setting(), Bucket(), Bounding(), Freezing())


class Killed(BaseException):
    """SIGKILL."""


class Dying(Writer):
    """Dies before, or after, its write number ``dies_at``."""

    writes, dies_at, dies_after = 0, 0, False

    def write(self, target: Target, value: Value) -> None:
        self.writes += 1
        if self.writes == self.dies_at and not self.dies_after:
            raise Killed
        super().write(target, value)
        if self.writes == self.dies_at:
            raise Killed


@dataclass
class Load:
    """A collector whose samples are a random walk between 0 and 10 cores."""

    chance: Random
    name: str = "node"
    period_s: float = 1.0
    cores: float = 5.0

    @property
    def panels(self) -> tuple[Any, ...]:
        return (table.NODE,)

    def collect(self, tick: Tick) -> Batch:
        self.cores = min(10.0, max(0.0, self.cores + self.chance.uniform(-2, 2)))
        return [(table.NODE, {"": (self.cores,) * len(table.NODE.metrics)})]

    def close(self) -> None:
        pass


class Node:
    """One daemon after another over the same files."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.seed = root, seed
        self.machine = Machine(root)
        self.machine.make(POD)
        self.tree = self.machine.locator().tree
        self.machine.put(f"cgroup/freezer{POD}/freezer.state", "THAWED\n")
        self.before = self.values()
        self.entries: list[Entry] = []
        self.now_ns = 100 * S
        self.start()

    def start(self) -> None:
        self.undo = UndoRecord(self.root / "undo", "6f1d")
        self.writer = Dying(self.tree)
        owners = {toy.name: Ownership(toy.stage, toy.rows) for toy in TOYS}
        self.actuator = Actuator(self.writer, self.undo, self, owners)
        store = Store(PANELS)
        sense = Sense(Sampler([Load(Random(self.seed))], store, self.clock), store, System(self.tree, None, 4096))  # type: ignore[arg-type]
        self.loop = NodeLoop(
            sense, TOYS, self.actuator, Predictor(lambda bank: None), wall=self.clock, monotonic=self.clock
        )

    def clock(self) -> int:
        return self.now_ns

    def record(self, entry: Entry) -> None:
        self.entries.append(entry)

    def inputs(self) -> TickInputs:
        pods = (replace(view("web"), group=POD),)
        rules = Rules(host=HostFacts(memory_total_bytes=16 << 30))
        return TickInputs(pods, rules, cpus(4), {KubeQoS.GUARANTEED: "/kubepods"}, {}, {"pods": 0.5})

    def tick(self, is_beat: bool = True) -> Any:
        self.now_ns += S if is_beat else S // 50
        return self.loop.tick(self.inputs(), sample=is_beat)

    def values(self) -> dict[Target, Value | None]:
        """What Koord may write. (Plain files keep -1 where a kernel of v1 shows its largest number.)"""
        return {target: Writer(self.tree).read(target) for target in FILES}

    def close(self) -> None:
        self.undo.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path, seed=1)
    yield made
    made.close()


def test_what_a_plan_shows_is_what_the_tick_does_for_a_thousand_ticks(node: Node) -> None:
    """Beats and wake-ups between them; a plan before and after each changes nothing."""
    chance, kinds = Random(2), set[str]()
    for _ in range(1000):
        is_beat = chance.random() < 0.7
        node.now_ns += S if is_beat else S // 50
        node.loop.look(node.inputs(), sample=is_beat)
        shown, again = node.loop.plan(), node.loop.plan()
        assert shown is not None and again is not None
        plan = node.loop.decide()
        assert shown.shown == again.shown == plan.shown
        result = node.actuator.execute(plan)
        assert tuple(outcome.write for outcome in result.outcomes) == shown.writes
        assert set(result.results) <= {"done"}, result.sentence
        after = node.loop.plan()
        assert after is not None and after.shown == (), "nothing is left to do, and no sample counts twice"
        kinds |= {outcome.write.target.name for outcome in result.outcomes}
    assert kinds == {target.name for target in FILES}
    assert {entry.result for entry in node.entries} == {"done"}
    assert len(node.entries) == node.writer.writes


def writes_of(directory: Path, ticks: int) -> int:
    """How many writes a run has that nobody kills; it touches every file."""
    node = Node(directory, seed=3)
    for _ in range(ticks):
        node.tick()
    node.close()
    assert {entry.name for entry in node.entries} == {target.name for target in FILES}
    return node.writer.writes


@pytest.mark.parametrize("is_restored", [False, True], ids=["restart", "koordctl restore"])
@pytest.mark.parametrize("dies_after", [False, True], ids=["before", "after"])
def test_a_kill_at_every_write_leaves_nothing_behind(
    tmp_path: Path, dies_after: bool, is_restored: bool, record_property: Callable[[str, object], None]
) -> None:
    ticks = 80
    count = writes_of(tmp_path / "recorded", ticks)
    when, then = "after" if dies_after else "before", "restored" if is_restored else "restarted"
    record_property("count", f"toys: killed {when} each of {count} writes, then {then}")
    for number in range(1, count + 1):
        node = Node(tmp_path / str(number), seed=3)
        node.writer.dies_at, node.writer.dies_after = number, dies_after
        with suppress(Killed):
            for _ in range(ticks):
                node.tick()
        assert node.writer.writes == number, "it was killed there"
        node.close()
        if is_restored:
            with UndoRecord(node.root / "undo", "6f1d") as record:
                restore(Writer(node.tree), record)
                assert record.entries == ()
        else:
            node.start()
            for _ in range(3):
                node.tick()
            node.loop.switched_off = frozenset(toy.name for toy in TOYS)
            node.tick(), node.tick()
            assert (node.actuator.owned, node.undo.entries) == ({}, ())
            node.close()
        assert node.values() == node.before, f"killed at write {number}"
