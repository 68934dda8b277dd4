"""Prometheus text: one family per metric, and no series of what is gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from koord.model.slo import HostApplication
from qosd.model.metric import Scope
from qosd.sense.devices import DiskRow
from qosd.sense.exposition import SampleExposition
from qosd.sense.node import NodeRow, NumaRow
from qosd.sense.rdt import CacheRow
from qosd.sense.row import NO_SAMPLE, Panel
from qosd.sense.sampler import CollectorRow
from qosd.sense.targets import SampleTargets
from qosd.sense.usage import USAGE
from tests.qosd.sense.trees import TIERS, World, pod

POD = pod("p", containers=("main",))
APP = HostApplication(name='ap"p\n\\', priority="koord-prod", qos="LS")
TARGETS = SampleTargets.of((POD,), TIERS, (APP,))
CONTAINER = POD.containers[1].cgroup
POD_LABELS = {"namespace": "default", "pod": "p", "uid": "uid-p"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path, 2)

    def put(panel: Panel, subject: str, **values: float) -> None:
        row: Any = tuple(values.get(metric.name, NO_SAMPLE) for metric in panel.metrics)
        world.store.put(panel, 1, {subject: row})

    put(NodeRow.panel, "", node_cpu_usage_cores=1.25, node_memory_usage_bytes=2.0**40 + 1)
    put(USAGE[Scope.POD].panel, POD.cgroup, pod_cpu_usage_cores=0.5)
    put(USAGE[Scope.CONTAINER].panel, CONTAINER, container_cpu_usage_cores=0.25)
    put(USAGE[Scope.TIER].panel, TIERS.besteffort, tier_cpu_usage_cores=0.75)
    put(USAGE[Scope.HOST_APP].panel, APP.name, host_app_cpu_usage_cores=3.0, host_app_memory_usage_bytes=7.0)
    put(CacheRow.panel, "LS/1", cache_llc_occupancy_bytes=64.0, cache_mbm_local_bytes=128.0)
    put(DiskRow.panel, "sda", disk_busy_ratio=0.5)
    put(NumaRow.panel, "2", numa_cpu_usage_cores=0.5)
    put(CollectorRow.panel, "node", collector_duration_us=50.0)
    return world


def samples(world: World, targets: SampleTargets = TARGETS) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text = SampleExposition(world.store).render(targets).decode()
    found = [one for family in text_string_to_metric_families(text) for one in family.samples]
    by_key = {(one.name, frozenset(one.labels.items())): one.value for one in found}
    assert len(by_key) == len(found)
    return by_key


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("koord_qosd_node_cpu_usage_cores", {}, 1.25),
        ("koord_qosd_node_memory_usage_bytes", {}, 2.0**40 + 1),
        ("koord_qosd_pod_cpu_usage_cores", POD_LABELS, 0.5),
        (
            "koord_qosd_container_cpu_usage_cores",
            POD_LABELS | {"container": "main", "container_id": "p-main"},
            0.25,
        ),
        ("koord_qosd_tier_cpu_usage_cores", {"tier": "/kubepods/besteffort"}, 0.75),
        ("koord_qosd_host_app_cpu_usage_cores", {"host_app": APP.name}, 3.0),
        ("koord_qosd_numa_cpu_usage_cores", {"numa_node": "2"}, 0.5),
        ("koord_qosd_disk_busy_ratio", {"device": "sda"}, 0.5),
        ("koord_qosd_cache_llc_occupancy_bytes", {"group": "LS", "cache_id": "1"}, 64.0),
        ("koord_qosd_collector_duration_us", {"collector": "node"}, 50.0),
    ],
)
def test_a_sample_and_its_labels(world: World, name: str, labels: dict[str, str], value: float) -> None:
    assert samples(world)[name, frozenset(labels.items())] == value


def test_what_is_gone_has_no_series(world: World) -> None:
    world.store.drop(Scope.POD, {POD.cgroup})
    world.store.drop(Scope.CONTAINER, {CONTAINER})
    assert not [key for key in samples(world) if "pod" in key[0] or "container" in key[0]]


def test_a_pod_that_went_between_sampling_and_rendering_is_left_out(world: World) -> None:
    assert not [key for key in samples(world, SampleTargets()) if "pod" in key[0] or "container" in key[0]]


def test_nothing_measured_is_an_empty_page(tmp_path: Path) -> None:
    assert SampleExposition(World(tmp_path, 2).store).render(SampleTargets()) == b""


def test_every_family_has_its_help_and_type_once(world: World) -> None:
    lines = SampleExposition(world.store).render(TARGETS).decode().splitlines()
    heads = [tuple(line.split(None, 3)[1:3]) for line in lines if line.startswith("#")]
    assert len(heads) == len(set(heads))
    kinds = {line.split()[2]: line.split()[3] for line in lines if line.startswith("# TYPE")}
    assert kinds["koord_qosd_cache_mbm_local_bytes"] == "counter" and kinds["koord_qosd_disk_busy_ratio"] == "gauge"
