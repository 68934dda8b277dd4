"""Pressure, run-queue delay and cycles: exact rates, bounded cost, and why there is nothing."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from koord.host.perf import PerfError
from koord.model.qos import QoSClass
from qosd.metric import Scope
from qosd.sense.cycles import Cycles, CyclesRow
from qosd.sense.pressure import PRESSURE, NodePressure, NodePressureRow, Pressure
from qosd.sense.runqueue import RunQueue, RunQueueRow
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
    collector = Pressure(world.tree, world.files, world.clock, world.root / "proc")
    panel, group = PRESSURE[Scope.POD].panel, A.group
    for some_us, full_us in ((1000, 100), (501_000, 200_100), (501_000, 200_100), (100, 100)):
        world.clock.advance(10)
        world.write(group, cpu_pressure=psi(some_us, None), memory_pressure=psi(some_us, full_us))
        row = named(panel, run(world, collector)[panel][group])
        found = [row.get(f"pod_{name}_us_per_s") for name in ("cpu_pressure_some", "memory_pressure_full")]
        expected = {1000: [None, None], 501_000: [50_000.0, 20_000.0], 100: [None, None]}[some_us]
        assert found == expected or (found == [0.0, 0.0] and some_us == 501_000)
        assert row["pod_cpu_pressure_some_avg300_percent"] == 3.0
        assert row["pod_memory_pressure_full_avg10_percent"] == 0.5
        assert not any(name.startswith(("pod_cpu_pressure_full", "pod_io")) for name in row)


@pytest.mark.parametrize("text", ["", "most avg10=1\n", "full avg10=0 avg60=0 avg300=0 total=1\n"])
def test_pressure_of_no_known_form_is_absent(world: World, text: str) -> None:
    world.targets = SampleTargets.of((A,), TIERS, ())
    world.write(A.group, cpu_pressure=text, io_pressure=psi(1, 1))
    collector = Pressure(world.tree, world.files, world.clock, world.root / "proc")
    row = named(PRESSURE[Scope.POD].panel, run(world, collector)[PRESSURE[Scope.POD].panel][A.group])
    assert row and all(name.startswith("pod_io") for name in row)


@pytest.mark.parametrize(
    ("version", "unified", "node_psi", "reason"),
    [(1, False, True, "without a v2 tree"), (1, True, False, "psi=0"), (2, False, False, "psi=0"), (2, True, True, "")],
)
def test_why_there_is_no_pressure(tmp_path: Path, version: int, unified: bool, node_psi: bool, reason: str) -> None:
    world = World(tmp_path, version, unified)
    if node_psi:
        world.put("proc/pressure/cpu", psi(1, 1))
    collector = Pressure(world.tree, world.files, world.clock, world.root / "proc")
    if not reason:
        assert not any(run(world, collector).values())
        return
    with pytest.raises(NotApplicable, match=reason):
        run(world, collector)


def test_pressure_of_the_node(v2: World) -> None:
    collector = NodePressure(v2.files, v2.clock, v2.root / "proc")
    with pytest.raises(NotApplicable):
        run(v2, collector)
    for total in (1000, 3000):
        v2.clock.advance(1)
        v2.put("proc/pressure/io", psi(total, total))
        v2.put("proc/pressure/cpu", psi(total, None))
        row = named(NodePressureRow.panel, run(v2, collector)[NodePressureRow.panel][""])
    assert row["node_io_pressure_full_us_per_s"] == 2000.0
    assert "node_memory_pressure_some_avg10_percent" not in row


def threads(world: World, group: str, tids: Mapping[int, tuple[int, int]]) -> None:
    """Threads of a group by (ns waited, time slices)."""
    listed = "".join(f"{tid}\n" for tid in tids)
    world.put(world.path(group, "tasks" if world.version == 1 else "cgroup.threads"), listed)
    for tid, (wait_ns, slices) in tids.items():
        world.put(f"proc/{tid}/schedstat", f"99 {wait_ns} {slices}\n")


def run_queue(world: World, max_threads: int = 512) -> RunQueue:
    world.put("proc/self/schedstat", "1 2 3\n")
    return RunQueue(world.tree, world.files, world.clock, world.root / "proc", max_threads)


def test_run_queue_delay_is_summed_over_threads_seen_twice(world: World) -> None:
    world.targets = SampleTargets.of((A, B), TIERS, ())
    group = A.containers[1].group
    threads(world, group, {11: (0, 0), 12: (5_000_000, 1), 13: (7, 7)})
    threads(world, B.containers[1].group, {21: (0, 0)})
    collector = run_queue(world)
    assert list(run(world, collector)[RunQueueRow.panel][group]) == pytest.approx([NAN, NAN, 3.0], nan_ok=True)
    world.clock.advance(10)
    shutil.rmtree(world.root / "proc/13")
    threads(world, group, {11: (20_000_000, 4), 12: (1000, 0), 14: (10**9, 9)})  # 12 is another thread now
    rows = run(world, collector)[RunQueueRow.panel]
    assert {name: list(row) for name, row in rows.items()} == {group: pytest.approx([2000.0, 5000.0, 1.0])}


def test_threads_are_bounded_for_the_node(world: World) -> None:
    world.targets = SampleTargets.of((pod("a", containers=("x", "y")),), TIERS, ())
    for container in world.targets.groups[Scope.CONTAINER]:
        threads(world, container.path, dict.fromkeys(range(100, 110), (0, 0)))
    rows = run(world, run_queue(world, max_threads=6))[RunQueueRow.panel]
    assert [row[2] for row in rows.values()] == [3.0, 3.0]


def test_a_kernel_without_schedstat(world: World) -> None:
    with pytest.raises(NotApplicable, match="schedstat"):
        run(world, RunQueue(world.tree, world.files, world.clock, world.root / "proc"))


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
    collector = Cycles(world.tree, counters, world.clock)  # type: ignore[arg-type]
    assert run(world, collector) == {}
    world.clock.advance(10)
    rows = run(world, collector)[CyclesRow.panel]
    group = world.targets.groups[Scope.CONTAINER][0].path
    assert {name: list(row) for name, row in rows.items()} == {group: [1.5, 2e8, 3e9, 2e9]}
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
    collector = Cycles(world.tree, counters, world.clock, max_descriptors=8)  # type: ignore[arg-type]
    measured = []
    for _ in range(18):
        measured += [sorted(Path(name).name for name in rows) for rows in run(world, collector).values()]
        world.clock.advance(10)
    assert measured == [["a", "b"], ["c"], ["a", "b"]]


def test_no_counters_is_said_with_its_reason(world: World) -> None:
    counters = FakeCounters({}, "cycles: this CPU has no such event")
    with pytest.raises(NotApplicable, match="no such event"):
        run(world, Cycles(world.tree, counters, world.clock))  # type: ignore[arg-type]
