"""Toy strategies, one for each thing that the frame can say, through the whole loop: snapshot, decide, plan, act, undo.

A value set, scaled and bounded on every kind of file, a token bucket over a window, a freeze, a resctrl group, an order
to the kernel, shortages that go all steps. Held for 1,000 ticks: what a plan shows is what the tick does. A SIGKILL at
every act of a recorded run, then a restart or ``koordctl restore``: everything is as it was.
"""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from koord.host import resctrl
from koord.host.files import Target, Value
from koord.host.notes import KINDS
from koord.host.restoring import restore
from koord.host.undo import UndoRecord
from koord.host.writer import Writer
from koord.model.qos import KubeQoS
from qosd.act.actuator import Actuator
from qosd.act.evictor import Evictor
from qosd.act.journal import JournalEntry
from qosd.act.oneshots import OneShotWriter
from qosd.act.ownership import Ownership
from qosd.decide.decision import Eviction
from qosd.decide.runner import EvictionStrategy
from qosd.loop import NodeLoop, TickInputs
from qosd.model.metric import Scope
from qosd.model.policy import EffectivePolicy, HostFacts
from qosd.predict.predictor import Predictor
from qosd.sense.build import Sense
from qosd.sense.node import NodeRow
from qosd.sense.sampler import Sampler
from qosd.sense.store import SampleStore
from qosd.sense.system import SystemCollector
from qosd.sense.table import PANELS
from qosd.sense.tick import Batch, Tick
from qosd.sense.usage import USAGE
from qosd.tickscheduler import TickReason
from tests.fakes.clock import Clock, S
from tests.fakes.resctrl import MortalWriter
from tests.qosd.machine import Machine
from tests.qosd.podviews import machine as cpus
from tests.qosd.podviews import view
from tests.qosd.toys import JOB, TOYS, WEB

pytestmark = pytest.mark.exhaustive

GAPS_NS = {TickReason.BEAT: S, TickReason.CHANGE: S // 50, TickReason.URGENT: S // 5}
MAIN = f"{JOB}/main"
FILES_V1 = frozenset({"memory.force_empty", "cgroup.freeze"})
FILES_V2 = frozenset({"memory.reclaim", "memory.high", "cgroup.freeze"})
OWNERS: Mapping[str, Ownership] = {each.name: Ownership(each.stage, each.rows) for each in (*TOYS, EvictionStrategy())}


class Killed(BaseException):
    """SIGKILL."""


class Dying(MortalWriter):
    """Dies before, or after, its act number ``dies_at``: writes, and tasks moved."""

    killed = Killed

    def write(self, target: Target, value: Value) -> None:
        self._act(lambda: super(Dying, self).write(target, value))


class Inline(Executor):
    """The thread of the orders is the tick's own."""

    def submit(self, work: Callable[..., Any], /, *_: Any, **__: Any) -> Future[Any]:
        work()
        return Future()


@dataclass
class Load:
    """A collector whose samples are a random walk between 0 and 10 cores."""

    chance: Random
    name: str = "node"
    period_s: float = 1.0
    cores: float = 5.0

    @property
    def panels(self) -> tuple[Any, ...]:
        return (NodeRow.panel, USAGE[Scope.POD].panel, USAGE[Scope.CONTAINER].panel)

    def collect(self, tick: Tick) -> Batch:
        """The job uses two cores, 64 MiB, and as much page cache."""
        self.cores = min(10.0, max(0.0, self.cores + self.chance.uniform(-2, 2)))
        figures = {"cpu_usage": 2.0, "with_page_cache": float(128 << 20)}
        used: Any = tuple(
            next((figure for name, figure in figures.items() if name in metric.name), float(64 << 20))
            for metric in USAGE[Scope.POD].panel.metrics
        )
        node: Any = (self.cores,) * len(NodeRow.panel.metrics)
        return [
            (NodeRow.panel, {"": node}),
            (USAGE[Scope.POD].panel, {JOB: used}),
            (USAGE[Scope.CONTAINER].panel, {MAIN: used}),
        ]

    def close(self) -> None:
        pass


class Node:
    """One daemon after another over the same files; a job that is evicted comes again, as another pod, later."""

    def __init__(self, root: Path, seed: int, version: int = 1) -> None:
        self.root, self.seed, self.version = root, seed, version
        self.machine = Machine(root, version)
        for cgroup in (WEB, MAIN):
            self.machine.cgroups.make(cgroup)
        self.tree = dataclasses.replace(self.machine.locator().tree, resctrl=root / "resctrl")
        for name in ("", "LSR", "LS", "BE"):
            (self.tree.resctrl / name).mkdir(parents=True)
            (self.tree.resctrl / name / "tasks").write_text("")
        self.job_tasks = {7001, 7002}
        (self.tree.resctrl / "tasks").write_text("7001\n7002\n")
        (self.tree.directory(MAIN) / ("tasks" if version == 1 else "cgroup.threads")).write_text("7001\n7002\n")
        for cgroup in (WEB, JOB):
            self.machine.cgroups.put(cgroup, {"freezer.state": "THAWED"} if version == 1 else {"cgroup.freeze": "0"})
        self.machine.cgroups.put(JOB, {"memory.force_empty" if version == 1 else "memory.reclaim": ""})
        self.before = self.state()
        self.entries: list[JournalEntry] = []
        self.clock = Clock()
        self.jobs, self.gone_until_ns = 0, 0
        self.start()

    def start(self) -> None:
        self.undo = UndoRecord(self.root / "undo", "6f1d")
        self.writer = Dying(self.tree)
        self.events = asyncio.new_event_loop()
        evictor = Evictor(self.undo, self, self, self.events, monotonic=self.clock, wall=self.clock)
        orders = OneShotWriter(self.writer, self, Inline())
        self.actuator = Actuator(self.writer, self.undo, self, OWNERS, evictor=evictor, one_shots=orders)
        store = SampleStore(PANELS)
        sense = Sense(Sampler([Load(Random(self.seed))], store, self.clock), store, SystemCollector(None))  # type: ignore[arg-type]
        self.loop = NodeLoop(
            sense, TOYS, self.actuator, Predictor(lambda bank: None), wall=self.clock, monotonic=self.clock
        )
        self.is_killed = False

    def record(self, entry: JournalEntry) -> None:
        self.entries.append(entry)

    async def evict(self, eviction: Eviction) -> None:
        """The executor: kubelet makes the pod again after a while. A kill here is noticed when the tick has ended."""
        try:
            self.writer._act(lambda: self._evicted(eviction))
        except Killed:
            self.is_killed = True
            await asyncio.sleep(3600)

    def _evicted(self, eviction: Eviction) -> None:
        assert eviction.cgroup == JOB
        self.jobs, self.gone_until_ns = self.jobs + 1, self.clock.ns + 15 * S

    def inputs(self) -> TickInputs:
        job = replace(view("job", "BE", "BestEffort"), cgroup=JOB, uid=f"job-{self.jobs}", priority=5500)
        job = replace(job, containers=tuple(replace(each, cgroup=MAIN) for each in job.containers[1:]))
        pods = (replace(view("web"), cgroup=WEB), *((job,) if self.clock.ns >= self.gone_until_ns else ()))
        files = FILES_V1 if self.version == 1 else FILES_V2
        policy = EffectivePolicy(host=HostFacts(self.version, memory_total_bytes=16 << 30, files=files))
        return TickInputs(pods, policy, cpus(4), {KubeQoS.GUARANTEED: "/kubepods"}, {}, {"pods": 0.5})

    def tick(self, reason: TickReason = TickReason.BEAT) -> None:
        self.clock.ns += GAPS_NS[reason]
        self.loop.tick(self.inputs(), reason)
        self.run_events()

    def run_events(self) -> None:
        """The event loop goes on, as far as it can."""
        for _ in range(10):
            self.events.run_until_complete(asyncio.sleep(0))
        if self.is_killed:
            raise Killed

    def state(self) -> dict[str, object]:
        """All that Koord may change. (Plain files keep -1 where a kernel of v1 shows its largest number.)"""
        writer, rows = Writer(self.tree), ("cpu_quota", "cpu_shares", "cpuset_cpus", "memory_limit_in_bytes")
        targets = [Target(cgroup, name) for cgroup in (WEB, JOB, MAIN) for name in rows]
        targets += [Target(cgroup, "cgroup.freeze") for cgroup in (WEB, JOB)]
        targets += [Target(cgroup, "memory.high") for cgroup in (WEB, JOB) if self.version == 2]
        members = {name: resctrl.tasks(self.tree.resctrl, name) for name in ("", *resctrl.groups(self.tree.resctrl))}
        return {f"{each.cgroup}/{each.name}": writer.read(each) for each in targets} | {"resctrl": members}

    def close(self) -> None:
        for task in asyncio.all_tasks(self.events):
            task.cancel()
        self.events.run_until_complete(asyncio.sleep(0))
        self.events.close()
        self.undo.close()


VERSIONS = pytest.mark.parametrize("version", [1, 2], ids=["v1", "v2"])
ACTS = {
    1: {"memory.force_empty", "cgroup.freeze", "cpu_quota", "pod.eviction", "resctrl.tasks"},
    2: {"memory.reclaim", "memory.high", "cgroup.freeze", "cpu_quota", "pod.eviction", "resctrl.tasks"},
}


@VERSIONS
def test_what_a_plan_shows_is_what_the_tick_does_for_a_thousand_ticks(tmp_path: Path, version: int) -> None:
    """Beats and ticks between them; a plan before and after each changes nothing."""
    node = Node(tmp_path, 1, version)
    chance, kinds = Random(2), set[str]()
    for _ in range(1000):
        (reason,) = chance.choices(list(GAPS_NS), (7, 2, 1))
        node.clock.ns += GAPS_NS[reason]
        node.loop.look(node.inputs(), reason)
        shown, again = node.loop.plan(), node.loop.plan()
        assert shown is not None and again is not None
        plan = node.loop.decide()
        assert shown.writes == again.writes == plan.writes
        result = node.actuator.execute(plan)
        assert tuple(outcome.write for outcome in result.outcomes) == shown.writes
        assert set(result.results) <= {"done", "started"}, result.sentence
        after = node.loop.plan()
        assert after is not None
        left = {act.target.name for act in after.writes}
        assert left <= {"resctrl.tasks"}, "nothing is left to do, and no sample counts twice"
        kinds |= {outcome.write.target.name for outcome in result.outcomes}
        node.run_events()
    assert kinds >= ACTS[version]
    assert {entry.result for entry in node.entries} == {"done", "stopping", "vanished"}
    by_relief = {entry.name for entry in node.entries if "eviction" in entry.owner.split(", ")}
    assert by_relief >= STEPS[version], "the shortages have gone all steps"
    assert node.jobs > 1
    node.close()


STEPS = {
    1: {"memory.force_empty", "cpu_quota", "cgroup.freeze", "pod.eviction"},
    2: {"memory.reclaim", "memory.high", "cpu_quota", "cgroup.freeze", "pod.eviction"},
}


def acts_of(directory: Path, version: int, ticks: int) -> int:
    """How many acts a run has that nobody kills; there are some of every kind."""
    node = Node(directory, 3, version)
    for _ in range(ticks):
        node.tick()
    node.close()
    assert {entry.name for entry in node.entries} >= ACTS[version]
    return node.writer.acts


@pytest.mark.parametrize("is_restored", [False, True], ids=["restart", "koordctl restore"])
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@VERSIONS
def test_a_kill_at_every_act_leaves_nothing_behind(
    tmp_path: Path, version: int, is_after: bool, is_restored: bool, record_property: Callable[[str, object], None]
) -> None:
    ticks = 80
    count = acts_of(tmp_path / "recorded", version, ticks)
    when, then = "after" if is_after else "before", "restored" if is_restored else "restarted"
    record_property("count", f"toys on v{version}: killed {when} each of {count} acts, then {then}")
    for number in range(1, count + 1):
        node = Node(tmp_path / str(number), 3, version)
        node.writer.dies_at, node.writer.is_after = number, is_after
        with suppress(Killed):
            for _ in range(ticks):
                node.tick()
        assert node.writer.acts == number, "it was killed there"
        node.close()
        if is_restored:
            with UndoRecord(node.root / "undo", "6f1d") as record:
                restore(MortalWriter(node.tree), record)
                assert not any(record.all(kind) for kind in KINDS)
        else:
            _restarted(node)
        assert node.state() == node.before, f"killed at act {number}"
        shutil.rmtree(node.root)


def _restarted(node: Node) -> None:
    """The next daemon goes on for a while, and then every strategy is switched off."""
    node.start()
    for _ in range(3):
        node.tick()
    node.loop.switched_off = frozenset(OWNERS)
    for _ in range(20):
        node.tick()
    assert node.actuator.files.report.owned == {}
    assert not any(node.undo.all(kind) for kind in KINDS)
    node.close()
