"""Host applications: where their cgroup is, what is refused, what they get and when it is released."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from koord.host.files import Target
from koord.model.qos import KubeQoS
from koord.model.slo import HostApplication, decode_spec
from qosd.decide.decision import Decision, Op
from qosd.model.policy import HostFacts
from qosd.strategies.hostapps import BadPath, HostApplicationStrategy, cgroup_of
from tests.qosd.contexts import V2, policy
from tests.qosd.podviews import snapshot

TIERS = {
    KubeQoS.GUARANTEED: "/nested/kubepods",
    KubeQoS.BURSTABLE: "/nested/kubepods/burstable",
    KubeQoS.BEST_EFFORT: "/nested/kubepods/besteffort",
}
POOLS = {"ls": [{"cpuset": "8-13"}, {"cpuset": "4-7"}]}


def application(qos: str = "LS", name: str = "nginx", **path: str) -> HostApplication:
    return one(spec(qos, name, **path))


def spec(qos: str = "LS", name: str = "nginx", **path: str) -> dict[str, Any]:
    return {"name": name, "qos": qos, **({"cgroupPath": path} if path else {})}


def one(document: dict[str, Any]) -> HostApplication:
    applications = decode_spec({"hostApplications": [document]}).host_applications
    assert applications is not None
    return applications[0]


@pytest.mark.parametrize(
    ("app", "complaint"),
    [
        (application(base="CgroupRoot"), "names no cgroup of its own below /"),
        (application(base="Kubepods"), "names no cgroup of its own below /nested/kubepods"),
        (application(relativePath="../../etc"), "'../../etc' is no path below /"),
        (application(name="a/../../b"), "is no path below /"),
        (application(base="CgroupRoot", relativePath="nested/kubepods/burstable"), "is kubelet's"),
        (application("", name=""), "names no cgroup of its own"),
    ],
)
def test_paths_that_are_refused(app: HostApplication, complaint: str) -> None:
    with pytest.raises(BadPath, match=complaint):
        cgroup_of(app, TIERS)


def test_a_tier_that_was_not_found() -> None:
    with pytest.raises(BadPath, match="KubepodsBurstable was not found"):
        cgroup_of(application(base="KubepodsBurstable", relativePath="x"), {})


@pytest.mark.parametrize(
    ("app", "cgroup"),
    [
        (application("LS"), "/host-latency-sensitive/nginx"),
        (application("LSE"), "/host-latency-sensitive/nginx"),
        (application("BE"), "/host-best-effort/nginx"),
        (application("SYSTEM"), "/nginx"),
        (application(""), "/nginx"),
        (application(parentDir="a/b/", relativePath="/c"), "/a/b/c"),
        (application(base="CgroupRoot", parentDir="system.slice", relativePath="x.service"), "/system.slice/x.service"),
        (application(base="Kubepods", relativePath="app"), "/nested/kubepods/app"),
        (application(base="KubepodsBesteffort", parentDir="d", relativePath="a"), "/nested/kubepods/besteffort/d/a"),
    ],
)
def test_where_the_cgroup_is(app: HostApplication, cgroup: str) -> None:
    assert cgroup_of(app, TIERS) == cgroup


def decide(memory: Any, *applications: dict[str, Any], host: HostFacts = V2, **node: Any) -> tuple[Decision, Any]:
    by = policy(host, {"hostApplications": list(applications)}, **node)
    return HostApplicationStrategy().decide(replace(snapshot(by), tiers=TIERS), memory)


def values(decision: Decision) -> dict[tuple[str, str], Any]:
    return {(at.cgroup, at.name): said.value for at, said in decision.opinions.items() if said.op is Op.SET}


def test_what_each_class_gets() -> None:
    applications = [spec(qos, name) for qos, name in (("LS", "a"), ("BE", "b"), ("LSR", "c"), ("", "d"))]
    found = values(decide(None, *applications, sharedPools=POOLS)[0])
    assert found == {("/host-latency-sensitive/a", "cpuset_cpus"): "4-13"}


def test_without_pools_there_is_nothing_to_say() -> None:
    assert values(decide(None, spec())[0]) == {}


def test_one_that_is_refused_costs_the_others_nothing() -> None:
    decision, _ = decide(None, spec(relativePath=".."), spec(name="good"), sharedPools=POOLS)
    assert decision.sentence == "2 host applications; host application nginx: '..' is no path below /"
    assert list(decision.opinions) == [Target("/host-latency-sensitive/good", "cpuset_cpus")]


def test_one_that_the_spec_no_longer_names_is_released() -> None:
    first, memory = decide(None, spec(name="a"), spec(name="b"), sharedPools=POOLS)
    second, _ = decide(memory, spec(name="a"), sharedPools=POOLS)
    assert set(first.opinions) - set(second.opinions) == {Target("/host-latency-sensitive/b", "cpuset_cpus")}


def test_an_unchanged_tick_returns_the_same_objects() -> None:
    picture = replace(snapshot(policy(V2, {"hostApplications": [spec()]}, sharedPools=POOLS)), tiers=TIERS)
    strategy = HostApplicationStrategy()
    first, memory = strategy.decide(picture, None)
    second, again = strategy.decide(picture, memory)
    assert (second is first, again is memory) == (True, True)
    assert decide(memory, spec(), sharedPools=POOLS)[0] is first


def test_a_tier_that_moved_moves_the_application() -> None:
    by = policy(V2, {"hostApplications": [spec(base="Kubepods", relativePath="x")]}, sharedPools=POOLS)
    first, memory = HostApplicationStrategy().decide(replace(snapshot(by), tiers=TIERS), None)
    moved = {**TIERS, KubeQoS.GUARANTEED: "/other"}
    second, _ = HostApplicationStrategy().decide(replace(snapshot(by), tiers=moved), memory)
    assert [*first.opinions, *second.opinions] == [
        Target("/nested/kubepods/x", "cpuset_cpus"),
        Target("/other/x", "cpuset_cpus"),
    ]
