"""What the hooks say of cgroups that no call is about: a pod's own, and its sandbox's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from qosd.model.pod import HookStage, PodContext, Resources
from tests.qosd.contexts import MEMORY_QOS, V2, V2_VENDOR, decided, extended, pod, policy

POOLS = {"ls": [{"cpuset": "4-13"}], "be": [{"cpuset": "2-13"}]}
V1_VENDOR = replace(V2_VENDOR, cgroup_version=1)
IDENTITY = {"resourceQOSStrategy": {"lsClass": {"cpuQOS": {"enable": True}}, "beClass": {"cpuQOS": {"enable": True}}}}
IDLE = {"resourceQOSStrategy": {"beClass": {"cpuQOS": {"enable": True, "schedIdle": 1}}}}
PERCENTS = {"minLimitPercent": 20, "lowLimitPercent": 50, "throttlingPercent": 80}
MEMORY = {"resourceQOSStrategy": {f"{one}Class": {"memoryQOS": {"enable": True, **PERCENTS}} for one in ("ls", "be")}}


def of_pod(*args: Any, requested: Resources | None = None, **said: Any) -> PodContext:
    return pod(*args, **said).at(HookStage.POD_CGROUP, requested or Resources())


def of_sandbox(*args: Any, **said: Any) -> PodContext:
    return pod(*args, **said).at(HookStage.SANDBOX_CGROUP, Resources())


@pytest.mark.parametrize(
    ("who", "cpus"),
    [
        (of_sandbox("LS"), "4-13"),
        (of_sandbox("BE", "BestEffort"), "2-13"),
        (of_sandbox("LSR", "Guaranteed", STATUS={"cpuset": "2-3"}), "2-3"),
    ],
)
def test_a_sandbox_gets_the_cpus_and_nothing_else(who: PodContext, cpus: str) -> None:
    by = policy(V2_VENDOR, {**IDENTITY, **MEMORY}, sharedPools=POOLS, **MEMORY_QOS)
    assert decided(who, by) == {"cpuset_cpus": cpus}


def test_an_unlabelled_sandbox_under_the_static_policy_keeps_kubelets_cpus() -> None:
    assert decided(of_sandbox("", "Guaranteed"), policy(cpuManagerPolicy="static", sharedPools=POOLS)) == {}


def test_a_pod_with_bound_cpus_loses_its_quota_and_gets_no_cpu_set() -> None:
    assert decided(of_pod("LSR", STATUS={"cpuset": "2-3"}), policy(sharedPools=POOLS)) == {"cpu_quota": -1}
    assert decided(of_pod("LSR", STATUS={"cpuset": "2-3"}), policy(disableUnsetCPUQuota=True)) == {}


@pytest.mark.parametrize(
    ("said", "want"),
    [
        ({}, {"cpu_shares": 1536, "cpu_quota": 166667, "memory_limit_in_bytes": 4 << 30}),
        ({"request": "500"}, {"cpu_shares": 2048, "cpu_quota": -1, "memory_limit_in_bytes": -1}),
        (
            {"request": "500", "limit": "1000", "memory": "1Gi"},
            {"cpu_shares": 2048, "cpu_quota": 250000, "memory_limit_in_bytes": 5 << 30},
        ),
    ],
)
def test_a_batch_pod_has_the_sums_of_its_containers(said: dict[str, str], want: dict[str, int]) -> None:
    containers = extended(request="1500", limit="2000", memory="4Gi")["containers"]
    if said:
        containers |= extended("side", **said)["containers"]
    who = of_pod("BE", "BestEffort", EXTENDED={"containers": containers})
    assert decided(who, policy(cpuNormalizationRatio=1.2)) == want


class TestGroupIdentity:
    @pytest.mark.parametrize("host", [V2_VENDOR, V1_VENDOR])
    @pytest.mark.parametrize(("who", "value"), [(of_pod("LS"), "2"), (of_pod("BE", "BestEffort"), "-1")])
    def test_on_either_version(self, host: Any, who: PodContext, value: str) -> None:
        assert decided(who, policy(host, IDENTITY)) == {"cpu.bvt_warp_ns": value}

    def test_only_where_the_kernel_has_it(self) -> None:
        assert decided(of_pod("LS"), policy(V2, IDENTITY)) == {}


@pytest.mark.parametrize(
    ("who", "spec", "want"),
    [
        (of_pod("BE", "BestEffort"), IDLE, {"cpu.idle": "1"}),
        (of_pod("", "BestEffort"), IDLE, {"cpu.idle": "1"}),
        (of_pod("BE", "BestEffort"), {}, {}),
        (of_pod("BE", "Burstable"), IDLE, {}),  # its tier is not BestEffort
        (of_pod("LS", "BestEffort"), IDLE, {}),
        (pod("BE", "BestEffort"), IDLE, {}),
        (of_sandbox("BE", "BestEffort"), IDLE, {}),
    ],
)
def test_idle_scheduling(who: PodContext, spec: Any, want: dict[str, str]) -> None:
    assert {key: value for key, value in decided(who, policy(V2, spec)).items() if key == "cpu.idle"} == want


def test_idle_scheduling_can_be_turned_off() -> None:
    assert decided(of_pod("BE", "BestEffort"), policy(V2, IDLE, hooks={"cpuIdle": False})) == {}


class TestMemory:
    # without high
    PROTECTED: ClassVar[dict[str, str]] = {"memory.min": "429496729", "memory.low": "1073741824"}

    @pytest.mark.parametrize(
        ("who", "want"),
        [
            (of_pod("LS", requested=Resources(memory_request_bytes=2 << 30)), PROTECTED),
            (of_pod("BE", "BestEffort", EXTENDED=extended(memory_request="2Gi", memory="6Gi")), PROTECTED),
            (of_pod("LS"), {}),  # nobody tells the request
            (of_pod("BE", "BestEffort"), {"memory.min": "0", "memory.low": "0"}),
        ],
    )
    def test_of_the_pods_request(self, who: PodContext, want: dict[str, str]) -> None:
        found = decided(who, policy(V2, MEMORY, **MEMORY_QOS))
        assert {key: value for key, value in found.items() if key.startswith("memory.")} == want

    def test_sums_over_containers(self) -> None:
        containers = {
            **extended("a", memory_request="1Gi", memory="3Gi")["containers"],
            **extended("b", memory_request="1Gi", memory="3Gi")["containers"],
        }
        who = of_pod("BE", "BestEffort", EXTENDED={"containers": containers})
        found = decided(who, policy(V2, MEMORY, **MEMORY_QOS))
        assert found["memory.min"] == "429496729"
