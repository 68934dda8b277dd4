"""Tasks of pods and containers, on both versions."""

from __future__ import annotations

import pytest

from qosd.sense.pids import PIDS, PidsCollector
from qosd.sense.targets import SampleTargets
from tests.qosd.sense.trees import TIERS, World, pod, run

A, B = pod("a"), pod("b")
CONTAINER = A.containers[1].cgroup


def put(world: World, cgroup: str, text: str) -> None:
    world.put(world.path(cgroup, "pids.current"), text)


def counts(world: World, collector: PidsCollector) -> dict[str, float]:
    world.clock.advance(10)
    rows = run(world, collector)
    assert set(rows) == {row.panel for row in PIDS.values()}
    return {subject: row[0] for by_subject in rows.values() for subject, row in by_subject.items()}


def test_tasks_of_pods_and_containers_and_of_nothing_else(world: World) -> None:
    world.targets = SampleTargets.of((A, B), TIERS, ())
    for cgroup, text in {A.cgroup: "12\n", CONTAINER: "11\n", TIERS.burstable: "99\n"}.items():
        put(world, cgroup, text)
    assert counts(world, PidsCollector(world.host)) == {A.cgroup: 12.0, CONTAINER: 11.0}


@pytest.mark.parametrize("text", ["", "many\n", "1 2\n"])
def test_nonsense_costs_its_cgroup_only(world: World, text: str) -> None:
    world.targets = SampleTargets.of((A,), TIERS, ())
    put(world, A.cgroup, text)
    put(world, CONTAINER, "3\n")
    collector = PidsCollector(world.host)
    assert counts(world, collector) == {CONTAINER: 3.0}
    put(world, A.cgroup, "4\n")
    assert counts(world, collector) == {A.cgroup: 4.0, CONTAINER: 3.0}


def test_a_cgroup_that_vanishes_and_comes_again(world: World) -> None:
    world.targets = SampleTargets.of((A,), TIERS, ())
    collector, file = PidsCollector(world.host), world.path(A.cgroup, "pids.current")
    put(world, A.cgroup, "4\n")
    assert counts(world, collector) == {A.cgroup: 4.0}
    file.unlink()
    world.files.drop([str(file)])  # as a kernel's own does, when its cgroup is gone
    assert counts(world, collector) == {}
    put(world, A.cgroup, "2\n")
    assert counts(world, collector) == {A.cgroup: 2.0}
    world.targets = SampleTargets.of((), TIERS, ())
    assert counts(world, collector) == {} and len(world.files) == 0
