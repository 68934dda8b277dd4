"""Every feature gate that the command line takes switches something, or is said to switch nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

import pytest

from koord.model import featuregates
from koord.model.crifields import Field
from koord.model.featuregates import GATES
from qosd.cluster import topologyreporter
from qosd.hooks.table import HOOKS
from qosd.model.pod import Resources
from qosd.model.policy import EffectivePolicy, Pool
from qosd.strategies import STRATEGIES
from tests.qosd.contexts import V2, decided, extended, pod, policy

STRATEGY_GATES, HOOK_GATES = {each.gate for each in STRATEGIES}, {hook.gate for hook in HOOKS}
OTHERS = {"BECPUManager", "CPUNormalization", topologyreporter.GATE, "HugePageReport"}
"""Tested below, and with the report of the topology."""
LS = pod("LS", requested=Resources(cpu_period_us=100_000, cpu_quota_us=100_000))
BE = pod("BE", "BestEffort", EXTENDED=extended(request="500", limit="500", memory="1Gi"))


@pytest.mark.parametrize("name", GATES)
def test_a_gate_switches_something_or_says_that_it_does_not(name: str) -> None:
    is_other = {name: not GATES[name].is_on}
    word = f"{name}={'false' if GATES[name].is_on else 'true'}"
    idle = [f"feature gates by --feature-gates: {word}: koord-qosd switches nothing by them"]
    assert GATES[name].switches == (name in STRATEGY_GATES | HOOK_GATES | OTHERS)
    assert featuregates.without_effect(is_other, {}) == ([] if GATES[name].switches else idle)
    assert featuregates.without_effect({name: GATES[name].is_on}, {}) == [], "as it is anyway"


NO_GATES: Mapping[str, bool] = MappingProxyType({})


def pooled(gates: Mapping[str, bool] = NO_GATES, ratio: str = "", is_announced: bool = False) -> EffectivePolicy:
    made = policy(V2, features=gates)
    fraction = Fraction(ratio) if ratio else None
    node = replace(
        made.node,
        cpu_normalization_ratio=fraction,
        is_ratio_announced=is_announced,
        ls_pools=(Pool(0, 0, "0-3"),),
        be_pools=(Pool(0, 0, "0-1"), Pool(0, 1, "2-3")),
    )
    return replace(made, node=node)


@pytest.mark.parametrize(
    ("gate", "field", "by_default"),
    [
        ("BatchResource", Field.CPU_QUOTA, 50_000),
        ("BatchResource", Field.MEMORY_LIMIT, 2**30),
        ("CPUSetAllocator", Field.CPUSET_CPUS, "0-1,2-3"),
    ],
)
def test_a_hook_goes_by_its_gate(gate: str, field: Field, by_default: object) -> None:
    assert decided(BE, pooled()).get(field.value) == by_default
    assert decided(BE, pooled({gate: False})).get(field.value) is None


@pytest.mark.parametrize(
    ("gates", "is_announced", "quota_us", "is_said"),
    [
        ({}, False, 83_334, False),
        ({}, True, None, True),
        ({"CPUNormalization": True}, True, 83_334, False),
        ({"CPUNormalization": False}, False, None, True),
    ],
    ids=["the rules' ratio", "the annotation's", "asked for", "switched off"],
)
def test_a_ratio_counts_by_who_states_it_and_by_the_gate(
    gates: dict[str, bool], is_announced: bool, quota_us: int | None, is_said: bool
) -> None:
    by = pooled(gates, "1.2", is_announced)
    assert decided(LS, by).get("cpu_quota") == quota_us
    assert bool(by.unused_ratio) == is_said
    assert decided(BE, by)["cpu_quota"] == 41_667, "batch pods are divided by it whatever the gate says"


@pytest.mark.parametrize(("gates", "binds"), [({}, False), ({"BECPUManager": True}, True)])
def test_the_gate_of_the_cpu_manager_binds_best_effort_pods(gates: dict[str, bool], binds: bool) -> None:
    assert pooled(gates).binds_best_effort is binds
