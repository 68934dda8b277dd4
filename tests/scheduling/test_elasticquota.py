"""Whom a quota lets in, who leaves for whom within it, and whole gangs: the rules one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from koord.quota import names
from koord.scheduling.defaults import default_plugins
from koord.scheduling.framework import Framework, WeightedPlugin
from koord.scheduling.plugin import Event, EventKind
from koord.scheduling.plugins.elasticquota import ElasticQuota
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.preemption import CandidateCount, Preemptor
from koord.scheduling.queue import SchedulingQueue
from koord.scheduling.quotas import is_fixed
from koord.scheduling.state import ClusterState
from tests.scheduling.clusters import pod
from tests.scheduling.quotaobjects import cluster, member, put, quota, used
from tests.scheduling.test_preemption import budget

NEW = member("new", "a", "4", requests={"memory": "1Gi"})
BOTH = {"cpu": "10", "memory": "10Gi"}


def framework(state: ClusterState, plugin: ElasticQuota | None = None) -> Framework:
    return Framework(state, (*default_plugins(), WeightedPlugin(plugin or ElasticQuota(), 1)))


def said(state: ClusterState, waiting: PodInfo, plugin: ElasticQuota | None = None) -> str:
    """What keeps the pod from all nodes; "": it is placed. All that the plugin says of it agrees."""
    plugin, put_first = plugin or ElasticQuota(), waiting
    state.quotas.put_pod(put_first)
    decides = framework(state, plugin)
    rejections, passed = plugin.rejections(state, waiting), plugin.filter(state, waiting)
    assert (passed is None) is (not rejections)
    assert bool(plugin.explain(state, waiting, 0, state.table.exists).reasons) is bool(rejections)
    if decides.place(waiting) is not None:
        return ""
    return decides.diagnose(waiting).message.removeprefix(f"0/{len(state.table)} nodes are available: ")


@pytest.mark.parametrize(
    ("quotas", "pods", "waiting", "text"),
    [
        pytest.param([quota("a", BOTH, BOTH)], [], NEW, "", id="room"),
        pytest.param(
            [quota("a", BOTH, BOTH)], [member("x", "a", "7", "n1")], NEW,
            "Insufficient quotas, quotaName: a, runtime: cpu:10,memory:1Gi, used: cpu:7,memory:0, "
            "pod's request: cpu:4,memory:1Gi, exceedDimensions: [cpu].", id="no room",
        ),
        pytest.param(
            [quota("a", BOTH, BOTH)],
            [member("x", "a", "1", "n1", requests={"memory": "12Gi"})], member("new", "a", "4"), "",
            id="over its limit in memory alone: CPU is there",
        ),
        pytest.param(
            [quota("a", "2", "50"), quota("b", "60", "100")], [member("x", "b", "95", "n1")], member("new", "a", "30"),
            "Insufficient quotas, quotaName: a, runtime: cpu:14667m, used: cpu:0, pod's request: cpu:30, "
            "exceedDimensions: [cpu].", id="by runtime: 2 of its own, and of 38 that are left a third",
        ),
        pytest.param([quota("a", "0", "3")], [], pod("new", {"memory": "1Gi"}, labels={names.LABEL_NAME: "a"}), "",
                     id="what the maximum does not name is not limited"),
        pytest.param(
            [quota("a", "9", "10")], [member("x", "a", "6", "n1", fixed=True)], member("new", "a", "4", fixed=True),
            "Insufficient non-preemptible quotas, quotaName: a, min: cpu:9, nonPreemptibleUsed: cpu:6, "
            "pod's request: cpu:4, exceedDimensions: [cpu].", id="not preemptible: within the minimum"),
        pytest.param([quota("a", "9", "10")], [member("x", "a", "6", "n1", fixed=True)], member("new", "a", "4"), "",
                     id="preemptible: beyond the minimum"),
        pytest.param([quota("a", parent="gone")], [], member("new", "a"),
            "Insufficient quotas, quotaName: a, which cannot be used: its parent gone does not exist.",
            id="a quota that is in no tree"),
        pytest.param([quota("a", "0", "1")], [], member("new", "gone", "50"), "", id="of no quota"),
        pytest.param([quota("a", "0", "1")], [], member("new", "a", "1", overhead={"cpu": "1m"}),
            "Insufficient quotas, quotaName: a, runtime: cpu:1, used: cpu:0, pod's request: cpu:1001m, "
            "exceedDimensions: [cpu].", id="overhead counts"),
    ],
)  # fmt: skip
def test_whom_a_quota_lets_in(quotas: Sequence[Any], pods: Sequence[PodInfo], waiting: PodInfo, text: str) -> None:
    assert said(put(cluster(*quotas), *pods), waiting) == text


def test_a_quota_above_counts_where_parents_are_checked_and_by_what_the_pod_requests_alone() -> None:
    """Upstream compares all resources of the pod's own quota, and those of the pod of the quotas above: here the same
    is compared of each.
    """
    parent = quota("p", {"cpu": "4", "memory": "4Gi"}, {"cpu": "4", "memory": "4Gi"}, is_parent="true")
    child = quota("a", {"cpu": "4", "memory": "4Gi"}, {"cpu": "9", "memory": "9Gi"}, parent="p")
    other = quota("b", {"cpu": "0"}, {"cpu": "9", "memory": "9Gi"}, parent="p")
    filled = [member("x", "b", "1", "n1", requests={"memory": "9Gi"}), member("y", "a", "1", "n1")]
    state = put(cluster(parent, child, other), *filled)
    assert said(state, member("new", "a", "2")) == ""
    assert said(state, member("new", "a", "2"), ElasticQuota(checks_parents=True)) == "", "no memory is asked for"
    asking = member("more", "a", "1", requests={"memory": "1Gi"})
    assert said(state, asking) == ""
    assert "quotaName: p, runtime: cpu:4,memory:4Gi, used: cpu:2,memory:9Gi" in said(
        state, asking, ElasticQuota(checks_parents=True)
    )


def test_without_runtimes_the_maximum_is_the_limit() -> None:
    state = put(cluster(quota("a", "0", "50"), quota("b", "100", "100", allow_lent_resource="false")))
    assert "runtime: cpu:0" in said(state, member("new", "a", "50"))
    assert said(state, member("new", "a", "50"), ElasticQuota(limits_by_runtime=False)) == ""


def test_who_is_let_in_does_not_go_by_pods_that_leave() -> None:
    """So it costs others nothing: neither their preemption nor what wakes them."""
    state = put(cluster(quota("a", "0", "4")), member("new", "a", "1"))
    assert not ElasticQuota().goes_by_pods(state, member("new", "a", "1"))
    assert ElasticQuota().goes_by_pods(put(state, member("new", "a", "5")), member("new", "a", "5"))


# preemption within a quota


def chosen(
    pods: Sequence[PodInfo], waiting: PodInfo, *budgets: Any, quotas: Sequence[Any] = (), nodes: int = 2
) -> tuple[str, str] | None:
    """The node and the victims, of pods that may leave for the one that waits."""
    state = put(
        cluster(*(quotas or [quota("a", "8", "8"), quota("b", "8", "8")]), nodes=nodes, cpu="8"), *pods, waiting
    )
    decides = framework(state)
    assert decides.place(waiting) is None
    before = {name: used(state, name) for name in "ab"}

    def may_leave(_: PodInfo, other: PodInfo) -> bool:
        return not is_fixed(other) and state.quotas.name_for(other) == state.quotas.name_for(waiting)

    found = Preemptor(decides, budgets, CandidateCount(100, 1), may_leave).choose(waiting, decides.diagnose(waiting))
    assert {name: used(state, name) for name in "ab"} == before
    return found and (found.node, " ".join(each.name for each in found.victims))


HIGH = member("new", "a", "4", priority=10)


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([member("x", "a", "6", "n1")], ("n1", "x"), id="a lesser one of its quota"),
        pytest.param([member("x", "a", "6", "n1", priority=10)], None, id="of the same priority"),
        pytest.param([member("x", "a", "6", "n1", fixed=True)], None, id="one that is not preemptible"),
        pytest.param(
            [member("x", "a", "3", "n1"), member("y", "a", "3", "n1", priority=1)], ("n1", "x"), id="not more"
        ),
        pytest.param(
            [member("x", "b", "6", "n1"), member("y", "b", "2", "n2"), member("z", "a", "6", "n2")], ("n2", "z"),
            id="another quota's pods stay, whatever their priority",
        ),
        pytest.param(
            [member("x", "a", "3", "n1"), member("y", "a", "3", "n2", priority=1)], ("n1", "x"),
            id="of two nodes the one with the lesser victim",
        ),
    ],
)  # fmt: skip
def test_who_leaves_within_a_quota(pods: Sequence[PodInfo], expected: tuple[str, str] | None) -> None:
    assert chosen(pods, HIGH) == expected


def test_a_disruption_budget_is_honoured_first() -> None:
    pods = [member("x", "a", "3", "n1", labels={"app": "db"}), member("y", "a", "3", "n1", priority=1)]
    assert chosen(pods, HIGH, budget(0, app="db")) == ("n1", "y")


def test_each_victim_counts_once() -> None:
    """Upstream may subtract a victim's use twice, and let in who does not fit."""
    pods = [member("x", "a", "2", "n1"), member("y", "a", "5", "n2", priority=10)]
    assert chosen(pods, HIGH) is None, "without x the quota has 3 left, not 5"


# gangs, as transactions


@pytest.mark.parametrize(("count", "is_placed"), [(4, True), (5, False)])
def test_a_gang_is_in_its_quota_whole_or_not_at_all(count: int, is_placed: bool) -> None:
    state = cluster(quota("a", "8", "8"), cpu="100")
    members = [member(f"m{index}", "a", "2") for index in range(count)]
    put(state, *members)
    decides = framework(state)
    with state.transaction() as transaction:
        for each in members:
            placement = decides.place(each)
            if placement is None:
                break
            transaction.assume(each, placement.node)
        else:
            transaction.commit()
    assert used(state, "a") == (2000 * count if is_placed else 0)
    assert bool(state.assumed) is is_placed


# who wakes


def parked(state: ClusterState, *pods: PodInfo) -> tuple[Framework, SchedulingQueue]:
    """A queue in which the pods wait, each rejected by what rejects it now."""
    decides = framework(state)
    queue = SchedulingQueue(state, lambda _: decides)
    for each in pods:
        state.quotas.put_pod(each)
        queue.put(each, 0.0)
    while (queued := queue.pop(0.0)) is not None:
        assert decides.place(queued.pod) is None
        queue.park(queued, decides.diagnose(queued.pod).plugins, 0.0)
    return decides, queue


def woken(queue: SchedulingQueue, *events: Event) -> list[str]:
    for event in events:
        queue.note(event)
    found = []
    while (queued := queue.pop(100.0)) is not None:
        found.append(queued.pod.name)
    return found


QUOTA = Event(EventKind.QUOTA)


def test_pods_wake_for_the_room_that_their_quota_has_and_no_more_of_them() -> None:
    state = put(cluster(quota("a", "0", "3"), nodes=2), member("x", "a", "3", "n1"))
    _, queue = parked(state, *[member(f"w{index}", "a") for index in range(5)])
    assert woken(queue, QUOTA) == [], "nothing has changed"
    state.quotas.put(quota("a", "0", "5"))
    assert woken(queue, QUOTA) == ["w0", "w1"]
    left = state.pod("x")
    state.remove_pod("x")
    state.quotas.remove_pod("x")
    assert woken(queue, Event(EventKind.POD_LEFT, 0, left)) == ["w2", "w3", "w4"]


def test_pods_that_no_quota_keeps_out_do_not_wake_for_quotas() -> None:
    state = cluster(quota("a", "0", "100"), cpu="2")
    _, queue = parked(state, member("large", "a", "3"))
    state.quotas.put(quota("a", "0", "90"))
    assert woken(queue, QUOTA) == []


def test_a_pod_that_is_like_one_that_waits_for_room_wakes_for_its_quota() -> None:
    """The first one was rejected by the nodes, the second one by the quota."""
    state = put(cluster(quota("a", "0", "4"), cpu="4"), member("x", cpu="4", node_name="n1"))
    decides, queue = parked(state, member("first", "a", "4"))
    state.remove_pod("x")
    put(state, member("y", "a", "3", "n1"))
    second = member("second", "a", "4")
    state.quotas.put_pod(second)
    queue.put(second, 0.0)
    queued = queue.pop(0.0)
    assert queued is not None
    queue.park(queued, decides.diagnose(second).plugins, 0.0)
    state.remove_pod("y")
    state.quotas.remove_pod("y")
    assert woken(queue, QUOTA) == ["first"]


def test_how_many_pods_a_quota_has_room_for() -> None:
    state = put(
        cluster(quota("p", "10", "10"), quota("a", "6", "9", parent="p")), member("x", "a", "3", "n1", fixed=True)
    )
    for waiting, plugin, room in (
        (member("w", "a", "2"), ElasticQuota(), 1),
        (member("w", "a", "1"), ElasticQuota(limits_by_runtime=False), 6),
        (member("w", "a", "1", fixed=True), ElasticQuota(limits_by_runtime=False), 3),
        (member("w", "none"), ElasticQuota(), None),
    ):
        state.quotas.put_pod(waiting)
        assert plugin.room(state, waiting) == room
        state.quotas.remove_pod(waiting.uid)
