"""Isolation of collectors, their back-off and health, and that nothing is left of what is gone."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from koord.host.reader import KeptFiles
from koord.model.slo import HostApplication
from qosd.model.metric import Scope
from qosd.sense.build import Sense, build
from qosd.sense.devices import DiskRow
from qosd.sense.row import Panel
from qosd.sense.sampler import CollectorRow, Sampler
from qosd.sense.table import PANELS
from qosd.sense.targets import Tiers
from qosd.sense.tick import Batch, NotApplicable, Tick
from qosd.sense.usage import USAGE
from tests.qosd.sense.trees import MEMORY, TIERS, World, pod
from tests.support.opened import opened


class Scripted:
    """A collector that does what it is told at each run; runs are noted by the clock's second."""

    panels: Sequence[Panel] = (DiskRow.panel,)

    def __init__(
        self, world: World, does: Callable[[int], Batch], name: str = "scripted", period_s: float = 1.0
    ) -> None:
        self.name, self.period_s = name, period_s
        self._world, self._does = world, does
        self._began = world.clock()
        self.runs: list[float] = []
        self.closed_after: list[int] = []

    def collect(self, tick: Tick) -> Batch:
        self.runs.append((tick.at_ns - self._began) / 1e9)
        return self._does(len(self.runs))

    def close(self) -> None:
        self.closed_after.append(len(self.runs))


def row_of(value: float) -> Batch:
    row: Any = (value,) * 6
    return [(DiskRow.panel, {"sda": row})]


def free() -> int:
    """A clock of CPU time by which nothing costs any, however busy the machine is."""
    return 0


def run(world: World, sampler: Sampler, seconds: int, step_s: float = 1.0) -> None:
    for _ in range(round(seconds / step_s)):
        sampler.sample((), TIERS)
        world.clock.advance(step_s)


def fails(error: Exception) -> Callable[[int], Batch]:
    def does(run: int) -> Batch:
        raise error

    return does


@pytest.mark.parametrize("error", [OSError(5, "I/O error", "/x"), ValueError("bad"), KeyError("k"), MemoryError()])
def test_a_collector_that_fails_costs_nobody_else_a_sample(world: World, error: Exception) -> None:
    bad = Scripted(world, fails(error), "bad")
    good = Scripted(world, lambda run: row_of(float(run)), "good")
    sampler = Sampler([bad, good], world.store, world.clock, free)
    run(world, sampler, 5)
    assert good.runs == [0, 1, 2, 3, 4]
    assert world.store.value(DiskRow.busy_ratio, "sda") == 5.0
    health = sampler.health()
    assert health["bad"].last_success_ns is None and type(error).__name__ in health["bad"].last_error
    assert (health["good"].failures, health["good"].last_error) == (0, "")
    assert world.store.value(CollectorRow.failures, "bad") == health["bad"].failures == len(bad.runs)


def test_it_waits_twice_as_long_each_time_and_at_most_a_minute(world: World) -> None:
    bad = Scripted(world, fails(ValueError("bad")))
    run(world, Sampler([bad], world.store, world.clock, free), 200)
    assert bad.runs == [0, 2, 6, 14, 30, 62, 122, 182]


def test_it_recovers(world: World) -> None:
    def does(run: int) -> Batch:
        if run < 3:
            raise ValueError("not yet")
        return row_of(1.0)

    one = Scripted(world, does)
    sampler = Sampler([one], world.store, world.clock, free)
    run(world, sampler, 10)
    assert one.runs == [0, 2, 6, 7, 8, 9]
    assert sampler.health()["scripted"].failures == 0
    assert sampler.ages_s(world.clock()) == {"scripted": 1.0}


def test_what_is_not_applicable_is_said_and_asked_again_seldom(world: World) -> None:
    one = Scripted(world, fails(NotApplicable("no resctrl mount")), period_s=10.0)
    sampler = Sampler([one], world.store, world.clock, free)
    run(world, sampler, 130)
    assert one.runs == [0, 60, 120]
    assert one.closed_after == [1, 2, 3], "what it had opened would outlast cgroups until its next run"
    health = sampler.health()["scripted"]
    assert (health.disabled_reason, health.failures, health.last_error) == ("no resctrl mount", 0, "")
    assert world.store.value(CollectorRow.disabled, "scripted") == 1.0
    assert sampler.ages_s(world.clock()) == {}


@pytest.mark.parametrize(
    ("period_s", "runs"),
    [
        pytest.param(1.0, [0, 0.5, 1, 1.5, 2, 3], id="what every beat samples is sampled, and keeps its turn"),
        pytest.param(10.0, [0], id="what is measured seldom waits for its turn"),
    ],
)
def test_what_is_urgent(world: World, period_s: float, runs: list[float]) -> None:
    counted = Scripted(world, lambda run: row_of(float(run)), period_s=period_s)
    sampler = Sampler([counted], world.store, world.clock, free)
    for half_second in range(7):
        if half_second != 5:
            sampler.sample((), TIERS, urgent=half_second % 2 == 1)
            assert sampler.sampled_ns == world.clock()
        world.clock.advance(0.5)
    assert counted.runs == runs


def test_what_is_urgent_does_not_shorten_a_wait(world: World) -> None:
    bad = Scripted(world, fails(ValueError("bad")))
    absent = Scripted(world, fails(NotApplicable("no resctrl mount")), "absent")
    sampler = Sampler([bad, absent], world.store, world.clock, free)
    for _ in range(14):
        sampler.sample((), TIERS, urgent=True)
        world.clock.advance(0.5)
    assert (bad.runs, absent.runs) == ([0, 2, 6], [0])


@dataclass
class Thread:
    """CPU time: runs on only where a test says so."""

    cpu_ns: int = 0

    def __call__(self) -> int:
        return self.cpu_ns

    def compute(self, world: World, seconds: float) -> None:
        self.cpu_ns += round(seconds * 1e9)
        world.clock.advance(seconds)


def test_a_run_that_computes_long_is_an_overrun_and_earns_a_rest(world: World) -> None:
    thread = Thread()

    def does(run: int) -> Batch:
        if run == 1:
            thread.compute(world, 0.4)
        return row_of(1.0)

    slow, other = Scripted(world, does), Scripted(world, lambda run: row_of(2.0), "other")
    sampler = Sampler([slow, other], world.store, world.clock, thread)
    run(world, sampler, 7)
    health = sampler.health()
    assert (health["scripted"].overruns, health["other"].overruns) == (1, 0)
    assert [round(second, 1) for second in slow.runs] == [0.0, 4.4, 5.4, 6.4]
    assert len(other.runs) == 7


def test_a_run_that_waits_for_a_cpu_is_an_overrun_and_earns_none(world: World) -> None:
    def does(run: int) -> Batch:
        world.clock.advance(0.4)  # others have the CPUs
        return row_of(1.0)

    one = Scripted(world, does)
    sampler = Sampler([one], world.store, world.clock, Thread())
    for _ in range(10):
        sampler.sample((), TIERS)
        world.clock.advance(0.6)
    assert len(one.runs) == 10
    assert sampler.health()["scripted"].overruns == 10


@pytest.mark.parametrize(("name", "runs"), [("node", 8), ("usage", 8), ("node_pressure", 8), ("limits", 1)])
def test_what_strategies_act_by_never_rests(world: World, name: str, runs: int) -> None:
    thread = Thread()

    def does(run: int) -> Batch:
        thread.compute(world, 2.0)
        return row_of(1.0)

    one = Scripted(world, does, name)
    sampler = Sampler([one], world.store, world.clock, thread)
    for _ in range(8):
        sampler.sample((), TIERS)
    assert len(one.runs) == runs


@pytest.mark.parametrize(
    ("period_s", "step_s", "runs"), [(1.0, 1.0, 20), (1.0, 0.05, 21), (5.0, 1.0, 4), (10.0, 1.0, 2), (1.0, 2.0, 10)]
)
def test_periods(world: World, period_s: float, step_s: float, runs: int) -> None:
    one = Scripted(world, lambda run: row_of(1.0), period_s=period_s)
    run(world, Sampler([one], world.store, world.clock, free), 20, step_s)
    assert len(one.runs) == runs


def test_jitter_of_the_ticks_skips_no_run(world: World) -> None:
    one = Scripted(world, lambda run: row_of(1.0))
    sampler = Sampler([one], world.store, world.clock, free)
    for early in (0.0, 0.02, -0.04, 0.05, -0.03) * 6:
        world.clock.advance(1 + early)
        sampler.sample((), TIERS)
    assert len(one.runs) == 30


def test_a_sample_that_cannot_be_renewed_is_withdrawn_in_the_end(world: World) -> None:
    def does(run: int) -> Batch:
        if run > 1:
            raise ValueError("gone")
        return row_of(7.0)

    sampler = Sampler([Scripted(world, does)], world.store, world.clock)
    seen = []
    for _ in range(40):
        sampler.sample((), TIERS)
        seen.append(world.store.value(DiskRow.busy_ratio, "sda"))
        world.clock.advance(1)
    assert seen[:8] == [7.0] * 8 and seen[-1] is None
    assert world.store.series(DiskRow.busy_ratio, "sda")


def sense_of(world: World, limit: int = 10_000) -> tuple[Sense, KeptFiles, list[str]]:
    said: list[str] = []
    files = opened(KeptFiles(limit, said.append))
    return build(replace(world.host, files=files)), files, said


def test_all_collectors_are_built_and_an_empty_host_disables_or_empties_them(world: World) -> None:
    sense, _, _ = sense_of(world)
    sense.sampler.sample((), Tiers())
    health = sense.sampler.health()
    assert set(health) == {panel.source for panel in PANELS} - {"collectors", "prediction"}
    assert not [name for name, one in health.items() if one.last_error]


def test_descriptors_run_out(world: World) -> None:
    app = HostApplication(name="app")
    sense, files, said = sense_of(world, limit=2)
    for second in range(3):
        world.usage("/app", second * 500_000, MEMORY, charged=1000)
        sense.sampler.sample((), TIERS, (app,))
        world.clock.advance(1)
    assert world.store is not sense.store and sense.store.value(USAGE[Scope.HOST_APP].cpu_usage_cores, "app") == 0.5
    assert len(files) == 2 and len(said) == 1


def churn(world: World, sense: Sense, number: int) -> str:
    """Four pods with two cgroups each, for one to three batches; the cgroup of the last."""
    pods = tuple(pod(f"{number}-{other}") for other in range(4))
    for one in pods:
        for cgroup in (one.cgroup, one.containers[1].cgroup):
            world.usage(cgroup, 5_000_000, MEMORY, charged=1000)
            world.write(cgroup, cpu_pressure="some avg10=0 avg60=0 avg300=0 total=0\n")
    for _ in range(1 + number % 3):
        sense.sampler.sample(pods, TIERS)
        world.clock.advance(1)
    assert sense.store.value(USAGE[Scope.POD].memory_usage_bytes, pods[-1].cgroup) == 1203.0
    return pods[-1].cgroup


def test_a_thousand_pods_come_and_go_and_leave_nothing(world: World) -> None:
    sense, files, _ = sense_of(world)
    world.put("proc/self/schedstat", "1 2 3\n")
    counts = []
    for rounds in (range(3, 12), range(12, 250)):
        for number in rounds:
            last = churn(world, sense, number)
        sense.sampler.sample((), TIERS)
        world.clock.advance(1)
        counts.append((sense.store.series_count, len(files), len(os.listdir("/proc/self/fd"))))
    assert counts[0] == counts[1]
    assert not sense.store.newest()[USAGE[Scope.POD].memory_usage_bytes]
    assert not sense.store.series(USAGE[Scope.POD].memory_usage_bytes, last)
    sense.sampler.close()
    assert len(files) == 0


def test_a_pod_that_is_another_object_keeps_its_history(world: World) -> None:
    sense, _, _ = sense_of(world)
    for second in range(4):
        one = pod("same")
        world.usage(one.cgroup, second * 250_000, MEMORY, charged=1000)
        sense.sampler.sample((one,), TIERS)
        world.clock.advance(1)
    series = sense.store.series(USAGE[Scope.POD].cpu_usage_cores, one.cgroup)
    assert [value for _, value in series] == [0.25, 0.25, 0.25]
    assert Scope.POD in sense.sampler.targets.cgroups
