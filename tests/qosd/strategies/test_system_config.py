"""The strategy ``systemConfig``: what each setting of ``systemStrategy`` becomes, and what is left out and said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from koord.host.files import Target
from koord.model.formulas import recompute
from qosd.decide.decision import Decision, Op
from qosd.decide.runner import StrategyStatus, decide_all
from qosd.model.policy import EffectivePolicy, HostFacts
from qosd.policy.rulesfile import read
from qosd.strategies import formulas
from qosd.strategies.systemconfig import MIN_FREE, SystemConfig, min_free_kb
from tests.qosd.contexts import policy
from tests.qosd.podviews import snapshot

GIB = 1 << 30
STOCK = frozenset({"vm.min_free_kbytes", "vm.watermark_scale_factor"})
VENDOR = STOCK | {
    "memcg_reaper.reap_background",
    "kernel.sched_group_identity_enabled",
    "kernel.sched_idle_saver_wmark",
    "pagecache_limit.enabled",
    "sched_features",
    "sched_features@ID_ABSOLUTE_EXPEL",
    "sched_features@ID_LOAD_BALANCE",
}
HOST = HostFacts(memory_total_bytes=64 * GIB, system_files=VENDOR)


def of(stated: dict[str, Any], host: HostFacts = HOST, gate: bool = True) -> EffectivePolicy:
    document = {"spec": {"systemStrategy": stated}, "node": {"features": {"SystemConfig": gate}}}
    return read(Path("rules.yaml"), document, host, bad=lambda error: None)


def decide(stated: dict[str, Any], host: HostFacts = HOST) -> Decision:
    return SystemConfig().decide(snapshot(of(stated, host)), None)[0]


def values(decision: Decision) -> dict[str, Any]:
    assert {target.cgroup for target in decision.opinions} <= {""}
    return {target.name: opinion.value for target, opinion in decision.opinions.items() if opinion.op is Op.SET}


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({}, {}),
        ({"minFreeKbytesFactor": 100}, {"vm.min_free_kbytes": 671088}),
        ({"watermarkScaleFactor": 150}, {"vm.watermark_scale_factor": 150}),
        ({"watermarkScaleFactor": 10}, {"vm.watermark_scale_factor": 10}),
        ({"watermarkScaleFactor": 400}, {"vm.watermark_scale_factor": 400}),
        ({"memcgReapBackGround": 1}, {"memcg_reaper.reap_background": 1}),
        ({"schedGroupIdentityEnabled": 0}, {"kernel.sched_group_identity_enabled": 0}),
        ({"schedIdleSaverWmark": 500000}, {"kernel.sched_idle_saver_wmark": 500000}),
        ({"pageCacheLimitEnabled": 1}, {"pagecache_limit.enabled": 1}),
        (
            {"schedFeatures": {"ID_ABSOLUTE_EXPEL": True, "ID_LOAD_BALANCE": False}},
            {"sched_features@ID_ABSOLUTE_EXPEL": 1, "sched_features@ID_LOAD_BALANCE": 0},
        ),
        (
            {"minFreeKbytesFactor": 100, "watermarkScaleFactor": 150},
            {"vm.min_free_kbytes": 671088, "vm.watermark_scale_factor": 150},
        ),
    ],
)
def test_what_each_setting_becomes(stated: dict[str, Any], expected: dict[str, Any]) -> None:
    assert values(decide(stated)) == expected


@pytest.mark.parametrize(
    ("memory_bytes", "factor", "expected_kb"),
    [
        (64 * GIB, 100, 671088),
        (64 * GIB, 1, None),  # 6710, below 10240
        (2 * GIB, 100, 20971),
        (GIB, 97, None),  # 10171
        (GIB, 98, 10276),
        (1024 * GIB, 97, 10415295),
        (1024 * GIB, 98, None),  # 10522669, above 10485760
    ],
)
def test_min_free_kbytes_is_a_part_of_the_memory_and_never_rounded_into_range(
    memory_bytes: int, factor: int, expected_kb: int | None
) -> None:
    decision = decide({"minFreeKbytesFactor": factor}, replace(HOST, memory_total_bytes=memory_bytes))
    assert values(decision).get(MIN_FREE) == expected_kb
    said = f"systemStrategy.minFreeKbytesFactor {factor} is left out: vm.min_free_kbytes: "
    assert (said in decision.sentence) == (expected_kb is None)


def test_explain_computes_min_free_kbytes_again() -> None:
    opinion = decide({"minFreeKbytesFactor": 100}).opinions[Target("", MIN_FREE)]
    assert opinion.inputs == {"formula": "min_free_kbytes", "capacity_kb": 67108864, "factor": 100}
    assert recompute(opinion.inputs, formulas()) == opinion.value == min_free_kb(67108864, 100)
    assert opinion.why == "systemStrategy.minFreeKbytesFactor 100 in NodeSLO"


@pytest.mark.parametrize(
    ("stated", "host", "complaint"),
    [
        (
            {"minFreeKbytesFactor": 100},
            replace(HOST, memory_total_bytes=0),
            "minFreeKbytesFactor 100 is left out: the node's memory is not known",
        ),
        (
            {"memcgReapBackGround": 1},
            replace(HOST, system_files=STOCK),
            "memcgReapBackGround 1 is left out: only vendor kernels have memcg_reaper.reap_background",
        ),
        (
            {"schedIdleSaverWmark": 1},
            replace(HOST, system_files=STOCK),
            "schedIdleSaverWmark 1 is left out: only vendor kernels have kernel.sched_idle_saver_wmark",
        ),
        (
            {"schedFeatures": {"ID_LOAD_BALANCE": True}},
            replace(HOST, system_files=STOCK),
            "schedFeatures.ID_LOAD_BALANCE true is left out: this kernel, or its debugfs, does not have sched_features",
        ),
        (
            {"schedFeatures": {"WARP_SPEED": False}},
            HOST,
            "schedFeatures.WARP_SPEED false is left out: this kernel has no feature WARP_SPEED",
        ),
        (
            {"schedFeatures": {"NO_ID_LOAD_BALANCE": True}},
            HOST,
            "schedFeatures.NO_ID_LOAD_BALANCE true is left out: this is no name of a scheduler feature",
        ),
    ],
)
def test_what_is_left_out_is_said_and_costs_the_others_nothing(
    stated: dict[str, Any], host: HostFacts, complaint: str
) -> None:
    decision = decide({**stated, "watermarkScaleFactor": 150}, host)
    assert f"; systemStrategy.{complaint}" in f"; {decision.sentence}"
    assert values(decision) == {"vm.watermark_scale_factor": 150}


def test_features_that_cannot_be_listed_are_left_to_whoever_writes_them() -> None:
    """A kernel in lockdown shows debugfs to nobody: then the write says so."""
    locked = replace(HOST, system_files=STOCK | {"sched_features"})
    assert values(decide({"schedFeatures": {"WARP_SPEED": True}}, locked)) == {"sched_features@WARP_SPEED": 1}


@pytest.mark.parametrize(
    ("gate", "state", "count"), [(True, StrategyStatus.ACTIVE, 1), (False, StrategyStatus.GATED, 0)]
)
def test_the_gate_is_off_by_default_and_releases(gate: bool, state: StrategyStatus, count: int) -> None:
    decisions, _ = decide_all(snapshot(of({"watermarkScaleFactor": 150}, gate=gate)), [SystemConfig()])
    assert (decisions.results[0].state, len(decisions.results[0].opinions)) == (state, count)
    plain = policy(HOST, {"systemStrategy": {"watermarkScaleFactor": 150}})
    assert decide_all(snapshot(plain), [SystemConfig()])[0].results[0].state is StrategyStatus.GATED


def test_a_setting_that_is_unset_is_released() -> None:
    strategy = SystemConfig()
    first, memory = strategy.decide(snapshot(of({"watermarkScaleFactor": 150, "minFreeKbytesFactor": 100})), None)
    second, _ = strategy.decide(snapshot(of({"watermarkScaleFactor": 150})), memory)
    assert set(first.opinions) - set(second.opinions) == {Target("", MIN_FREE)}
    assert decide({}).sentence == "no kernel setting"


WRONG: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]] = [
    (
        {"minFreeKbytesFactor": 100},
        {"minFreeKbytesFactor": 1},
        {"vm.min_free_kbytes": 671088},
        "minFreeKbytesFactor 1 is left out: vm.min_free_kbytes: 6710 is not in 10240..10485760, and what is set stays",
    ),
    (
        {"watermarkScaleFactor": 150, "minFreeKbytesFactor": 100},
        {"watermarkScaleFactor": 5, "minFreeKbytesFactor": 200},
        {"vm.watermark_scale_factor": 150, "vm.min_free_kbytes": 1342177},
        "watermarkScaleFactor is wrong, and what is set stays",
    ),
    (
        {"watermarkScaleFactor": 150, "memcgReapBackGround": 1},
        {"watermarkScaleFactor": "150"},
        {"vm.watermark_scale_factor": 150},
        "watermarkScaleFactor is wrong, and what is set stays",
    ),
    (
        {"minFreeKbytesFactor": 100},
        {"minFreeKbytesFactor": 0},
        {"vm.min_free_kbytes": 671088},
        "minFreeKbytesFactor is wrong, and what is set stays",
    ),
    (
        {"pageCacheLimitEnabled": 0},
        {"pageCacheLimitEnabled": 2},
        {"pagecache_limit.enabled": 0},
        "pageCacheLimitEnabled is wrong, and what is set stays",
    ),
    (
        {"schedFeatures": {"ID_LOAD_BALANCE": True, "ID_ABSOLUTE_EXPEL": True}},
        {"schedFeatures": {"ID_LOAD_BALANCE": "on", "ID_ABSOLUTE_EXPEL": False, "no name": 1}},
        {"sched_features@ID_LOAD_BALANCE": 1, "sched_features@ID_ABSOLUTE_EXPEL": 0},
        "schedFeatures.ID_LOAD_BALANCE is wrong, and what is set stays",
    ),
    ({"watermarkScaleFactor": 150}, {"watermarkScaleFactor": None}, {}, ""),
]


@pytest.mark.parametrize(("before", "after", "expected", "said"), WRONG)
def test_a_wrong_value_leaves_what_is_set(
    before: dict[str, Any], after: dict[str, Any], expected: dict[str, Any], said: str
) -> None:
    strategies = [SystemConfig()]
    _, memory = decide_all(snapshot(of(before)), strategies)
    results = decide_all(snapshot(of(after)), strategies, memory)[0].results
    assert values(results[0].decision) == expected
    assert said in results[0].decision.sentence


def test_memory_that_is_not_known_any_more_leaves_what_is_set() -> None:
    stated, strategies = {"minFreeKbytesFactor": 100}, [SystemConfig()]
    _, memory = decide_all(snapshot(of(stated)), strategies)
    lost = snapshot(of(stated, replace(HOST, memory_total_bytes=0)))
    assert values(decide_all(lost, strategies, memory)[0].results[0].decision) == {"vm.min_free_kbytes": 671088}


def test_an_unchanged_tick_returns_the_same_objects() -> None:
    strategy, seen = SystemConfig(), snapshot(of({"watermarkScaleFactor": 150}))
    first, memory = strategy.decide(seen, None)
    second, again = strategy.decide(seen, memory)
    assert (second is first, again is memory) == (True, True)
