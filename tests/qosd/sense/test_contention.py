"""Pressure, run-queue delay and cycles: exact rates, bounded cost, and why there is nothing."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from koord.host.perf import PerfError
from koord.model.qos import QoSClass
from qosd.model.metric import Scope
from qosd.sense.cycles import CyclesCollector, CyclesRow
from qosd.sense.pressure import PRESSURE, NodePressureCollector, NodePressureRow, PressureCollector
from qosd.sense.reclaim import ReclaimCollector, ReclaimRow
from qosd.sense.row import SLOW_S, TICK_S
from qosd.sense.runqueue import RunQueueCollector, RunQueueRow
from qosd.sense.stalls import STALLS, StallsCollector
from qosd.sense.targets import SampleTargets
from qosd.sense.tick import NotApplicable
from tests.qosd.sense.trees import TIERS, World, named, pod, run

NAN = math.nan
A, B = pod("a"), pod("b", QoSClass.BE, tier="/kubepods/besteffort")


def psi(some_us: int, full_us: int | None, avg10: float = 1.5) -> str:
    lines = [f"some avg10={avg10} avg60=2.00 avg300=3.00 total={some_us}"]
    lines += [] if full_us is None else [f"full avg10=0.50 avg60=0.60 avg300=0.70 total={full_us}"]
    return "\n".join(lines) + "\n"


def test_stall_time_is_exact(world: World) -> None:
    world.targets = SampleTargets.of((A,), TIERS, ())
    collector = PressureCollector(world.host)
    panel, cgroup = PRESSURE[Scope.POD].panel, A.cgroup
    for some_us, full_us in ((1000, 100), (501_000, 200_100), (501_000, 200_100), (100, 100)):
        world.clock.advance(10)
        world.write(cgroup, cpu_pressure=psi(some_us, None), memory_pressure=psi(some_us, full_us))
        row = named(panel, run(world, collector)[panel][cgroup])
        found = [row.get(f"pod_{name}_us_per_s") for name in ("cpu_pressure_some", "memory_pressure_full")]
        expected = {1000: [None, None], 501_000: [50_000.0, 20_000.0], 100: [None, None]}[some_us]
        assert found == expected or (found == [0.0, 0.0] and some_us == 501_000)
        assert row["pod_cpu_pressure_some_avg300_percent"] == 3.0
        assert row["pod_memory_pressure_full_avg10_percent"] == 0.5
        assert not any(name.startswith(("pod_cpu_pressure_full", "pod_io")) for name in row)


@pytest.mark.parametrize("text", ["", "most avg10=1\n", "full avg10=0 avg60=0 avg300=0 total=1\n"])
def test_pressure_of_no_known_form_is_absent(world: World, text: str) -> None:
    world.targets = SampleTargets.of((A,), TIERS, ())
    world.write(A.cgroup, cpu_pressure=text, io_pressure=psi(1, 1))
    collector = PressureCollector(world.host)
    row = named(PRESSURE[Scope.POD].panel, run(world, collector)[PRESSURE[Scope.POD].panel][A.cgroup])
    assert row and all(name.startswith("pod_io") for name in row)


def stalls(world: World) -> StallsCollector:
    return StallsCollector(world.host)


def test_stalls_of_tiers_and_latency_sensitive_containers(world: World) -> None:
    world.targets = SampleTargets.of((A, B), TIERS, ())
    container = A.containers[1].cgroup
    for cgroup in (container, A.cgroup, B.containers[1].cgroup, TIERS.besteffort):
        world.write(cgroup, cpu_pressure=psi(1000, 100), memory_pressure=psi(50, None), io_pressure="junk\n")
    collector = stalls(world)
    for panel, rows in run(world, collector).items():
        assert not any(named(panel, row) for row in rows.values()), "one reading is no rate"
    world.clock.advance(0.5)
    for cgroup in (container, TIERS.besteffort):
        world.write(cgroup, cpu_pressure=psi(251_000, 150), memory_pressure=psi(50, None))
    found = run(world, collector)
    panels = [kind.panel for kind in STALLS.values()]
    named_rows = {subject: named(panel, row) for panel in panels for subject, row in found[panel].items()}
    assert named_rows == {
        container: {
            "container_cpu_stall_some_us_per_s": 500_000.0,
            "container_cpu_stall_full_us_per_s": 100.0,
            "container_memory_stall_some_us_per_s": 0.0,
        },
        TIERS.besteffort: {
            "tier_cpu_stall_some_us_per_s": 500_000.0,
            "tier_cpu_stall_full_us_per_s": 100.0,
            "tier_memory_stall_some_us_per_s": 0.0,
        },
    }


@pytest.mark.parametrize("again", ["a smaller total", "another cgroup of the same name", "no file in between"])
def test_a_stall_is_never_counted_across_two_lives(world: World, again: str) -> None:
    world.targets = SampleTargets.of((A,), TIERS, ())
    container, collector = A.containers[1].cgroup, stalls(world)
    world.put("proc/pressure/cpu", psi(1, 1))
    world.write(container, cpu_pressure=psi(1000, 0))
    run(world, collector)
    world.clock.advance(1)
    file, newer = world.path(container, "cpu.pressure"), world.root / "newer"
    newer.write_text(psi(500 if again == "a smaller total" else 5000, 0))
    if again == "a smaller total":
        file.write_text(newer.read_text())
    else:
        world.files.drop((str(file),))  # as a kernel's own does, when its cgroup is gone
    if again == "no file in between":
        file.unlink()
        assert container not in run(world, collector)[STALLS[Scope.CONTAINER].panel]
    newer.replace(file)
    row = run(world, collector)[STALLS[Scope.CONTAINER].panel][container]
    assert "container_cpu_stall_some_us_per_s" not in named(STALLS[Scope.CONTAINER].panel, row)


@pytest.mark.parametrize(
    ("version", "unified", "node_psi", "reason"),
    [(1, False, True, "without a v2 tree"), (1, True, False, "psi=0"), (2, False, False, "psi=0"), (2, True, True, "")],
)
def test_why_there_is_no_pressure(tmp_path: Path, version: int, unified: bool, node_psi: bool, reason: str) -> None:
    world = World(tmp_path, version, unified)
    if node_psi:
        world.put("proc/pressure/cpu", psi(1, 1))
    for collector in (PressureCollector(world.host), stalls(world)):
        if not reason:
            assert not any(run(world, collector).values())
            continue
        with pytest.raises(NotApplicable, match=reason):
            run(world, collector)


def test_pressure_of_the_node(v2: World) -> None:
    collector = NodePressureCollector(v2.host)
    with pytest.raises(NotApplicable):
        run(v2, collector)
    for total in (1000, 3000):
        v2.clock.advance(1)
        v2.put("proc/pressure/io", psi(total, total))
        v2.put("proc/pressure/cpu", psi(total, None))
        row = named(NodePressureRow.panel, run(v2, collector)[NodePressureRow.panel][""])
    assert row["node_io_pressure_full_us_per_s"] == 2000.0
    assert "node_memory_pressure_some_avg10_percent" not in row


DIRECT = {"direct_reclaim_pages": 10.0, "swapped_in_pages": 0.5}


@pytest.mark.parametrize(
    ("before", "after", "rates"),
    [
        (
            "pgscan_direct 10\npswpin 5\n",
            "pgscan_direct 30\npswpin 5\n",
            {"direct_reclaim_pages": 10, "swapped_in_pages": 0},
        ),
        ("pgscan_direct 10\noom_kill 1\n", "pgscan_direct 4\noom_kill 3\n", {"oom_kills": 1}),
        ("pgmajfault 1\n", "pgmajfault 5\npswpout 9\n", {"major_faults": 2}),
        ("nr_free_pages 1\n", "nr_free_pages 2\n", {}),
    ],
    ids=["grown", "one fell", "one is new", "none is there"],
)
def test_reclaim_of_the_node(v2: World, before: str, after: str, rates: Mapping[str, float]) -> None:
    collector = ReclaimCollector(v2.host)
    with pytest.raises(NotApplicable, match="vmstat"):
        run(v2, collector)
    for text in (before, after):
        v2.clock.advance(2)
        v2.put("proc/vmstat", text)
        row = named(ReclaimRow.panel, run(v2, collector)[ReclaimRow.panel][""])
    assert row == {f"node_{name}_per_s": rate for name, rate in rates.items()}


def threads(world: World, cgroup: str, tids: Mapping[int, tuple[int, int]]) -> None:
    """Threads of a group by (ns waited, time slices)."""
    listed = "".join(f"{tid}\n" for tid in tids)
    world.put(world.path(cgroup, "tasks" if world.version == 1 else "cgroup.threads"), listed)
    for tid, (wait_ns, slices) in tids.items():
        world.put(f"proc/{tid}/schedstat", f"99 {wait_ns} {slices}\n")


def run_queue(world: World, max_threads: int = 512) -> RunQueueCollector:
    world.put("proc/self/schedstat", "1 2 3\n")
    return RunQueueCollector(world.host, max_threads)


def test_run_queue_delay_is_summed_over_threads_seen_twice(world: World) -> None:
    world.targets = SampleTargets.of((A, B), TIERS, ())
    cgroup = A.containers[1].cgroup
    threads(world, cgroup, {11: (0, 0), 12: (5_000_000, 1), 13: (7, 7)})
    threads(world, B.containers[1].cgroup, {21: (0, 0)})
    collector = run_queue(world)
    assert list(run(world, collector)[RunQueueRow.panel][cgroup]) == pytest.approx([NAN, NAN, 3.0], nan_ok=True)
    world.clock.advance(10)
    shutil.rmtree(world.root / "proc/13")
    threads(world, cgroup, {11: (20_000_000, 4), 12: (1000, 0), 14: (10**9, 9)})  # 12 is another thread now
    rows = run(world, collector)[RunQueueRow.panel]
    assert {name: list(row) for name, row in rows.items()} == {cgroup: pytest.approx([2000.0, 5000.0, 1.0])}


class Batches:
    """One batch a second: stalls, then run-queue delay."""

    def __init__(self, world: World, *collectors: StallsCollector | RunQueueCollector) -> None:
        self.world, self.collectors, self.before_ns = world, collectors, 0

    def run(self, *collectors: StallsCollector | RunQueueCollector) -> None:
        self.world.clock.advance(1)
        tick = replace(self.world.tick(), before_ns=self.before_ns)
        for collector in collectors or self.collectors:
            self.world.store_batch(collector.collect(tick))
        self.before_ns = tick.at_ns

    def delay(self, cgroup: str) -> tuple[float | None, float | None]:
        value = self.world.store.value
        return value(RunQueueRow.run_queue_delay_us_per_s, cgroup), value(RunQueueRow.run_queue_delay_us, cgroup)


def test_threads_are_read_only_where_a_task_waited(world: World) -> None:
    world.targets = SampleTargets.of((A,), TIERS, ())
    cgroup, total_us, collector = A.containers[1].cgroup, 0, run_queue(world)
    batches = Batches(world, stalls(world), collector)

    def second(waited_us: int, slices: int) -> tuple[float | None, float | None]:
        """``slices``: so far, of the one thread that waits as long as the container stalls."""
        nonlocal total_us
        total_us += waited_us
        world.write(cgroup, cpu_pressure=psi(total_us, 0))
        threads(world, cgroup, {11: (total_us * 1000, slices)})
        batches.run()
        return batches.delay(cgroup)

    assert second(700, 1) == (None, None)
    assert second(800, 3) == (800.0, 400.0)
    assert second(0, 9) == (0.0, 0.0)
    (world.root / "proc/11/schedstat").write_text("not to be read")
    batches.run()
    assert batches.delay(cgroup) == (0.0, 0.0), "nobody waited, so nobody is read"
    assert second(500, 20) == (500.0, None), "all of it in the last second; how many slices is not known"
    assert second(600, 22) == (600.0, 300.0)
    assert collector.period_s == TICK_S


def test_a_batch_that_was_left_out_is_not_taken_for_a_quiet_one(world: World) -> None:
    world.targets = SampleTargets.of((A,), TIERS, ())
    cgroup, first, second = A.containers[1].cgroup, stalls(world), run_queue(world)
    batches = Batches(world, first, second)
    world.write(cgroup, cpu_pressure=psi(0, 0))
    threads(world, cgroup, {11: (0, 0)})
    batches.run()
    world.write(cgroup, cpu_pressure=psi(4000, 0))
    threads(world, cgroup, {11: (4_000_000, 4)})
    batches.run(first)
    batches.run()
    assert batches.delay(cgroup) == (2000.0, 1000.0)


def test_without_psi_all_threads_are_read_and_seldom(world: World) -> None:
    world.targets = SampleTargets.of((A,), TIERS, ())
    cgroup, collector = A.containers[1].cgroup, run_queue(world)
    batches = Batches(world, collector)
    for wait_ns in (0, 3_000_000):
        threads(world, cgroup, {11: (wait_ns, 1)})
        batches.run()
    assert batches.delay(cgroup) == (3000.0, 0.0)
    assert collector.period_s == SLOW_S


def test_threads_are_bounded_for_the_node(world: World) -> None:
    world.targets = SampleTargets.of((pod("a", containers=("x", "y")),), TIERS, ())
    for container in world.targets.cgroups[Scope.CONTAINER]:
        threads(world, container.path, dict.fromkeys(range(100, 110), (0, 0)))
    rows = run(world, run_queue(world, max_threads=6))[RunQueueRow.panel]
    assert [row[2] for row in rows.values()] == [3.0, 3.0]


def test_a_kernel_without_schedstat(world: World) -> None:
    with pytest.raises(NotApplicable, match="schedstat"):
        run(world, RunQueueCollector(world.host))


class FakeMeter:
    def __init__(self, counts: Mapping[str, float] | None) -> None:
        self.counts, self.closed = counts, False

    def read(self) -> Mapping[str, float] | None:
        if self.counts == {}:
            raise PerfError(5, "read")
        return self.counts

    def close(self) -> None:
        self.closed = True


class FakeCounters:
    """Counts by the last element of a cgroup's directory; one that is not named has vanished."""

    def __init__(self, counts: Mapping[str, Mapping[str, float] | None], why: str = "") -> None:
        self.counts, self.why = counts, why
        self.opened: list[FakeMeter] = []

    def unavailable(self) -> str:
        return self.why

    def descriptors(self) -> int:
        return 4

    def open(self, directory: str) -> FakeMeter:
        name = Path(directory).name
        if name not in self.counts:
            raise FileNotFoundError(2, "gone", directory)
        self.opened.append(FakeMeter(self.counts[name]))
        return self.opened[-1]


def test_cycles_per_instruction_of_a_window(world: World) -> None:
    world.targets = SampleTargets.of((pod("a", containers=("x", "gone", "idle", "bad")),), TIERS, ())
    counters = FakeCounters({"x": {"cycles": 3e9, "instructions": 2e9}, "idle": None, "bad": {}})
    collector = CyclesCollector(world.host, counters)  # type: ignore[arg-type]
    assert run(world, collector) == {}
    world.clock.advance(10)
    rows = run(world, collector)[CyclesRow.panel]
    cgroup = world.targets.cgroups[Scope.CONTAINER][0].path
    assert {name: list(row) for name, row in rows.items()} == {cgroup: [1.5, 2e8, 3e9, 2e9]}
    assert len(counters.opened) == 3 and all(meter.closed for meter in counters.opened)
    assert [run(world, collector) for _ in range(4)] == [{}] * 4 and len(counters.opened) == 3
    run(world, collector)
    assert len(counters.opened) == 6
    collector.close()
    assert all(meter.closed for meter in counters.opened)


def test_containers_take_turns(world: World) -> None:
    names = ("a", "b", "c")
    world.targets = SampleTargets.of((pod("p", containers=names),), TIERS, ())
    counters = FakeCounters({name: {"cycles": 1.0, "instructions": 1.0} for name in names})
    collector = CyclesCollector(world.host, counters, max_descriptors=8)  # type: ignore[arg-type]
    measured = []
    for _ in range(18):
        measured += [sorted(Path(name).name for name in rows) for rows in run(world, collector).values()]
        world.clock.advance(10)
    assert measured == [["a", "b"], ["c"], ["a", "b"]]


def test_no_counters_is_said_with_its_reason(world: World) -> None:
    counters = FakeCounters({}, "cycles: this CPU has no such event")
    with pytest.raises(NotApplicable, match="no such event"):
        run(world, CyclesCollector(world.host, counters))  # type: ignore[arg-type]
