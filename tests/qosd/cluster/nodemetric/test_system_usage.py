"""The system's use is what no pod and no host application accounts for."""

from __future__ import annotations

from tests.qosd.cluster.history import History, Use, pod
from tests.qosd.cluster.nodemetric.reports import INSIDE, amount, gib, node_of, reported


def test_what_no_pod_accounts_for_is_the_systems() -> None:
    history = History(pod("web"))
    for _ in range(60):
        history.tick(Use(0.5, 1), orphans=Use(1.5, 2), web=Use(1, 1))
    usage = node_of(history)
    assert amount(usage.system_usage) == gib(2000, 3)
    assert amount(usage.numa_usages[0].system_usage) == gib(2000, 3)


def test_pods_that_are_not_known_are_the_systems() -> None:
    """Before the first pod list: what runs in kubepods is measured all the same."""
    history = History()
    history.ages_s.pop("pods")
    for _ in range(10):
        history.tick(Use(0.5, 1), orphans=Use(2, 2))
    status = reported(history).status
    assert status.pods_metric == ()
    assert status.node_metric is not None and amount(status.node_metric.system_usage) == gib(2500, 3)


def test_a_pod_that_cannot_be_read_yet_counts_by_its_request() -> None:
    """The report lacks it, so its request counts at the manager, and its use must not count once more."""
    history = History(pod("web", cores=2, gib=4))
    for _ in range(60):
        history.tick(Use(0.5, 1), unreadable={"web": Use(1.5, 3)})
    usage = reported(history).status
    assert usage.pods_metric == ()
    assert usage.node_metric is not None and amount(usage.node_metric.system_usage) == gib(500, 1)


def test_what_is_used_above_the_requests_of_pods_that_cannot_be_read_is_the_systems() -> None:
    history = History(pod("web", cores=1, gib=1))
    for _ in range(60):
        history.tick(Use(0.5, 1), unreadable={"web": Use(1.5, 3)})
    assert amount(node_of(history).system_usage) == gib(1000, 3)


def test_a_pod_whose_request_nobody_tells_is_counted_with_the_system() -> None:
    history = History(pod("web"))
    for _ in range(60):
        history.tick(Use(0.5, 1), unreadable={"web": Use(1.5, 3)})
    assert amount(node_of(history).system_usage) == gib(2000, 4)


def test_a_newcomer_hides_no_orphan_of_the_time_before_it() -> None:
    history = History()
    for _ in range(59):
        history.tick(Use(0.5, 1), orphans=Use(2, 2))
    history.pods = (pod("new", cores=8, gib=16),)
    history.tick(Use(0.5, 1), orphans=Use(2, 2), unreadable={"new": Use(1, 1)})
    system = amount(node_of(history, aggregate_duration_seconds=60).system_usage)
    assert system.cpu_milli == int((0.5 + 2 * 59 / 60) * 1000)


def test_an_application_in_kubepods_is_not_the_systems_as_well() -> None:
    history = History(apps=[INSIDE])
    for _ in range(60):
        history.tick(Use(0.5, 1), orphans=Use(1, 1), apps_inside={"agent": Use(2, 2)})
    status = reported(history).status
    assert status.node_metric is not None
    assert amount(status.node_metric.system_usage) == gib(1500, 2)
    assert [amount(each.usage) for each in status.host_application_metric] == [gib(2000, 2)]


def test_without_kubelets_root_cgroup_the_rest_of_the_node_is_the_systems() -> None:
    history = History(pod("web"), has_root=False)
    for _ in range(10):
        history.tick(Use(0.5, 1), orphans=Use(1, 1), web=Use(1, 1))
    assert amount(node_of(history).system_usage) == gib(1500, 2)
