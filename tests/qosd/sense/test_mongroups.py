"""Bandwidth and cache of containers that have a monitoring group of their own. Emulated: trees of files."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

import pytest

from qosd.sense.mongroups import MonGroupsCollector
from qosd.sense.targets import SampleTargets
from qosd.sense.tick import NotApplicable
from tests.qosd.sense.trees import TIERS, World, named, pod, run

A = pod("a", containers=("x", "y"))
X, Y = (container.cgroup for container in A.containers[1:])


def monitored(world: World, name: str, cache: int, control_group: str = "", **texts: str) -> None:
    world.put("resctrl/schemata", "L3:0=7ff\n")
    if control_group:
        world.put(f"resctrl/{control_group}/tasks", "")
    directory = f"resctrl/{control_group}/mon_groups/{name}/mon_data/mon_L3_{cache:02}"
    for feature, text in texts.items():
        world.put(f"{directory}/{feature}", f"{text}\n")


def figures(world: World, collector: MonGroupsCollector) -> dict[str, Mapping[str, float]]:
    """By cgroup."""
    world.clock.advance(10)
    return {
        subject: {name.removeprefix(f"{panel.scope}_"): value for name, value in named(panel, row).items()}
        for panel, rows in run(world, collector).items()
        for subject, row in rows.items()
    }


@pytest.fixture
def collector(v2: World) -> MonGroupsCollector:
    v2.targets = SampleTargets.of((A, pod("b")), TIERS, ())
    return MonGroupsCollector(v2.host)


def test_domains_are_summed_by_container_and_containers_by_pod(v2: World, collector: MonGroupsCollector) -> None:
    for count in (1000, 51_000):
        for cache in (0, 1):
            texts = {"llc_occupancy": "4096", "mbm_total_bytes": str(count), "mbm_local_bytes": str(count // 10)}
            monitored(v2, "a-x", cache, **texts)
        monitored(v2, "a-y", 0, control_group="LS", llc_occupancy="1", mbm_total_bytes=str(count))
        monitored(v2, "not-a-container", 0, mbm_total_bytes="7")
        found = figures(v2, collector)
    x = {"llc_occupancy_bytes": 8192.0, "mbm_total_bytes_per_s": 10_000.0, "mbm_local_bytes_per_s": 1000.0}
    y = {"llc_occupancy_bytes": 1.0, "mbm_total_bytes_per_s": 5000.0}
    assert found == {X: x, Y: y, A.cgroup: {name: x[name] + y[name] for name in y}}


@pytest.mark.parametrize("text", ["Unavailable", "Error", "nonsense", ""])
def test_a_sum_of_which_a_part_is_missing_is_missing(v2: World, collector: MonGroupsCollector, text: str) -> None:
    for second in (text, "9000"):
        monitored(v2, "a-x", 0, llc_occupancy="1", mbm_total_bytes="1000")
        monitored(v2, "a-x", 1, llc_occupancy="2", mbm_total_bytes=second)
        assert figures(v2, collector)[X] == {"llc_occupancy_bytes": 3.0}
    assert figures(v2, collector)[X] == {"llc_occupancy_bytes": 3.0, "mbm_total_bytes_per_s": 0.0}


def test_a_counter_that_fell_has_no_rate_and_one_that_wrapped_has(v2: World, collector: MonGroupsCollector) -> None:
    for total, local in ((2**64 - 1000, 500), (1000, 100)):
        monitored(v2, "a-x", 0, mbm_total_bytes=str(total), mbm_local_bytes=str(local))
        found = figures(v2, collector)
    assert found[X] == {"mbm_total_bytes_per_s": 200.0}


def test_a_group_that_vanishes_and_comes_again(v2: World, collector: MonGroupsCollector) -> None:
    for name in ("a-x", "a-y"):
        monitored(v2, name, 0, mbm_total_bytes="1000")
    figures(v2, collector)
    shutil.rmtree(v2.root / "resctrl/mon_groups/a-x")
    assert set(figures(v2, collector)) == {Y, A.cgroup}
    monitored(v2, "a-x", 0, mbm_total_bytes="9000")
    assert figures(v2, collector) == {X: {}, Y: {"mbm_total_bytes_per_s": 0.0}, A.cgroup: {}}


@pytest.mark.parametrize("mounted", [True, False])
def test_why_there_is_nothing(v2: World, collector: MonGroupsCollector, mounted: bool) -> None:
    if mounted:
        monitored(v2, "not-a-container", 0, mbm_total_bytes="7")
    with pytest.raises(NotApplicable, match="no container has a monitoring group"):
        run(v2, collector)
