"""Who may be chosen, what each has, and in which order they come."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import structs

from koord.model.podtotal import Role
from koord.model.qos import QoSClass
from koord.model.requirements import ContainerAmounts
from qosd.decide.shortage import Measure, OrderKey, Resource, Shortage, Victims
from qosd.decide.victims import Amounts, candidates, is_pending, pending_amount, request_of
from qosd.model.pod import SpecContainer
from qosd.model.snapshot import EvictionPhase, EvictionState, PodView
from tests.qosd.contexts import extended
from tests.qosd.decide.scenes import (
    BE,
    CPU,
    ENABLED_LABEL,
    GATE,
    MEMORY,
    POLICY_KEY,
    PRIORITY_KEY,
    SUB_LABEL,
    be,
    lacks,
    node,
    under_way,
)

OPT_IN = Victims(frozenset({QoSClass.BE}), GATE, is_opt_in=True)
UP_TO_5500 = Victims(frozenset({QoSClass.BE}), GATE, priority_at_most=5500)
STOPPING, STOPPED = under_way("p", EvictionPhase.STOPPING), under_way("p", EvictionPhase.STOPPED)
RESTARTED, FAILED = (under_way("p", phase, retry_s=5) for phase in (EvictionPhase.RESTARTED, EvictionPhase.FAILED))


def shortage(victims: Victims = BE, **said: Any) -> Shortage:
    return lacks(1, victims=victims, **said).shortage


@pytest.mark.parametrize(
    ("pod", "victims", "eviction", "at_s", "is_chosen", "gives"),
    [
        (be("p"), BE, None, 1, True, False),
        (be("p", qos="LS"), BE, None, 1, False, False),
        (be("p", qos="SYSTEM"), Victims(frozenset(QoSClass), GATE), None, 1, False, False),  # limited but guaranteed
        (be("p", qos="LS"), Victims(frozenset(QoSClass), GATE), None, 1, True, False),
        (be("p", annotations={POLICY_KEY: [GATE]}), BE, None, 1, True, False),
        (be("p", annotations={POLICY_KEY: ["CPUEvict"]}), BE, None, 1, False, False),
        (be("p", annotations={POLICY_KEY: ["CPUEvict", GATE]}), BE, None, 1, True, False),
        (be("p", annotations={POLICY_KEY: ["noGate", GATE]}), BE, None, 1, True, False),
        (be("p", annotations={POLICY_KEY: ["noGate"]}), BE, None, 1, False, False),
        (be("p", annotations={POLICY_KEY: []}), BE, None, 1, False, False),
        (be("p", annotations={POLICY_KEY: "no JSON"}), BE, None, 1, False, False),
        (be("p"), OPT_IN, None, 1, False, False),
        (be("p", labels={ENABLED_LABEL: "true"}), OPT_IN, None, 1, True, False),
        (be("p", priority=5500), UP_TO_5500, None, 1, True, False),
        (be("p", priority=5501), UP_TO_5500, None, 1, False, False),
        (be("p", priority=None), UP_TO_5500, None, 1, False, False),
        (be("p", priority=None), BE, None, 1, True, False),
        (be("p", priority=0), UP_TO_5500, None, 1, False, False),  # 0 is the band's default, of these views prod's
        (be("p", state="SANDBOX_NOTREADY", containers=()), BE, None, 1, False, False),
        (structs.replace(be("p"), cgroup=""), BE, None, 1, False, False),
        (be("p", is_going=True), BE, None, 1, False, True),
        (be("p"), BE, STOPPING, 1, False, True),
        (be("p"), BE, STOPPED, 1, False, False),
        (be("p", is_going=True), BE, STOPPED, 1, False, False),
        (be("p"), BE, RESTARTED, 4, False, False),
        (be("p"), BE, RESTARTED, 5, True, False),
        (be("p"), BE, FAILED, 4, False, False),
        (be("p"), BE, FAILED, 5, True, False),
        (be("p", is_going=True), BE, FAILED, 5, False, True),
    ],
)
def test_who(
    pod: PodView, victims: Victims, eviction: EvictionState | None, at_s: int, is_chosen: bool, gives: bool
) -> None:
    at = node(at_s, [pod], {"p": 100}, evictions=[eviction] if eviction else [])
    found = candidates(shortage(victims), at, Amounts(at, {}))
    assert ([each.pod for each in found] == [pod], is_pending(pod, at)) == (is_chosen, gives)


@pytest.mark.parametrize(("late_s", "is_pending_yet"), [(29, True), (30, False), (3600, False)])
def test_who_is_deleted_and_does_not_go_is_not_waited_for(late_s: int, is_pending_yet: bool) -> None:
    """Its grace period ended at second 1."""
    pod = be("p", is_going=True)
    at = structs.replace(node(1, [pod], {"p": 100}), wall_ns=(1 + late_s) * 1_000_000_000)
    found = candidates(shortage(), at, Amounts(at, {}))
    assert (is_pending(pod, at), [each.pod for each in found]) == (is_pending_yet, [] if is_pending_yet else [pod])


@pytest.mark.parametrize("sample", [None, math.nan, 0.0])
def test_who_has_no_sample_is_never_chosen(sample: float | None) -> None:
    at = node(1, [be("p")], {} if sample is None else {"p": sample})
    assert candidates(shortage(), at, Amounts(at, {})) == ()


def spec(**roles: Role) -> tuple[SpecContainer, ...]:
    return tuple(SpecContainer(name, role, ContainerAmounts(name)) for name, role in roles.items())


TWO = {
    "containers": {
        **extended("a", request="1500", memory_request="1Ki")["containers"],
        **extended("b", request="700", memory_request="3Ki")["containers"],
    }
}
MAIN, INIT, SIDECAR = Role.MAIN, Role.INIT, Role.SIDECAR


@pytest.mark.parametrize(
    ("pod", "resource", "amount"),
    [
        (be("p"), CPU, None),
        (be("p", cpu_request_milli=300), CPU, 300),
        (be("p", memory_request_bytes=77), MEMORY, 77),
        (be("p", EXTENDED=TWO, cpu_request_milli=300), CPU, 2200),
        (be("p", EXTENDED=TWO), MEMORY, 4096),
        (be("p", EXTENDED=TWO, spec=spec(a=MAIN, b=MAIN)), CPU, 2200),
        (be("p", EXTENDED=TWO, spec=spec(a=INIT, b=MAIN)), CPU, 1500),
        (be("p", EXTENDED=TWO, spec=spec(a=SIDECAR, b=MAIN)), CPU, 2200),
        (be("p", EXTENDED=TWO, spec=spec(a=MAIN)), CPU, 1500),
        (be("p", EXTENDED=extended("a", kind="mid", request="400"), spec=spec(a=MAIN)), CPU, 400),
    ],
)
def test_request(pod: PodView, resource: Resource, amount: int | None) -> None:
    assert request_of(pod, resource) == amount
    at = node(1, [pod])
    assert Amounts(at, {}).of(pod, resource, Measure.REQUEST) == amount


@pytest.mark.parametrize(
    ("resource", "held_milli", "amount"),
    [(CPU, 0, 1100), (CPU, 900, 1100), (CPU, 1500, 1500), (MEMORY, 1500, 70)],
)
def test_usage_is_the_newest_sample_and_of_a_pod_held_down_what_it_used_before(
    resource: Resource, held_milli: int, amount: int
) -> None:
    pod = be("p")
    at = node(1, [pod], {"p": 70.9}, {"p": 1100})
    assert Amounts(at, {"p": held_milli}).of(pod, resource, Measure.USAGE) == amount


def test_a_pod_that_goes_gives_its_usage_to_all_and_its_request_to_its_own_account() -> None:
    pod = be("p", qos="LS", is_going=True, cpu_request_milli=300)
    amounts = Amounts(node(1, [pod], cpu={"p": 50}), {})
    assert pending_amount(pod, shortage(resource=CPU), amounts) == 50
    assert pending_amount(pod, shortage(resource=CPU, measure=Measure.REQUEST), amounts) == 0
    of_ls = Victims(frozenset({QoSClass.LS}), GATE)
    assert pending_amount(pod, shortage(of_ls, resource=CPU, measure=Measure.REQUEST), amounts) == 300


EVICTION, PRIORITY, SUB, AMOUNT, USE = OrderKey


@pytest.mark.parametrize(
    ("order", "pods", "cpu", "first"),
    [
        ((EVICTION,), [be("a"), be("b", annotations={PRIORITY_KEY: "-1"})], {"a": 9, "b": 1}, "ba"),
        ((EVICTION, PRIORITY), [be("a", priority=5600), be("b", priority=5500)], {"a": 9, "b": 1}, "ba"),
        ((PRIORITY,), [be("a", priority=None), be("b", priority=9400)], {"a": 9, "b": 1}, "ba"),
        ((PRIORITY, SUB), [be("a", labels={SUB_LABEL: "7"}), be("b", labels={SUB_LABEL: "3"})], {"a": 9, "b": 1}, "ba"),
        ((SUB,), [be("a"), be("b", labels={SUB_LABEL: "5499"})], {"a": 9, "b": 1}, "ba"),
        ((SUB,), [be("a"), be("b", labels={SUB_LABEL: "5501"})], {"a": 1, "b": 9}, "ab"),
        ((PRIORITY, AMOUNT), [be("a"), be("b")], {"a": 1, "b": 9}, "ba"),
        ((USE,), [be("a", cpu_request_milli=100), be("b", cpu_request_milli=10)], {"a": 90, "b": 10}, "ba"),
        ((USE,), [be("a", cpu_request_milli=1), be("b")], {"a": 90, "b": 10}, "ba"),
        ((), [be("b"), be("a")], {"a": 1, "b": 9}, "ab"),
    ],
)
def test_order(order: tuple[OrderKey, ...], pods: list[PodView], cpu: Mapping[str, float], first: str) -> None:
    for each in itertools.permutations(pods):
        at = node(1, each, cpu=cpu)
        found = candidates(shortage(resource=CPU, order=order), at, Amounts(at, {}))
        assert "".join(candidate.pod.name for candidate in found) == first


def test_twins_come_by_uid() -> None:
    twins = [structs.replace(be("a"), uid=uid) for uid in "21"]
    for each in itertools.permutations(twins):
        at = node(1, each, {"a": 5})
        assert [candidate.pod.uid for candidate in candidates(shortage(), at, Amounts(at, {}))] == ["1", "2"]
