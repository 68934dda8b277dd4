"""The arguments of LoadAwareScheduling as upstream's chart and its documents write them."""

from __future__ import annotations

from typing import Any

import pytest

from koord.scheduling.loadsettings import LoadSettings, Thresholds, WindowChoice
from koord.scheduling.plugins.loadaware import LoadAwareScheduling
from koord_scheduler.configuration import ConfigurationError
from tests.koord_scheduler.test_configuration import plugin_set, read

NAME = "LoadAwareScheduling"
KIND = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "LoadAwareSchedulingArgs"}
CHART = {
    **KIND,
    "filterExpiredNodeMetrics": False,
    "nodeMetricExpirationSeconds": 300,
    "resourceWeights": {"cpu": 1, "memory": 1},
    "usageThresholds": {"cpu": 65, "memory": 95},
    "estimatedScalingFactors": {"cpu": 85, "memory": 70},
}
EVERY_FIELD = {
    "filterExpiredNodeMetrics": True,
    "nodeMetricExpirationSeconds": 60,
    "enableScheduleWhenNodeMetricsExpired": True,
    "resourceWeights": {"cpu": 2, "nvidia.com/gpu": 1},
    "dominantResourceWeight": 3,
    "usageThresholds": {"cpu": 50},
    "prodUsageThresholds": {"cpu": 40},
    "prodUsageIncludeSys": True,
    "scoreAccordingProdUsage": True,
    "estimator": "defaultEstimator",
    "estimatedScalingFactors": {"cpu": 80, "nvidia.com/gpu": 100},
    "estimatedSecondsAfterPodScheduled": 90,
    "estimatedSecondsAfterInitialized": 30,
    "allowCustomizeEstimation": True,
    "aggregated": {
        "usageThresholds": {"cpu": 60, "memory": 90},
        "usageAggregationType": "p95",
        "usageAggregatedDuration": "5m",
        "scoreAggregationType": "p50",
        "scoreAggregatedDuration": "0s",
    },
    "supportedResources": ["ephemeral-storage"],
}


def settings_of(args: dict[str, Any]) -> LoadSettings:
    plugins = {"filter": plugin_set([NAME]), "score": plugin_set([NAME])}
    found = read(profiles=[{"plugins": plugins, "pluginConfig": [{"name": NAME, "args": args}]}])
    assert (found.notes, found.missing) == ((), ())
    plugin = next(each.plugin for each in found.profiles[0].plugins if each.plugin.name == NAME)
    assert isinstance(plugin, LoadAwareScheduling)
    return plugin.settings


@pytest.mark.parametrize(
    ("args", "settings"),
    [
        pytest.param({}, LoadSettings(), id="upstream's defaults"),
        pytest.param(CHART, LoadSettings(filters_expired=False, expires_after_s=300), id="the chart's"),
        pytest.param(
            EVERY_FIELD,
            LoadSettings(
                Thresholds((("cpu", 60), ("memory", 90)), WindowChoice("p95", 300 * 10**9), (("cpu", 40),)),
                *(True, 60, True, True, True, WindowChoice("p50")),
                *((("cpu", 80), ("memory", 70), ("nvidia.com/gpu", 100)), 90, 30, True),
                *((("cpu", 2), ("nvidia.com/gpu", 1)), 3, ("ephemeral-storage",)),
            ),
            id="every field",
        ),
        pytest.param({"usageThresholds": {}}, LoadSettings(Thresholds(())), id="no thresholds"),
        pytest.param(
            {"usageThresholds": {"cpu": 0, "memory": 0}},
            LoadSettings(Thresholds((("cpu", 0), ("memory", 0)))),
            id="thresholds of nothing, as in upstream's own file",
        ),
        pytest.param({"dominantResourceWeight": 1}, LoadSettings(weights=(), dominant_weight=1), id="the dominant one"),
        pytest.param(
            {"aggregated": {"usageThresholds": {"cpu": 1}}}, LoadSettings(), id="aggregated thresholds without a type"
        ),
        pytest.param({"aggregated": {"usageAggregationType": "avg"}}, LoadSettings(), id="a type without thresholds"),
    ],
)
def test_arguments(args: dict[str, Any], settings: LoadSettings) -> None:
    assert settings_of(args) == settings


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"usageThresholds": {"cpu": 101}}, "usageThresholds"),
        ({"usageThresholds": {"cpu": -1}}, "usageThresholds"),
        ({"prodUsageThresholds": {"cpu": "a"}}, "prodUsageThresholds"),
        ({"resourceWeights": {"cpu": 0}}, "resourceWeights"),
        ({"resourceWeights": {"cpu": 101}}, "resourceWeights"),
        ({"resourceWeights": {"gpu": 1}}, "resourceWeights[gpu]: 1 has a weight and no factor"),
        ({"estimatedScalingFactors": {"cpu": 0}}, "estimatedScalingFactors"),
        ({"estimatedScalingFactors": {"cpu": 101}}, "estimatedScalingFactors"),
        ({"dominantResourceWeight": 101}, "dominantResourceWeight"),
        ({"nodeMetricExpirationSeconds": -1}, "nodeMetricExpirationSeconds"),
        ({"estimator": "mine"}, "estimator: 'mine' is not defaultEstimator"),
        ({"aggregated": {"usageAggregationType": "p42"}}, "aggregated.usageAggregationType"),
        ({"aggregated": {"usageAggregatedDuration": "long"}}, "aggregated.usageAggregatedDuration"),
        ({"kind": "NodeResourcesFitArgs"}, "kind"),
        ({"nodeMetricExpiration": 1}, "nodeMetricExpiration: 1 has no meaning"),
    ],
)
def test_what_is_wrong_is_named(args: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        settings_of(args)
    assert f"profiles[0].pluginConfig[0].args.{problem}" in str(caught.value)
