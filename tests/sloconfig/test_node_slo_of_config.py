"""NodeSLO's spec for a node: complete, ready to be written, and equal to itself once it was."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koord.model import quantity, schema, slo, slo_defaults
from koord.sloconfig import nodeslo
from koord.sloconfig.config import SLOConfig
from koord.sloconfig.loading import load

BANDWIDTH = "node.koordinator.sh/network-bandwidth"
CHART = {"colocation-config": '{"enable": true}', "resource-threshold-config": '{"clusterStrategy":{"enable": true}}'}
OF_THE_CHART = {
    "cpuBurstStrategy": {
        "policy": "none",
        "cpuBurstPercent": 1000,
        "cfsQuotaBurstPercent": 300,
        "cfsQuotaBurstPeriodSeconds": -1,
        "sharePoolThresholdPercent": 50,
    },
    "resourceQOSStrategy": {},
    "resourceUsedThresholdWithBE": {
        "enable": True,
        "cpuSuppressThresholdPercent": 65,
        "cpuSuppressPolicy": "cpuset",
        "memoryEvictThresholdPercent": 70,
        "cpuEvictPolicy": "evictByRealLimit",
    },
    "systemStrategy": {"totalNetworkBandwidth": "0"},
    "extensions": {},
}


def written(config: SLOConfig, annotations: dict[str, str] | None = None, **labels: str) -> Any:
    return json.loads(schema.encode(config.node_slo(labels, annotations or {})[0]))


def config_of(key: str, document: Any) -> SLOConfig:
    loaded = load({key: json.dumps(document)})
    assert loaded.rejected == ()
    return loaded.config


def test_the_charts_configmap() -> None:
    assert written(load(CHART).config) == OF_THE_CHART


def test_without_a_configmap_the_defaults_are_the_agents() -> None:
    in_force = slo_defaults.in_force(SLOConfig.defaults().node_slo({}, {})[0])
    assert in_force == slo_defaults.in_force(slo.NodeSLOSpec())


@pytest.mark.parametrize(
    ("text", "bandwidth", "message"),
    [
        (None, "10G", ""),
        ("25G", "25G", ""),
        ("25000M", "25G", ""),
        ("0", "0", ""),
        ("fast", "10G", f"{BANDWIDTH}: 'fast' is not a quantity"),
        ("", "10G", f"{BANDWIDTH}: '' is not a quantity"),
        ("-1G", "10G", f"{BANDWIDTH}: '-1G' is negative"),
    ],
)
def test_the_nodes_bandwidth(text: str | None, bandwidth: str, message: str) -> None:
    config = config_of("system-config", {"clusterStrategy": {"totalNetworkBandwidth": "10G", "minFreeKbytesFactor": 9}})
    spec, problems = config.node_slo({}, {} if text is None else {BANDWIDTH: text})
    assert spec.system == slo.SystemStrategy(
        total_network_bandwidth=quantity.parse(bandwidth), min_free_kbytes_factor=9
    )
    assert [message in str(problem) for problem in problems] == ([True] if message else [])


def test_every_section_is_the_nodes_own() -> None:
    pool = {"nodeSelector": {"matchLabels": {"pool": "a"}}}
    config = load({
        "resource-threshold-config": json.dumps({"nodeStrategies": [{**pool, "cpuSuppressThresholdPercent": 50}]}),
        "resource-qos-config": json.dumps({"nodeStrategies": [{**pool, "policies": {"cpuPolicy": "coreSched"}}]}),
        "cpu-burst-config": json.dumps({"nodeStrategies": [{**pool, "policy": "auto"}]}),
        "system-config": json.dumps({"nodeStrategies": [{**pool, "watermarkScaleFactor": 150}]}),
        "host-application-config": json.dumps({"nodeConfigs": [{**pool, "applications": [{"name": "nginx"}]}]}),
    }).config  # fmt: skip
    spec = written(config, pool="a")
    assert spec["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"] == 50
    assert spec["resourceQOSStrategy"] == {"policies": {"cpuPolicy": "coreSched"}}
    assert spec["cpuBurstStrategy"]["policy"] == "auto"
    assert spec["systemStrategy"] == {"watermarkScaleFactor": 150, "totalNetworkBandwidth": "0"}
    assert spec["hostApplications"] == [{"name": "nginx"}]
    assert written(config, pool="b") == written(SLOConfig.defaults())


def test_normalization_and_amplification_are_the_nodes_own() -> None:
    pool = {"nodeSelector": {"matchLabels": {"pool": "a"}}, "enable": True}
    config = load({
        "cpu-normalization-config": json.dumps({"defaultRatio": 1.1, "nodeConfigs": [pool]}),
        "resource-amplification-config": json.dumps(
            {"nodeConfigs": [{**pool, "resourceAmplificationRatio": {"cpu": 1.5}}]}
        ),
    }).config  # fmt: skip
    assert (config.normalization({}).enable, config.normalization({"pool": "a"}).enable) == (False, True)
    assert config.normalization({"pool": "a"}).default_ratio == 1.1
    assert config.amplification({}).resource_amplification_ratio is None
    assert config.amplification({"pool": "a"}).resource_amplification_ratio == {"cpu": 1.5}


NETWORK = {"enable": True, "egressRequest": 40, "ingressLimit": "50M"}
FILLED_IN = {**NETWORK, "ingressRequest": 0, "egressLimit": 100}


@pytest.mark.parametrize(
    ("observed", "is_same"),
    [
        pytest.param({}, True, id="as written"),
        pytest.param({"extensions": {"Object": {}}}, True, id="extensions as upstream writes them"),
        pytest.param({"extensions": None}, True, id="no extensions"),
        pytest.param({"hostApplications": []}, True, id="an empty list for none"),
        pytest.param({"resourceQOSStrategy": {"lsClass": {"networkQOS": FILLED_IN}}}, True, id="filled in by the API"),
        pytest.param({"resourceQOSStrategy": {"lsClass": {}}}, False, id="less"),
        pytest.param(
            {"resourceQOSStrategy": {"lsClass": {"networkQOS": {**FILLED_IN, "egressLimit": 99}}}}, False, id="other"
        ),
        pytest.param({"extensions": {"a": 1}}, False, id="an extension that nobody set"),
        pytest.param({"systemStrategy": None}, False, id="a section gone"),
    ],
)
def test_an_object_that_says_the_same_is_not_written_again(observed: dict[str, Any], is_same: bool) -> None:
    config = config_of("resource-qos-config", {"clusterStrategy": {"lsClass": {"networkQOS": NETWORK}}})
    desired, _ = config.node_slo({}, {})
    read_back = slo.decode_spec({**json.loads(schema.encode(desired)), **observed})
    assert (nodeslo.normal(read_back) == nodeslo.normal(desired)) is is_same
