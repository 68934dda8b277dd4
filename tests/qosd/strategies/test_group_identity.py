"""The strategy ``groupIdentity``: who gets which identity, the kernel's switches, and when nobody has any."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from koord.host.files import Target
from koord.model.qos import KubeQoS
from qosd.decide.decision import Decision, Op
from qosd.decide.runner import StrategyStatus, decide_all
from qosd.model.policy import EffectivePolicy, HostFacts
from qosd.model.snapshot import NodeSnapshot, PodView
from qosd.strategies.groupidentity import GroupIdentity
from tests.qosd.contexts import V2, V2_VENDOR, policy
from tests.qosd.podviews import snapshot, view

FILE, CORE, SWITCH = "cpu.bvt_warp_ns", "kernel.sched_core", "kernel.sched_group_identity_enabled"
TIERS = {
    KubeQoS.GUARANTEED: "/kubepods",
    KubeQoS.BURSTABLE: "/kubepods/burstable",
    KubeQoS.BEST_EFFORT: "/kubepods/besteffort",
}
SWITCHES = frozenset({CORE, SWITCH})
VENDOR = {2: replace(V2_VENDOR, system_files=SWITCHES), 1: replace(V2_VENDOR, cgroup_version=1, system_files=SWITCHES)}
VERSIONS = pytest.mark.parametrize("version", [1, 2])
CPU_QOS = "koordinator.sh/cpuQOS"


def classes(**enabled: dict[str, Any]) -> dict[str, Any]:
    return {f"{name}Class": {"cpuQOS": {"enable": True, **own}} for name, own in enabled.items()}


LS_BE = {"resourceQOSStrategy": classes(ls={}, be={})}
PODS = (
    view("ls", "LS"),
    view("lsr", "LSR", "Guaranteed"),
    view("unlabelled", "", "Guaranteed"),
    view("be", "BE", "BestEffort"),
    view("own", "LS", CPU_QOS={"enable": True, "groupIdentity": -1}),
    view("off", "LS", CPU_QOS={"groupIdentity": -1}),
)
OF_PODS = {
    "/kubepods/burstable/podls": 2,
    "/kubepods/podlsr": 0,
    "/kubepods/podunlabelled": 2,
    "/kubepods/besteffort/podbe": -1,
    "/kubepods/burstable/podown": -1,
    "/kubepods/burstable/podoff": 0,
}
OF_TIERS = {"/kubepods": 0, "/kubepods/burstable": 2, "/kubepods/besteffort": -1}


def picture(by: EffectivePolicy, *pods: PodView) -> NodeSnapshot:
    return structs.replace(snapshot(by, *pods), tiers=TIERS)


def decide(by: EffectivePolicy, *pods: PodView) -> Decision:
    return GroupIdentity().decide(picture(by, *pods), None)[0]


def identities(decision: Decision) -> dict[str, Any]:
    """By cgroup."""
    return {target.cgroup: one.value for target, one in decision.opinions.items() if target.name == FILE}


def switches(decision: Decision) -> dict[str, Any]:
    return {target.name: one.value for target, one in decision.opinions.items() if target.cgroup == ""}


@VERSIONS
def test_the_example_of_node_qos_10_2(version: int) -> None:
    """ls and be enabled, lsr not. Containers and sandboxes have what their pod has."""
    below = {
        f"{cgroup}/{name}": value
        for cgroup, value in OF_PODS.items()
        for name in ("main", cgroup.rpartition("/")[2].replace("pod", "s-"))
    }
    decision = decide(policy(VENDOR[version], LS_BE), *PODS)
    assert identities(decision) == {**OF_TIERS, **OF_PODS, **below}
    assert switches(decision) == {CORE: 0, SWITCH: 1}
    assert decision.sentence.startswith("tiers: Guaranteed 0, Burstable 2, BestEffort -1; pods: ")


@pytest.mark.parametrize(
    ("enabled", "tiers"),
    [
        (classes(lsr={}), (0, 0, 0)),
        (classes(lsr={"groupIdentity": 1}, ls={"groupIdentity": 1}), (0, 1, 0)),
        (classes(be={}), (0, 0, -1)),
        (classes(ls={}, be={"groupIdentity": 0}), (0, 2, 0)),
    ],
)
def test_tiers(enabled: dict[str, Any], tiers: tuple[int, int, int]) -> None:
    """Guaranteed is the root of the others, and always neutral."""
    assert tuple(identities(decide(policy(VENDOR[2], {"resourceQOSStrategy": enabled}))).values()) == tiers


def test_host_applications_have_the_identity_of_their_class() -> None:
    applications = [
        *({"name": name, "qos": qos} for name, qos in (("a", "LS"), ("b", "BE"), ("c", "LSR"), ("d", ""))),
        {"name": "bad", "qos": "LS", "cgroupPath": {"relativePath": ".."}},
    ]
    found = identities(decide(policy(VENDOR[2], {**LS_BE, "hostApplications": applications})))
    own = {"/host-latency-sensitive/a": 2, "/host-best-effort/b": -1, "/host-latency-sensitive/c": 0}
    assert found == {**OF_TIERS, **own}


@pytest.mark.parametrize(
    ("has", "expected"),
    [(frozenset(), {}), (frozenset({CORE}), {CORE: 0}), (frozenset({SWITCH}), {SWITCH: 1})],
)
def test_only_the_switches_that_the_kernel_has(has: frozenset[str], expected: dict[str, int]) -> None:
    assert switches(decide(policy(replace(VENDOR[2], system_files=has), LS_BE))) == expected


@pytest.mark.parametrize(("stated", "expected"), [(None, {CORE: 0, SWITCH: 1}), (1, {CORE: 0})])
def test_what_system_strategy_says_of_the_switch_is_another_strategys(
    stated: int | None, expected: dict[str, int]
) -> None:
    system = {"systemStrategy": {"schedGroupIdentityEnabled": stated}}
    assert switches(decide(policy(VENDOR[2], {**LS_BE, **system}, features={"SystemConfig": True}))) == expected


OTHER = {"resourceQOSStrategy": {**LS_BE["resourceQOSStrategy"], "policies": {"cpuPolicy": "coreSched"}}}
SYSTEM_OFF = {**LS_BE, "systemStrategy": {"schedGroupIdentityEnabled": 0}}


@pytest.mark.parametrize(
    ("host", "spec", "node", "why"),
    [
        (V2, LS_BE, {}, "before kubelet has made its cgroups nobody knows"),
        (replace(V2, files=frozenset()), LS_BE, {}, "this kernel has no cpu.bvt_warp_ns: only vendor kernels do"),
        (VENDOR[2], {}, {}, "no class has cpuQOS enabled"),
        (VENDOR[2], OTHER, {}, "cpuPolicy is another"),
        (VENDOR[2], LS_BE, {"hooks": {"groupIdentity": False}}, "node.hooks switches groupIdentity off"),
        (VENDOR[2], LS_BE, {"features": {"GroupIdentity": False}}, "feature gate GroupIdentity is off"),
        (VENDOR[2], SYSTEM_OFF, {"features": {"SystemConfig": True}}, "schedGroupIdentityEnabled is 0"),
    ],
)
def test_nobody_has_an_identity(host: HostFacts, spec: dict[str, Any], node: dict[str, Any], why: str) -> None:
    """Not the tiers, not the pods, and the kernel's switches are given back."""
    decision = decide(policy(host, spec, **node), *PODS)
    assert decision.opinions == {}
    assert why in decision.sentence


def test_without_its_gate_the_switch_of_system_strategy_means_nothing() -> None:
    assert identities(decide(policy(VENDOR[2], SYSTEM_OFF))) == OF_TIERS


@pytest.mark.parametrize(
    ("spec", "node", "state"),
    [
        (LS_BE, {}, StrategyStatus.ACTIVE),
        ({}, {}, StrategyStatus.DISABLED),
        (LS_BE, {"features": {"GroupIdentity": False}}, StrategyStatus.GATED),
    ],
)
def test_its_state(spec: dict[str, Any], node: dict[str, Any], state: StrategyStatus) -> None:
    decisions, _ = decide_all(picture(policy(VENDOR[2], spec, **node)), [GroupIdentity()])
    assert decisions.results[0].state is state


def test_an_unchanged_tick_returns_the_same_objects() -> None:
    seen, strategy = picture(policy(VENDOR[2], LS_BE), *PODS), GroupIdentity()
    first, memory = strategy.decide(seen, None)
    second, again = strategy.decide(structs.replace(seen, tick=2), memory)
    assert (second is first, again is memory) == (True, True)


def test_one_new_pod_leaves_the_others_opinions_what_they_were() -> None:
    seen, strategy = picture(policy(VENDOR[2], LS_BE), *PODS), GroupIdentity()
    first, memory = strategy.decide(seen, None)
    second, _ = strategy.decide(structs.replace(seen, pods=(*seen.pods, view("new", "BE", "BestEffort"))), memory)
    pod = "/kubepods/besteffort/podnew"
    assert {at.cgroup for at in second.opinions.keys() - first.opinions.keys()} == {pod, f"{pod}/main", f"{pod}/s-new"}
    assert all(second.opinions[target] is opinion for target, opinion in first.opinions.items())


def test_who_why_and_of_which_pod() -> None:
    decision = decide(policy(VENDOR[2], LS_BE), *PODS)
    of_tier, of_pod = (
        decision.opinions[Target(cgroup, FILE)] for cgroup in (TIERS[KubeQoS.BEST_EFFORT], "/kubepods/burstable/podls")
    )
    assert (of_tier.op, of_tier.why, of_tier.pod) == (Op.SET, "group identity of BE in NodeSLO", "")
    assert (of_pod.why, of_pod.pod) == ("groupIdentity: group identity of LS in NodeSLO", "default/ls")
