"""What is assumed of volumes, and what pods that wait for volumes do to other pods and are told of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from koord.scheduling.defaults import default_plugins
from koord.scheduling.framework import Framework
from koord.scheduling.plugins.volumebinding import binding
from koord.scheduling.podinfo import ClaimKey, PodInfo
from koord.scheduling.preemption import Preemptor
from koord.scheduling.state import ClusterState
from koord.scheduling.volumes import NO_PROVISIONER, SELECTED_NODE, ClaimRef
from tests.scheduling.clusters import HOSTNAME, node, pod
from tests.scheduling.test_queue import Rig
from tests.scheduling.volumeobjects import (
    StorageObject,
    capacity,
    claim,
    csi_node,
    of_claims,
    of_ephemeral,
    put,
    storage_class,
    volume,
)

STATIC, MADE = storage_class("static", NO_PROVISIONER), storage_class("made")
RWOP = ("ReadWriteOncePod",)
A, B = ClaimKey("default", "a"), ClaimKey("default", "b")


def waiting(name: str = "p", **spec: Any) -> PodInfo:
    return pod(name, volumes=of_claims("a", "b"), **spec)


def assumed() -> ClusterState:
    """A pod is assumed on n1: the claim a gets v, and for b a volume is made."""
    state = ClusterState()
    for name in ("n1", "n2"):
        state.put_node(node(name))
    put(state, [STATIC, MADE, claim("a", storage_class="static"), claim("b", storage_class="made")])
    put(state, [volume("v", storage_class="static"), volume("w", "20Gi", storage_class="static")])
    state.assume(waiting(), "n1", binding(state, waiting(), "n1"))
    return state


def told(state: ClusterState) -> tuple[ClaimRef | None, str | None]:
    """What the volume v is kept for, and the node that is selected for the claim b."""
    found, made = state.volumes.volume("v"), state.volumes.claim(B)
    assert made is not None
    return found and state.volumes.claim_ref(found), state.volumes.selected_node(made)


KEPT = ClaimRef(A, "uid-a")
BOUND = volume("v", storage_class="static", claim_ref="a")
SELECTED = claim("b", storage_class="made", annotations={SELECTED_NODE: "n1"})


def confirmed(state: ClusterState) -> ClusterState:
    put(state, [BOUND, SELECTED])
    return state


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        pytest.param(lambda state: None, (KEPT, "n1"), id="nothing"),
        pytest.param(lambda state: state.forget("p"), (None, None), id="taken back"),
        pytest.param(lambda state: state.remove_pod("p"), (None, None), id="deleted"),
        pytest.param(lambda state: state.put_pod(waiting(nodeName="n1")), (KEPT, "n1"), id="on its node"),
        pytest.param(lambda state: state.put_pod(waiting(nodeName="n2")), (None, None), id="on another node"),
        pytest.param(
            lambda state: state.put_pod(waiting(nodeName="n1", status={"phase": "Failed"})), (None, None), id="failed"
        ),
        pytest.param(
            lambda state: [state.put_pod(waiting(nodeName="n1")), state.remove_pod("p")], (None, None), id="gone again"
        ),
        pytest.param(
            lambda state: put(state, [volume("v", storage_class="static"), claim("b", storage_class="made")]),
            (KEPT, "n1"),
            id="events that say nothing of it",
        ),
        pytest.param(lambda state: confirmed(state).forget("p"), (KEPT, "n1"), id="confirmed, too late"),
        pytest.param(
            lambda state: put(state, [SELECTED, claim("b", storage_class="made")]),
            (KEPT, None),
            id="confirmed, and the provisioner has given up",
        ),
        pytest.param(
            lambda state: put(state, [volume("v", storage_class="static", claim_ref="c")]),
            (ClaimRef(ClaimKey("default", "c"), "uid-c"), "n1"),
            id="the volume went to another claim",
        ),
        pytest.param(
            lambda state: [state.volumes.remove_volume("v"), state.forget("p")], (None, None), id="the volume is gone"
        ),
    ],
)
def test_what_is_assumed(then: Callable[[ClusterState], object], expected: tuple[ClaimRef | None, str | None]) -> None:
    state = assumed()
    then(state)
    assert told(state) == expected


def test_what_is_assumed_counts_for_others() -> None:
    state = assumed()
    put(state, [claim("c", storage_class="static")])
    decision = binding(state, pod("q", volumes=of_claims("c")), "n2")
    assert [each.volume for each in decision.bindings] == ["w"]
    framework = Framework(state, default_plugins())
    sharing = waiting("q")
    placement = framework.place(sharing)
    assert placement is not None
    assert (placement.node, placement.feasible_count) == ("n1", 1), "where the volume of b is made"
    shared = binding(state, sharing, "n1")
    assert (shared.bindings[0].volume, shared.provisions) == ("v", (B,))
    state.assume(sharing, "n1", shared)
    state.forget("p")
    assert told(state) == (KEPT, "n1"), "the other pod still wants it"
    state.forget("q")
    assert told(state) == (None, None)


def test_amounts_that_cannot_be_read() -> None:
    volumes = ClusterState().volumes
    for problems, path in (
        (volumes.put_claim(claim("a", "many")), "spec.resources.requests[storage]"),
        (volumes.put_volume(volume("v", "much")), "spec.capacity[storage]"),
        (volumes.put_capacity(capacity("c", "some", {})), "capacity"),
        (volumes.put_capacity(capacity("c", "1Gi", {}, maximumVolumeSize="x")), "maximumVolumeSize"),
    ):
        assert [each.path for each in problems] == [path]
    assert list(volumes.free("fast", 0)) == []


def test_removing_what_is_not_there() -> None:
    volumes = ClusterState().volumes
    volumes.remove_claim("default", "a")
    volumes.remove_volume("v")
    volumes.remove_class("fast")
    volumes.remove_driver("d")
    volumes.remove_capacity("default", "c")
    volumes.limits.remove("n")


def test_a_pod_whose_volumes_change_counts_with_those_that_it_has() -> None:
    state = ClusterState()
    state.put_node(node("n1"))
    for names in (("a",), ("b",)):
        state.put_pod(pod("x", nodeName="n1", volumes=of_claims(*names)))
    assert (dict(state.volumes.users.rows_of(A)), dict(state.volumes.users.rows_of(B))) == ({}, {0: 1})


def test_pods_with_ephemeral_volumes_are_like_no_other() -> None:
    assert pod("p", volumes=of_claims("a")).signature == pod("q", volumes=of_claims("a")).signature
    assert pod("p", volumes=of_ephemeral("a")).signature != pod("q", volumes=of_ephemeral("a")).signature


# preemption and queue

LIMIT: list[StorageObject] = [
    storage_class(),
    csi_node("n1", csi_example_com=1),
    csi_node("n2", csi_example_com=0),
    *[claim(name) for name in "abc"],
]


@pytest.mark.parametrize(
    ("objects", "there", "expected"),
    [
        pytest.param(
            [claim("a", modes=RWOP, volume="v"), volume("v")], ["a"], ("n1", ["x0"]), id="a claim for one pod is in use"
        ),
        pytest.param(LIMIT, ["b"], ("n1", ["x0"]), id="the node takes no more volumes"),
        pytest.param(
            [claim("a", volume="v"), volume("v", at={HOSTNAME: ["n3"]})], ["b"], None, id="a volume that is elsewhere"
        ),
        pytest.param([claim("a", storage_class="static"), STATIC], ["b"], None, id="no volume"),
        pytest.param([], ["b"], None, id="no claim"),
    ],
)
def test_who_has_to_leave(
    objects: list[StorageObject], there: list[str], expected: tuple[str, list[str]] | None
) -> None:
    state = ClusterState()
    for name in ("n1", "n2"):
        state.put_node(node(name))
    put(state, objects)
    for index, name in enumerate(there):
        state.put_pod(pod(f"x{index}", nodeName="n1", volumes=of_claims(name)))
    state.put_pod(pod("y", nodeName="n1"))
    framework, preemptor = Framework(state, default_plugins()), pod("p", priority=10, volumes=of_claims("a"))
    assert framework.place(preemptor) is None
    found = Preemptor(framework).choose(preemptor, framework.diagnose(preemptor))
    assert (found and (found.node, [each.name for each in found.victims])) == expected


def test_a_trial_without_pods_leaves_their_volumes() -> None:
    state = assumed()
    put(state, [csi_node("n1", csi_example_com=1), csi_node("n2", csi_example_com=0), claim("c", storage_class="made")])
    framework, preemptor = Framework(state, default_plugins()), pod("q", priority=10, volumes=of_claims("c"))
    found = Preemptor(framework).choose(preemptor, framework.diagnose(preemptor))
    assert found is not None
    assert [each.name for each in found.victims] == ["p"]
    assert told(state) == (KEPT, "n1")
    state.forget("p")
    assert told(state) == (None, None)


def test_a_pod_wakes_when_a_volume_of_a_node_is_detached() -> None:
    rig = Rig(node("n1"), node("n2"))
    put(rig.state, LIMIT)
    users = [pod("x", nodeName="n1", volumes=of_claims("a")), pod("y", nodeName="n1"), pod("z", nodeName="n2")]
    for each in users:
        rig.came(each)
    rig.put(pod("p", volumes=of_claims("b")))
    assert rig.run(0) == []
    for each in users[1:]:
        rig.left(each)
        assert (rig.run(rig.now_s + 10), rig.tried) == ([], [])
    rig.left(users[0])
    assert rig.run(rig.now_s + 10) == ["p"]


def test_a_pod_wakes_when_its_claim_is_free_again() -> None:
    rig = Rig(node("n1", pods="1"), node("n2"))
    put(rig.state, [claim("a", modes=RWOP, volume="v"), volume("v", at={HOSTNAME: ["n2"]})])
    user, other = pod("x", nodeName="n1", volumes=of_claims("a")), pod("y", nodeName="n2", volumes=of_claims("b"))
    for each in (user, other):
        rig.came(each)
    rig.put(pod("p", volumes=of_claims("a")))
    assert rig.run(0) == []
    rig.left(other)
    assert (rig.run(10), rig.tried) == ([], [])
    rig.left(user)
    assert rig.run(20) == ["p"]
