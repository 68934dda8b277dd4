"""Plain figures are means of the policy's window, and each aggregate is of its own."""

from __future__ import annotations

import pytest

from koord.model.nodemetric import AGGREGATIONS, AggregatePolicy, CollectPolicy
from qosd.cluster import nodemetric
from qosd.cluster.collectpolicy import effective
from tests.qosd.cluster.history import History, Use, pod
from tests.qosd.cluster.nodemetric.reports import amount, gib, node_of, reported


def test_plain_figures_are_means_of_the_policys_window_alone() -> None:
    history = History(pod("web"))
    for _ in range(100):
        history.tick(Use(3, 3), web=Use(4, 1))
    for _ in range(60):
        history.tick(Use(1, 1), web=Use(2, 1))
    usage = node_of(history, aggregate_duration_seconds=60)
    assert amount(usage.node_usage) == gib(3000, 2)
    assert amount(usage.system_usage) == gib(1000, 1)
    (web,) = reported(history, aggregate_duration_seconds=60).status.pods_metric
    assert amount(web.pod_usage) == gib(2000, 1)


@pytest.mark.parametrize(("ticks", "is_filled"), [(150, False), (151, True)])
def test_an_aggregate_is_empty_below_half_of_its_window(ticks: int, is_filled: bool) -> None:
    """151 samples are 150 s from the first to the last: half of five minutes."""
    history = History()
    for _ in range(ticks):
        history.tick(Use(1, 1))
    usage = node_of(history, durations=["5m", "10m"])
    for aggregated in (usage.aggregated_node_usages, usage.aggregated_system_usages):
        assert [each.duration for each in aggregated] == ["5m0s", "10m0s"]
        assert [bool(each.usage) for each in aggregated] == [is_filled, False]


def test_each_aggregate_is_of_its_own_window() -> None:
    history = History()
    for second in range(600):
        history.tick(Use(1 if second < 300 else 2, 1))
    shorter, longer = node_of(history, durations=["5m", "10m"]).aggregated_node_usages
    found = [{name: amount(usage).cpu_milli for name, usage in each.usage.items()} for each in (shorter, longer)]
    assert found == [
        dict.fromkeys(AGGREGATIONS, 2000),
        {"avg": 1500, "p50": 1000, "p90": 2000, "p95": 2000, "p99": 2000},
    ]


def test_a_window_longer_than_what_is_kept_is_empty_and_said() -> None:
    history = History()
    for _ in range(400):
        history.tick(Use(1, 1))
    policy = effective(CollectPolicy(node_aggregate_policy=AggregatePolicy(("10m", "2h"))))
    usage = nodemetric.report(history.snapshot(), history.store, policy).status.node_metric
    assert usage is not None
    assert [(each.duration, bool(each.usage)) for each in usage.aggregated_node_usages] == [
        ("10m0s", True), ("2h0m0s", False),
    ]  # fmt: skip
    assert policy.problems == (
        "NodeMetric spec.metricCollectPolicy.nodeAggregatePolicy.durations[1]: '2h' is longer than the 1800 s that are"
        " kept of the node, so its usage stays empty",
    )
