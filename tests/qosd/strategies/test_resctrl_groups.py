"""The strategy ``resctrl``: whose tasks belong to which resctrl group, and whose are left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from koord.host.placement import Membership
from qosd.decide.decision import Decision
from qosd.model.policy import EffectivePolicy, HostFacts
from qosd.model.snapshot import PodView
from qosd.strategies.resctrl import ResctrlGroups
from tests.qosd.contexts import V2, policy
from tests.qosd.podviews import EXITED, NOT_READY, snapshot, view

CREATED = "CONTAINER_CREATED"
EVERY_CLASS = {f"{name}Class": {"resctrlQOS": {"enable": True}} for name in ("lsr", "ls", "be")}


def on(host: HostFacts = V2, **node: Any) -> EffectivePolicy:
    return policy(host, {"resourceQOSStrategy": EVERY_CLASS}, **node)


def placed(pod: PodView, by: EffectivePolicy | None = None) -> dict[str, str]:
    """Resctrl group by cgroup, the pod's own path left off."""
    decision, _ = ResctrlGroups().decide(snapshot(by or on(), pod), None)
    assert not decision.opinions
    return {each.cgroup.removeprefix(f"{pod.cgroup}/"): each.resctrl_group for each in memberships(decision)}


def memberships(decision: Decision) -> list[Membership]:
    return [act for act in decision.acts if isinstance(act, Membership)]


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (view("p", "BE", "BestEffort"), {"s-p": "BE", "main": "BE"}),
        (view("p", "LS"), {"s-p": "LS", "main": "LS"}),
        (view("p", "LSR", "Guaranteed"), {"s-p": "LSR", "main": "LSR"}),
        (view("p", "LSE", "Guaranteed"), {"s-p": "LSR", "main": "LSR"}),
        (view("p", "SYSTEM"), {}),
        (view("p", "", "BestEffort"), {"s-p": "BE", "main": "BE"}),
        # created: before its first thread of its own
        (view("p", "LS", containers=[("a", CREATED), ("b", EXITED)]), {"s-p": "LS", "a": "LS"}),
        (view("p", "LS", state=NOT_READY, containers=[("main", EXITED)]), {}),
        # the pod chose for itself
        (view("p", "LS", RESCTRL_CLASS="gold"), {}),
        (view("p", "LS", RESCTRL='{"mb":{"schemata":{"percent":20}}}'), {}),
        (view("p", "LS", RESCTRL_CLASS_OF_MAIN="gold"), {"s-p": "LS"}),
    ],
)
def test_who_belongs_where(pod: PodView, expected: dict[str, str]) -> None:
    assert placed(pod) == expected


def test_a_container_that_names_its_class() -> None:
    pod = view("p", "LS")
    sandbox, main = pod.containers
    main = structs.replace(main, annotations={"io.kubernetes.cri.rdt-class": "gold"})
    assert placed(structs.replace(pod, containers=(sandbox, main))) == {"s-p": "LS"}


def test_a_container_whose_cgroup_is_unknown() -> None:
    pod = view("p", "LS")
    assert placed(structs.replace(pod, containers=(structs.replace(pod.containers[0], cgroup=""),))) == {}


@pytest.mark.parametrize(
    "by",
    [
        policy(V2),
        on(replace(V2, resctrl_groups=frozenset())),
        on(replace(V2, resctrl_groups=frozenset({"LSR", "BE"}))),
    ],
)
def test_only_enabled_classes_whose_group_exists(by: EffectivePolicy) -> None:
    assert placed(view("p", "LS"), by) == {}


@pytest.mark.parametrize("verified", [True, False])
def test_whoever_puts_them_there(verified: bool) -> None:
    """Containers from before the runtime's RDT classes were used belong there all the same."""
    assert placed(view("p", "LS"), on(resctrl={"runtimeVerified": verified})) != {}


def test_off_with_the_hook() -> None:
    assert ResctrlGroups().enabled(snapshot(on()))
    assert not ResctrlGroups().enabled(snapshot(on(hooks={"resctrl": False})))


def test_says_why() -> None:
    decision, _ = ResctrlGroups().decide(snapshot(on(), view("p", "BE", "BestEffort")), None)
    membership = {each.cgroup: each for each in memberships(decision)}["/kubepods/besteffort/podp/main"]
    assert (membership.why, membership.pod) == ("BE pods belong to resctrl group BE", "default/p")
    assert decision.sentence == "BE: 2 cgroups"


def test_an_unchanged_tick_returns_the_same_objects() -> None:
    strategy, by, pod = ResctrlGroups(), on(), view("p", "LS")
    first, memory = strategy.decide(snapshot(by, pod), None)
    again = strategy.decide(snapshot(on(), structs.replace(pod)), memory)[0]
    assert again is first, "other objects that come to the same"
    nothing, memory = strategy.decide(snapshot(policy(replace(V2, resctrl_groups=frozenset()))), None)
    assert nothing.sentence == "no resctrl group of a QoS class is there"
    assert strategy.decide(snapshot(policy(replace(V2, resctrl_groups=frozenset()))), memory)[0] is nothing
