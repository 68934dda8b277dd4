"""What nodes say of this second: which report counts, for how long, and whom it wakes."""

from __future__ import annotations

import pytest

from koord.model.nodelink import STALE_S
from koord.overcommit.amounts import ZERO, CPUMemory
from koord.overcommit.report import UNBOUNDED, FreshPod, FreshUsage, ceiling
from koord.pb.koord import nodelink_pb2 as pb
from koord_manager.freshusage import FreshFigures
from qosd.cluster.nodelink import encoded

GIB = 1 << 30


class Listened:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.figures = FreshFigures(lambda: self.now_s)
        self.woken: list[str] = []
        self.figures.listener = self.woken.append

    def take(self, cpu_milli: int, sequence: int, instance: str = "i", memory_bytes: int = GIB) -> None:
        """A report of which the system has 100m, and a pod the rest."""
        pod = FreshPod("shop", "web", "", CPUMemory(cpu_milli - 100, memory_bytes))
        usage = FreshUsage(CPUMemory(cpu_milli, 2 * GIB), CPUMemory(100, 0), (pod,))
        message = encoded("n1", instance, sequence, 0, usage)
        self.figures.take(message, pb.NodeReport.FromString(message))

    @property
    def cpu_milli(self) -> int | None:
        usage = self.figures.usage("n1")
        return None if usage is None else usage.high_priority.cpu_milli


def test_the_newest_of_an_instance_counts() -> None:
    made = Listened()
    assert made.cpu_milli is None
    for cpu_milli, sequence, instance, counts_milli in (
        (1000, 5, "a", 1000),
        (2000, 4, "a", 1000),
        (2000, 5, "a", 1000),
        (3000, 6, "a", 3000),
        (4000, 1, "b", 4000),
    ):
        made.take(cpu_milli, sequence, instance)
        assert made.cpu_milli == counts_milli


@pytest.mark.parametrize(("age_s", "counts"), [(0.0, True), (STALE_S, True), (STALE_S + 0.1, False)])
def test_an_old_figure_is_none(age_s: float, counts: bool) -> None:
    made = Listened()
    made.take(1000, 1)
    made.now_s += age_s
    assert (made.cpu_milli is not None, len(made.figures)) == (counts, int(counts))


def test_it_wakes_above_the_ceiling_alone() -> None:
    made = Listened()
    made.take(1000, 1)
    assert made.woken == ["n1"], "nobody has looked yet"
    made.figures.set_wake_threshold("n1", CPUMemory(1500, GIB))
    for sequence, (cpu_milli, memory_bytes, wakes) in enumerate(
        [(1500, GIB, False), (1501, GIB, True), (100, GIB + 1, True), (1000, GIB, False)], start=2
    ):
        made.woken.clear()
        made.take(cpu_milli, sequence, memory_bytes=memory_bytes)
        assert bool(made.woken) is wakes, (cpu_milli, memory_bytes)


def test_a_standby_wakes_nobody_and_a_node_that_is_gone_is_forgotten() -> None:
    made = Listened()
    made.figures.listener = None
    made.take(1000, 1)
    made.figures.forget("n1")
    assert made.cpu_milli is None
    made.figures.set_wake_threshold("n1", UNBOUNDED)
    assert made.cpu_milli is None


@pytest.mark.parametrize(
    ("used", "shown", "offered", "percent", "highest"),
    [
        ((1000, GIB), (4000, 8 * GIB), (4000, 8 * GIB), 100, (1400, GIB + 8 * GIB // 10)),
        ((1000, GIB), (4000, 10 * GIB), (4200, 10 * GIB), 100, (1600, 2 * GIB)),
        ((1000, GIB), (4000, 10 * GIB), (3700, 10 * GIB), 100, (1100, 2 * GIB)),
        ((1000, GIB), (4000, 10 * GIB), (3000, 0), 100, (1000, GIB)),
        ((1000, GIB), (4000, 10 * GIB), (4000, 10 * GIB), 200, (1200, GIB + GIB // 2)),
        ((1000, GIB), (0, 10 * GIB), (0, 10 * GIB), 100, (UNBOUNDED.cpu_milli, 2 * GIB)),
        ((1000, GIB), None, (4000, 10 * GIB), 100, (UNBOUNDED.cpu_milli, UNBOUNDED.memory_bytes)),
    ],
    ids=["margin", "offers more", "offers less", "far less", "normalized", "no CPU", "nothing"],
)
def test_the_use_that_is_worth_a_look(
    used: tuple[int, int], shown: tuple[int, int] | None, offered: tuple[int, int], percent: int,
    highest: tuple[int, int],
) -> None:  # fmt: skip
    """At a tenth of what is shown."""
    what = None if shown is None else CPUMemory(*shown)
    assert ceiling(CPUMemory(*used), what, CPUMemory(*offered), 0.1, percent) == CPUMemory(*highest)
    assert CPUMemory(*highest).min(ZERO) == ZERO
