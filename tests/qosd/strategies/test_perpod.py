"""Opinions pod by pod: worked out again for what changed, and for nobody else."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from koord.host.files import Target
from qosd.decide.decision import Opinion
from qosd.model.besteffort import NO_LIMITS, BestEffortLimits, BestEffortScheduling
from qosd.model.policy import EffectivePolicy, HostFacts, Pool
from qosd.model.snapshot import PodView
from qosd.strategies.perpod import PodOpinions, decide_each
from qosd.strategies.reconciler import HookReconciler
from tests.qosd.contexts import EXTENDED, V2, extended, policy
from tests.qosd.podviews import snapshot, view

PODS = (
    view("web", "LS"),
    view("job", "BE", "BestEffort"),
    view("batch", "BE"),
    view("guest", "LS", "BestEffort"),
)
V1 = replace(V2, cgroup_version=1)
BY = policy(V1)


LEFT = BestEffortLimits(BestEffortScheduling("busy", cpu_milli=1500), tier_milli=1500)


class Asked:
    """Which pods an opinion was made for."""

    def __init__(self, limits: BestEffortLimits = NO_LIMITS) -> None:
        self.names: list[str] = []
        self.limits = limits

    def __call__(self, pod: PodView) -> PodOpinions:
        self.names.append(pod.name)
        milli = self.limits.scheduling.cpu_milli
        return PodOpinions({Target(pod.cgroup, "cpu_quota"): Opinion.set(100 * milli or -1, "as it is left")})


@pytest.mark.parametrize(
    ("second", "limits", "pods", "expected"),
    [
        (BY, NO_LIMITS, PODS, []),
        (BY, LEFT, PODS, ["job", "batch", "guest"]),
        (replace(BY, node=replace(BY.node, limits_in_cri=False)), NO_LIMITS, PODS, ["web", "job", "batch", "guest"]),
        (replace(BY, slo=structs.replace(BY.slo)), NO_LIMITS, PODS, ["web", "job", "batch", "guest"]),
        (BY, NO_LIMITS, (*PODS[1:], view("new", "LS")), ["new"]),
    ],
    ids=["nothing", "what is left to best-effort pods", "a setting", "the SLO", "a pod"],
)
def test_only_whom_a_change_concerns(
    second: EffectivePolicy, limits: BestEffortLimits, pods: tuple[PodView, ...], expected: list[str]
) -> None:
    asked = Asked(limits)
    _, memo = decide_each(snapshot(BY, *PODS), None, asked)
    asked.names.clear()
    decision, _ = decide_each(snapshot(second, *pods), memo, asked, limits)
    assert asked.names == expected
    fresh, _ = decide_each(snapshot(second, *pods), None, Asked(limits), limits)
    web = Target(PODS[0].cgroup, "cpu_quota")
    assert {**_values(decision.opinions), web: 0} == {**_values(fresh.opinions), web: 0}


MOVES: tuple[dict[str, Any], ...] = (
    {},
    {"cpu_milli": 1500},
    {"cpu_milli": 200},
    {"cpu_milli": 200, "has_lowest_weight": True},
    {"has_lowest_weight": True, "is_idle": True},
    {"cpus": "1"},
    {"cpus": "1", "cpu_milli": 300},
    {"cpus": "0-1"},
)
"""What may be left to best-effort pods."""


def leaving(fields: Mapping[str, Any], number: int) -> BestEffortLimits:
    left = BestEffortScheduling(f"reason {number}" if fields else "", **fields)
    return BestEffortLimits(left, (Pool(0, 0, left.cpus or "0-3"),), left.cpu_milli)


@pytest.mark.parametrize("host", [V1, V2])
def test_whatever_moves_the_hooks_decide_as_if_nothing_were_remembered(host: HostFacts) -> None:
    batch: dict[str, Any] = {EXTENDED: extended(limit="500", memory="1Gi")}
    pods = (
        view("web", "LS"),
        view("job", "BE", "BestEffort"),
        view("limited", "BE", "BestEffort", **batch),
        view("elsewhere", "BE", **batch),
        view("guest", "LS", "BestEffort", **batch),
    )
    by, hooks = policy(host), HookReconciler()
    by = replace(by, node=replace(by.node, be_pools=(Pool(0, 0, "0-3"),)))
    every = [leaving(fields, number) for number, fields in enumerate(MOVES)]
    for before, after in itertools.permutations(every, 2):
        _, memo = hooks.decide(snapshot(by, *pods, limits=before), None)
        remembering, _ = hooks.decide(snapshot(by, *pods, limits=after), memo)
        fresh, _ = hooks.decide(snapshot(by, *pods, limits=after), None)
        assert remembering == fresh


@pytest.mark.parametrize(("host", "name"), [(V1, "cpu_shares"), (V2, "cpu_quota")], ids=["v1", "v2"])
def test_time_alone_is_nobodys_matter_but_of_quotas_below_the_tier(host: HostFacts, name: str) -> None:
    """And these only v1 refuses."""
    looked: list[str] = []

    def of_pod(pod: PodView) -> PodOpinions:
        looked.append(pod.name)
        return PodOpinions({Target(pod.cgroup, name): Opinion.set(2, "least")})

    seen = snapshot(policy(host), *PODS)
    before, after = (leaving({"cpu_milli": milli}, milli) for milli in (1000, 1500))
    _, memo = decide_each(seen, None, of_pod, before)
    looked.clear()
    decide_each(snapshot(seen.policy, *PODS), memo, of_pod, after)
    assert looked == []


def _values(opinions: Any) -> dict[Target, Any]:
    return {target: opinion.value for target, opinion in opinions.items()}
