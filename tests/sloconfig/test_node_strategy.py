"""A node's own say in how it is colocated: annotation, ratio labels, and what neither can do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model.nodemetric import AggregatePolicy, CollectPolicy
from koord.overcommit.strategy import ColocationStrategy, KoordColocation
from koord.sloconfig.config import SLOConfig
from koord.sloconfig.loading import load

STRATEGY = "node.koordinator.sh/colocation-strategy"
CPU, MEMORY = "node.koordinator.sh/cpu-reclaim-ratio", "node.koordinator.sh/memory-reclaim-ratio"
MID_CPU = "node.koordinator.sh/mid-static-cpu-reserved-ratio"
MID_MEMORY = "node.koordinator.sh/mid-static-memory-reserved-ratio"
SELECTOR = {"matchLabels": {"pool": "a"}}


def config_of(**strategy: Any) -> SLOConfig:
    loaded = load({"colocation-config": json.dumps({"enable": True, **strategy})})
    assert loaded.rejected == ()
    return loaded.config


@pytest.mark.parametrize(
    ("labels", "annotation", "field", "percent"),
    [
        pytest.param({}, {}, "cpu_reclaim_threshold_percent", 60, id="neither"),
        pytest.param({}, {"cpuReclaimThresholdPercent": 50}, "cpu_reclaim_threshold_percent", 50, id="annotation"),
        pytest.param(
            {CPU: "0.7"}, {"cpuReclaimThresholdPercent": 50}, "cpu_reclaim_threshold_percent", 70, id="the label"
        ),
        pytest.param({MEMORY: "1.5"}, {}, "memory_reclaim_threshold_percent", 150, id="more than there is"),
        pytest.param({MID_CPU: "0.125"}, {}, "mid_static_cpu_reserved_percent", 12, id="truncated"),
        pytest.param({MID_MEMORY: "1"}, {}, "mid_static_memory_reserved_percent", 100, id="all"),
        pytest.param({CPU: "0.29"}, {}, "cpu_reclaim_threshold_percent", 28, id="binary, as upstream"),
        pytest.param({CPU: ".5"}, {}, "cpu_reclaim_threshold_percent", 50, id="without a zero"),
        pytest.param({CPU: "5e-1"}, {}, "cpu_reclaim_threshold_percent", 50, id="exponent"),
        pytest.param({CPU: "0"}, {}, "cpu_reclaim_threshold_percent", 0, id="nothing"),
    ],
)
def test_the_label_counts_before_the_annotation_and_that_before_the_configmap(
    labels: dict[str, str], annotation: dict[str, Any], field: str, percent: int
) -> None:
    strategy, problems = config_of().strategy(labels, {STRATEGY: json.dumps(annotation)})
    assert getattr(strategy, field) == percent
    assert problems == ()


@pytest.mark.parametrize(
    ("label", "text", "message"),
    [
        (MEMORY, "abc", "memory-reclaim-ratio: 'abc' is not a ratio such as 0.65"),
        (MEMORY, "-1", "memory-reclaim-ratio: '-1' is not a ratio"),
        (CPU, "", "'' is not a ratio"),
        (CPU, "nan", "'nan' is not a ratio"),
        (CPU, "inf", "'inf' is not a ratio"),
        (CPU, "1_0", "'1_0' is not a ratio"),
        (CPU, " 1", "' 1' is not a ratio"),
        (CPU, "1" * 40, "is not a ratio"),
        (CPU, "1e18", "cpuReclaimThresholdPercent: 100000000000000000000 is not"),
        (MID_CPU, "1.01", f"{MID_CPU}.midStaticCPUReservedPercent: 101 is not in 0..100"),
    ],
)
def test_a11_a_bad_ratio_is_ignored_and_said(label: str, text: str, message: str) -> None:
    config = config_of()
    strategy, problems = config.strategy({label: text}, {})
    assert strategy == config.colocation.cluster
    (problem,) = problems
    assert message in str(problem)
    assert problem.path.startswith(label)


@pytest.mark.parametrize(
    ("text", "stated", "messages"),
    [
        ("{", ColocationStrategy(), [f"{STRATEGY}: '{{' is not JSON"]),
        ("", ColocationStrategy(), [f"{STRATEGY}: '' is not JSON"]),
        ("[]", ColocationStrategy(), [f"{STRATEGY}: a list is not an object"]),
        ("null", ColocationStrategy(), []),
        ('{"enable": "no"}', ColocationStrategy(), [f"{STRATEGY}.enable: 'no' is neither true nor false"]),
        (
            '{"enable": false, "midUnallocatedPercent": 120}',
            ColocationStrategy(enable=False),
            [f"{STRATEGY}.midUnallocatedPercent: 120 is not in 0..100"],
        ),
        (
            '{"enable": false, "metricAggregatePolicy": {"durations": ["-1m"]}}',
            ColocationStrategy(enable=False),
            [f"{STRATEGY}.metricAggregatePolicy.durations[0]: '-1m' is not a duration"],
        ),
        ('{"extensions": {"Object": {"a": 1}}}', ColocationStrategy(extensions={"a": 1}), []),
        (
            '{"extensions": {"a": 1, "koord": {"coverRunningPods": false}}}',
            ColocationStrategy(extensions={"a": 1, "koord": KoordColocation(cover_running_pods=False)}),
            [],
        ),
        (
            '{"extensions": {"koord": {"coverRunningPods": "no"}}}',
            ColocationStrategy(extensions={"koord": KoordColocation()}),
            [f"{STRATEGY}.extensions.koord.coverRunningPods: 'no' is neither true nor false"],
        ),
        (
            '{"extensions": {"koord": 7}}',
            ColocationStrategy(),
            [f"{STRATEGY}.extensions.koord: 7 is not an object"],
        ),
    ],
)
def test_a_bad_part_of_the_annotation_costs_itself(text: str, stated: ColocationStrategy, messages: list[str]) -> None:
    config = config_of()
    strategy, problems = config.strategy({}, {STRATEGY: text})
    expected = config.colocation.cluster
    assert strategy.enable is (stated.enable is not False)
    assert strategy.extensions == stated.extensions
    assert strategy.mid_unallocated_percent == expected.mid_unallocated_percent
    assert strategy.metric_aggregate_policy == expected.metric_aggregate_policy
    assert len(problems) == len(messages)
    assert all(message in str(problem) for problem, message in zip(problems, messages, strict=True))


@pytest.mark.parametrize("cluster", [False, True])
@pytest.mark.parametrize("entry", [None, False, True])
@pytest.mark.parametrize("annotation", [None, False, True])
def test_a_cluster_that_does_not_colocate_does_so_nowhere(
    cluster: bool, entry: bool | None, annotation: bool | None
) -> None:
    node = {"nodeSelector": SELECTOR, "enable": entry}
    config = load({"colocation-config": json.dumps({"enable": cluster, "nodeConfigs": [node]})}).config
    strategy, _ = config.strategy({"pool": "a"}, {STRATEGY: json.dumps({"enable": annotation})})
    of_the_node = next(level for level in (annotation, entry, cluster) if level is not None)
    assert strategy.enable is (cluster and of_the_node)


DEFAULT_POLICY = CollectPolicy(
    aggregate_duration_seconds=300,
    report_interval_seconds=60,
    node_aggregate_policy=AggregatePolicy(durations=("5m0s", "10m0s", "30m0s")),
    node_memory_collect_policy="usageWithoutPageCache",
)


def collect(**changes: Any) -> CollectPolicy:
    members = {name: getattr(DEFAULT_POLICY, name) for name in DEFAULT_POLICY.__struct_fields__}
    return CollectPolicy(**{**members, **changes})


@pytest.mark.parametrize(
    ("strategy", "annotation", "policy"),
    [
        pytest.param({}, {}, DEFAULT_POLICY, id="defaults"),
        pytest.param({"metricReportIntervalSeconds": 20}, {}, collect(report_interval_seconds=20), id="configured"),
        pytest.param(
            {"metricReportIntervalSeconds": 20, "enable": False}, {}, DEFAULT_POLICY, id="of a disabled strategy none"
        ),
        pytest.param({"metricReportIntervalSeconds": 20}, {"enable": False}, DEFAULT_POLICY, id="nor of such a node"),
        pytest.param(
            {}, {"metricAggregateDurationSeconds": 60}, collect(aggregate_duration_seconds=60), id="annotated"
        ),
        pytest.param(
            {"metricAggregatePolicy": {"durations": ["1m"]}, "metricMemoryCollectPolicy": "usageWithPageCache"},
            {},
            collect(
                node_aggregate_policy=AggregatePolicy(durations=("1m0s",)),
                node_memory_collect_policy="usageWithPageCache",
            ),
            id="all kinds",
        ),
    ],
)
def test_the_policy_by_which_a_node_measures(
    strategy: dict[str, Any], annotation: dict[str, Any], policy: CollectPolicy
) -> None:
    assert config_of(**strategy).collect_policy({}, {STRATEGY: json.dumps(annotation)}) == policy


@pytest.mark.parametrize("broken", ["{bad", '{"metricReportIntervalSeconds": 30, "enable": 0}'])
def test_a14_a_broken_key_changes_no_policy(broken: str) -> None:
    before = config_of(metricReportIntervalSeconds=20)
    loaded = load({"colocation-config": broken}, before)
    assert loaded.config.collect_policy({}, {}) == collect(report_interval_seconds=20)
    assert [each.event_reason for each in loaded.rejected] == ["ColocationCfgUnmarshalFailed"]


@given(st.text(), st.text(), st.text())
def test_no_metadata_raises(annotation: str, cpu: str, mid: str) -> None:
    strategy, _ = config_of().strategy({CPU: cpu, MID_CPU: mid}, {STRATEGY: annotation})
    assert 0 <= (strategy.mid_static_cpu_reserved_percent or 0) <= 100
    assert (strategy.cpu_reclaim_threshold_percent or 0) >= 0
