"""One tick: sense, snapshot, decide, act, in that order, and a dry run that is the same decision and nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from koord.host.files import Target, Value
from koord.host.reconcile.plan import DONE
from koord.host.undo import UndoRecord
from koord.host.writer import Writer
from koord.model.formulas import Formula
from koord.model.priority import PriorityClass
from koord.model.qos import KubeQoS
from koord.model.slo import NodeSLOSpec, ResourceThresholds
from koord.overcommit.amounts import ParsedAmounts
from qosd.act.actuator import Actuator
from qosd.act.evictionreport import EvictionReport
from qosd.act.journal import JournalEntry
from qosd.act.moves import MoveReport
from qosd.act.ownership import Ownership
from qosd.decide.decision import Decision, Opinion, Stage, Strategy
from qosd.decide.runner import StrategyStatus
from qosd.loop import NodeLoop, TickInputs
from qosd.metrics import Metrics
from qosd.model.metric import Scope
from qosd.model.policy import EffectivePolicy, HostFacts, NodeSettings
from qosd.model.snapshot import NodeSnapshot, PodView, PressureTrigger, Window
from qosd.policy.source import PolicySource
from qosd.predict.bank import Bank
from qosd.predict.predictor import Predictor
from qosd.sense.build import Sense
from qosd.sense.node import NodeRow
from qosd.sense.prediction import PredictionRow
from qosd.sense.row import Panel
from qosd.sense.sampler import Sampler
from qosd.sense.store import SampleStore
from qosd.sense.system import SystemCollector, SystemRow
from qosd.sense.table import PANELS
from qosd.sense.tick import Batch, Tick
from qosd.sense.usage import USAGE
from qosd.tickscheduler import TickReason
from tests.fakes.clock import Clock, S
from tests.qosd.machine import Machine
from tests.qosd.podviews import machine as cpus
from tests.qosd.podviews import view
from tests.support.opened import opened

POD = "/kubepods/burstable/podweb"
QUOTA = Target(POD, "cpu_quota")
USED = NodeRow.cpu_usage_cores


@dataclass
class Meter:
    """A collector whose sample is the number of its runs; ``panel`` gets the same number everywhere."""

    log: list[str]
    panel: Panel = NodeRow.panel
    name: str = "node"
    period_s: float = 1.0
    runs: int = 0
    failing: bool = False
    subjects: Sequence[str] = ("",)
    suppressing: list[bool] = field(default_factory=list)
    """Of each run: was it told that CPU is suppressed?"""

    @property
    def panels(self) -> Iterable[Panel]:
        return (self.panel,)

    def collect(self, tick: Tick) -> Batch:
        self.runs += 1
        self.suppressing.append(tick.suppresses)
        self.log.append("sense")
        if self.failing:
            raise OSError("gone")
        row: Any = (float(self.runs),) * len(self.panel.metrics)
        return [(self.panel, dict.fromkeys(self.subjects, row))]

    def close(self) -> None:
        pass


@dataclass
class Doubling:
    """Wants the pod's quota to be what was sensed, in milliseconds; ``seen`` are the snapshots it was given."""

    log: list[str]
    name: str = "hooks"
    stage: Stage = Stage.SPEC
    gate: str = ""
    rows: frozenset[str] = frozenset({"cpu_quota"})
    needs: Mapping[str, float] = field(default_factory=dict)
    windows: tuple[Window, ...] = ()
    counts_samples: bool = False
    limits_best_effort: bool = False
    triggers: tuple[PressureTrigger, ...] = ()
    seen: list[NodeSnapshot] = field(default_factory=list)
    memories: list[Any] = field(default_factory=list)
    raises: Exception | None = None
    formulas: tuple[Formula, ...] = ()
    grants: tuple[str, ...] = ()

    def windows_under(self, policy: EffectivePolicy) -> tuple[Window, ...]:
        return self.windows

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        return True

    def decide(self, snapshot: NodeSnapshot, memory: Any) -> tuple[Decision, Any]:
        self.log.append("decide")
        self.seen.append(snapshot)
        self.memories.append(memory)
        if self.raises:
            raise self.raises
        wanted = int(1000 * (snapshot.value(USED) or 0))
        return Decision("as sensed", {QUOTA: Opinion.set(wanted, "test")} if wanted else {}), (memory or 0) + 1


@dataclass
class Rig:
    """A loop over a tree of files with one pod in it; clocks are turned by hand."""

    root: Path
    strategies: Sequence[Strategy[Any]] = ()
    dry: bool = False
    log: list[str] = field(default_factory=list)
    entries: list[JournalEntry] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)
    booted_ns: int = 1_790_000_000 * S
    kept: list[Bank] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.machine = Machine(self.root)
        self.machine.cgroups.make(POD)
        self.tree = self.machine.locator().tree
        self.meter = Meter(self.log)
        self.meters = [self.meter]
        self.wanting = Doubling(self.log)
        self.pods: tuple[PodView, ...] = (replace(view("web"), cgroup=POD),)
        self.policy = EffectivePolicy(host=HostFacts(memory_total_bytes=16 << 30))

    def start(self) -> NodeLoop:
        store = SampleStore(PANELS)
        sampler = Sampler(self.meters, store, self.clock)
        self.sense = Sense(sampler, store, SystemCollector(None))  # type: ignore[arg-type]
        self.undo = opened(UndoRecord(self.root / "undo", "6f1d"))
        speaking: tuple[Strategy[Any], ...] = (self.wanting, *self.strategies)
        owners = {one.name: Ownership(one.stage, frozenset({"cpu_quota"})) for one in speaking}
        self.actuator = Actuator(Writer(self.tree), self.undo, self, owners)
        self.predictor = Predictor(self.kept.append)
        self.loop = NodeLoop(
            self.sense, (*self.strategies, self.wanting), self.actuator, self.predictor,
            wall=lambda: self.booted_ns + self.clock.ns, monotonic=self.clock, dry=self.dry,
        )  # fmt: skip
        return self.loop

    def record(self, entry: JournalEntry) -> None:
        self.log.append("act")
        self.entries.append(entry)

    def inputs(self, **ages_s: float) -> TickInputs:
        return TickInputs(self.pods, self.policy, cpus(4), {KubeQoS.GUARANTEED: "/kubepods"}, {}, ages_s)

    def tick(self, seconds: float = 1.0, reason: TickReason = TickReason.BEAT) -> Any:
        self.clock.advance(seconds)
        return self.loop.tick(self.inputs(pods=0.5), reason)

    def holds(self) -> Value | None:
        return self.machine.holds(POD, "cpu_quota")


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    made = Rig(tmp_path)
    made.start()
    return made


def test_the_next_snapshot_tells_what_was_not_followed(tmp_path: Path) -> None:
    """Two speak at the same stage of one file."""
    rig = Rig(tmp_path, [Doubling([], name="other")])
    rig.start()
    rig.tick(), rig.tick(), rig.tick()
    seen = rig.wanting.seen
    assert seen[0].refused == {}
    assert seen[1].refused == {QUOTA: (("hooks", f"SPEC of {POD}/cpu_quota is other's"),)}
    assert seen[2].refused is seen[1].refused


def test_collectors_are_told_of_suppression(rig: Rig) -> None:
    for enable in (False, True):
        rig.policy = EffectivePolicy(slo=NodeSLOSpec(thresholds=ResourceThresholds(enable=enable)))
        rig.tick()
    assert rig.meter.suppressing == [False, True]


class TestTrouble:
    def test_before_the_first_snapshot_there_is_no_plan(self, rig: Rig) -> None:
        assert rig.loop.plan() is None
        report = rig.loop.report
        assert (report.snapshot, report.decisions.results, report.ended_ns) == (None, (), None)

    def test_a_strategy_that_raises_costs_itself_only(self, tmp_path: Path) -> None:
        failing = Doubling([], name="failing", raises=ZeroDivisionError("of its own"))
        rig = Rig(tmp_path, [failing])
        rig.start()
        rig.tick()
        states = {result.name: (result.state, result.errors) for result in rig.loop.report.decisions.results}
        active = (StrategyStatus.ACTIVE, 0)
        assert states == {"failing": (StrategyStatus.FAILED, 1), "hooks": active, "eviction": active}
        assert rig.holds() == 1000
        assert rig.loop.report.ended_ns == rig.clock.ns

    def test_what_a_strategy_decided_before_it_raised_stays(self, rig: Rig) -> None:
        rig.tick()
        rig.wanting.raises = ZeroDivisionError("of its own")
        rig.tick()
        assert rig.holds() == 1000
        rig.wanting.raises = None
        rig.tick()
        assert (rig.holds(), rig.wanting.memories) == (3000, [None, 1, 1])

    def test_a_collector_that_fails_grows_old_and_the_tick_ends(self, rig: Rig) -> None:
        rig.tick()
        rig.meter.failing = True
        rig.tick(5)
        snapshot = rig.wanting.seen[-1]
        assert snapshot.ages_s == {"node": 5.0, "pods": 0.5}
        assert snapshot.value(USED) == 1

    def test_stale_inputs_freeze_a_strategy(self, rig: Rig) -> None:
        rig.wanting.needs = {"node": 3.0}
        rig.tick()
        rig.meter.failing = True
        rig.tick(4)
        assert rig.loop.report.decisions.results[0].state is StrategyStatus.FROZEN
        assert rig.holds() == 1000

    def test_a_group_that_vanished_is_no_error(self, rig: Rig) -> None:
        rig.machine.cgroups.remove(POD)
        assert rig.tick().outcomes == ()
        assert rig.loop.report.ended_ns == rig.clock.ns


@pytest.mark.parametrize("step_s", [86_400, -86_400])
def test_a_clock_that_is_set_changes_nothing_but_the_time_of_day(rig: Rig, step_s: int) -> None:
    for _ in range(3):
        rig.tick()
    rig.booted_ns += step_s * S
    for _ in range(3):
        rig.tick()
    snapshot = rig.loop.snapshot
    assert snapshot is not None
    assert (snapshot.wall_ns - rig.clock.ns, snapshot.ages_s) == (rig.booted_ns, {"node": 0.0, "pods": 0.5})
    assert [(entry.tick, entry.after) for entry in rig.entries] == [(n, 1000 * n) for n in range(1, 7)]
    assert rig.entries[3].wall_ns - rig.entries[2].wall_ns == (step_s + 1) * S
    assert rig.actuator.files.report.owned[QUOTA].since_ns == rig.clock.ns
    assert [value for _, value in rig.sense.store.series(USED)] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def test_windows_cost_nothing_while_the_strategy_is_off(rig: Rig) -> None:
    """From the samples after the tick at which it was seen to be off, or on again."""
    load = Window(USED, 5.0)
    rig.wanting.windows = (load,)
    found = []
    for off in ((), ("hooks",), ("hooks",), (), ()):
        rig.loop.switched_off = off
        rig.tick()
        assert rig.loop.snapshot is not None
        found.append(load in rig.loop.snapshot.windows)
    assert found == [True, True, False, False, True]


def test_sense_then_decide_then_act(rig: Rig) -> None:
    for _ in range(2):
        rig.tick()
    assert rig.log == ["sense", "decide", "act"] * 2
    assert [snapshot.value(USED) for snapshot in rig.wanting.seen] == [1.0, 2.0]
    assert [entry.after for entry in rig.entries] == [1000, 2000]


def test_the_snapshot_is_the_scene_with_what_was_sensed(rig: Rig) -> None:
    rig.tick()
    snapshot = rig.loop.snapshot
    assert snapshot is rig.wanting.seen[0]
    assert (snapshot.tick, snapshot.monotonic_ns, snapshot.wall_ns) == (1, 101 * S, 1_790_000_101 * S)
    assert snapshot.pods is rig.pods
    assert snapshot.policy is rig.policy
    assert snapshot.ages_s == {"node": 0.0, "pods": 0.5}
    assert len(snapshot.topology.cpus) == 4


def test_a_snapshot_never_changes(rig: Rig) -> None:
    rig.tick()
    first = rig.loop.snapshot
    assert first is not None
    rig.tick()
    assert first.value(USED) == 1.0
    assert rig.loop.snapshot is not first


def test_a_report_is_of_a_whole_tick_and_never_changes(rig: Rig) -> None:
    rig.tick()
    first = rig.loop.report
    assert (first.snapshot, first.ended_ns) == (rig.wanting.seen[0], rig.clock.ns)
    assert (first.decisions.tick, first.files.decisions) == (1, first.decisions)
    assert [state.written for state in first.files.owned.values()] == [1000]
    assert first.collectors["node"].last_success_ns == rig.clock.ns
    rig.clock.advance(1)
    rig.loop.look(rig.inputs(pods=0.5))
    rig.actuator.execute(rig.loop.decide())
    assert rig.loop.report is first, "half a tick is no report"
    assert [state.written for state in first.files.owned.values()] == [1000]
    rig.tick()
    assert rig.loop.report is not first


def test_a_tick_that_an_error_of_our_own_ends_leaves_the_last_report(tmp_path: Path) -> None:
    class Broken(Rig):
        def record(self, entry: JournalEntry) -> None:
            raise ZeroDivisionError("of its own")

    rig = Broken(tmp_path)
    before = rig.start().report
    with pytest.raises(ZeroDivisionError):
        rig.tick()
    assert rig.loop.report is before
    assert (before.snapshot, before.files.states, before.ended_ns) == (None, {}, None)


def test_a_tick_at_which_nothing_changes_shares_what_it_reports(rig: Rig) -> None:
    rig.tick()
    rig.tick(0.1, reason=TickReason.CHANGE)
    first = rig.loop.report
    rig.tick(0.1, reason=TickReason.CHANGE)
    again = rig.loop.report
    assert again is not first
    assert again.files.states is first.files.states
    assert (again.files.refused is first.files.refused, again.files.originals is first.files.originals) == (True, True)
    for kind, name in ((MoveReport, "placed"), (EvictionReport, "under_way")):
        before, after = (
            next(each for each in report.act_reports if isinstance(each, kind)) for report in (first, again)
        )
        assert getattr(after, name) is getattr(before, name)


def test_between_two_ticks_nothing_is_sampled(rig: Rig) -> None:
    rig.tick()
    rig.tick(0.1, reason=TickReason.CHANGE)
    assert rig.log == ["sense", "decide", "act", "decide"]
    assert rig.meter.runs == 1
    assert rig.wanting.seen[-1].tick == 2
    assert rig.wanting.seen[-1].ages_s["node"] == pytest.approx(0.1)


class AsLongAsTheRulesSay(Doubling):
    def windows_under(self, policy: EffectivePolicy) -> tuple[Window, ...]:
        thresholds = policy.slo.thresholds or ResourceThresholds()
        return (Window(USED, float(thresholds.cpu_evict_time_window_seconds or 1)),)


def test_windows_are_as_long_as_the_rules_in_force_say(tmp_path: Path) -> None:
    reading = AsLongAsTheRulesSay([], name="other")
    rig = Rig(tmp_path, [reading])
    rig.start()
    counts = []
    for seconds in (2, 2, 2, 3, 1):
        rig.policy = EffectivePolicy(
            slo=NodeSLOSpec(thresholds=ResourceThresholds(cpu_evict_time_window_seconds=seconds))
        )
        rig.tick()
        ((window, aggregates),) = reading.seen[-1].windows.items()
        counts.append((window.over_s, aggregates[""].count))
    assert counts == [(2, 1), (2, 2), (2, 2), (3, 3), (1, 1)]


def test_a_plan_is_what_the_tick_then_does(rig: Rig) -> None:
    for _ in range(5):
        rig.clock.advance(1)
        rig.loop.look(rig.inputs(pods=0.5))
        planned = rig.loop.plan()
        assert planned is not None
        assert [write.after for write in planned.writes] == [1000 * rig.meter.runs]
        assert tuple(outcome.write for outcome in rig.tick(0, reason=TickReason.CHANGE).outcomes) == planned.writes
        planned = rig.loop.plan()
        assert planned is not None
        assert planned.writes == ()


def test_a_plan_changes_nothing(rig: Rig) -> None:
    rig.tick()
    rig.machine.put(f"cgroup/cpu{POD}/cpu.cfs_quota_us", "-1\n")
    rig.actuator.files.touched(f"{rig.machine.cgroup_root}/cpu{POD}/cpu.cfs_quota_us")
    before = (rig.loop.snapshot, rig.loop.report, rig.actuator.files.report.states, rig.undo.entries)
    first, again = rig.loop.plan(), rig.loop.plan()
    assert first is not None and again is not None
    assert first.writes == again.writes != ()
    assert (rig.loop.snapshot, rig.loop.report, rig.actuator.files.report.states, rig.undo.entries) == before
    assert (rig.holds(), len(rig.entries)) == (-1, 1)
    assert rig.wanting.memories == [None, 1, 1], "a plan is not remembered"
    assert [outcome.result for outcome in rig.tick(0.1, reason=TickReason.CHANGE).outcomes] == [DONE]


def test_a_dry_loop_decides_and_never_acts(tmp_path: Path) -> None:
    rig = Rig(tmp_path, dry=True)
    rig.start()
    for _ in range(2):
        assert rig.tick() is None
    plan = rig.loop.plan()
    assert plan is not None
    assert [(write.before, write.after) for write in plan.writes] == [(-1, 2000)]
    assert (rig.holds(), rig.entries, rig.undo.entries, rig.actuator.files.report.owned) == (-1, [], (), {})
    assert rig.wanting.memories == [None, 1, 2]
    assert rig.loop.report.ended_ns == rig.clock.ns


def test_a_strategy_that_is_switched_off_gives_its_files_back(rig: Rig) -> None:
    rig.tick()
    rig.loop.switched_off = frozenset({"hooks"})
    rig.tick(0.1, reason=TickReason.CHANGE)
    assert rig.holds() == -1
    assert rig.loop.report.decisions.results[0].sentence == "disabled by the operator"
    rig.loop.switched_off = frozenset()
    rig.tick(0.1, reason=TickReason.CHANGE)
    assert rig.holds() == 1000


def test_a_gate_of_the_rules_is_switched_live_and_what_stood_behind_it_is_given_back(rig: Rig) -> None:
    file = rig.root / "rules.yaml"
    source = PolicySource(file, HostFacts, Metrics(), gate_flags={"BECPUEvict": True})
    rig.wanting.gate = "BECPUEvict"

    def sentence(text: str) -> str:
        file.write_text(text)
        source.load()
        rig.policy = source.current
        rig.tick()
        return rig.loop.report.decisions.results[0].sentence

    assert sentence("spec: {}") == "as sensed"
    assert rig.holds() == 1000
    assert sentence("node: {features: {BECPUEvict: false}}").endswith("BECPUEvict is off (by node.features)")
    assert rig.holds() == -1
    assert (
        rig.entries[-1].why
        == "back to its base: hooks is switched off: feature gate BECPUEvict is off (by node.features)"
    )
    assert sentence("node: {features: {CPUEvict: false}}") == "as sensed"
    assert rig.holds() == 3000


class TestPrediction:
    @pytest.fixture
    def learning(self, tmp_path: Path) -> Rig:
        """A node of which node, system and one prod pod are measured; everything uses one core and a byte."""
        rig = Rig(tmp_path)
        prod = replace(view("web"), cgroup=POD, priority_class=PriorityClass.PROD, cpu_request_milli=2000,
                       memory_request_bytes=1 << 30)  # fmt: skip
        rig.pods = (prod,)
        rig.policy = EffectivePolicy(node=NodeSettings(), host=HostFacts(memory_total_bytes=16 << 30))
        rig.meters += [
            Meter([], SystemRow.panel, "system"),
            Meter([], USAGE[Scope.POD].panel, "pods_",
                  subjects=(POD,)),
        ]  # fmt: skip
        rig.start()
        return rig

    def test_it_is_told_what_the_node_states(self, learning: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        stated = ParsedAmounts(12_000, 1 << 30)
        told: list[ParsedAmounts] = []
        monkeypatch.setattr(learning.predictor, "observe", lambda _, allocatable: told.append(allocatable))
        learning.loop.tick(dataclasses.replace(learning.inputs(pods=0.5), allocatable=stated))
        learning.tick()
        assert told == [stated, ParsedAmounts()]

    def test_its_row_lands_in_the_store(self, learning: Rig) -> None:
        for _ in range(60):
            learning.tick()
            assert not any(metric in learning.sense.store.newest() for metric in PredictionRow.panel.metrics)
        learning.tick()
        prediction = learning.predictor.newest
        assert prediction is not None
        newest = learning.sense.store.newest()
        assert newest[PredictionRow.prod_reclaimable_cpu_cores] == {"": prediction.reclaimable.cpu_milli / 1000}
        assert newest[PredictionRow.unpredicted_pods] == {"": len(prediction.unpredicted)}
        assert all(metric in newest for metric in PredictionRow.panel.metrics)
        learning.tick()
        assert learning.loop.snapshot is not None
        assert learning.loop.snapshot.value(PredictionRow.prod_reclaimable_cpu_cores) is not None

    def test_ticks_between_beats_teach_nothing(self, learning: Rig) -> None:
        for _ in range(61):
            learning.tick(1.0, reason=TickReason.CHANGE)
        assert learning.predictor.newest is None
        assert learning.kept == []

    @pytest.mark.parametrize("step_s", [86_400, -86_400])
    def test_a_clock_that_is_set_costs_no_model(self, learning: Rig, step_s: int) -> None:
        for _ in range(61):
            learning.tick()
        models, before = set(learning.predictor.bank), learning.predictor.newest
        learning.booted_ns += step_s * S
        for _ in range(60):
            learning.tick()
        assert set(learning.predictor.bank) == models
        after = learning.predictor.newest
        assert before is not None and after is not None and after.peak == before.peak

    def test_what_was_learnt_is_handed_over_to_be_kept(self, learning: Rig) -> None:
        for _ in range(61):
            learning.tick()
        assert len(learning.kept) == 1
