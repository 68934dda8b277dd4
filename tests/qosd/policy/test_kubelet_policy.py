"""What the policy takes from kubelet: which CPU manager policy counts, and when its allocations are unknown."""

from __future__ import annotations

import pytest

from koord.model.reservation import Reserved
from qosd.model.policy import CPUManagerPolicy, EffectivePolicy, HostFacts, NodeSettings
from qosd.policy.kubeletpolicy import KubeletPolicyInputs, overlay

NONE, STATIC = NodeSettings(), NodeSettings(cpu_manager_policy=CPUManagerPolicy.STATIC)
ABSENT = KubeletPolicyInputs(untold="state is not there", is_absent=True)
SAYS_NONE, SAYS_STATIC = KubeletPolicyInputs(), KubeletPolicyInputs("static", gives_cpus=True)
TORN, TORN_LATER = SAYS_NONE._replace(untold="state: torn"), SAYS_STATIC._replace(untold="state: torn")


@pytest.mark.parametrize(
    ("file", "kubelet_is_static", "policy"),
    [(NONE, False, "none"), (NONE, True, "static"), (STATIC, False, "static"), (STATIC, True, "static")],
)
def test_static_wins(file: NodeSettings, kubelet_is_static: bool, policy: str) -> None:
    assert overlay(file, SAYS_STATIC if kubelet_is_static else SAYS_NONE).cpu_manager_policy == policy


@pytest.mark.parametrize(
    ("state", "configured", "file", "unknown"),
    [
        (TORN, "static", NONE, "state: torn"),
        (TORN, None, NONE, "state: torn"),
        (TORN, "none", NONE, ""),
        (TORN_LATER, "static", NONE, "state: torn"),
        (ABSENT, "static", NONE, "kubelet's configuration says cpuManagerPolicy: static, but state is not there"),
        (ABSENT, None, STATIC, "the rules file says cpuManagerPolicy: static, but state is not there"),
        (ABSENT, "none", STATIC, ""),
        (ABSENT, None, NONE, ""),
        (ABSENT, "none", NONE, ""),
        (
            SAYS_NONE,
            "static",
            NONE,
            "kubelet's configuration says cpuManagerPolicy: static, but kubelet's state file says none",
        ),
        (SAYS_NONE, None, STATIC, ""),
        (SAYS_STATIC, "static", NONE, ""),
        (SAYS_STATIC, None, NONE, ""),
    ],
)
def test_allocations_that_nobody_tells_are_unknown(
    state: KubeletPolicyInputs, configured: str | None, file: NodeSettings, unknown: str
) -> None:
    node = overlay(file, state._replace(configured=configured or ""))
    assert node.cpus_unknown == unknown
    assert not unknown or node.cpu_manager_policy is CPUManagerPolicy.STATIC


@pytest.mark.parametrize(
    ("state", "file", "unknown"),
    [
        (ABSENT, NONE, "kubelet has not told its configuration yet, and state is not there"),
        (ABSENT, STATIC, "the rules file says cpuManagerPolicy: static, but state is not there"),
        (SAYS_NONE, NONE, ""),
        (SAYS_STATIC, NONE, ""),
        (TORN, NONE, "state: torn"),
    ],
)
def test_without_a_state_file_kubelets_first_answer_is_waited_for(
    state: KubeletPolicyInputs, file: NodeSettings, unknown: str
) -> None:
    assert overlay(file, state._replace(is_awaited=True)).cpus_unknown == unknown


@pytest.mark.parametrize(
    ("file_bytes", "reserved_bytes", "allocatable_bytes"), [(None, 0, 1000), (None, 300, 700), (600, 300, 600)]
)
def test_what_kubelet_reserves_is_left_out_unless_the_file_says_otherwise(
    file_bytes: int | None, reserved_bytes: int, allocatable_bytes: int
) -> None:
    file, kubelet = (
        NodeSettings(allocatable_memory_bytes=file_bytes),
        KubeletPolicyInputs(reserved=Reserved(500, reserved_bytes)),
    )
    policy = EffectivePolicy(node=overlay(file, kubelet), host=HostFacts(memory_total_bytes=1000))
    assert (policy.allocatable_memory_bytes, policy.node.kubelet_reserved.cpu_milli) == (allocatable_bytes, 500)
