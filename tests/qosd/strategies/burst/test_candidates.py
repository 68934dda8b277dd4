"""Which containers may burst, from which quota, with which settings and burst buffers."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from msgspec import structs

from koord.host.files import Target
from koord.model.formulas import recompute
from koord.model.podtotal import Role
from koord.model.quantity import MilliCPU
from koord.model.requirements import ContainerAmounts
from qosd.decide.decision import Op
from qosd.model.besteffort import NO_LIMITS, BestEffortLimits, BestEffortScheduling
from qosd.model.pod import Resources, SpecContainer
from qosd.model.policy import EffectivePolicy, Pool
from qosd.model.snapshot import PodFacts, PodView
from qosd.strategies import formulas
from qosd.strategies.burst.candidates import BurstPlan, PodCandidates, candidates, planned
from tests.qosd.contexts import extended
from tests.qosd.podviews import EXITED, NOT_READY, RUNNING, snapshot, view
from tests.qosd.strategies.burst.scenes import HOST, buffer, bursting, limited

BURSTING = bursting()
CREATED = "CONTAINER_CREATED"
MID: dict[str, Any] = {"band": "koord-mid", "EXTENDED": extended(kind="mid", request="500", limit="2000")}


def found(pod: PodView, by: EffectivePolicy = BURSTING) -> PodCandidates:
    one = candidates(pod, by)
    assert one is not None
    return one


def plan(
    *pods: PodView, last: BurstPlan | None = None, by: EffectivePolicy = BURSTING, limits: BestEffortLimits = NO_LIMITS
) -> BurstPlan:
    seen = snapshot(by, limits=limits)
    same = last is not None and last.pods == pods
    return planned(structs.replace(seen, pods=last.pods if last is not None and same else pods), last)


def bases(pod: PodView, by: EffectivePolicy = BURSTING) -> dict[str, int]:
    one = candidates(pod, by)
    return {} if one is None else {each.name: each.base_us for each in one.containers}


@pytest.mark.parametrize(
    ("pod", "is_eligible"),
    [
        (limited(qos="LS"), True),
        (limited(qos="SYSTEM"), True),
        (limited(qos=""), True),
        (limited(qos="", tier="Guaranteed"), True),
        (limited(qos="LSR", tier="Guaranteed"), False),
        (limited(qos="LSE", tier="Guaranteed"), False),
        (limited(qos="BE"), False),
        (limited(qos="", band="koord-free"), False),
        (limited(qos="LS", band="koord-free"), False),
        (limited(qos="", tier="BestEffort", **MID), False),
        (limited(qos="LS", tier="BestEffort", **MID), True),
        (limited(qos="", cpus="2-3"), False),
        (limited(qos="LS", cpus="2-3"), False),
        (limited(quota_us=-1), False),
        (limited(quota_us=0), False),
        (structs.replace(limited(), facts=PodFacts(runtime_class="kata-qemu")), False),
        (structs.replace(limited(), runtime_handler="kata"), False),
        (structs.replace(limited(), state=NOT_READY, containers=()), False),
    ],
    ids=[
        "LS", "SYSTEM", "unlabelled", "unlabelled and Guaranteed", "LSR", "LSE", "BE", "free", "free wins over LS",
        "unlabelled mid counts as BE", "LS with mid resources", "bound", "bound LS: its quota is -1",
        "unlimited", "no quota", "kata by its class", "kata by its handler", "ended",
    ],
)  # fmt: skip
def test_eligible(pod: PodView, is_eligible: bool) -> None:
    assert (candidates(pod, BURSTING) is not None) is is_eligible


def test_handlers_of_the_rules_are_katas() -> None:
    by = bursting(node={"sandboxSizingHandlers": ["vm"]})
    assert candidates(structs.replace(limited(), runtime_handler="vm"), by) is None


@pytest.mark.parametrize(
    ("state", "is_one"), [(RUNNING, True), (CREATED, False), (EXITED, False), ("CONTAINER_UNKNOWN", False)]
)
def test_containers_that_run(state: str, is_one: bool) -> None:
    requested = Resources(cpu_period_us=100_000, cpu_quota_us=50_000)
    pod = view("web", "LS", containers=[("main", state)], container_requested=requested)
    assert bases(pod) == ({"main": 50_000} if is_one else {})


@pytest.mark.parametrize(
    ("node", "pod", "base_us"),
    [
        ({}, limited(), 100_000),
        ({"cpuNormalizationRatio": 1.2}, limited(), 83_334),
        ({"cpuNormalizationRatio": 1.2}, limited(qos="SYSTEM"), 100_000),
        ({"cpuNormalizationRatio": 1.2, "hooks": {"cpuNormalization": False}}, limited(), 100_000),
        ({}, limited(qos="LS", **MID), 200_000),
    ],
    ids=["kubelet's", "a normalized one", "of no LS pod", "not by this node", "of mid resources"],
)
def test_the_base_is_what_the_hooks_make_of_kubelets_quota(node: dict[str, Any], pod: PodView, base_us: int) -> None:
    assert bases(pod, bursting(node=node)) == {"main": base_us}


def test_a_quota_that_was_scaled_at_creation_counts_as_kubelets() -> None:
    marked = {"qosd.koord.sh/cpu-quota-spec-and-scaled": "100000/83334"}
    pod = limited(quota_us=83_334)
    sandbox, main = pod.containers
    pod = structs.replace(pod, containers=(sandbox, structs.replace(main, annotations=marked)))
    assert bases(pod) == {"main": 100_000}


def test_nothing_bursts_in_a_tier_that_is_bounded() -> None:
    limits = BestEffortLimits(tier_milli=2000)
    assert candidates(limited(qos="LS", tier="BestEffort", **MID), bursting(), limits) is None
    assert candidates(limited(), bursting(), limits) is not None


@pytest.mark.parametrize(
    ("policy", "own", "raises", "buffers"),
    [
        ("auto", None, True, True),
        ("cpuBurstOnly", None, False, True),
        ("cfsQuotaBurstOnly", None, True, False),
        ("none", None, None, None),
        ("none", {"policy": "auto"}, True, True),
        ("none", {"policy": "cpuBurstOnly"}, False, True),
        ("auto", {"policy": "none"}, None, None),
        ("auto", {"policy": "cfsQuotaBurstOnly"}, True, False),
        ("none", {"cpuBurstPercent": 200}, None, None),
        ("auto", {"policy": "always"}, True, True),
        ("auto", "no JSON", True, True),
    ],
)
def test_policies(policy: str, own: object, raises: bool | None, buffers: bool | None) -> None:
    one = candidates(limited(burst=own), bursting(policy))
    assert (one is None) is (raises is None)
    if one is not None:
        assert (one.settings.raises, one.settings.buffers, bool(one.buffers)) == (raises, buffers, buffers)


def test_each_setting_is_the_pods_own_where_it_has_one() -> None:
    own = {"cpuBurstPercent": 200, "cfsQuotaBurstPercent": 150, "cfsQuotaBurstPeriodSeconds": 60}
    for said in (None, {name: value for name, value in own.items() if name != "cpuBurstPercent"}, own):
        settings = found(limited(burst=said)).settings
        is_own = [name in (said or {}) for name in own]
        assert settings.buffer_percent == (200 if is_own[0] else 1000)
        assert (settings.quota_percent, settings.period_s) == ((150, 60) if is_own[1] else (300, -1))


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({"cfsQuotaBurstPercent": 101}, (101, 1000, -1)),
        ({"cfsQuotaBurstPercent": 90}, (100, 1000, -1)),
        ({"cfsQuotaBurstPercent": 0}, (100, 1000, -1)),
        ({"cfsQuotaBurstPercent": -300}, (100, 1000, -1)),
        ({"cpuBurstPercent": 0}, (300, 0, -1)),
        ({"cpuBurstPercent": -1}, (300, 0, -1)),
        ({"cpuBurstPercent": 20_000}, (300, 20_000, -1)),
        ({"cfsQuotaBurstPeriodSeconds": 0}, (300, 1000, 0)),
    ],
)
def test_a_pod_may_want_less_than_a_node_can(own: dict[str, int], expected: tuple[int, int, int]) -> None:
    settings = found(limited(burst=own)).settings
    assert (settings.quota_percent, settings.buffer_percent, settings.period_s) == expected


def test_a_pod_without_a_period_bursts_for_any_time_whatever_the_nodes_is() -> None:
    by = bursting(cfsQuotaBurstPeriodSeconds=60)
    for period_s in (-1, -2):
        assert not found(limited(burst={"cfsQuotaBurstPeriodSeconds": period_s}), by).settings.has_bucket


def test_tokens_are_counted_whatever_the_policy_is() -> None:
    one = found(limited(), bursting("none", cfsQuotaBurstPeriodSeconds=60))
    assert (one.settings.raises, one.settings.has_bucket, dict(one.buffers)) == (False, True, {})


def buffers_of(pod: PodView, by: EffectivePolicy) -> dict[str, Any]:
    return {target.cgroup.removeprefix(pod.cgroup): each.value for target, each in found(pod, by).buffers.items()}


@pytest.mark.parametrize(
    ("percent", "quota_us", "expected"),
    [
        (1000, 200_000, {"/main": 200_000, "/side": 200_000, "": 400_000}),
        (50, 200_000, {"/main": 100_000, "/side": 100_000, "": 200_000}),
        (100, 83_334, {"/main": 83_334, "/side": 83_334, "": 166_668}),
        (1, 1000, {"/main": 10, "/side": 10, "": 20}),
    ],
    ids=["never more than the quota", "a part of it", "all of it", "of the smallest quota"],
)
def test_burst_buffers(percent: int, quota_us: int, expected: dict[str, int]) -> None:
    pod = limited("web", "LS", quota_us, "main", "side")
    assert buffers_of(pod, bursting(cpuBurstPercent=percent)) == expected


def test_a_pod_has_a_buffer_only_if_each_of_its_containers_has_a_quota() -> None:
    pod = limited("web", "LS", 100_000, "main", "side")
    sandbox, main, side = pod.containers
    unlimited = structs.replace(side, requested=Resources())
    assert buffers_of(structs.replace(pod, containers=(sandbox, main, unlimited)), BURSTING) == {"/main": 100_000}
    assert buffers_of(structs.replace(pod, cgroup=""), BURSTING).keys() == {"/kubepods/burstable/podweb/main",
                                                                        "/kubepods/burstable/podweb/side"}  # fmt: skip


@pytest.mark.parametrize(
    ("limit_milli", "ratio", "expected_us", "shrinks"),
    [
        (500, None, 50_000, True),
        (900, 1.2, 75_000, True),
        (1000, None, 100_000, False),
        (1000, 1.2, 83_334, False),
        (2000, None, 100_000, False),
        (0, None, 100_000, False),
    ],
)
def test_a_smaller_limit_to_come_is_let_through(
    limit_milli: int, ratio: float | None, expected_us: int, shrinks: bool
) -> None:
    """kubelet's resize: the kernel would refuse its quota below the buffer, and v1 its pod's below the container's."""
    spec = SpecContainer("main", Role.MAIN, ContainerAmounts("main", cpu_limit=MilliCPU(limit_milli)))
    pod = structs.replace(limited(), spec_containers=(spec,))
    for version in (1, 2):
        node = {} if ratio is None else {"cpuNormalizationRatio": ratio}
        by = bursting(host=replace(HOST, cgroup_version=version), node=node)
        assert buffers_of(pod, by) == {"/main": expected_us, "": expected_us}
        assert found(pod, by).raises is not (shrinks and version == 1)


@pytest.mark.parametrize("files", [None, frozenset(), frozenset({"memory.high"})])
def test_without_the_kernels_file_there_are_no_buffers(files: frozenset[str] | None) -> None:
    one = found(limited(), bursting(host=replace(HOST, files=files)))
    assert (dict(one.buffers), one.settings.raises) == ({}, True)


def test_buffers_can_be_computed_again() -> None:
    pod = limited("web", "LS", 200_000, "main", "side")
    for target, opinion in found(pod).buffers.items():
        assert (opinion.op, opinion.pod) == (Op.SET, "default/web")
        assert recompute(opinion.inputs, formulas()) == opinion.value, target
    whole = found(pod).buffers[buffer(pod, "")]
    assert whole.inputs == {"formula": "cpu_burst_sum", "main_us": 200_000, "side_us": 200_000}
    assert whole.why == "burst buffer: those of its containers together"
    one = found(pod).buffers[buffer(pod)]
    assert one.why == "burst buffer: 1000 % of its quota, and at most all of it"
    assert Target(pod.cgroup + "/main", "cpu.max.burst") == buffer(pod)


def test_a_plan_keeps_what_did_not_change() -> None:
    web, other, job = limited("web"), limited("other"), limited("job", "BE")
    first = plan(web, other, job)
    assert [uid for uid, _ in first.eligible] == ["web", "other"]
    assert (first.count, first.pool_percent) == (2, 50)
    assert plan(*first.pods, last=first) is first
    again = plan(web, limited("other"), job, last=first)
    assert again.eligible is first.eligible, "another view that says the same"
    second = plan(web, limited("other", quota_us=50_000), job, last=first)
    assert second.eligible[0][1] is first.eligible[0][1]
    assert second.eligible[1][1] is not first.eligible[1][1]


@pytest.mark.parametrize(
    ("changes", "limits", "is_same"),
    [
        ({}, BestEffortLimits(BestEffortScheduling("busy", "0-1"), (Pool(0, 0, "0-1"),)), True),
        ({}, BestEffortLimits(tier_milli=1500), False),
        ({"cpu_normalization_ratio": Fraction(6, 5)}, NO_LIMITS, False),
        ({"hooks": {"cpuNormalization": False}}, NO_LIMITS, True),
    ],
)
def test_what_moves_every_second_makes_no_other_plan(
    changes: dict[str, Any], limits: BestEffortLimits, is_same: bool
) -> None:
    """Suppression makes other limits again and again."""
    mid = limited("mid", "LS", tier="BestEffort", **MID)
    first = plan(limited(), mid)
    other = replace(BURSTING, node=replace(BURSTING.node, **changes)) if changes else BURSTING
    again = plan(*first.pods, last=first, by=other, limits=limits)
    assert (again.eligible is first.eligible) is is_same


def test_nor_is_anything_worked_out_again_for_it() -> None:
    bounded = [BestEffortLimits(tier_milli=milli) for milli in (1500, 2500)]
    first = plan(limited(), limits=bounded[0])
    again = plan(*first.pods, last=first, limits=bounded[1])
    assert again.by_uid["web"] is first.by_uid["web"]
