"""What best-effort asks for and can get: of pods that run, and as fresh as suppression needs it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from koord.model.qos import QoSClass
from qosd.model.snapshot import PodView
from qosd.sense.besteffort import BestEffortCollector, BestEffortRow
from qosd.sense.meters import path_of
from qosd.sense.targets import SampleTargets
from tests.qosd.contexts import EXTENDED, extended
from tests.qosd.sense.trees import TIERS, World, pod

TIER = "/kubepods/besteffort"
FOUR_CORES = {EXTENDED: json.dumps(extended("main", request="4000"))}


def job(name: str, state: str = "SANDBOX_READY", containers: tuple[str, ...] = ("main",)) -> PodView:
    return pod(name, QoSClass.BE, TIER, containers, state, FOUR_CORES)


def measured(world: World, one: BestEffortCollector, suppresses: bool = False) -> tuple[float, float]:
    """(requested cores, real limit)."""
    batch = dict(one.collect(replace(world.tick(), suppresses=suppresses)))
    _, request, limit = batch[BestEffortRow.panel][""]
    return request, limit


def cpus(world: World, cgroup: str, text: str) -> None:
    world.put(Path(path_of(world.tree, cgroup, "cpuset_cpus")), f"{text}\n")


@pytest.mark.parametrize(
    ("pods", "cores"),
    [
        ([job("a"), job("b")], 8.0),
        ([job("a"), job("done", "SANDBOX_NOTREADY", containers=())], 4.0),
        ([job("done", "SANDBOX_NOTREADY", containers=())], 0.0),
        ([pod("ls", annotations=FOUR_CORES)], 0.0),
    ],
)
def test_finished_pods_ask_for_nothing(world: World, pods: list[PodView], cores: float) -> None:
    world.targets = SampleTargets.of(tuple(pods), TIERS, ())
    cpus(world, TIER, "0-3")
    assert measured(world, BestEffortCollector(world.host)) == (cores, 4.0)


@pytest.mark.parametrize("suppresses", [True, False])
def test_a_set_that_suppression_widened_counts_at_once(world: World, suppresses: bool) -> None:
    busy = job("a")
    container = busy.containers[1].cgroup
    world.targets = SampleTargets.of((busy,), TIERS, ())
    one = BestEffortCollector(world.host)
    cpus(world, TIER, "0-7")
    limits = []
    for text in ("0-1", "0-3", "0-5", *["0-7"] * 10):
        cpus(world, container, text)
        limits.append(measured(world, one, suppresses)[1])
        world.clock.advance(1)
    assert limits[:4] == ([2.0, 4.0, 6.0, 8.0] if suppresses else [2.0] * 4)
    assert limits[-1] == 8.0
