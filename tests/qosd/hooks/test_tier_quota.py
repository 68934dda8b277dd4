"""Quotas below a tier that has less, and those of best-effort containers that no tier bounds."""

from __future__ import annotations

import pytest
from msgspec import structs

from koord.model.crifields import Field
from koord.model.formulas import recompute
from qosd.hooks import engine
from qosd.model.besteffort import BestEffortLimits, BestEffortScheduling
from qosd.model.pod import HookStage, Resources
from tests.qosd.contexts import V2, extended, policy
from tests.qosd.podviews import on_v1, view

WHY = "suppress: LS pods are busy"


def leaving(cpu_milli: int, tier_milli: int | None = None) -> BestEffortLimits:
    """``tier_milli`` None: the tier holds best-effort pods alone."""
    left = BestEffortScheduling(WHY, cpu_milli=cpu_milli)
    return BestEffortLimits(left, tier_milli=cpu_milli if tier_milli is None else tier_milli)


@pytest.mark.parametrize(
    ("qos", "tier", "kind", "limit", "tier_milli", "v1", "v2"),
    [
        ("LS", "BestEffort", "mid", "4000", 0, 400_000, 400_000),
        ("LS", "BestEffort", "mid", "4000", 1500, -1, 400_000),
        ("LS", "BestEffort", "mid", "4000", 5500, 400_000, 400_000),
        ("BE", "BestEffort", "batch", "1000", 1500, 100_000, 100_000),
        ("BE", "BestEffort", "batch", "1500", 1500, 150_000, 150_000),
        ("BE", "BestEffort", "batch", "4000", 1500, -1, 400_000),
        ("BE", "BestEffort", "batch", "0", 1500, -1, -1),
        ("BE", "Burstable", "batch", "4000", 1500, 400_000, 400_000),
    ],
    ids=["nothing is left out", "mid, not seen yet", "mid", "less", "the same", "more", "no limit", "another tier"],
)
@pytest.mark.parametrize("stage", [HookStage.CREATE, HookStage.POD_CGROUP])
def test_no_quota_stands_in_the_tiers_way(
    qos: str, tier: str, kind: str, limit: str, tier_milli: int, v1: int, v2: int, stage: HookStage
) -> None:
    pod = view("job", qos, tier, EXTENDED=extended("main", kind=kind, request="1000", limit=limit))
    context = pod.context.at(stage, Resources(), "main" if stage is HookStage.CREATE else "", {})
    context = structs.replace(context, seen_containers=("main",))
    by, limits = policy(V2), leaving(1500, tier_milli)
    edits = [engine.decide(context, each, limits).get(Field.CPU_QUOTA) for each in (on_v1(by), by)]
    if tier == "Burstable" and stage is HookStage.POD_CGROUP:
        assert edits == [None, None], "kubelet's list has to tell of its containers"
        return
    assert [edit and edit.value for edit in edits] == [v1, v2]
    assert edits[0] is not None
    assert (WHY in edits[0].why) == (v1 != v2)
    if edits[0].computed:
        assert recompute(edits[0].computed) == v1


@pytest.mark.parametrize(
    ("qos", "tier", "requested_us", "tier_milli", "quota_us"),
    [
        ("BE", "BestEffort", 0, None, None),
        ("BE", "BestEffort", 0, 0, 150_000),
        ("BE", "BestEffort", 0, 5500, 150_000),
        ("BE", "Burstable", 400_000, None, 150_000),
        ("BE", "Burstable", 50_000, None, None),
        ("LS", "BestEffort", 0, 0, None),
        ("LS", "Burstable", 400_000, None, None),
    ],
    ids=["the tier bounds it", "a guest without limit", "a guest", "in Burstable", "less already", "LS guest", "LS"],
)
def test_a_newcomer_has_no_more_than_all_of_them(
    qos: str, tier: str, requested_us: int, tier_milli: int | None, quota_us: int | None
) -> None:
    requested = Resources(cpu_quota_us=requested_us or None)
    context = view("job", qos, tier).context.at(HookStage.CREATE, requested, "main", {})
    by, limits = policy(V2), leaving(1500, tier_milli)
    edit = engine.decide_call(context, by, limits).get(Field.CPU_QUOTA)
    assert (edit and edit.value) == quota_us
    if edit is not None:
        assert (recompute(edit.computed), edit.hook, WHY in edit.why) == (quota_us, "batchResource", True)
    assert engine.decide(context, by, limits).get(Field.CPU_QUOTA) is None, "once it runs, it gets its own part"


def test_of_what_hooks_give_it_the_smaller_counts_under_its_own_period() -> None:
    pod = view("job", "BE", "BestEffort", EXTENDED=extended("main", request="1000", limit="4000"))
    context = pod.context.at(HookStage.CREATE, Resources(cpu_period_us=50_000), "main", {})
    edits = engine.decide_call(context, policy(V2), leaving(1500, 0))
    (edit,) = [each for each in edits.items if each.field is Field.CPU_QUOTA]
    assert (edit.value, recompute(edit.computed), "batch-cpu limit" in edit.why) == (75_000, 75_000, True)
