"""What strategies leave to kubelet's BestEffort tier: its quota, and no quota below it that is more."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest
from msgspec import structs

from koord.host.files import Target
from koord.model.crifields import Field
from koord.model.formulas import recompute
from koord.model.qos import KubeQoS
from qosd.hooks import engine
from qosd.model.pod import HookStage, Resources
from qosd.model.rules import Rules
from qosd.model.snapshot import NodeSnapshot
from qosd.strategies.besteffort import BestEffortTier
from tests.qosd.contexts import V2, extended, rules
from tests.qosd.podviews import snapshot, view

TIER = "/kubepods/besteffort"
TIERS = MappingProxyType({KubeQoS.BEST_EFFORT: TIER})
WHY = "suppress: LS pods are busy"


def leaving(cpu_milli: int, **said: object) -> Rules:
    made = rules(V2, **said)
    return replace(made, node=replace(made.node, be_cpu_milli=cpu_milli, be_cpu_why=WHY if cpu_milli else ""))


def node(cpu_milli: int, tiers: object = TIERS) -> NodeSnapshot:
    return structs.replace(snapshot(leaving(cpu_milli)), tiers=tiers)


@pytest.mark.parametrize(
    ("cpu_milli", "quota_us"), [(0, None), (1500, 150_000), (5, 1000)], ids=["all", "some", "never below 1 ms"]
)
def test_the_tiers_quota(cpu_milli: int, quota_us: int | None) -> None:
    decision, memo = BestEffortTier().decide(node(cpu_milli), None)
    opinion = decision.opinions.get(Target(TIER, "cpu_quota"))
    if quota_us is None:
        assert (opinion, decision.opinions) == (None, {})
        return
    assert opinion is not None
    assert (opinion.op, opinion.value, opinion.why, recompute(opinion.inputs)) == ("at most", quota_us, WHY, quota_us)
    again, _ = BestEffortTier().decide(structs.replace(node(cpu_milli), tiers=TIERS), memo)
    assert again.opinions is decision.opinions


def test_a_tier_that_nobody_knows_is_not_bounded() -> None:
    assert BestEffortTier().decide(node(1500, {}), None)[0].opinions == {}


@pytest.mark.parametrize(
    ("qos", "tier", "kind", "limit", "cpu_milli", "quota_us"),
    [
        ("LS", "BestEffort", "mid", "4000", 0, 400_000),
        ("LS", "BestEffort", "mid", "4000", 1500, 150_000),
        ("LS", "BestEffort", "mid", "1000", 1500, 100_000),
        ("BE", "BestEffort", "batch", "4000", 1500, 150_000),
        ("BE", "BestEffort", "batch", "0", 1500, -1),
        ("BE", "Burstable", "batch", "4000", 1500, 400_000),
    ],
    ids=["nothing is left out", "a mid pod", "less already", "a batch pod", "no limit is none", "another tier"],
)
@pytest.mark.parametrize("stage", [HookStage.CREATE, HookStage.POD_CGROUP])
def test_no_quota_below_is_more(
    qos: str, tier: str, kind: str, limit: str, cpu_milli: int, quota_us: int, stage: HookStage
) -> None:
    amounts = extended("main", kind=kind, request="1000", limit=limit)
    pod = view("job", qos, tier, EXTENDED=amounts)
    context = pod.context.at(stage, Resources(), "main" if stage is HookStage.CREATE else "", {})
    context = structs.replace(context, seen_containers=("main",))
    edit = engine.decide(context, leaving(cpu_milli)).get(Field.CPU_QUOTA)
    if tier == "Burstable" and stage is HookStage.POD_CGROUP:
        assert edit is None, "kubelet's list has to tell of its containers"
        return
    assert edit is not None
    assert edit.value == quota_us
    assert (WHY in edit.why) == (quota_us == 150_000)
    if edit.computed:
        assert recompute(edit.computed) == quota_us


def test_under_a_period_of_its_own() -> None:
    pod = view("job", "BE", "BestEffort", EXTENDED=extended("main", request="1000", limit="4000"))
    context = pod.context.at(HookStage.CREATE, Resources(cpu_period_us=50_000), "main", {})
    edit = engine.decide(context, leaving(1500)).get(Field.CPU_QUOTA)
    assert edit is not None
    assert edit.value == 75_000
