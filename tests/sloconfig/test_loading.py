"""What the ConfigMap's text does to the configuration in force: what is bad costs itself, and is said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model.slo import CPUSuppressPolicy
from koord.overcommit.ratios import CPUNormalization, ModelRatios
from koord.sloconfig.config import SLOConfig
from koord.sloconfig.loading import Consequence, LoadedConfig, load, unknown_message
from koord.sloconfig.rows import ROWS, EventReason

KEYS = [row.key for row in ROWS]
LEAF, KEPT = Consequence.LEAF_ABSENT, Consequence.KEY_KEPT
AS_CLUSTER, SKIPPED = Consequence.ENTRY_AS_CLUSTER, Consequence.ENTRY_SKIPPED
CHART = {"colocation-config": '{"enable": true}', "resource-threshold-config": '{"clusterStrategy":{"enable": true}}'}
NODE = {"pool": "a"}
SELECTOR = {"matchLabels": NODE}


def told(loaded: LoadedConfig) -> list[tuple[str, Consequence]]:
    return [(str(each.problem), each.consequence) for each in loaded.rejected]


def of_node(config: SLOConfig, key: str, labels: dict[str, str] | None = None) -> Any:
    section = next(row.section for row in ROWS if row.key == key)
    return getattr(config, section).strategy(NODE if labels is None else labels)


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("colocation-config", "{bad", "colocation-config: '{bad' is not JSON: JSON is malformed"),
        ("colocation-config", "[]", "colocation-config: a list is not an object"),
        ("colocation-config", "7", "colocation-config: 7 is not an object"),
        ("colocation-config", "[" * 100_000, "is nested too deeply"),
        ("colocation-config", '"' + "x" * 2**20 + '"', "1048578 characters' are more than 1048576"),
        ("colocation-config", '{"enable": "yes"}', "colocation-config.enable: 'yes' is neither true nor false"),
        ("colocation-config", '{"nodeConfigs": {}}', "colocation-config.nodeConfigs: an object is not a list"),
        ("resource-threshold-config", '{"clusterStrategy": []}', "clusterStrategy: a list is not an object"),
        ("resource-qos-config", '{"nodeStrategies": 1}', "resource-qos-config.nodeStrategies: 1 is not a list"),
    ],
)
def test_a_bad_key_keeps_what_was_in_force(key: str, text: str, message: str) -> None:
    good = load({**CHART, "cpu-burst-config": '{"clusterStrategy": {"policy": "auto"}}'}).config
    loaded = load({key: text}, good)
    (rejected,) = loaded.rejected
    assert message in str(rejected.problem)
    assert (rejected.key, rejected.consequence) == (key, KEPT)
    assert rejected.event_reason == next(row.event_reason for row in ROWS if row.key == key)
    assert loaded.kept_keys == {key}
    assert of_node(loaded.config, key) == of_node(good, key)


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        (
            "colocation-config",
            '{"cpuReclaimThresholdPercent": -1}',
            "colocation-config.cpuReclaimThresholdPercent: -1 is less than 0",
        ),
        (
            "colocation-config",
            '{"resourceDiffThreshold": 0}',
            "colocation-config.resourceDiffThreshold: 0 is not more than 0",
        ),
        (
            "colocation-config",
            '{"midUnallocatedPercent": 101}',
            "colocation-config.midUnallocatedPercent: 101 is not in 0..100",
        ),
        (
            "colocation-config",
            '{"metricAggregatePolicy": {"durations": ["5m", "soon"]}}',
            "colocation-config.metricAggregatePolicy.durations[1]: 'soon' is not a duration such as 5m or 1h30m",
        ),
        (
            "resource-threshold-config",
            '{"clusterStrategy": {"cpuSuppressPolicy": "quota"}}',
            "resource-threshold-config.clusterStrategy.cpuSuppressPolicy: 'quota' is not one of cpuset, cfsQuota",
        ),
        (
            "cpu-burst-config",
            '{"clusterStrategy": {"cpuBurstPercent": 0}}',
            "cpu-burst-config.clusterStrategy.cpuBurstPercent: 0 is not in 1..10000",
        ),
        (
            "system-config",
            '{"clusterStrategy": {"totalNetworkBandwidth": "10Gbps"}}',
            "system-config.clusterStrategy.totalNetworkBandwidth: '10Gbps' is not a quantity",
        ),
        (
            "host-application-config",
            '{"applications": [{"name": "a"}, {"name": 5}]}',
            "host-application-config.applications[1].name: 5 is not a string",
        ),
        (
            "cpu-normalization-config",
            '{"ratioModel": {"Xeon": {"baseRatio": 5.01}}}',
            "cpu-normalization-config.ratioModel.Xeon.baseRatio: 5.01 is more than 5",
        ),
        (
            "resource-amplification-config",
            '{"resourceAmplificationRatio": {"cpu": 0}}',
            "resource-amplification-config.resourceAmplificationRatio.cpu: 0 is not more than 0",
        ),
    ],
)
def test_a_bad_leaf_counts_as_absent_and_is_told(key: str, text: str, message: str) -> None:
    loaded = load({key: text}, load(CHART).config)
    (rejected,) = loaded.rejected
    assert message in str(rejected.problem)
    assert (rejected.key, rejected.consequence) == (key, LEAF)
    assert loaded.kept_keys == frozenset()
    assert loaded.config.colocation == SLOConfig.defaults().colocation


BESIDE: dict[str, tuple[str, dict[str, Any]]] = {
    "cpu-burst-config": ("clusterStrategy", {"cpuBurstPercent": 200}),
    "resource-threshold-config": ("clusterStrategy", {"enable": True}),
    "resource-qos-config": ("clusterStrategy.lsClass.memoryQOS", {"wmarkRatio": 80}),
    "system-config": ("clusterStrategy", {"minFreeKbytesFactor": 50}),
}
"""Where the leaves below are, and what else is there."""


def at(place: str, members: dict[str, Any]) -> str:
    for name in reversed(place.split(".")):
        members = {name: members}
    return json.dumps(members)


@pytest.mark.parametrize(
    ("key", "leaf", "value", "why"),
    [
        ("cpu-burst-config", "cfsQuotaBurstPercent", 99, "is less than 100"),
        ("resource-threshold-config", "cpuEvictBESatisfactionLowerPercent", 0, "is not in 1..60"),
        ("resource-threshold-config", "cpuEvictBESatisfactionLowerPercent", 61, "is not in 1..60"),
        ("resource-threshold-config", "cpuEvictBESatisfactionUpperPercent", 0, "is not in 1..99"),
        ("resource-threshold-config", "cpuEvictBESatisfactionUpperPercent", 100, "is not in 1..99"),
        ("resource-qos-config", "minLimitPercent", 101, "is not in 0..100"),
        ("resource-qos-config", "lowLimitPercent", 101, "is not in 0..100"),
        ("system-config", "watermarkScaleFactor", 9, "is not in 10..400"),
    ],
)
def test_what_stands_beside_a_leaf_that_is_out_of_range_counts(key: str, leaf: str, value: int, why: str) -> None:
    place, rest = BESIDE[key]
    loaded = load({key: at(place, {leaf: value, **rest})})
    assert told(loaded) == [(f"{key}.{place}.{leaf}: {value} {why}", LEAF)]
    assert loaded.config == load({key: at(place, rest)}).config != SLOConfig.defaults()


def test_the_ratios_of_a_model_leave_another_models_alone() -> None:
    models = {
        "Xeon": {"baseRatio": 5.01, "turboEnabledRatio": 0.99, "hyperThreadEnabledRatio": 1.2},
        "EPYC": {"baseRatio": 1.5, "turboEnabledRatio": 1.6},
    }
    loaded = load({"cpu-normalization-config": json.dumps({"enable": True, "ratioModel": models})})
    of_xeon = "cpu-normalization-config.ratioModel.Xeon"
    assert told(loaded) == [
        (f"{of_xeon}.baseRatio: 5.01 is more than 5", LEAF),
        (f"{of_xeon}.turboEnabledRatio: 0.99 is less than 1", LEAF),
    ]
    assert loaded.config.cpu_normalization.cluster == CPUNormalization(
        enable=True,
        default_ratio=SLOConfig.defaults().cpu_normalization.cluster.default_ratio,
        ratio_model={
            "Xeon": ModelRatios(hyper_thread_enabled_ratio=1.2),
            "EPYC": ModelRatios(base_ratio=1.5, turbo_enabled_ratio=1.6),
        },
    )


def test_a_bad_key_has_its_defaults_when_nothing_was_in_force() -> None:
    loaded = load({"colocation-config": "{bad"})
    assert loaded.config == SLOConfig.defaults()
    assert [each.event_reason for each in loaded.rejected] == [EventReason.COLOCATION]


def test_every_bad_leaf_of_a_key_is_told_and_the_others_count() -> None:
    text = json.dumps({"midUnallocatedPercent": 101, "degradeTimeMinutes": 0, "memoryReclaimThresholdPercent": 50})
    loaded = load({"colocation-config": text})
    assert [each.problem.path.rpartition(".")[2] for each in loaded.rejected] == [
        "midUnallocatedPercent",
        "degradeTimeMinutes",
    ]
    cluster = loaded.config.colocation.cluster
    assert (cluster.mid_unallocated_percent, cluster.degrade_time_minutes) == (0, 15)
    assert cluster.memory_reclaim_threshold_percent == 50


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("colocation-config", "ColocationCfgUnmarshalFailed"),
        ("resource-threshold-config", "SLOCfgUnmarshalFailed"),
        ("resource-qos-config", "SLOCfgUnmarshalFailed"),
        ("cpu-burst-config", "SLOCfgUnmarshalFailed"),
        ("system-config", "SLOCfgUnmarshalFailed"),
        ("host-application-config", "SLOCfgUnmarshalFailed"),
        ("koord-config", "SLOCfgUnmarshalFailed"),
        ("cpu-normalization-config", "CPUNormalizationCfgUnmarshalFailed"),
        ("resource-amplification-config", "ResourceAmplificationCfgUnmarshalFailed"),
    ],
)
def test_the_event_of_each_key(key: str, reason: str) -> None:
    assert [each.event_reason for each in load({key: "{"}).rejected] == [reason]


@pytest.mark.parametrize(
    "data", [{}, {"colocation-config": " \n"}, {"colocation-config": "null"}], ids=["key removed", "blank", "null"]
)
def test_what_is_not_said_any_more_has_its_defaults_again(data: dict[str, str]) -> None:
    before = load({"colocation-config": '{"enable": true, "cpuReclaimThresholdPercent": 80}'}).config
    loaded = load(data, before)
    assert loaded == LoadedConfig(SLOConfig.defaults())
    assert loaded.config.colocation.cluster.cpu_reclaim_threshold_percent == 60


@pytest.mark.parametrize("data", [CHART, {"colocation-config": '{"enable": true, "cpuReclaimThresholdPercent": 80}'}])
def test_a_config_map_that_is_gone_changes_nothing(data: dict[str, str]) -> None:
    before = load(data).config
    gone = load(None, before)
    assert (gone.config, gone.is_absent, gone.kept_keys) == (before, True, frozenset(KEYS))
    assert load(None, gone.config) == gone
    assert not load(data, gone.config).is_absent


def test_without_a_config_map_ever_nothing_is_enabled() -> None:
    assert load(None) == LoadedConfig(SLOConfig.defaults(), is_absent=True)


WMARK_150 = {"lsClass": {"memoryQOS": {"wmarkRatio": 150, "wmarkScalePermill": 20}}}
WMARK_90 = {"lsClass": {"memoryQOS": {"wmarkRatio": 90}}}


def qos(*entries: Any) -> dict[str, str]:
    document = {"clusterStrategy": {"lsClass": {"memoryQOS": {"wmarkRatio": 80}}}, "nodeStrategies": list(entries)}
    return {"resource-qos-config": json.dumps(document)}


@pytest.mark.parametrize(
    ("entries", "problems", "ratio"),
    [
        pytest.param(
            [{"nodeSelector": {"matchLabels": {"x": "1"}}}, {"nodeSelector": SELECTOR, **WMARK_150}],
            [
                (
                    "resource-qos-config.nodeStrategies[1].lsClass.memoryQOS.wmarkRatio: 150 is not in 0..100",
                    LEAF,
                )
            ],
            80,
            id="a bad leaf",
        ),
        pytest.param(
            [{"nodeSelector": SELECTOR, "name": 5, **WMARK_90}],
            [("resource-qos-config.nodeStrategies[0].name: 5 is not a string", LEAF)],
            90,
            id="a bad name",
        ),
        pytest.param(
            [{"nodeSelector": SELECTOR, "lsClass": []}, {"nodeSelector": SELECTOR, **WMARK_90}],
            [("resource-qos-config.nodeStrategies[0].lsClass: a list is not an object", AS_CLUSTER)],
            80,
            id="the nodes of a bad entry are not the next one's",
        ),
        pytest.param(
            [7, {"nodeSelector": SELECTOR, **WMARK_90}],
            [("resource-qos-config.nodeStrategies[0]: 7 is not an object", SKIPPED)],
            90,
            id="no object",
        ),
        pytest.param(
            [{"nodeSelector": "pool=a", **WMARK_150}, {"nodeSelector": SELECTOR, **WMARK_90}],
            [
                (
                    "resource-qos-config.nodeStrategies[0].lsClass.memoryQOS.wmarkRatio: 150 is not in 0..100",
                    LEAF,
                ),
                ("resource-qos-config.nodeStrategies[0].nodeSelector: 'pool=a' is not an object", SKIPPED),
            ],
            90,
            id="a selector of another type",
        ),
        pytest.param(
            [{"nodeSelector": {"matchExpressions": [{"key": "pool", "operator": "Is", "values": ["a"]}]}, **WMARK_90}],
            [
                (
                    "resource-qos-config.nodeStrategies[0].nodeSelector.matchExpressions[0]: 'pool' cannot be used: "
                    "operator 'Is' is not one of In, NotIn, Exists, DoesNotExist",
                    SKIPPED,
                )
            ],
            80,
            id="an operator that does not exist",
        ),
        pytest.param(
            [{"nodeSelector": {"matchLabels": {"pool": "a b"}}, **WMARK_90}],
            [
                (
                    "resource-qos-config.nodeStrategies[0].nodeSelector.matchLabels: 'pool' cannot be used: "
                    "'a b' is not the value of a label",
                    SKIPPED,
                )
            ],
            80,
            id="no label's value",
        ),
        pytest.param([{**WMARK_90}], [], 80, id="without a selector it matches no node"),
        pytest.param([{"nodeSelector": None, **WMARK_90}], [], 80, id="nor with null"),
        pytest.param([{"nodeSelector": {}, **WMARK_90}], [], 90, id="with an empty one every node"),
    ],
)
def test_a_bad_entry_costs_itself_only(entries: list[Any], problems: list[tuple[str, Consequence]], ratio: int) -> None:
    loaded = load(qos(*entries))
    assert told(loaded) == problems
    assert loaded.kept_keys == frozenset()
    assert of_node(loaded.config, "resource-qos-config").ls_class.memory_qos.wmark_ratio == ratio


def test_the_rest_of_an_entry_with_a_bad_leaf_counts() -> None:
    loaded = load(qos({"nodeSelector": SELECTOR, **WMARK_150}))
    memory = of_node(loaded.config, "resource-qos-config").ls_class.memory_qos
    assert (memory.wmark_ratio, memory.wmark_scale_permill) == (80, 20)


def test_entries_of_a_bad_key_do_not_count_either() -> None:
    good = load(qos({"nodeSelector": SELECTOR, **WMARK_90})).config
    document = {"clusterStrategy": {"lsClass": []}, "nodeStrategies": [{"nodeSelector": SELECTOR, **WMARK_150}]}
    loaded = load({"resource-qos-config": json.dumps(document)}, good)
    assert {each.consequence for each in loaded.rejected} == {KEPT}
    assert loaded.config == good


@pytest.mark.parametrize(
    ("labels", "percent"),
    [({"x": "1"}, 50), ({"x": "2"}, 80), ({"x": "3"}, 65), ({}, 65)],
    ids=["the first of two", "only the second", "neither", "no labels"],
)
def test_the_first_entry_that_matches_wins(labels: dict[str, str], percent: int) -> None:
    entries = [
        {"name": "A", "nodeSelector": {"matchLabels": {"x": "1"}}, "cpuReclaimThresholdPercent": 50},
        {
            "name": "B",
            "nodeSelector": {"matchExpressions": [{"key": "x", "operator": "In", "values": ["1", "2"]}]},
            "cpuReclaimThresholdPercent": 80,
        },
    ]
    text = json.dumps({"cpuReclaimThresholdPercent": 65, "nodeConfigs": entries})
    config = load({"colocation-config": text}).config
    assert of_node(config, "colocation-config", labels).cpu_reclaim_threshold_percent == percent


def test_the_charts_configmap() -> None:
    loaded = load(CHART)
    assert loaded.rejected == ()
    assert loaded.config.colocation.cluster.enable is True
    thresholds = loaded.config.thresholds.cluster
    assert (thresholds.enable, thresholds.cpu_suppress_threshold_percent) == (True, 65)
    assert thresholds.cpu_suppress_policy is CPUSuppressPolicy.CPUSET
    assert loaded.config.resource_qos == SLOConfig.defaults().resource_qos


def test_keys_that_no_field_has_are_told_and_stop_nobody() -> None:
    loaded = load({
        "colocation-config": '{"enabled": true, "NodeConfigs": [{"name": "a", "nodeselector": {}, "cpuReclaim": 1}]}',
        "resource-threshold-config": '{"clusterStrategy": {"cpuSupressPolicy": "x"}, "nodeConfigs": []}',
        "other": "{",
    })  # fmt: skip
    assert loaded.rejected == ()
    assert loaded.unknown == (
        "other",
        "colocation-config.enabled",
        "colocation-config.nodeConfigs[0].cpuReclaim",
        "resource-threshold-config.nodeConfigs",
        "resource-threshold-config.clusterStrategy.cpuSupressPolicy",
    )


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("colocation-confg", "colocation-confg: there is no such key (did you mean colocation-config?): it is ignored"),
        ("settings", "settings: there is no such key: it is ignored"),
        ("colocation-config.enabled", "colocation-config.enabled: there is no such field: it is ignored"),
    ],
)
def test_what_is_said_of_an_unknown_key(path: str, words: str) -> None:
    assert unknown_message(path) == words


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(), each, max_size=3),
    max_leaves=10,
)
NAMES = st.sampled_from([
    "clusterStrategy", "nodeStrategies", "nodeConfigs", "nodeSelector", "matchLabels", "matchExpressions", "key",
    "operator", "values", "enable", "name", "applications", "lsClass", "memoryQOS", "wmarkRatio", "networkQOS",
    "egressRequest", "cpuSuppressThresholdPercent", "policy", "schedFeatures", "totalNetworkBandwidth", "extensions",
    "resourceDiffThreshold", "metricAggregatePolicy", "durations", "ratioModel", "baseRatio",
    "resourceAmplificationRatio",
])  # fmt: skip
NEAR_MISSES = st.recursive(
    JSON,
    lambda each: st.lists(each, max_size=3) | st.dictionaries(NAMES, each, max_size=4),
    max_leaves=20,
).map(json.dumps)
TEXTS = st.text() | NEAR_MISSES
DATA = st.dictionaries(st.sampled_from(KEYS), TEXTS)


@given(DATA, DATA)
def test_nothing_raises_and_loading_again_changes_nothing(before: dict[str, str], data: dict[str, str]) -> None:
    loaded = load(data, load(before).config)
    assert load(data, loaded.config) == loaded
    assert {each.key for each in loaded.rejected} <= set(KEYS)


@given(DATA, st.sampled_from(KEYS), TEXTS)
def test_no_key_has_an_influence_on_another(data: dict[str, str], key: str, text: str) -> None:
    one, other = load(data), load({**data, key: text})
    for row in ROWS:
        if row.key != key:
            assert getattr(one.config, row.section) == getattr(other.config, row.section)
    assert [each for each in one.rejected if each.key != key] == [each for each in other.rejected if each.key != key]
