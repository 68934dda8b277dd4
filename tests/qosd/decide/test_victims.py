"""Who may be chosen, what each has, and in which order they come."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from msgspec import structs

from koord.model.podtotal import Role
from koord.model.priority import BATCH_CPU, MID_CPU, PriorityClass
from koord.model.qos import QoSClass
from koord.model.requirements import ContainerAmounts
from qosd.decide.shortage import Measure, OrderKey, Resource, Shortage, Victims
from qosd.decide.victims import (
    Amounts,
    Owner,
    candidates,
    gives_soon,
    has_given_request,
    is_pending,
    owner_of,
    parts_of,
    pending_amount,
    request_of,
)
from qosd.model.pod import SpecContainer
from qosd.model.snapshot import EvictionPhase, EvictionState, PodFacts, PodView
from qosd.model.snapshot import Owner as Owned
from tests.fakes.clock import S
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

ANYBODY = Victims(None, GATE)
OF_BATCH = Victims(None, GATE, bands=frozenset({PriorityClass.BATCH}))
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
        (be("p", priority=None), BE, None, 1, False, False),
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


@pytest.mark.parametrize(
    ("rest_s", "left_s", "gives", "is_chosen"),
    [
        (30, None, True, False),  # the grace period of pods by default
        (30.5, None, False, False),  # others give meanwhile; asking for it once more brings nothing
        (3600, None, False, False),
        (0, None, True, False),
        (-29, None, True, False),
        (-30, None, False, True),  # nobody may come to it
        (3600, 9.0, False, True),
        (9.5, 9.0, False, True),
        (9.0, 9.0, True, False),
        (1, 9.0, True, False),
        (0, 9.0, False, True),  # its time is over, and nobody can tell when it goes
        (1, 0.0, False, True),  # an emergency waits for nobody
        (0, 0.0, False, True),
        (-20, 0.0, False, True),
    ],
)
def test_who_is_deleted_counts_for_as_long_as_one_would_wait(
    rest_s: float, left_s: float | None, gives: bool, is_chosen: bool
) -> None:
    pod = structs.replace(be("p"), facts=PodFacts(deletion_unix_s=5000.0))
    at = structs.replace(node(1, [pod], {"p": 100}), wall_ns=int((5000 - rest_s) * 1_000_000_000))
    found = candidates(shortage(left_s=left_s), at, Amounts(at, {}))
    assert (gives_soon(pod, at, left_s), bool(found)) == (gives, is_chosen)
    evicting = structs.replace(at, evictions={"p": STOPPING})
    assert gives_soon(pod, evicting, left_s) is True, "an emergency ends what is under way"
    assert not candidates(shortage(left_s=left_s), evicting, Amounts(evicting, {}))


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
    assert Amounts(at, {}).of(pod, shortage(resource=resource, measure=Measure.REQUEST)) == amount


@pytest.mark.parametrize(
    ("qos", "account", "amount"),
    [("BE", BATCH_CPU, 2200), ("BE", MID_CPU, 0), ("LS", BATCH_CPU, 2200), ("BE", "", 2200)],
)
def test_request_of_an_account(qos: str, account: str, amount: int) -> None:
    assert request_of(be("p", qos=qos, EXTENDED=TWO, cpu_request_milli=300), CPU, account) == amount


@pytest.mark.parametrize(
    ("resource", "held_milli", "amount"),
    [(CPU, 0, 1100), (CPU, 900, 1100), (CPU, 1500, 1500), (MEMORY, 1500, 70)],
)
def test_usage_is_the_newest_sample_and_of_a_pod_held_down_what_it_used_before(
    resource: Resource, held_milli: int, amount: int
) -> None:
    pod = be("p")
    at = node(1, [pod], {"p": 70.9}, {"p": 1100})
    assert Amounts(at, {"p": held_milli}).of(pod, shortage(resource=resource)) == amount


def test_a_pod_that_goes_gives_its_usage_to_all_and_its_request_to_its_own_account() -> None:
    pod = be("p", qos="LS", is_going=True, cpu_request_milli=300)
    amounts = Amounts(node(1, [pod], cpu={"p": 50}), {})
    assert pending_amount(pod, shortage(resource=CPU), amounts) == 50
    assert pending_amount(pod, shortage(resource=CPU, measure=Measure.REQUEST), amounts) == 0
    of_ls = Victims(frozenset({QoSClass.LS}), GATE)
    assert pending_amount(pod, shortage(of_ls, resource=CPU, measure=Measure.REQUEST), amounts) == 300


EVICTION, PRIORITY, SUB, AMOUNT, USE, OWNER, WORK = OrderKey
ALL_OF_IT = 1 << 40


def in_turn(
    pods: Iterable[PodView],
    order: tuple[OrderKey, ...],
    need: int = ALL_OF_IT,
    taken: Mapping[Owner, int] = MappingProxyType({}),
    **said: Any,
) -> str:
    """The names of those who give, whatever the order of the list was."""
    names = set()
    for each in itertools.permutations(pods):
        at = node(1, each, **said)
        found = candidates(shortage(resource=CPU, order=order), at, Amounts(at, {}))
        names.add("".join(candidate.pod.name for candidate, _ in parts_of(found, need, order, taken)))
    (in_any_order,) = names
    return in_any_order


@pytest.mark.parametrize(
    ("order", "pods", "cpu", "names"),
    [
        ((EVICTION,), [be("a"), be("b", annotations={PRIORITY_KEY: "-1"})], {"a": 9, "b": 1}, "ba"),
        ((EVICTION, PRIORITY), [be("a", priority=5600), be("b", priority=5500)], {"a": 9, "b": 1}, "ba"),
        ((PRIORITY,), [be("a", priority=0), be("b", priority=9400)], {"a": 9, "b": 1}, "ba"),
        ((PRIORITY, SUB), [be("a", labels={SUB_LABEL: "7"}), be("b", labels={SUB_LABEL: "3"})], {"a": 9, "b": 1}, "ba"),
        ((SUB,), [be("a"), be("b", labels={SUB_LABEL: "5499"})], {"a": 9, "b": 1}, "ba"),
        ((SUB,), [be("a"), be("b", labels={SUB_LABEL: "5501"})], {"a": 1, "b": 9}, "ab"),
        ((PRIORITY, AMOUNT), [be("a"), be("b")], {"a": 1, "b": 9}, "ba"),
        ((USE,), [be("a", cpu_request_milli=100), be("b", cpu_request_milli=10)], {"a": 90, "b": 10}, "ba"),
        ((USE,), [be("a", cpu_request_milli=1), be("b")], {"a": 90, "b": 10}, "ba"),
        ((), [be("b"), be("a")], {"a": 1, "b": 9}, "ab"),
    ],
)
def test_order(order: tuple[OrderKey, ...], pods: list[PodView], cpu: Mapping[str, float], names: str) -> None:
    assert in_turn(pods, order, cpu=cpu) == names


@pytest.mark.parametrize(
    ("need", "cpu", "worked_s", "names"),
    [
        (5, {"a": 9, "b": 6, "c": 5}, {"a": 30, "b": 10, "c": 20}, "b"),  # each covers it: the least work is lost
        (6, {"a": 9, "b": 6, "c": 5}, {"a": 30, "b": 10, "c": 0}, "b"),
        (7, {"a": 9, "b": 6, "c": 5}, {"a": 30, "b": 10, "c": 0}, "a"),  # only one covers it
        (10, {"a": 9, "b": 6, "c": 5}, {"a": 30, "b": 10, "c": 0}, "ac"),  # of what is needed yet either covers all
        (10, {"a": 9, "b": 6, "c": 5}, {"a": 30, "b": 0, "c": 10}, "ab"),
        (5, {"a": 9, "b": 6, "c": 5}, {}, "a"),  # nobody tells: the one with most
        (5, {"a": 5, "b": 5}, {"a": 1.5}, "b"),
    ],
)
def test_lost_work_decides_between_pods_that_cover_the_need_alike(
    need: int, cpu: Mapping[str, float], worked_s: Mapping[str, float], names: str
) -> None:
    pods = [be(name) for name in cpu]
    assert in_turn(pods, (PRIORITY, AMOUNT, OWNER, WORK), need, cpu=cpu, cpu_seconds=worked_s) == names


def of(owner: str, *names: str, namespace: str = "default") -> list[PodView]:
    facts = PodFacts(owner=Owned("Job", owner)) if owner else PodFacts()
    return [structs.replace(be(name), facts=facts, namespace=namespace) for name in names]


@pytest.mark.parametrize(
    ("pods", "need", "names"),
    [
        ([*of("x", "a", "b"), *of("y", "c", "d")], 10, "ac"),
        ([*of("x", "a", "b"), *of("y", "c", "d")], 15, "acb"),
        ([*of("x", "a", "b"), *of("y", "c", "d")], 20, "acbd"),
        ([*of("x", "a", "b", "c")], 10, "ab"),  # nobody else is there
        ([*of("x", "a", "b"), *of("x", "c", namespace="other")], 10, "ac"),
        ([*of("", "a", "b"), *of("y", "c", "d")], 15, "abc"),  # a pod without owner is its own
    ],
)
def test_owners_take_turns(pods: list[PodView], need: int, names: str) -> None:
    assert in_turn(pods, (PRIORITY, AMOUNT, OWNER, WORK), need, cpu=dict.fromkeys("abcd", 5)) == names


def test_owners_take_turns_with_what_went_before() -> None:
    pods = [*of("x", "a"), *of("y", "b")]
    taken = {owner_of(pods[0]): 1}
    assert in_turn(pods, (AMOUNT, OWNER), 5, taken, cpu={"a": 5, "b": 5}) == "b"
    assert in_turn(pods, (AMOUNT, OWNER), 6, taken, cpu={"a": 6, "b": 5}) == "a", "who covers more comes first"
    assert in_turn([*pods, *of("y", "c")], (PRIORITY, OWNER), 1, taken, cpu={"a": 5, "b": 5, "c": 5}) == "b"


def test_twins_come_by_uid() -> None:
    twins = [structs.replace(be("a"), uid=uid) for uid in "21"]
    for each in itertools.permutations(twins):
        at = node(1, each, {"a": 5})
        assert [candidate.pod.uid for candidate in candidates(shortage(), at, Amounts(at, {}))] == ["1", "2"]


SOURCE = "kubernetes.io/config.source"


def odd(pod: PodView, **facts: Any) -> PodView:
    return structs.replace(pod, facts=structs.replace(pod.facts, **facts))


@pytest.mark.parametrize(
    ("pod", "victims", "is_chosen"),
    [
        (be("p", annotations={SOURCE: "api"}), BE, True),
        (be("p", annotations={SOURCE: "file"}), BE, False),
        (be("p", annotations={SOURCE: "http"}), BE, False),
        (be("p", annotations={SOURCE: ""}), BE, False),
        (be("p", annotations={SOURCE: "file"}), structs.replace(BE, with_static=True), True),
        (odd(be("p"), runtime_class="runc"), BE, True),
        (odd(be("p"), runtime_class="kata"), BE, False),
        (odd(be("p"), runtime_class="kata-qemu"), BE, False),
        (odd(be("p"), runtime_class="sized"), BE, False),
        (structs.replace(be("p"), runtime_handler="kata-clh"), BE, False),
        (be("p", qos="SYSTEM"), ANYBODY, False),
        (be("p", qos="SYSTEM"), Victims(frozenset({QoSClass.SYSTEM}), GATE), False),
        (be("p", qos=""), BE, False),  # of the class by kubelet's tier, not by its label
        (be("p", qos=""), ANYBODY, True),
        (be("p", qos="LSE"), ANYBODY, True),
        (structs.replace(be("p"), phase=""), BE, True),
        (structs.replace(be("p"), phase=""), UP_TO_5500, False),
        (structs.replace(be("p"), phase="Pending"), UP_TO_5500, True),
        (structs.replace(be("p"), phase="Succeeded"), BE, False),
        (structs.replace(be("p"), phase="Failed"), UP_TO_5500, False),
        (structs.replace(be("p"), priority_class=PriorityClass.BATCH), OF_BATCH, True),
        (structs.replace(be("p"), priority_class=PriorityClass.MID), OF_BATCH, False),
    ],
)
def test_who_never_is_a_victim(pod: PodView, victims: Victims, is_chosen: bool) -> None:
    at = node(1, [pod], {"p": 100})
    host = dataclasses.replace(at.policy.node, sandbox_sizing_handlers=frozenset({"sized"}))
    at = structs.replace(at, policy=dataclasses.replace(at.policy, node=host))
    assert bool(candidates(shortage(victims), at, Amounts(at, {}))) is is_chosen


@pytest.mark.parametrize(("age_s", "is_chosen"), [(None, False), (0, True), (90, True), (90.001, False)])
def test_priorities_that_kubelet_has_not_confirmed_choose_nobody(age_s: float | None, is_chosen: bool) -> None:
    """The runtime's list is young; kubelet's, which alone tells priorities, is ``age_s`` old."""
    at = structs.replace(
        node(1, [be("p")], {"p": 100}), ages_s={"pods": 0.0} | ({} if age_s is None else {"kubelet": age_s})
    )
    by_priority = structs.replace(ANYBODY, priority_at_most=5500)
    assert bool(candidates(shortage(by_priority), at, Amounts(at, {}))) is is_chosen
    assert candidates(shortage(), at, Amounts(at, {})), "of those who are labelled with their class the last one counts"
    assert candidates(shortage(BE, order=(AMOUNT,)), at, Amounts(at, {})), "where no priority counts it does not matter"
    unknown = structs.replace(at, pods=(be("p", priority=None),))
    assert not candidates(shortage(), unknown, Amounts(unknown, {}))


@pytest.mark.parametrize(
    ("eviction", "left_s", "is_chosen"),
    [
        (FAILED, 3.0, False),
        (structs.replace(FAILED, is_refused=True), None, False),
        (structs.replace(FAILED, is_refused=True), 3.0, True),
        (structs.replace(FAILED, is_refused=True), 0.0, True),
        (structs.replace(RESTARTED, is_replacement=True), None, False),
        (structs.replace(RESTARTED, is_replacement=True), 3.0, True),
        (STOPPING, 3.0, False),
        (STOPPED, 3.0, False),
        (RESTARTED, 3.0, False),
    ],
)
def test_who_was_refused_may_be_chosen_before_its_time_when_it_is_late(
    eviction: EvictionState, left_s: float | None, is_chosen: bool
) -> None:
    at = node(1, [be("p")], {"p": 100}, evictions=[eviction])
    assert bool(candidates(shortage(left_s=left_s), at, Amounts(at, {}))) is is_chosen


@pytest.mark.parametrize(
    ("eviction", "has_given"),
    [
        (STOPPING, True),
        (STOPPED, True),
        (RESTARTED, True),
        (structs.replace(RESTARTED, retry_ns=S), False),
        (FAILED, False),
    ],
)
def test_an_evicted_pod_has_given_its_request_until_something_can_be_done_to_it(
    eviction: EvictionState, has_given: bool
) -> None:
    assert has_given_request(eviction, node(1, [be("p")])) is has_given


@pytest.mark.parametrize(
    ("used", "cache", "swap", "reclaimable"),
    [(100, 30, 0, 30), (100, None, 0, 0), (100, 0, 40, 40), (100, 7, 400, 107), (None, 7, 9, 7)],
)
def test_what_the_kernel_can_take_back(used: int | None, cache: int | None, swap: int, reclaimable: int) -> None:
    pod = be("p")
    memory = {} if used is None else {"p": used}
    at = node(1, [pod], memory, cache={} if cache is None else {"p": cache}, swap_free=swap)
    assert Amounts(at, {}).reclaimable_bytes(pod) == reclaimable
