"""CPU normalization and resource amplification of a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from koord.model import schema
from koord.overcommit import ratios
from koord.overcommit.ratios import (
    AmplificationError,
    CPUNormalization,
    ModelRatios,
    NormalizationError,
    ResourceAmplification,
)

ENABLED = "node.koordinator.sh/cpu-normalization-enabled"
MODEL = ModelRatios(
    base_ratio=1.5,
    hyper_thread_enabled_ratio=1.0,
    turbo_enabled_ratio=1.8,
    hyper_thread_turbo_enabled_ratio=1.2,
)
CONFIGURED = CPUNormalization(enable=True, ratio_model={"Xeon": MODEL, "Half": ModelRatios(base_ratio=1.1)})


def info(model: str = "Xeon", hyper_thread: bool = True, turbo: bool = True) -> str:
    flags = {True: "true", False: "false"}
    return (
        f'{{"cpuModel":"{model}","hyperThreadEnabled":{flags[hyper_thread]},'
        f'"turboEnabled":{flags[turbo]},"catL3CbmMask":"fff","vendorID":"GenuineIntel"}}'
    )


def settings(default_ratio: float | None = None, **model: float) -> CPUNormalization:
    return CPUNormalization(enable=True, default_ratio=default_ratio, ratio_model={"Xeon": ModelRatios(**model)})


@pytest.mark.parametrize(
    ("labels", "strategy", "cpu", "error"),
    [
        pytest.param({}, CONFIGURED, None, "has no annotation", id="no CPU info"),
        pytest.param({}, CONFIGURED, "[]", "cpu-basic-info: ", id="CPU info that is none"),
        pytest.param({}, CONFIGURED, '{"turboEnabled":1}', "turboEnabled", id="a bad member"),
        pytest.param({}, CONFIGURED, info("Epyc"), "no ratio for CPU model 'Epyc', and no defaultRatio", id="model"),
        pytest.param({}, CONFIGURED, info("Half"), "no ratio for CPU model 'Half'", id="model without that feature"),
        pytest.param({}, CPUNormalization(enable=True), info(), "no ratio for CPU model", id="no table"),
        pytest.param(
            {}, settings(hyper_thread_turbo_enabled_ratio=5.01), info(), "5.01, is not in 1.0..5.0", id="above"
        ),
        pytest.param({}, settings(hyper_thread_turbo_enabled_ratio=0.99), info(), "0.99, is not in", id="below"),
        pytest.param({}, settings(0.5), info(), "0.5, is not in", id="default out of range"),
        pytest.param({}, settings(float("nan")), info(), "nan, is not in", id="no number"),
        pytest.param({ENABLED: "yes"}, CONFIGURED, info(), "'yes' is neither true nor false", id="label"),
        pytest.param({ENABLED: ""}, CONFIGURED, info(), "'' is neither true nor false", id="empty label"),
    ],
)
def test_ratios_that_cannot_be_told(
    labels: Mapping[str, str], strategy: CPUNormalization, cpu: str | None, error: str
) -> None:
    with pytest.raises(NormalizationError) as raised:
        ratios.normalization_ratio(labels, strategy, cpu)
    assert error in str(raised.value)


@pytest.mark.parametrize(
    ("labels", "strategy", "cpu", "text"),
    [
        pytest.param({}, CONFIGURED, info(), "1.20", id="both features"),
        pytest.param({}, CONFIGURED, info(turbo=False), "1.00", id="hyper threads"),
        pytest.param({}, CONFIGURED, info(hyper_thread=False), "1.80", id="turbo"),
        pytest.param({}, CONFIGURED, info(hyper_thread=False, turbo=False), "1.50", id="neither"),
        pytest.param({}, settings(1.3), info("Epyc"), "1.30", id="default for other models"),
        pytest.param({}, settings(1.3), info(), "1.30", id="default for a model without that feature"),
        pytest.param({}, settings(hyper_thread_turbo_enabled_ratio=5.0), info(), "5.00", id="the highest"),
        pytest.param({}, settings(hyper_thread_turbo_enabled_ratio=1.239), info(), "1.24", id="two decimals"),
        pytest.param({}, CPUNormalization(), None, "1.00", id="disabled"),
        pytest.param({ENABLED: "false"}, CONFIGURED, None, "1.00", id="disabled by the node"),
        pytest.param({ENABLED: "0"}, CONFIGURED, None, "1.00", id="disabled as Go writes it"),
        pytest.param({ENABLED: "T"}, CPUNormalization(ratio_model={"Xeon": MODEL}), info(), "1.20", id="enabled by it"),
    ],
)
def test_the_ratio_of_a_node(labels: Mapping[str, str], strategy: CPUNormalization, cpu: str | None, text: str) -> None:
    found = ratios.normalization_ratio(labels, strategy, cpu)
    assert ratios.normalization_text(found) == text
    assert ratios.current_normalization({ratios.NORMALIZATION: text}) == found


@pytest.mark.parametrize("text", [None, "", "x", "0.00", "-1", "nan"])
def test_annotations_that_say_no_ratio(text: str | None) -> None:
    assert ratios.current_normalization({} if text is None else {ratios.NORMALIZATION: text}) is None


@pytest.mark.parametrize(
    ("enable", "configured", "normalized", "text"),
    [
        pytest.param(True, {"cpu": 1.5, "memory": 1.2}, 1.0, '{"cpu":1.50,"memory":1.20}', id="configured"),
        pytest.param(True, {"cpu": 1.5}, 1.2, '{"cpu":1.80}', id="times normalization, of the same pass"),
        pytest.param(True, {"memory": 1.2}, 1.2, '{"cpu":1.20,"memory":1.20}', id="normalization alone"),
        pytest.param(True, {"cpu": 0.8}, 1.5, '{"cpu":1.20}', id="below 1 before normalization alone"),
        pytest.param(False, {"cpu": 1.5, "memory": 1.2}, 1.2, '{"cpu":1.20}', id="disabled, but normalized"),
        pytest.param(False, {"cpu": 1.5}, 1.0, None, id="disabled"),
        pytest.param(None, {"cpu": 1.5}, 1.0, None, id="not set"),
        pytest.param(True, None, 1.0, None, id="nothing configured"),
        pytest.param(True, {"cpu": 1}, 0.5, '{"cpu":1.00}', id="normalization below 1"),
        pytest.param(True, {"memory": 1.2, "cpu": 1.127}, 1.0, '{"cpu":1.13,"memory":1.20}', id="two decimals, sorted"),
        pytest.param(False, {"cpu": 0.5}, 1.0, None, id="what is disabled is not checked"),
    ],
)
def test_amplification(
    enable: bool | None, configured: dict[str, float] | None, normalized: float, text: str | None
) -> None:
    strategy = ResourceAmplification(enable=enable, resource_amplification_ratio=configured)
    assert ratios.amplification_text(ratios.amplification_ratios(strategy, normalized)) == text


@pytest.mark.parametrize("ratio", [0.99, -1, 0, float("nan"), float("inf"), True])
def test_amplification_that_would_shrink_a_node(ratio: Any) -> None:
    strategy = ResourceAmplification(enable=True, resource_amplification_ratio={"cpu": 2, "memory": ratio})
    with pytest.raises(
        AmplificationError, match=r"resourceAmplificationRatio\.memory: .* is not a number of at least 1"
    ):
        ratios.amplification_ratios(strategy)


def test_amplification_below_one_after_normalization() -> None:
    strategy = ResourceAmplification(enable=True, resource_amplification_ratio={"cpu": 0.8})
    with pytest.raises(AmplificationError, match=r"Ratio\.cpu: 0\.96 is not .* with the normalization"):
        ratios.amplification_ratios(strategy, 1.2)


def test_the_strategies_are_read_by_the_names_of_the_api() -> None:
    document = {
        "enable": True,
        "defaultRatio": 1.1,
        "ratioModel": {"Xeon": {"baseRatio": 1.5, "hyperThreadTurboEnabledRatio": 1.2}},
    }
    found = schema.read(CPUNormalization, document)
    assert found.ratio_model == {"Xeon": ModelRatios(base_ratio=1.5, hyper_thread_turbo_enabled_ratio=1.2)}
    of_resources = {"enable": True, "resourceAmplificationRatio": {"cpu": 1.5}}
    assert schema.read(ResourceAmplification, of_resources).resource_amplification_ratio == {"cpu": 1.5}
