"""What holds of any node, any pods and any report."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from koord.model.core import Amounts, Node, Pod
from koord.model.nodemetric import NodeMetric, NodeUsage, PodUsage, ResourceMap
from koord.overcommit.amounts import ZERO, CPUMemory
from koord.overcommit.offer import Overcommit
from koord.overcommit.strategy import CalculatePolicy, ColocationStrategy
from tests.overcommit.nodes import NOW_S, metric, mid, node, offered, pod, strategy

CLASSES = ("", "koord-prod", "koord-mid", "koord-batch", "koord-free", "what")
CPU_TEXTS = st.integers(0, 20_000).map(lambda milli: f"{milli}m")
MEMORY_TEXTS = st.integers(0, 40 << 30).map(str)
SIZES = st.tuples(CPU_TEXTS, MEMORY_TEXTS)
MID_REQUESTS = st.tuples(st.integers(0, 9000), MEMORY_TEXTS).map(lambda size: mid(*size))
REQUESTS: st.SearchStrategy[Any] = st.one_of(SIZES, MID_REQUESTS, st.just(("lots", "1Gi")))
PERCENTS = st.integers(0, 150)


@st.composite
def pods(draw: st.DrawFn) -> list[Pod]:
    return [
        pod(
            f"p{index}",
            *draw(st.lists(REQUESTS, max_size=2)),
            qos=draw(st.sampled_from(("", "LSE", "LSR", "LS", "BE", "SYSTEM"))),
            priority=draw(st.sampled_from(CLASSES)),
            phase=draw(st.sampled_from(("Running", "Running", "Pending", "Succeeded"))),
            kube_qos=draw(st.sampled_from(("Guaranteed", "Burstable", "BestEffort", ""))),
        )
        for index in range(draw(st.integers(0, 5)))
    ]


@st.composite
def reports(draw: st.DrawFn) -> NodeMetric:
    used = draw(st.dictionaries(st.sampled_from([f"p{index}" for index in range(7)]), SIZES))
    return metric(
        draw(SIZES),
        used,
        update_s=NOW_S + draw(st.sampled_from((-30, -30, -1000, 5000))),
        priorities={name: draw(st.sampled_from(CLASSES)) for name in used},
        applications=draw(st.lists(st.tuples(st.sampled_from(CLASSES), SIZES), max_size=2)),
        node_usage=draw(SIZES),
        reclaimable=draw(st.none() | SIZES),
    )


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    annotations = {
        "reservation": st.sampled_from(('{"reservedCPUs":"0-3"}', '{"resources":{"memory":"3Gi"}}', "x")),
        "resource_amplification_ratio": st.just('{"cpu":1.50,"memory":1.10}'),
        "raw_allocatable": st.just('{"cpu":"30","memory":"60Gi"}'),
        "thirdPartyAllocations": st.just(
            '{"allocations":[{"priority":"koord-batch","resources":{"kubernetes.io/batch-cpu":4000}}]}'
        ),
    }
    stated = {key: draw(texts) for key, texts in annotations.items() if draw(st.booleans())}
    return node((32, "64Gi"), draw(st.sampled_from(((31, "62Gi"), (48, "70Gi")))), **stated)


STRATEGIES: st.SearchStrategy[ColocationStrategy] = st.fixed_dictionaries(
    {
        "cpu_reclaim_threshold_percent": PERCENTS,
        "memory_reclaim_threshold_percent": PERCENTS,
        "cpu_calculate_policy": st.sampled_from(CalculatePolicy),
        "memory_calculate_policy": st.sampled_from(CalculatePolicy),
        "batch_cpu_threshold_percent": st.none() | PERCENTS,
        "batch_memory_threshold_percent": st.none() | PERCENTS,
        "mid_unallocated_percent": st.integers(0, 100),
    }
).map(lambda settings: strategy(**settings))
RATIOS = st.sampled_from((1.0, 1.2, 2.5))


def at_most(lower: CPUMemory | None, upper: CPUMemory | None) -> bool:
    if lower is None or upper is None:
        return lower is upper
    return lower.min(upper) == lower


@given(nodes(), pods(), reports(), STRATEGIES, RATIOS)
def test_it_is_removed_if_and_only_if_there_is_a_reason_and_is_never_negative(
    of: Node, on_node: list[Pod], report: NodeMetric, settings: ColocationStrategy, ratio: float
) -> None:
    found = offered(of, on_node, report, settings, normalization_ratio=ratio)
    for amount in (found.batch, found.mid, found.published_batch):
        assert (amount is None) is bool(found.degraded)
        assert amount is None or amount.max(ZERO) == amount
    assert at_most(found.published_batch, found.batch)
    assert found == offered(of, on_node, report, settings, normalization_ratio=ratio)


@given(nodes(), pods(), reports(), STRATEGIES, st.randoms())
def test_the_order_of_pods_and_of_their_reports_does_not_matter(
    of: Node, on_node: list[Pod], report: NodeMetric, settings: ColocationStrategy, order: random.Random
) -> None:
    usages = list(report.status.pods_metric)
    shuffled = order.sample(on_node, len(on_node))
    reported = replace(report.status, pods_metric=tuple(order.sample(usages, len(usages))))
    assert offered(of, on_node, report, settings) == offered(of, shuffled, replace(report, status=reported), settings)


def more(amounts: Amounts, more_cpu_milli: int, more_bytes: int) -> ResourceMap:
    cpu_milli, memory_bytes = int(str(amounts["cpu"])[:-1]), int(str(amounts["memory"]))
    return ResourceMap({"cpu": f"{cpu_milli + more_cpu_milli}m", "memory": str(memory_bytes + more_bytes)})


@given(nodes(), pods(), reports(), STRATEGIES, st.integers(0, 9000), st.integers(0, 9 << 30), st.data())
def test_more_use_never_offers_more(
    of: Node,
    on_node: list[Pod],
    report: NodeMetric,
    settings: ColocationStrategy,
    more_cpu_milli: int,
    more_bytes: int,
    data: st.DataObject,
) -> None:
    def grown(usage: ResourceMap) -> ResourceMap:
        return more(usage.resources, more_cpu_milli, more_bytes) if data.draw(st.booleans()) else usage

    status = report.status
    assert status.node_metric is not None
    busier = replace(
        status,
        node_metric=NodeUsage(grown(status.node_metric.node_usage), grown(status.node_metric.system_usage)),
        pods_metric=tuple(replace(each, pod_usage=grown(each.pod_usage)) for each in status.pods_metric),
        host_application_metric=tuple(
            replace(each, usage=grown(each.usage)) for each in status.host_application_metric
        ),
    )
    before, after = offered(of, on_node, report, settings), offered(of, on_node, NodeMetric(status=busier), settings)
    assert at_most(after.batch, before.batch)
    assert at_most(after.mid, before.mid)


@given(nodes(), pods(), reports(), STRATEGIES, SIZES)
def test_one_more_pod_never_offers_more(
    of: Node, on_node: list[Pod], report: NodeMetric, settings: ColocationStrategy, size: tuple[str, str]
) -> None:
    before = offered(of, on_node, report, settings)
    after = offered(of, [*on_node, pod("new", size, priority="koord-prod")], report, settings)
    assert at_most(after.batch, before.batch)
    assert at_most(after.mid, before.mid)


@given(nodes(), pods(), reports(), STRATEGIES, st.sampled_from(CLASSES), st.none() | SIZES)
def test_a_pod_that_cannot_be_read_changes_nothing_but_its_own_part(
    of: Node,
    on_node: list[Pod],
    report: NodeMetric,
    settings: ColocationStrategy,
    cls: str,
    used: tuple[str, str] | None,
) -> None:
    """It is as good as a pod that requests nothing."""
    if used is not None:
        usages = (*report.status.pods_metric, PodUsage("bad", "d", ResourceMap({"cpu": used[0], "memory": used[1]})))
        report = replace(report, status=replace(report.status, pods_metric=usages))
    unreadable = pod("bad", ("lots", "much"), priority=cls)
    silent = pod("bad", priority=cls)

    def figures(found: Overcommit) -> Any:
        return found.batch, found.mid, found.terms

    assert figures(offered(of, [*on_node, unreadable], report, settings)) == figures(
        offered(of, [*on_node, silent], report, settings)
    )
