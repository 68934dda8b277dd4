"""The memory policy counts page cache for all but the system, where it is measured."""

from __future__ import annotations

from tests.qosd.cluster.history import GIB, History, Use, pod
from tests.qosd.cluster.nodemetric.reports import APP, amount, reported


def test_with_page_cache_everybody_has_it_but_the_system() -> None:
    history = History(pod("web"), apps=[APP])
    for _ in range(10):
        history.tick(Use(1, 1), cache_gib=2, web=Use(1, 1), apps={"nginx": Use(1, 1)})
    found = reported(history, node_memory_collect_policy="usageWithPageCache")
    assert found.status.node_metric is not None and found.problems == ()
    memory = [
        amount(found.status.node_metric.node_usage).memory_bytes,
        amount(found.status.node_metric.system_usage).memory_bytes,
        amount(found.status.pods_metric[0].pod_usage).memory_bytes,
        amount(found.status.host_application_metric[0].usage).memory_bytes,
    ]
    assert memory == [5 * GIB, GIB, 3 * GIB, 3 * GIB]


def test_page_cache_that_nobody_measures_costs_no_figure() -> None:
    history = History(pod("web"))
    history.tick(Use(1, 1), cache_gib=float("nan"), web=Use(1, 1))
    found = reported(history, node_memory_collect_policy="usageWithPageCache")
    assert found.status == reported(history).status
    assert found.problems == (
        "NodeMetric spec.metricCollectPolicy.nodeMemoryCollectPolicy: usageWithPageCache has no samples on this node,"
        " so it counts as usageWithoutPageCache",
    )
