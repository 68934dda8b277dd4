"""Whose waiting is best-effort's doing, and whose is not."""

from __future__ import annotations

from typing import Any

import pytest

from koord.host.topology import Topology
from qosd.model.besteffort import BestEffortScheduling
from qosd.model.snapshot import NodeSnapshot
from qosd.strategies.suppression import cpuwait
from qosd.strategies.suppression.allowance import uses_of
from qosd.strategies.suppression.cpuwait import CPUWait
from tests.qosd.podviews import machine, view
from tests.qosd.strategies.suppression.scenes import Use, suppressing, using

TWO, SIXTEEN = machine(2), machine(16)
WEB, OTHER, BE = view("web", "LS"), view("other", "LS"), view("be", "BE", "BestEffort")


def worst(snapshot: NodeSnapshot) -> CPUWait | None:
    uses = uses_of(snapshot)
    assert uses is not None
    return max(cpuwait.of_containers(snapshot, uses), default=None)


def ms(
    waited: float, throttled: float = 0, tasks: float = 1, node: float = 2.0, web: float = 0.5, be: float = 1.5
) -> float:
    """What ``web`` waits in ms per second, on two CPUs."""
    snapshot = using(
        suppressing(topology=TWO), node, (WEB, web), (BE, be), topology=TWO, waits={"web": (waited, throttled, tasks)}
    )
    found = worst(snapshot)
    assert found is not None
    return found.caused / 1000


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ({"waited": 40}, 40),
        ({"waited": 40, "be": 0.75}, 20),
        ({"waited": 40, "be": 0.0, "node": 0.5}, 0),
        ({"waited": 0}, 0),
        ({"waited": float("nan")}, None),
    ],
    ids=["all else is best-effort", "half of it", "none", "it does not wait", "nobody tells"],
)
def test_best_efforts_part_of_what_else_ran(case: dict[str, Any], expected: float | None) -> None:
    if expected is None:
        with pytest.raises(AssertionError):
            ms(**case)
    else:
        assert ms(**case) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("waited", "throttled", "expected"),
    [(800, 800, 0), (799, 1590, 0), (840, 800, 40)],
    ids=["one thread under a quota of 20 %", "two threads: the kernel sums it over CPUs", "and best-effort besides"],
)
def test_a_container_that_its_own_quota_stops_causes_nothing(waited: float, throttled: float, expected: float) -> None:
    assert ms(waited, throttled) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("delay_us", "expected"),
    [(None, 500), (float("nan"), 500), (cpuwait.BRIEF_US, 500), (cpuwait.BRIEF_US - 1, 0), (0.0, 0)],
    ids=["nobody tells", "nobody knows", "as long as a CPU takes to wake", "briefer", "none"],
)
def test_many_brief_waits_count_as_none(delay_us: float | None, expected: float) -> None:
    """What the container waited is known all the same: a trial that runs goes by it."""
    snapshot = using(
        suppressing(topology=TWO), 2.0, (WEB, 0.5), (BE, 1.5),
        topology=TWO, waits={"web": (500, 0, 1)}, delays_us={} if delay_us is None else {"web": delay_us},
    )  # fmt: skip
    found = worst(snapshot)
    assert found is not None
    assert (found.caused / 1000, found.waited / 1000) == (pytest.approx(expected), 500)


def test_a_container_with_more_threads_than_cpus_causes_nothing() -> None:
    """It uses 1.98 of two CPUs; best-effort pods, at the lowest weight, get the rest."""
    assert ms(900, tasks=8, web=1.98, be=0.02) == pytest.approx(9)
    assert ms(900, tasks=2, web=1.98, be=0.02) == pytest.approx(900), "with as many threads as CPUs it was best-effort"


@pytest.mark.parametrize(
    ("uses", "waits", "expected"),
    [
        ([(BE, 4.0)], {}, None),
        ([(WEB, 1.0), (OTHER, 1.0), (BE, 4.0)], {"web": (10, 0, 1), "other": (30, 0, 1)}, "default/other"),
        ([(view("p", "LSR", "Guaranteed", cpus="0-1"), 1.0), (BE, 4.0)], {"p": (30, 0, 1)}, "default/p"),
        ([(view("p", "LSE", "Guaranteed", cpus="0-1"), 1.0), (BE, 4.0)], {"p": (30, 0, 1)}, 0),
        ([(view("p", "LS", "BestEffort"), 1.0), (BE, 4.0)], {"p": (30, 0, 1)}, "default/p"),
        ([(view("p", "LS", band="koord-free"), 1.0), (BE, 4.0)], {"p": (30, 0, 1)}, None),
        ([(view("p", "SYSTEM"), 1.0), (BE, 4.0)], {"p": (30, 0, 1)}, None),
    ],
    ids=["nobody", "the worst counts", "LSR", "LSE has its own CPUs", "LS in BestEffort", "free", "SYSTEM"],
)
def test_who_counts(uses: list[Use], waits: dict[str, Any], expected: str | int | None) -> None:
    by = suppressing(pods=[pod for pod, _ in uses], topology=SIXTEEN)
    found = worst(using(by, 8.0, *uses, topology=SIXTEEN, waits=waits))
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert (found.pod == expected) if expected else (found.caused == 0)


def test_what_ran_elsewhere_does_not_count() -> None:
    """Best-effort pods are held to CPUs that the pod is not bound to, or to some of its own."""
    bound = view("p", "LSR", "Guaranteed", cpus="0-1")
    waits = {"p": (40.0, 0.0, 1.0)}

    def by_cpus(cpus: str, topology: Topology = SIXTEEN) -> float:
        by, left = suppressing(pods=[bound], topology=topology), BestEffortScheduling("", cpus)
        found = worst(using(by, 3.0, (bound, 1.0), (BE, 2.0), topology=topology, waits=waits, left=left))
        assert found is not None
        return found.caused / 1000

    assert by_cpus("8-15") == 0
    assert by_cpus("0-1") == pytest.approx(40)
    assert by_cpus("1-2") == pytest.approx(40), "all else that ran there was best-effort"


def test_between_nothing_and_what_it_waited() -> None:
    for node in (0.0, 1.0, 2.0, 4.0):
        for be in (0.0, 0.1, 2.0, 4.0):
            assert 0 <= ms(40, node=node, be=be) <= 40
