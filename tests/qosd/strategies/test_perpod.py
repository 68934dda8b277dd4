"""Opinions pod by pod: worked out again for what changed, and for nobody else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from koord.host.files import Target
from qosd.decide.decision import Opinion
from qosd.model.rules import BestEffortScheduling, Rules
from qosd.model.snapshot import PodView
from qosd.strategies.perpod import PodOpinions, decide_each
from tests.qosd.contexts import V2, rules
from tests.qosd.podviews import snapshot, view

PODS = (
    view("web", "LS"),
    view("job", "BE", "BestEffort"),
    view("batch", "BE"),
    view("guest", "LS", "BestEffort"),
)
BY = rules(V2)


def left(cpu_milli: int) -> Rules:
    node = replace(BY.node, best_effort=BestEffortScheduling("busy", cpu_milli=cpu_milli), be_tier_milli=cpu_milli)
    return replace(BY, node=node)


class Asked:
    """Which pods an opinion was made for."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, pod: PodView, by: Rules) -> PodOpinions:
        self.names.append(pod.name)
        milli = by.node.best_effort.cpu_milli
        return PodOpinions({Target(pod.cgroup, "cpu_quota"): Opinion.set(100 * milli or -1, "as it is left")})


@pytest.mark.parametrize(
    ("second", "pods", "expected"),
    [
        (BY, PODS, []),
        (left(1500), PODS, ["job", "batch", "guest"]),
        (replace(BY, node=replace(BY.node, limits_in_cri=False)), PODS, ["web", "job", "batch", "guest"]),
        (replace(BY, slo=structs.replace(BY.slo)), PODS, ["web", "job", "batch", "guest"]),
        (BY, (*PODS[1:], view("new", "LS")), ["new"]),
    ],
    ids=["nothing", "what is left to best-effort pods", "a setting", "the SLO", "a pod"],
)
def test_only_whom_a_change_concerns(second: Rules, pods: tuple[PodView, ...], expected: list[str]) -> None:
    asked = Asked()
    _, memo = decide_each(snapshot(BY, *PODS), None, asked)
    asked.names.clear()
    decision, _ = decide_each(snapshot(second, *pods), memo, asked)
    assert asked.names == expected
    fresh, _ = decide_each(snapshot(second, *pods), None, Asked())
    web = Target(PODS[0].cgroup, "cpu_quota")
    assert {**_values(decision.opinions), web: 0} == {**_values(fresh.opinions), web: 0}


def _values(opinions: Any) -> dict[Target, Any]:
    return {target: opinion.value for target, opinion in opinions.items()}
