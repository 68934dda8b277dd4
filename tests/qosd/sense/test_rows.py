"""What collectors produce is what their rows declare, and nobody reads a metric that no row declares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from koord.model.qos import QoSClass
from koord.model.slo import HostApplication
from qosd.model.metric import CGROUP_SCOPES, Scope
from qosd.predict.bank import Bank
from qosd.predict.reclaimable import Amount, PredictionSettings, predict
from qosd.sense.cycles import CyclesCollector
from qosd.sense.meters import REFRESH_TICKS, path_of
from qosd.sense.node import NodeRow
from qosd.sense.prediction import PredictionRow
from qosd.sense.row import Column, Panel, Row, constructor
from qosd.sense.sampler import CollectorRow, Sampler
from qosd.sense.table import COLLECTORS, METRICS, PANELS
from qosd.sense.targets import SampleTargets
from qosd.sense.tick import Collector
from qosd.sense.usage import UsageRow
from tests.qosd.sense import test_mongroups as mongroups
from tests.qosd.sense.test_contention import FakeCounters, psi, threads
from tests.qosd.sense.test_counted import io, memory_events
from tests.qosd.sense.test_devices import diskstats, monitored
from tests.qosd.sense.test_podnetwork import process
from tests.qosd.sense.test_usage import MEMINFO, V1_NUMA, V2_NUMA, numa_meminfo, stat
from tests.qosd.sense.trees import MEMORY, TIERS, World, pod, run

PODS = pod("a"), pod("b", QoSClass.BE, tier=TIERS.besteffort)
TARGETS = SampleTargets.of(PODS, TIERS, (HostApplication(name="app"),))
NEEDS = {
    "system": {"node", "usage"},
    "besteffort": {"usage"},
    "run_queue": {"stalls"},
    "io": {"usage"},
    "memory_events": {"usage"},
}
OF_V2 = "_memory_low_events_per_s", "_memory_high_events_per_s", "_oom_events_per_s"
NUMA_STAT = {1: V1_NUMA, 2: V2_NUMA}


def populate(world: World) -> None:
    """Everything that any collector reads; what was counted grows with the clock."""
    now = world.clock() // 10**9
    for cgroup in (cgroup for groups in TARGETS.cgroups.values() for cgroup in groups):
        world.usage(cgroup.path, now * 1000, MEMORY, charged=1000)
        for name in ("cpu", "memory", "io"):
            world.put(world.path(cgroup.path, f"{name}.pressure"), psi(now, now))
        threads(world, cgroup.path, {11: (now, now)})
        for name, text in {**io(world.version, (now,) * 4), **memory_events(world.version, *(now,) * 5)}.items():
            world.put(world.path(cgroup.path, name), text)
        world.put(world.path(cgroup.path, "pids.current"), f"{now}\n")
        for name in ("memory_limit_in_bytes", "cpu_quota", "cpu_period"):
            world.put(path_of(world.tree, cgroup.path, name), "100000 100000\n")
    world.put(path_of(world.tree, TIERS.besteffort, "cpuset_cpus"), "0-1\n")
    world.put(path_of(world.tree, TIERS.root, "memory.numa_stat"), NUMA_STAT[world.version].decode())
    for name in ("cpu", "memory", "io"):
        world.put(f"proc/pressure/{name}", psi(now, now))
    world.put("proc/stat", stat(f"{now} 0 0 0 0 0 0 0", f"{now} 0 0 0 0 0 0 0"))
    world.put("proc/meminfo", MEMINFO)
    counters = ("pgscan_direct", "pswpin", "pswpout", "pgmajfault", "oom_kill")
    world.put("proc/vmstat", "".join(f"{name} {now}\n" for name in counters))
    for node in (0, 1):
        world.put(f"sys/devices/system/node/node{node}/meminfo", numa_meminfo(node))
        world.put(f"sys/devices/system/node/node{node}/cpulist", f"{node}\n")
    world.put("proc/self/schedstat", "1 2 3\n")
    world.put("proc/diskstats", diskstats(now, now, now))
    world.put("sys/block/sda/size", "1\n")
    for view, pid in zip(PODS, (31, 32), strict=True):
        process(world, pid, f"net:[{pid}]", now)
        world.put(world.path(view.containers[0].cgroup, "cgroup.procs"), f"{pid}\n")
    if not (host := world.root / "proc/self/ns/net").is_symlink():
        host.parent.mkdir(parents=True)
        host.symlink_to("net:[1]")
    row = f"{now} {now} 0 {now} 0 0 0 0 {now} {now} 0 0 0 0 0 0"
    world.put("proc/net/dev", f"Inter-|\n face |\neth0: {row}\n")
    for name in ("ifindex", "iflink"):
        world.put(f"sys/class/net/eth0/{name}", "1\n")
    world.put("resctrl/schemata", "L3:0=7ff\n")
    for container in ("a-main", "b-main"):
        of_container = {"llc_occupancy": "1", "mbm_total_bytes": str(now), "mbm_local_bytes": str(now)}
        mongroups.monitored(world, container, 0, **of_container)
    monitored(world, "LS", "00", llc_occupancy="1", mbm_total_bytes=str(now), mbm_local_bytes=str(now))


def collectors(world: World) -> list[Collector]:
    """The standard ones; only the CPU's counters, which few machines of developers have, are told."""
    counters = FakeCounters({"main": {"cycles": 3e9, "instructions": 2e9}})
    cycles = CyclesCollector(world.host, counters)  # type: ignore[arg-type]
    found = [collector(world.host) for collector in COLLECTORS]
    return [cycles if collector.name == "cycles" else collector for collector in found]


def same_names(panel: Panel, row: Row) -> bool:
    declared = [f"{panel.scope}_{column.stem}" for column in type(row).columns]
    return declared == [metric.name for metric in panel.metrics] and len(row) == len(declared)


def test_every_collector_produces_what_its_rows_declare(world: World) -> None:
    world.targets = TARGETS
    every = collectors(world)
    produced: dict[str, dict[Panel, Mapping[str, Row]]] = {collector.name: {} for collector in every}
    for _ in range(2 * REFRESH_TICKS + 1):
        populate(world)
        for collector in every:
            produced[collector.name] |= run(world, collector)
        world.clock.advance(10)
    for collector in every:
        panels = produced[collector.name]
        assert set(panels) == set(collector.panels), collector.name
        assert {panel.source for panel in panels} == {collector.name}
        for panel, rows in panels.items():
            assert rows and all(same_names(panel, row) for row in rows.values()), (collector.name, panel.scope)
    declared = {metric.name for metric in METRICS if metric.source not in ("prediction", "collectors")}
    if world.version == 1:
        declared = {name for name in declared if not name.endswith(OF_V2)}
    assert {metric.name for metric, samples in world.store.newest().items() if samples} == declared


def test_the_prediction_and_the_collectors_rows(v2: World) -> None:
    prediction = predict(Bank(), (), Amount(), 0.0, PredictionSettings())
    assert same_names(PredictionRow.panel, prediction.rows()[""])
    Sampler([], v2.store, v2.clock).sample((), TIERS)
    assert set(v2.store.newest()) == set(CollectorRow.panel.metrics)


def rows_of_the_product(row: type[Row] = Row) -> Iterator[type[Row]]:
    for each in row.__subclasses__():
        if "panel" in vars(each) and each.__module__.startswith("qosd."):
            yield each
        yield from rows_of_the_product(each)


@pytest.mark.parametrize("collector", COLLECTORS, ids=lambda collector: str(collector.name))
def test_a_collector_runs_after_those_whose_samples_it_needs(collector: Any) -> None:
    before = [one.name for one in COLLECTORS[: COLLECTORS.index(collector)]]
    assert NEEDS.get(collector.name, set()) <= set(before)


def test_metrics_stand_by_their_objects_and_those_of_one_kind_as_their_collectors_do() -> None:
    *measured, prediction, collectors = PANELS
    assert (prediction, collectors) == (PredictionRow.panel, CollectorRow.panel)
    kinds = [CGROUP_SCOPES if panel.scope in CGROUP_SCOPES else (panel.scope,) for panel in measured]
    assert list(dict.fromkeys(kinds)) == [
        (Scope.NODE,),
        (Scope.NUMA,),
        CGROUP_SCOPES,
        (Scope.DISK,),
        (Scope.NETWORK,),
        (Scope.CACHE,),
    ]
    names = [collector.name for collector in COLLECTORS]
    for kind in kinds:
        places = [names.index(panel.source) for panel in measured if panel.scope in kind]
        assert places == sorted(places)


def test_every_row_is_in_the_table_once() -> None:
    assert sorted(map(repr, (row.panel for row in rows_of_the_product()))) == sorted(map(repr, PANELS))


class Mixed(Row):
    newest: Column = Column("", "", history=False)
    kept: Column = Column("", "")


MIXED = Mixed.by_scope(CGROUP_SCOPES, "test", 1.0)


def test_figures_with_history_come_first_however_they_are_declared() -> None:
    panel = MIXED[Scope.POD].panel
    assert ([metric.name for metric in panel.metrics], panel.kept) == (["pod_kept", "pod_newest"], 1)
    for row in (
        Mixed(newest=1.0, kept=2.0),
        Mixed.in_order(["newest", "kept"])((1.0, 2.0)),
        FAST(newest=1.0, kept=2.0),
    ):
        assert (tuple(row), row.newest, row.kept, type(row)) == ((2.0, 1.0), 1.0, 2.0, Mixed)


FAST = constructor(Mixed)


def test_a_metric_is_that_of_its_objects() -> None:
    assert {scope: row.kept.name for scope, row in MIXED.items()} == {scope: f"{scope}_kept" for scope in CGROUP_SCOPES}
    assert MIXED[Scope.POD].kept is MIXED[Scope.POD].panel.metrics[0]


@pytest.mark.parametrize(
    ("does", "error"),
    [
        (lambda: NodeRow.cpu_usage_core, AttributeError),  # type: ignore[attr-defined]
        (lambda: UsageRow.cpu_usage_cores, AttributeError),  # of what?
        (lambda: MIXED[Scope.NODE].kept, KeyError),
        (lambda: Mixed(kept=1.0), TypeError),  # type: ignore[call-arg]
        (lambda: Mixed(kept=1.0, newest=1.0, other=1.0), TypeError),  # type: ignore[call-arg]
        (lambda: FAST(kept=1.0, other=1.0), TypeError),  # type: ignore[call-arg]
        (lambda: Mixed.in_order(["kept"]), ValueError),
        (lambda: Mixed.in_order(["kept", "newest", "other"]), ValueError),
        (lambda: setattr(Mixed(kept=1.0, newest=1.0), "kept", 2.0), AttributeError),
        (lambda: setattr(Mixed(kept=1.0, newest=1.0), "other", 2.0), AttributeError),
    ],
)
def test_what_nobody_declares(does: Callable[[], object], error: type[Exception]) -> None:
    with pytest.raises(error):
        does()
