"""koord-scheduler through every fault between it and the API server: a pod is bound once, and to a node that is there.

Replicas are processes, the API server is real, and a man in the middle makes the faults. After each of them the record
of all requests and the objects are compared with what must hold.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from integration.cluster import schedulerstage
from integration.cluster.middleman import BINDING, Fault
from integration.cluster.schedulerstage import PODS, SOON_S, Replica, Stage
from integration.harness.processes import wait_for

ONE = "faulty"
HANGS_S = 20.0
"""A watch that hangs is begun anew within ten seconds; twice that, for a machine that is busy."""


@pytest.fixture(scope="module")
def theatre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with schedulerstage.stage(tmp_path_factory.mktemp("faults") / "plane") as made:
        yield made


@pytest.fixture(scope="module")
def one(theatre: Stage) -> Iterator[Replica]:
    """The scheduler of ``ONE``'s pods."""
    with theatre.replica("one", ONE) as replica:
        theatre.wait_leader(ONE, "one")
        yield replica


@pytest.fixture
def stage(theatre: Stage) -> Iterator[Stage]:
    """With four nodes and nothing else."""
    with theatre.set_up():
        yield theatre


@pytest.mark.parametrize(
    ("fault", "times"),
    [
        pytest.param(Fault(BINDING, status=429, reason="TooManyRequests", retry_after_s=1), 15, id="429"),
        pytest.param(Fault(BINDING, status=409, reason="Conflict"), 5, id="a conflict that is none"),
        pytest.param(Fault(BINDING, status=404, reason="NotFound"), 5, id="not found, though it is there"),
        pytest.param(Fault(BINDING, status=500, reason="InternalError"), 8, id="500"),
        pytest.param(Fault(BINDING, status=504, reason="Timeout"), 8, id="504"),
        pytest.param(Fault(BINDING, loses="request"), 8, id="requests lost"),
        pytest.param(Fault(BINDING, loses="answer"), 8, id="answers lost"),
        pytest.param(Fault(BINDING, hold_s=6.5), 3, id="timeouts, and the requests arrive late"),
    ],
)
def test_bindings_that_fail(stage: Stage, one: Replica, fault: Fault, times: int) -> None:
    names = schedulerstage.names_of("p", 20)
    stage.middle.meets(fault, times)
    stage.add_pods(ONE, names)
    stage.wait_placed(names)
    wait_for(lambda: not stage.middle.held, SOON_S, "what is late to arrive")
    assert stage.middle.is_met()
    assert stage.wrongs(names) == []


def test_an_answer_that_is_lost_is_looked_up(stage: Stage, one: Replica) -> None:
    """And the pod that was bound and is being deleted holds its room, though another try would say otherwise."""
    stage.add_nodes("small", room={"cpu": "1", "memory": "1Gi", "pods": "10"}, labels={"pool": "small"})
    wanted: dict[str, Any] = {"requests": {"cpu": "1"}, "nodeSelector": {"pool": "small"}}
    lost = threading.Event()
    stage.middle.meets(Fault(r"GET .*/pods/first", until=lost))
    stage.middle.meets(Fault(BINDING, loses="answer"))
    stage.add_pods(ONE, ["first"], **wanted, terminationGracePeriodSeconds=30)
    stage.wait_placed(["first"])
    stage.api.delete(f"{PODS}/first")
    lost.set()
    stage.add_pods(ONE, ["second"], **wanted)
    wait_for(lambda: condition(stage, "second") == ("False", "Unschedulable"), SOON_S, "the second one to wait")
    assert len(stage.middle.bindings()) == 1
    assert stage.wrongs(["first"]) == []
    stage.api.delete(f"{PODS}/first", gracePeriodSeconds="0")
    stage.wait_placed(["second"])
    assert stage.wrongs(["second"]) == []


def condition(stage: Stage, name: str) -> tuple[str, str]:
    """Status and reason of ``PodScheduled``."""
    conditions = stage.api.get(f"{PODS}/{name}")["status"].get("conditions", [])
    found = [(each["status"], each.get("reason", "")) for each in conditions if each["type"] == "PodScheduled"]
    return found[0] if found else ("", "")


def test_an_api_server_that_dies_among_bindings(stage: Stage, one: Replica) -> None:
    names = schedulerstage.names_of("dies", 120)
    stage.add_pods(ONE, names[:60])
    wait_for(lambda: stage.placed(names), SOON_S, "the first pods to be placed")
    stage.add_pods(ONE, names[60:])
    stage.plane.api_server.kill()
    stage.plane.api_server.start()
    stage.wait_placed(names, 2 * SOON_S)
    assert stage.wrongs(names, is_whole=False) == []


def test_a_node_that_goes_under_bindings(stage: Stage, one: Replica) -> None:
    """What was decided for it is sent to no node that is gone, and decided again."""
    names = schedulerstage.names_of("p", 10)
    stage.add_nodes("goes", labels={"pool": "x"})
    stage.middle.meets(Fault(BINDING, status=429, reason="TooManyRequests", retry_after_s=3), len(names))
    stage.add_pods(ONE, names, nodeSelector={"pool": "x"})
    wait_for(stage.middle.is_met, SOON_S, "all bindings to be refused")
    stage.delete_node("goes")
    stage.add_nodes("comes", labels={"pool": "x"})
    stage.wait_placed(names)
    assert set(stage.placed(names).values()) == {"comes"}
    assert stage.wrongs(names) == []


def test_a_watch_of_nodes_that_hangs(stage: Stage, one: Replica) -> None:
    """It is begun anew within ten seconds, and no pod is sent to the node that went meanwhile."""
    names = schedulerstage.names_of("p", 10)
    stage.add_nodes("goes", labels={"pool": "x"})
    stage.add_pods(ONE, ["before"], nodeSelector={"pool": "x"})
    stage.wait_placed(["before"])
    hanging = stage.middle.hang("nodes", "one")
    stage.delete_node("goes")
    stage.add_nodes("comes", labels={"pool": "x"})
    wait_for(lambda: stage.middle.watch_count("nodes", "one") > hanging, HANGS_S, "another watch of nodes")
    time.sleep(1.0)
    stage.add_pods(ONE, names, nodeSelector={"pool": "x"})
    stage.wait_placed(names)
    assert set(stage.placed(names).values()) == {"comes"}
    assert stage.wrongs(names) == []


def test_a_watch_of_pods_that_is_stale(stage: Stage) -> None:
    """Its own decisions count, whether or not it hears of them; what it has not heard of is not placed twice."""
    stage.add_nodes("small", room={"cpu": "1", "memory": "1Gi", "pods": "100"}, labels={"pool": "small"})
    names, sent = schedulerstage.names_of("p", 14), threading.Event()
    stage.add_pods("stale", names, nodeSelector={"pool": "small"})
    stage.middle.meets(Fault(BINDING, until=sent), 3)
    with stage.replica("stale", "stale"):
        wait_for(lambda: len(stage.middle.bindings("stale")) >= 3, SOON_S, "the first bindings")
        with stage.middle.stale("pods"):
            sent.set()
            wait_for(lambda: len(stage.placed(names)) == 10, SOON_S, "the node to be full")
            time.sleep(1.0)
            placed = stage.placed(names)
            assert len(placed) == 10
            for name in list(placed)[:4]:
                stage.api.delete(f"{PODS}/{name}", gracePeriodSeconds="0")
            time.sleep(1.0)
            assert len(stage.placed(names)) == 6
        left = [name for name in names if name not in list(placed)[:4]]
        stage.wait_placed(left)
        assert stage.wrongs(left, is_whole=False) == []


def test_watches_that_say_again_what_was(stage: Stage, one: Replica) -> None:
    """They tell of pods without a node that have one, and of pods and nodes that are gone."""
    stage.add_nodes("small", room={"cpu": "1", "memory": "1Gi", "pods": "100"}, labels={"pool": "small"})
    stage.add_nodes("goes", labels={"pool": "small"})
    before, after = schedulerstage.names_of("before", 20), schedulerstage.names_of("after", 10)
    stage.add_pods(ONE, before, nodeSelector={"pool": "small"})
    stage.wait_placed(before)
    assert stage.wrongs(before) == []
    for name in before:
        stage.api.delete(f"{PODS}/{name}", gracePeriodSeconds="0")
    stage.delete_node("goes")
    time.sleep(0.5)
    assert stage.middle.replay("pods", "one")
    assert stage.middle.replay("nodes", "one")
    stage.add_pods(ONE, after, nodeSelector={"pool": "small"})
    stage.wait_placed(after)
    assert set(stage.placed(after).values()) == {"small"}
    assert stage.middle.cut("", "one") > 5
    stage.api.delete(f"{PODS}/after-0", gracePeriodSeconds="0")
    stage.add_pods(ONE, ["last"], nodeSelector={"pool": "small"})
    stage.wait_placed(["last"])
    assert stage.wrongs([*after[1:], "last"], is_whole=False) == []
    assert one.process.running


def is_applied(stage: Stage) -> bool:
    """Returns whether the API server knows of the level."""
    return "tight" in stage.api.raw("GET", "/debug/api_priority_and_fairness/dump_priority_levels").decode()


def test_fairness_of_the_api_server(stage: Stage, figure: Callable[[str], None]) -> None:
    """It has one place for the scheduler, and no queue: bindings come as fast as it takes them."""
    tight = {"nominalConcurrencyShares": 1, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}
    limited = {"type": "Limited", "limited": tight}
    subject = {"kind": "User", "user": {"name": schedulerstage.USER}}
    rule = {"verbs": ["create"], "apiGroups": [""], "resources": ["pods/binding"], "namespaces": ["*"]}
    flow = {
        "priorityLevelConfiguration": {"name": "tight"},
        "matchingPrecedence": 10,
        "rules": [{"subjects": [subject], "resourceRules": [rule]}],
    }
    root = "/apis/flowcontrol.apiserver.k8s.io/v1"
    window = "koord_scheduler_binding_window"
    free, slow, again = (schedulerstage.names_of(prefix, count) for prefix, count in (("a", 60), ("b", 80), ("c", 20)))
    with stage.replica("fair", "fair") as fair:
        stage.add_pods("fair", free)
        stage.wait_placed(free)
        before = least = fair.figure(window)
        stage.api.create(f"{root}/prioritylevelconfigurations", {"metadata": {"name": "tight"}, "spec": limited})
        stage.api.create(f"{root}/flowschemas", {"metadata": {"name": "tight"}, "spec": flow})
        try:
            wait_for(lambda: is_applied(stage), SOON_S, "the API server to go by it")
            stage.add_pods("fair", slow)
            while len(stage.placed(slow)) < len(slow):
                least = min(least, fair.figure(window))
        finally:
            stage.api.delete(f"{root}/flowschemas/tight")
            stage.api.delete(f"{root}/prioritylevelconfigurations/tight")
        refused = sum(call.status == 429 for call in stage.middle.bindings())
        wait_for(lambda: not is_applied(stage), SOON_S, "the API server to forget it")
        stage.add_pods("fair", again)
        stage.wait_placed(again)
        after = fair.figure(window)
        figure(
            f"{len(slow)} pods placed past {refused} answers 429; the window of bindings was {before:.1f}, at the "
            f"least {least:.1f}, and {after:.1f} once there was room"
        )
        assert refused
        assert least < before
        assert least < after
        assert stage.wrongs([*free, *slow, *again]) == []


def test_what_kubectl_and_autoscalers_read(stage: Stage, one: Replica) -> None:
    """Of a pod that was placed, of one that waits for its victim, and of one that waits for a node."""
    stage.add_nodes("small", room={"cpu": "1", "memory": "1Gi", "pods": "10"}, labels={"pool": "small"})
    whole: dict[str, Any] = {"requests": {"cpu": "1"}, "nodeSelector": {"pool": "small"}}
    stage.add_pods(ONE, ["placed"], **whole, terminationGracePeriodSeconds=30)
    stage.wait_placed(["placed"])
    stage.add_pods(ONE, ["pending"], {"cpu": "64"})
    stage.add_pods(ONE, ["promised"], **whole, priorityClassName="high")
    wait_for(lambda: stage.nominated("promised"), SOON_S, "a victim to leave")
    assert stage.wrongs(["placed"]) == []
    message = (
        "0/5 nodes are available: 5 Insufficient cpu. preemption: 0/5 nodes are available: "
        "5 Preemption is not helpful for scheduling."
    )
    wait_for(lambda: condition(stage, "pending") == ("False", "Unschedulable"), SOON_S, "it to be said")
    assert ("FailedScheduling", message) in described(stage, "pending").events
    assert described(stage, "pending").conditions["PodScheduled"] == "False"
    assert condition_message(stage, "pending") == message
    assert ("Scheduled", "Successfully assigned default/placed to small") in described(stage, "placed").events
    assert described(stage, "placed").conditions["PodScheduled"] == "True"
    promised = described(stage, "promised")
    assert promised.fields["NominatedNodeName"] == "small"
    assert condition(stage, "promised") == ("False", "Unschedulable")
    wait_for(lambda: "Preempted" in dict(described(stage, "placed").events), SOON_S, "the victim's Event")
    assert described(stage, "placed").conditions["DisruptionTarget"] == "True"


@dataclass(frozen=True)
class Described:
    """What `kubectl describe pod` shows."""

    fields: dict[str, str]
    conditions: dict[str, str]
    events: list[tuple[str, str]]
    """Reason and message of those that come from koord-scheduler."""


def described(stage: Stage, name: str) -> Described:
    text = stage.plane.kubectl("describe", "pod", name)
    top, _, rest = text.partition("\nConditions:\n")
    conditions, _, events = rest.partition("\nVolumes:")
    fields = dict(re.findall(r"^(\w[\w ]*):\s+(.*)$", top, re.MULTILINE))
    pairs = dict(re.findall(r"^  (\w+)\s+(True|False)\s*$", conditions, re.MULTILINE))
    lines = re.findall(r"^  (?:Normal|Warning)\s+(\w+)\s+.*?\s+koord-scheduler\s+(.*)$", events, re.MULTILINE)
    return Described(fields, pairs, lines)


def condition_message(stage: Stage, name: str) -> str:
    return stage.plane.kubectl(
        *("get", "pod", name, "-o", 'jsonpath={.status.conditions[?(@.type=="PodScheduled")].message}')
    )
