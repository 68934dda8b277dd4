"""CPU burst in any history of use, settings, limits and ratios: what holds at every round."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koord.host.files import Target
from koord.host.notes import KINDS
from qosd.act.ownership import OWNERS
from qosd.model.snapshot import PodView
from qosd.strategies.burst.strategy import ROUND_NS, BurstMemo
from qosd.tickscheduler import TickReason
from tests.qosd.strategies.burst import nodes
from tests.qosd.strategies.burst.scenes import Node, Rounds, bursting, limited, made_of, quota

CHANGES = st.fixed_dictionaries(
    {
        "seconds": st.sampled_from([0.0, 0.3, 1.0, 1.0, 1.0, 5.0]),
        "throttled": st.dictionaries(st.sampled_from(["main", "side"]), st.sampled_from([0.0, 0.5])),
        "used": st.dictionaries(st.sampled_from(["main", "side"]), st.sampled_from([0.1, 1.0, 3.0])),
        "node_used": st.sampled_from([1.0, 14.5, 20.0, None]),
        "quota_us": st.sampled_from([1000, 50_000, 100_000, 333_333]),
        "policy": st.sampled_from(["auto", "auto", "cfsQuotaBurstOnly", "cpuBurstOnly", "none"]),
        "percent": st.sampled_from([100, 150, 300]),
        "ratio": st.sampled_from([None, 1.2, 1.7]),
        "period": st.sampled_from([-1, 0, 10, 60]),
    }
)


@given(st.lists(CHANGES, max_size=15))
def test_in_any_history(history: list[dict[str, Any]]) -> None:
    """Quotas are within base and ceiling, the pod has the sum of what its containers have more, tokens within ±full."""
    run = Rounds(Node(()))
    memory: BurstMemo | None = None
    for changes in history:
        own = {"cfsQuotaBurstPeriodSeconds": changes["period"]}
        pod = limited("web", "LS", changes["quota_us"], "main", "side", burst=own)
        node = {} if changes["ratio"] is None else {"cpuNormalizationRatio": changes["ratio"]}
        by = bursting(changes["policy"], node=node, cfsQuotaBurstPercent=changes["percent"])
        run.next(
            changes["seconds"], pods=(pod,), policy=by,
            **{name: changes[name] for name in ("throttled", "used", "node_used")},
        )  # fmt: skip
        since_ns = ROUND_NS if memory is None else run.memory.round_ns - memory.round_ns
        assert since_ns >= ROUND_NS or not since_ns, "the same samples, or urgent ones, make no round"
        memory = run.memory
        check(run, pod, memory.plan.eligible, changes["percent"])


def check(run: Rounds, pod: PodView, eligible: Iterable[Any], percent: int) -> None:
    more_us = 0
    for _, each in eligible:
        for one in each.containers:
            made = made_of(run.decision.opinions.get(one.quota), one.base_us)
            assert one.base_us <= made <= one.base_us * percent // 100
            more_us += made - one.base_us
    of_pod = run.decision.opinions.get(quota(pod, ""))
    assert (0 if of_pod is None else of_pod.value) == more_us
    assert run.memory is not None
    for burst in run.memory.bursts.values():
        if burst.bucket is not None:
            assert abs(burst.bucket.tokens_percent_ns) <= burst.bucket.capacity_percent_ns


EVENTS = st.fixed_dictionaries(
    {
        "reason": st.sampled_from([TickReason.BEAT, TickReason.BEAT, TickReason.BEAT, *TickReason]),
        "throttled": st.sets(st.sampled_from(nodes.CONTAINERS)),
        "cores": st.sampled_from([0.5, 0.5, 9.0]),
        "bounds": st.dictionaries(st.sampled_from(nodes.CONTAINERS), st.sampled_from([1000, 60_000, 150_000])),
        "policy": st.sampled_from(["auto", "auto", "auto", "cfsQuotaBurstOnly", "cpuBurstOnly", "none"]),
        "ratio": st.sampled_from([None, None, 1.2, 1.7]),
    }
)


@pytest.mark.parametrize("version", [1, 2], ids=["v1", "v2"])
@settings(max_examples=30, deadline=None)
@given(is_alone=st.booleans(), history=st.lists(EVENTS, max_size=20))
def test_on_a_node_in_any_history(version: int, is_alone: bool, history: list[dict[str, Any]]) -> None:
    """The kernel refuses nothing, so no burst is above its quota; pods have what they had and the sum; all comes back.

    Other stages bound containers at the same time, and ratios change between two beats as well.
    """
    with tempfile.TemporaryDirectory() as directory:
        node = nodes.Node(Path(directory), version, is_alone=is_alone)
        for event in history:
            ratio = event["ratio"]
            node.set_rules(event["policy"], {} if ratio is None else {"cpuNormalizationRatio": ratio})
            node.meter.cores, node.meter.throttled = event["cores"], dict.fromkeys(event["throttled"], 0.4)
            node.bound(**event["bounds"])
            node.tick(event["reason"])
            check_node(node)
        node.loop.switched_off = frozenset({*OWNERS, node.suppress.name})
        node.tick()
        assert (node.state(), node.actuator.files.report.owned) == (node.before, {})
        assert not any(node.undo.all(kind) for kind in KINDS)
        node.close()


def check_node(node: nodes.Node) -> None:
    """The pod's quota is what the stages before make of kubelet's, and what its containers' opinions add."""
    report, more_us = node.loop.report, 0
    for cgroup in nodes.GROUPS[1:]:
        composed = report.files.composed(Target(cgroup, "cpu_quota"))
        before_us = 0
        for step in composed.trail if composed is not None else ():
            assert isinstance(step.value, int)
            if step.strategy == "cpuBurst":
                more_us += step.value - before_us
            before_us = step.value
    of_pod = report.files.composed(Target(nodes.GROUPS[0], "cpu_quota"))
    base_us = node.quotas_us[0]
    for step in of_pod.trail if of_pod is not None else ():
        if step.strategy == "cpuNormalization":
            assert isinstance(step.value, int)
            base_us = step.value
    assert node.us()[0] == base_us + more_us
    for quota_us, burst_us in zip(node.us(), node.us("cpu.max.burst"), strict=True):
        assert isinstance(quota_us, int) and isinstance(burst_us, int) and 0 <= burst_us <= quota_us
