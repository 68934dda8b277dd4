"""koordlet's metrics: each has its row, and each row's samples have koordlet's labels, from made-up reports."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families

from koord.host.files import Target
from koord.host.taskattributes import OOM_SCORE, TaskAttribute
from koord.model.qos import QoSClass
from koord.model.slo import HostApplication
from qosd.act.evictionreport import EvictionCount, EvictionReport
from qosd.act.filereport import FileReport
from qosd.act.ownership import Ownership
from qosd.decide.decision import Decision, Opinion, Stage
from qosd.decide.runner import Decisions, StrategyResult, StrategyStatus
from qosd.koordlet.page import KoordletPage, ScrapeInputs
from qosd.koordlet.table import KOORDLET, PREFIX, KoordletMetric
from qosd.metrics import Metrics
from qosd.model.besteffort import BestEffortScheduling
from qosd.model.metric import Scope
from qosd.model.policy import EffectivePolicy, Pool
from qosd.report import TickReport
from qosd.sense.besteffort import BestEffortRow
from qosd.sense.cycles import CyclesRow
from qosd.sense.node import NodeRow
from qosd.sense.prediction import PredictionRow
from qosd.sense.pressure import PRESSURE
from qosd.sense.rdt import CacheRow
from qosd.sense.row import NO_SAMPLE, Panel
from qosd.sense.system import SystemRow
from qosd.sense.table import METRICS
from qosd.sense.targets import SampleTargets
from qosd.sense.usage import USAGE
from tests.fakes.clock import S
from tests.qosd.contexts import EXTENDED, extended
from tests.qosd.podviews import snapshot
from tests.qosd.sense.trees import TIERS, World, pod

SHEET = """
start_time collect_node_cpu_info_status collect_node_numa_info_status collect_node_local_storage_info_status
node_used_cpu_cores node_used_memory_bytes pod_eviction pod_eviction_detail be_suppress_cpu_cores
be_suppress_ls_used_cpu_cores be_suppress_be_used_cpu_cores container_scaled_cfs_burst_us
container_scaled_cfs_quota_us cpuset_share_pool_cpu_cores cpuset_be_share_pool_cpu_cores cpuset_share_pool_info
cpuset_be_share_pool_info node_predicted_resource_reclaimable node_predicted_resource_peak node_metric_node_usage
node_metric_system_usage node_metric_numa_node_usage node_metric_numa_system_usage container_core_sched_cookie
core_sched_cookie_manage_status container_oom_score_adj resource_update_duration_milliseconds
kubelet_request_duration_seconds runtime_hook_invoked_duration_milliseconds
runtime_hook_reconciler_invoked_duration_milliseconds host_application_resource_usage node_resource_allocatable
node_priority_resource_reclaimable node_resource_priority_reclaimable_status container_resource_requests
container_resource_limits container_cpi container_psi pod_psi resctrl_llc_occupancy resctrl_memory_bandwidth
"""
NOT_EXPORTED = """
collect_node_cpu_info_status collect_node_numa_info_status collect_node_local_storage_info_status
node_metric_node_usage node_metric_system_usage node_metric_numa_node_usage node_metric_numa_system_usage
container_core_sched_cookie core_sched_cookie_manage_status runtime_hook_reconciler_invoked_duration_milliseconds
node_resource_allocatable
"""
AMOUNTS = extended("main", request="1500", limit="2000", memory="4Gi", memory_request="2Gi")
LS = pod("p", containers=("main",))
BE = pod("b", QoSClass.BE, TIERS.besteffort, containers=("main",), annotations={EXTENDED: json.dumps(AMOUNTS)})
APP = HostApplication(name='ap"p\n\\', priority="koord-prod", qos="LS")
TARGETS = SampleTargets.of((LS, BE), TIERS, (APP,))
CONTAINER, BE_CONTAINER = LS.containers[1].cgroup, BE.containers[1].cgroup
NODE = {"node": "n1"}
OF_POD = {"pod_uid": "uid-p", "pod_name": "p", "pod_namespace": "default"}
NAMED = {"pod_name": "p", "pod_namespace": "default", "container_id": "cri-o://p-main", "container_name": "main"}
OF_CONTAINER = OF_POD | NAMED
SOME_AVG60 = {"psi_resource_type": "mem", "psi_precision": "avg60", "psi_degree": "some"}
BATCH = {
    "pod_uid": "uid-b", "pod_name": "b", "pod_namespace": "default", "container_id": "cri-o://b-main",
    "container_name": "main",
}  # fmt: skip
NOW_NS = 1000 * S


def scored(cgroup: str, score: int) -> TaskAttribute:
    return TaskAttribute(OOM_SCORE, cgroup, score, "")


@dataclass
class Scene:
    """What a scrape finds; everything of a node on which all that is exported has a sample."""

    root: Path
    policy: EffectivePolicy = field(
        default_factory=lambda: replace(
            EffectivePolicy(),
            node=replace(
                EffectivePolicy().node,
                ls_pools=(Pool(0, 0, "4-6"), Pool(0, 1, "8-13")),
                be_pools=(Pool(0, 0, "2-13"),),
                features={"PerCPUMetric": True},
            ),
        )
    )
    results: list[StrategyResult] = field(
        default_factory=lambda: [
            of_strategy("hooks", Decision("", {Target(CONTAINER, "cpu_quota"): Opinion.set(100_000, "spec")})),
            of_strategy("cpuSuppress", Decision("", best_effort=BestEffortScheduling("", cpus="0-2", cpu_milli=2500))),
            of_strategy(
                "cpuBurst",
                Decision(
                    "",
                    {
                        Target(CONTAINER, "cpu_quota"): Opinion.at_least(144_000, "throttled"),
                        Target(CONTAINER, "cpu.max.burst"): Opinion.set(50_000, "saved up"),
                        Target(LS.cgroup, "cpu.max.burst"): Opinion.set(50_000, "the pod's"),
                    },
                ),
                Stage.BURST,
            ),
            of_strategy("oomScoreAdj", Decision("", acts=(scored(CONTAINER, -500), scored("/gone", 7)))),
        ]
    )
    evictions: EvictionReport = field(
        default_factory=lambda: EvictionReport(
            {},
            {"BEMemoryEvict": 3, "": 1},
            {
                ("BEMemoryEvict", "default/new"): EvictionCount(2, NOW_NS - 300 * S),
                ("BEMemoryEvict", "default/old"): EvictionCount(1, NOW_NS - 301 * S),
            },
        )
    )
    targets: SampleTargets = TARGETS
    has_ticked: bool = True

    def __post_init__(self) -> None:
        self.world = World(self.root, 2)
        self.metrics = Metrics()
        self.metrics.write_seconds["cgroup", "done"].observe(0.00003)
        self.metrics.write_seconds["resctrl", "failed"].observe(0.5)
        self.metrics.write_seconds["other", "done"].observe(0.0001)
        self.metrics.kubelet_seconds["/pods", "200"].observe(0.02)
        self.metrics.hook_seconds["PreCreateContainer"].observe(0.0002)
        self._measure()

    def put(self, panel: Panel, subject: str, **values: float) -> None:
        row: Any = tuple(values.get(metric.name, NO_SAMPLE) for metric in panel.metrics)
        self.world.store.put(panel, 1, {subject: row})

    def _measure(self) -> None:
        self.put(NodeRow.panel, "", node_cpu_usage_cores=1.25, node_memory_usage_bytes=2.0**40 + 1)
        self.put(USAGE[Scope.HOST_APP].panel, APP.name, host_app_cpu_usage_cores=3.0, host_app_memory_usage_bytes=7.0)
        self.put(BestEffortRow.panel, "", node_be_cpu_usage_cores=0.75)
        self.put(SystemRow.panel, "", node_non_be_pods_cpu_usage_cores=0.5)
        self.put(
            PRESSURE[Scope.CONTAINER].panel,
            CONTAINER,
            container_memory_pressure_some_avg60_percent=1.5,
            container_cpu_pressure_full_avg10_percent=2.5,
        )
        self.put(PRESSURE[Scope.POD].panel, LS.cgroup, pod_memory_pressure_some_avg60_percent=4.5)
        self.put(CyclesRow.panel, CONTAINER, container_window_cycles=9.0, container_window_instructions=3.0)
        self.put(CacheRow.panel, "LS/1", cache_llc_occupancy_bytes=64.0, cache_mbm_local_bytes=128.0)
        self.put(
            PredictionRow.panel,
            "",
            node_prod_reclaimable_cpu_cores=2.5,
            node_prod_reclaimable_memory_bytes=100.0,
            node_prod_peak_cpu_cores=1.5,
            node_prod_peak_memory_bytes=50.0,
        )

    def report(self) -> TickReport:
        decisions = Decisions(1, 0, NOW_NS, tuple(self.results))
        owners = {
            each.name: Ownership(each.stage, frozenset({target.name for target in each.opinions}))
            for each in self.results
        }
        files = FileReport({}, {}, {}, "", owners, decisions)
        seen = structs.replace(snapshot(self.policy, LS, BE), monotonic_ns=NOW_NS) if self.has_ticked else None
        return TickReport((files, self.evictions), {}, seen, decisions)

    def text(self) -> str:
        page = KoordletPage(self.world.store, "n1", 1_700_000_000.5)
        return page.render(ScrapeInputs(self.report(), self.targets, self.metrics.take(), "cri-o")).decode()

    def samples(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """By name without the prefix, and without what this parser gives counters."""
        found = [one for family in text_string_to_metric_families(self.text()) for one in family.samples]
        by_key = {
            (one.name.removeprefix(PREFIX).removesuffix("_total"), frozenset(one.labels.items())): one.value
            for one in found
        }
        assert len(by_key) == len(found)
        return by_key


def of_strategy(name: str, decision: Decision, stage: Stage = Stage.SPEC) -> StrategyResult:
    return StrategyResult(name, stage, StrategyStatus.ACTIVE, decision)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_every_metric_of_koordlet_has_its_row() -> None:
    assert [metric.name for metric in KOORDLET] == SHEET.split()
    assert {metric.name for metric in KOORDLET if metric.source is None} == set(NOT_EXPORTED.split())
    assert all(metric.remark for metric in KOORDLET if metric.source is None), "with the reason"


def test_every_column_that_koordlet_has_too_is_exported_by_its_row() -> None:
    exported = {metric.name for metric in KOORDLET if metric.source is not None}
    assert {metric.koordlet.name for metric in METRICS if metric.koordlet} <= exported


@pytest.mark.parametrize("metric", [each for each in KOORDLET if each.source is not None], ids=lambda each: each.name)
def test_a_rows_samples_have_its_labels_and_its_kind(scene: Scene, metric: KoordletMetric) -> None:
    families = {family.name: family for family in text_string_to_metric_families(scene.text())}
    family = families[PREFIX + metric.name]
    assert family.type == metric.kind
    assert len(family.samples) > 0
    wanted = {*metric.labels, *(["node"] if metric.by_node else [])}
    assert {frozenset(one.labels.keys() - {"le"}) for one in family.samples} == {frozenset(wanted)}


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("start_time", NODE, 1_700_000_000.5),
        ("node_used_cpu_cores", NODE, 1.25),
        ("node_used_memory_bytes", NODE, 2.0**40 + 1),
        ("be_suppress_ls_used_cpu_cores", NODE, 0.5),
        ("be_suppress_be_used_cpu_cores", NODE, 0.75),
        ("pod_eviction", NODE | {"reason": "trigger by koordlet feature BEMemoryEvict"}, 3.0),
        ("pod_eviction", NODE | {"reason": "begun before the last start"}, 1.0),
        (
            "pod_eviction_detail",
            NODE
            | {
                "pod_namespace": "default",
                "pod_name": "new",
                "reason": "trigger by koordlet feature BEMemoryEvict",
            },
            2.0,
        ),
        ("be_suppress_cpu_cores", NODE | {"type": "cpuset"}, 3.0),
        ("be_suppress_cpu_cores", NODE | {"type": "cfsQuota"}, 2.5),
        ("container_scaled_cfs_burst_us", NODE | NAMED, 50_000.0),
        ("container_scaled_cfs_quota_us", NODE | NAMED, 144_000.0),
        ("cpuset_share_pool_cpu_cores", NODE, 9.0),
        ("cpuset_be_share_pool_cpu_cores", NODE, 12.0),
        ("cpuset_share_pool_info", NODE | {"cpu": "13"}, 1.0),
        ("cpuset_be_share_pool_info", NODE | {"cpu": "2"}, 1.0),
        (
            "node_predicted_resource_reclaimable",
            NODE | {"predictor": "minPredictor", "resource": "cpu", "unit": "core"},
            2.5,
        ),
        (
            "node_predicted_resource_peak",
            NODE | {"predictor": "minPredictor", "resource": "memory", "unit": "byte"},
            50.0,
        ),
        (
            "node_priority_resource_reclaimable",
            NODE | {"priority": "koord-prod", "resource": "memory", "unit": "byte"},
            100.0,
        ),
        ("node_resource_priority_reclaimable_status", NODE | {"priority": "koord-prod"}, 0.0),
        ("container_oom_score_adj", NODE | OF_POD | {"container_name": "main"}, -500.0),
        (
            "resource_update_duration_milliseconds_bucket",
            {"type": "cgroup", "status": "success", "le": "0.04"},
            1.0,
        ),
        ("resource_update_duration_milliseconds_bucket", {"type": "cgroup", "status": "success", "le": "0.01"}, 0.0),
        ("resource_update_duration_milliseconds_sum", {"type": "resctrl-schema", "status": "failed"}, 500.0),
        ("resource_update_duration_milliseconds_count", {"type": "default", "status": "success"}, 1.0),
        (
            "kubelet_request_duration_seconds_bucket",
            {"verb": "GET", "path": "/pods", "code": "200", "le": "0.064"},
            1.0,
        ),
        ("kubelet_request_duration_seconds_sum", {"verb": "GET", "path": "/pods", "code": "200"}, 0.02),
        (
            "runtime_hook_invoked_duration_milliseconds_bucket",
            NODE | {"hook": "all", "stage": "PreCreateContainer", "status": "success", "le": "0.25"},
            1.0,
        ),
        (
            "host_application_resource_usage",
            NODE
            | {"host_application_name": APP.name, "priority_class": "koord-prod", "qos": "LS", "resource": "memory"},
            7.0,
        ),
        (
            "container_resource_requests",
            NODE | BATCH | {"resource": "kubernetes.io/batch-cpu", "unit": "integer"},
            1500.0,
        ),
        (
            "container_resource_requests",
            NODE | BATCH | {"resource": "kubernetes.io/batch-memory", "unit": "byte"},
            2.0 * (1 << 30),
        ),
        (
            "container_resource_limits",
            NODE | BATCH | {"resource": "kubernetes.io/batch-cpu", "unit": "integer"},
            2000.0,
        ),
        ("container_cpi", NODE | OF_CONTAINER | {"cpi_field": "cycles"}, 9.0),
        ("container_cpi", NODE | OF_CONTAINER | {"cpi_field": "instructions"}, 3.0),
        ("container_psi", NODE | OF_CONTAINER | SOME_AVG60 | {"cpu_full_supported": "true"}, 1.5),
        ("pod_psi", NODE | OF_POD | SOME_AVG60 | {"cpu_full_supported": "false"}, 4.5),
        ("resctrl_llc_occupancy", NODE | {"qos": "LS", "cache_id": "1"}, 64.0),
        (
            "resctrl_memory_bandwidth",
            NODE | {"qos": "LS", "cache_id": "1", "mb_type": "mbm_local_bytes"},
            128.0,
        ),
    ],
)
def test_a_sample_and_its_labels(scene: Scene, name: str, labels: dict[str, str], value: float) -> None:
    assert scene.samples()[name, frozenset(labels.items())] == value


def names(scene: Scene) -> set[str]:
    return {name for name, _ in scene.samples()}


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        ({"results": []}, {"be_suppress_cpu_cores", "container_scaled_cfs_burst_us", "container_scaled_cfs_quota_us",
                           "container_oom_score_adj"}),
        ({"evictions": EvictionReport({})}, {"pod_eviction", "pod_eviction_detail"}),
        ({"policy": EffectivePolicy()}, {"cpuset_share_pool_cpu_cores", "cpuset_be_share_pool_cpu_cores",
                              "cpuset_share_pool_info", "cpuset_be_share_pool_info"}),
        ({"targets": SampleTargets()}, {"container_cpi", "container_psi", "pod_psi",
                                        "host_application_resource_usage"}),
    ],
)  # fmt: skip
def test_what_is_not_there_has_no_family(tmp_path: Path, change: dict[str, Any], gone: set[str]) -> None:
    assert names(Scene(tmp_path / "all")) - names(Scene(tmp_path / "less", **change)) == gone


def test_an_old_eviction_is_forgotten_and_its_count_stays(scene: Scene) -> None:
    assert not [labels for name, labels in scene.samples() if ("pod_name", "old") in labels]


def test_single_cpus_only_behind_their_gate(tmp_path: Path) -> None:
    whole = Scene(tmp_path)
    shut = replace(whole.policy, node=replace(whole.policy.node, features={}))
    lacking = {"cpuset_share_pool_info", "cpuset_be_share_pool_info"}
    assert names(whole) - names(Scene(tmp_path / "shut", policy=shut)) == lacking


def test_without_a_prediction_its_status_says_so(scene: Scene) -> None:
    scene.world.store.withdraw(PredictionRow.panel)
    found = scene.samples()
    labels = NODE | {"priority": "koord-prod"}
    assert found["node_resource_priority_reclaimable_status", frozenset(labels.items())] == 1.0
    assert "node_priority_resource_reclaimable" not in {name for name, _ in found}


def test_before_the_first_tick_there_is_what_is_measured_and_counted(tmp_path: Path) -> None:
    at_first = Scene(tmp_path, results=[], has_ticked=False, evictions=EvictionReport({}))
    assert {"start_time", "node_used_cpu_cores", "kubelet_request_duration_seconds_count"} <= names(at_first)
    assert not names(at_first) & {"cpuset_share_pool_cpu_cores", "container_resource_requests", "pod_eviction"}


def test_who_never_scrapes_does_not_import_it() -> None:
    program = "import sys, qosd.daemon; sys.exit(any(name.startswith('qosd.koordlet') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
