"""Who leads of several koord-schedulers, and what that one does that leads no longer: it binds nothing.

Replicas are processes, the API server is real, and a man in the middle has the record of what each of them sent.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from integration.cluster import schedulerstage
from integration.cluster.middleman import BINDING, LEASE, Fault
from integration.cluster.schedulerstage import FOREVER, PODS, SOON_S, Stage
from integration.harness.processes import wait_for

PAIR = "pair"
KILLED_S, ENDED_S = 20.0, 3.0
"""Within which another replica binds after SIGKILL and after SIGTERM of the leader, as promised."""


@pytest.fixture(scope="module")
def theatre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with schedulerstage.stage(tmp_path_factory.mktemp("leaders") / "plane") as made:
        yield made


@pytest.fixture
def stage(theatre: Stage) -> Iterator[Stage]:
    """With four nodes and nothing else."""
    with theatre.set_up():
        yield theatre


def test_the_lease_is_lost_among_bindings(stage: Stage) -> None:
    """The leader cannot renew it, and gets no binding through: it sends none once another one leads."""
    names = schedulerstage.names_of("p", 30)
    with stage.replica("a", PAIR), stage.replica("b", PAIR):
        first = stage.wait_leader(PAIR, "a", "b")
        second = "b" if first == "a" else "a"
        busy = Fault(BINDING, who=first, status=429, reason="TooManyRequests", retry_after_s=1)
        stage.middle.meets(busy, FOREVER)
        stage.add_pods(PAIR, names)
        wait_for(lambda: len(stage.middle.bindings(first)) >= len(names), SOON_S, "bindings of the first one")
        stage.middle.meets(Fault(LEASE, who=first, status=500, reason="InternalError"), FOREVER)
        stage.wait_leader(PAIR, second)
        led_s = since(stage, second)
        stage.wait_placed(names)
        time.sleep(3.0)
        late = [call for call in stage.middle.bindings(first) if call.came_s > led_s]
        assert [call.text for call in late] == []
        assert stage.wrongs(names) == []


def since(stage: Stage, host: str) -> float:
    """When the replica's first write of the Lease came that says that it leads."""
    return next(
        call.came_s
        for call in stage.middle.calls
        if call.who == host and call.status in (200, 201) and "/leases" in call.path
    )


@pytest.mark.parametrize(
    ("number", "within_s"),
    [pytest.param(signal.SIGKILL, KILLED_S, id="SIGKILL"), pytest.param(signal.SIGTERM, ENDED_S, id="SIGTERM")],
)
def test_a_standby_takes_over(
    stage: Stage, figure: Callable[[str], None], number: signal.Signals, within_s: float
) -> None:
    """It knows what is promised to a pod that waits for its victim, and gives that room to no other."""
    stage.add_nodes("small", room={"cpu": "1", "memory": "1Gi", "pods": "10"}, labels={"pool": "small"})
    whole: dict[str, Any] = {"requests": {"cpu": "1"}, "nodeSelector": {"pool": "small"}}
    with stage.replica("a", PAIR) as a, stage.replica("b", PAIR) as b:
        by_host = {"a": a, "b": b}
        first = stage.wait_leader(PAIR, "a", "b")
        second = "b" if first == "a" else "a"
        wait_for(by_host[second].is_ready, SOON_S, "the standby to follow the cluster")
        stage.add_pods(PAIR, ["victim"], **whole, terminationGracePeriodSeconds=30)
        stage.wait_placed(["victim"])
        stage.add_pods(PAIR, ["promised"], **whole, priorityClassName="high")
        wait_for(lambda: stage.nominated("promised") == "small", SOON_S, "the victim to leave")
        before = schedulerstage.names_of("before", 10)
        stage.add_pods(PAIR, before)
        stage.wait_placed(before)
        assert stage.wrongs(before) == []

        ended_s = time.monotonic()
        by_host[first].process.signal(number)
        stage.add_pods(PAIR, ["after"])
        stage.wait_placed(["after"])
        took_s = next(call for call in stage.middle.bindings(second)).came_s - ended_s
        figure(f"another koord-scheduler bound a pod {took_s:.1f} s after {number.name} of the leader")
        assert took_s <= within_s
        assert [call.text for call in stage.middle.bindings(first) if call.came_s > since(stage, second)] == []

        stage.api.delete(f"{PODS}/victim", gracePeriodSeconds="0")
        stage.add_pods(PAIR, ["rival"], **whole, priorityClassName="middle")
        stage.wait_placed(["promised"])
        assert "rival" not in stage.placed()
        assert stage.wrongs([*before, "after", "promised"]) == []


def test_a_leader_that_stands_still_for_longer_than_its_lease(stage: Stage) -> None:
    """When it goes on, with bindings without answers and pods to place, it asks for the Lease and writes nothing."""
    names, later = schedulerstage.names_of("p", 40), schedulerstage.names_of("later", 10)
    with stage.replica("a", PAIR) as a, stage.replica("b", PAIR) as b:
        by_host = {"a": a, "b": b}
        first = stage.wait_leader(PAIR, "a", "b")
        second = "b" if first == "a" else "a"
        stage.middle.meets(Fault(BINDING, who=first, hold_s=0.5), FOREVER)
        stage.add_pods(PAIR, names)
        wait_for(lambda: stage.middle.held > 4, SOON_S, "bindings that are under way")
        by_host[first].process.signal(signal.SIGSTOP)
        stage.wait_leader(PAIR, second)
        stage.wait_placed(names)
        with stage.middle.stale("pods", second):
            stage.add_pods(PAIR, later)
            continued_s = time.monotonic()
            by_host[first].process.signal(signal.SIGCONT)
            time.sleep(4.0)
        late = [call for call in stage.middle.calls if call.who == first and call.came_s > continued_s]
        assert [call.text for call in late if "/leases/" not in call.path] == []
        stage.wait_placed(later)
        assert by_host[first].process.running
        assert by_host[first].figure("koord_scheduler_leader") == 0
        assert stage.wrongs([*names, *later], is_whole=False) == []


def test_two_schedulers_of_the_same_pods(stage: Stage) -> None:
    """Without an election: what one of them binds first, the other takes as it is."""
    names = schedulerstage.names_of("p", 60)
    with stage.replica("a", PAIR, elects=False) as a, stage.replica("b", PAIR, elects=False) as b:
        for each in (a, b):
            wait_for(each.is_ready, SOON_S, "both to follow the cluster")
        stage.add_pods(PAIR, names)
        stage.wait_placed(names)
        assert all(stage.middle.bindings(each.host) for each in (a, b))
        assert stage.wrongs(names) == []
