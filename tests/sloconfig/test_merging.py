"""Cluster over defaults and node over cluster, for each kind of field. What a level does not set, it leaves."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model import schema
from koord.sloconfig.loading import load
from koord.sloconfig.rows import ROWS, KeyLayout, KeyRow

BY_KEY = {row.key: row for row in ROWS}
NODE = {"pool": "a"}
SELECTOR = {"nodeSelector": {"matchLabels": NODE}}
BLOCKS, DEVICES = "blkioQOS", "blocks"


def document_of(row: KeyRow[Any], cluster: dict[str, Any], entries: list[dict[str, Any]]) -> str:
    if row.layout is KeyLayout.NESTED:
        return json.dumps({"clusterStrategy": cluster, "nodeStrategies": entries})
    return json.dumps({**cluster, "nodeConfigs": entries})


def merged(key: str, cluster: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    """The strategy of a node that the entry selects, as JSON."""
    row = BY_KEY[key]
    loaded = load({key: document_of(row, cluster, [{**SELECTOR, **entry}])})
    assert loaded.rejected == ()
    strategy = getattr(loaded.config, row.section).strategy(NODE)
    document = json.loads(schema.encode(strategy))
    assert isinstance(document, dict)
    return document


def block(name: str, **limits: int) -> dict[str, Any]:
    return {"name": name, "ioCfg": limits}


def class_of(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"beClass": {"blkioQOS": {"enable": True, "blocks": list(blocks)}}}


@pytest.mark.parametrize(
    ("key", "cluster", "entry", "field", "value"),
    [
        pytest.param("colocation-config", {}, {}, "cpuReclaimThresholdPercent", 60, id="default"),
        pytest.param(
            "colocation-config",
            {"cpuReclaimThresholdPercent": 500},
            {},
            "cpuReclaimThresholdPercent",
            500,
            id="cluster over default",
        ),
        pytest.param(
            "colocation-config",
            {"cpuReclaimThresholdPercent": 70},
            {"memoryReclaimThresholdPercent": 80},
            "cpuReclaimThresholdPercent",
            70,
            id="the cluster's",
        ),
        pytest.param(
            "colocation-config",
            {"cpuReclaimThresholdPercent": 70},
            {"memoryReclaimThresholdPercent": 80},
            "memoryReclaimThresholdPercent",
            80,
            id="the node's",
        ),
        pytest.param("colocation-config", {"enable": True}, {"enable": False}, "enable", False, id="false overrides"),
        pytest.param(
            "colocation-config",
            {"cpuReclaimThresholdPercent": 70},
            {"cpuReclaimThresholdPercent": 0},
            "cpuReclaimThresholdPercent",
            0,
            id="0 overrides",
        ),
        pytest.param(
            "colocation-config",
            {"metricMemoryCollectPolicy": "usageWithPageCache"},
            {"metricMemoryCollectPolicy": ""},
            "metricMemoryCollectPolicy",
            "usageWithPageCache",
            id="empty text does not",
        ),
        pytest.param(
            "colocation-config",
            {"cpuCalculatePolicy": "maxUsageRequest"},
            {"cpuCalculatePolicy": ""},
            "cpuCalculatePolicy",
            "maxUsageRequest",
            id="an empty choice does not",
        ),
        pytest.param("colocation-config", {"enable": True}, {"enable": None}, "enable", True, id="null does not"),
        pytest.param(
            "colocation-config",
            {"midReclaimMode": "static"},
            {"midReclaimMode": "dynamic"},
            "midReclaimMode",
            "dynamic",
            id="the way back from static",
        ),
        pytest.param(
            "colocation-config",
            {"CPURECLAIMTHRESHOLDPERCENT": 70},
            {},
            "cpuReclaimThresholdPercent",
            70,
            id="case of keys",
        ),
        pytest.param(
            "colocation-config",
            {"metricAggregatePolicy": {"durations": ["1m", "2m", "3m"]}},
            {"metricAggregatePolicy": {"durations": ["1h30m"]}},
            "metricAggregatePolicy",
            {"durations": ["1h30m"]},
            id="lists are replaced",
        ),
        pytest.param(
            "colocation-config",
            {"extensions": {"a": {"x": 1}, "b": 1}},
            {"extensions": {"a": {"y": 2}}},
            "extensions",
            {"a": {"y": 2}, "b": 1},
            id="extensions by key",
        ),
        pytest.param(
            "colocation-config",
            {"extensions": {"koord": {"coverRunningPods": False}, "b": 1}},
            {"extensions": {"koord": {}}},
            "extensions",
            {"koord": {"coverRunningPods": False}, "b": 1},
            id="extensions that are read here by field",
        ),
        pytest.param(
            "colocation-config",
            {"extensions": {"Object": {"a": 1}}},
            {"extensions": {"Object": {"b": 2}}},
            "extensions",
            {"a": 1, "b": 2},
            id="extensions as upstream nests them",
        ),
        pytest.param(
            "resource-qos-config",
            {"beClass": {"memoryQOS": {"enable": True, "wmarkRatio": 90}}},
            {"beClass": {"memoryQOS": {"wmarkRatio": 80}, "cpuQOS": {"groupIdentity": -1}}},
            "beClass",
            {"memoryQOS": {"enable": True, "wmarkRatio": 80}, "cpuQOS": {"groupIdentity": -1}},
            id="objects merge to any depth",
        ),
        pytest.param(
            "resource-qos-config",
            class_of(block("sda", readIOPS=100, writeIOPS=200), block("sdb", readIOPS=1)),
            class_of(block("sda", readIOPS=50)),
            "beClass",
            {"blkioQOS": {"enable": True, "blocks": [block("sda", readIOPS=50)]}},
            id="no item keeps what its override does not say",
        ),
        pytest.param(
            "system-config",
            {"schedFeatures": {"A": True, "B": True}},
            {"schedFeatures": {"A": False, "C": True}},
            "schedFeatures",
            {"A": False, "B": True, "C": True},
            id="maps merge by key",
        ),
        pytest.param(
            "system-config",
            {"totalNetworkBandwidth": "10G"},
            {"totalNetworkBandwidth": "0"},
            "totalNetworkBandwidth",
            "0",
            id="quantities are replaced",
        ),
        pytest.param(
            "cpu-normalization-config",
            {"ratioModel": {"X": {"baseRatio": 1.5, "turboEnabledRatio": 2}, "Y": {"baseRatio": 1}}},
            {"ratioModel": {"X": {"baseRatio": 1.25}}},
            "ratioModel",
            {"X": {"baseRatio": 1.25}, "Y": {"baseRatio": 1}},
            id="a map's value is replaced whole",
        ),
        pytest.param(
            "resource-amplification-config",
            {"enable": True, "resourceAmplificationRatio": {"cpu": 1.5}},
            {"resourceAmplificationRatio": {"memory": 1.2}},
            "resourceAmplificationRatio",
            {"cpu": 1.5, "memory": 1.2},
            id="amplification by resource",
        ),
    ],
)
def test_what_a_node_gets(key: str, cluster: Any, entry: Any, field: str, value: object) -> None:
    assert merged(key, cluster, entry)[field] == value


@pytest.mark.parametrize(
    ("entry", "names"),
    [({"applications": [{"name": "b"}]}, ["b"]), ({"applications": []}, []), ({}, [])],
    ids=["another list", "none", "nothing said"],
)
def test_an_entry_of_host_applications_replaces_all(entry: dict[str, Any], names: list[str]) -> None:
    applications = merged("host-application-config", {"applications": [{"name": "a", "qos": "LS"}]}, entry)
    assert [each["name"] for each in applications.get("applications", [])] == names


PERCENTS = st.none() | st.integers(0, 100)


@given(PERCENTS, PERCENTS)
def test_an_override_counts_if_and_only_if_it_is_set(cluster: int | None, entry: int | None) -> None:
    field = "cpuSuppressThresholdPercent"
    result = merged("resource-threshold-config", {field: cluster}, {field: entry})[field]
    default = 65
    assert result == next(level for level in (entry, cluster, default) if level is not None)
