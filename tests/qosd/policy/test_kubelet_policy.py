from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from koord.model.kubeletconfig import KubeletConfig
from koord.model.reservation import Reserved
from qosd.model.policy import CPUManagerPolicy, EffectivePolicy, HostFacts, NodeSettings
from qosd.pods.cpumanager import CPUManagerState
from qosd.policy.kubeletpolicy import PolicyRules
from tests.qosd.contexts import Now


@dataclass
class StateFile:
    """What the CPU manager's state file says."""

    current: CPUManagerState
    untold: str = ""
    is_absent: bool = False


class Config(KubeletConfig, frozen=True, kw_only=True):
    """What kubelet's source of it says."""

    is_awaited: bool = False


ABSENT = StateFile(CPUManagerState(), "state is not there", is_absent=True)
TORN, TORN_LATER = StateFile(CPUManagerState(), "state: torn"), StateFile(CPUManagerState("static"), "state: torn")
NONE = EffectivePolicy()
STATIC = replace(NONE, node=NodeSettings(cpu_manager_policy=CPUManagerPolicy.STATIC))


@pytest.mark.parametrize(
    ("file", "kubelet_is_static", "policy"),
    [(NONE, False, "none"), (NONE, True, "static"), (STATIC, False, "static"), (STATIC, True, "static")],
)
def test_static_wins(file: EffectivePolicy, kubelet_is_static: bool, policy: str) -> None:
    kubelet = StateFile(CPUManagerState("static" if kubelet_is_static else "none"))
    assert PolicyRules(Now(file), kubelet).current.node.cpu_manager_policy == policy


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
            StateFile(CPUManagerState()),
            "static",
            NONE,
            "kubelet's configuration says cpuManagerPolicy: static, but kubelet's state file says none",
        ),
        (StateFile(CPUManagerState()), None, STATIC, ""),
        (StateFile(CPUManagerState("static")), "static", NONE, ""),
        (StateFile(CPUManagerState("static")), None, NONE, ""),
    ],
)
def test_allocations_that_nobody_tells_are_unknown(
    state: StateFile, configured: str | None, file: EffectivePolicy, unknown: str
) -> None:
    config = None if configured is None else Config(cpu_manager_policy=configured)
    node = PolicyRules(Now(file), state, config).current.node
    assert node.cpus_unknown == unknown
    assert not unknown or node.cpu_manager_policy is CPUManagerPolicy.STATIC


@pytest.mark.parametrize(
    ("state", "file", "unknown"),
    [
        (ABSENT, NONE, "kubelet has not told its configuration yet, and state is not there"),
        (ABSENT, STATIC, "the rules file says cpuManagerPolicy: static, but state is not there"),
        (StateFile(CPUManagerState()), NONE, ""),
        (StateFile(CPUManagerState("static")), NONE, ""),
        (TORN, NONE, "state: torn"),
    ],
)
def test_without_a_state_file_kubelets_first_answer_is_waited_for(
    state: StateFile, file: EffectivePolicy, unknown: str
) -> None:
    node = PolicyRules(Now(file), state, Config(cpu_manager_policy="", is_awaited=True)).current.node
    assert node.cpus_unknown == unknown


@pytest.mark.parametrize(
    ("file_bytes", "reserved_bytes", "allocatable_bytes"), [(None, 0, 1000), (None, 300, 700), (600, 300, 600)]
)
def test_what_kubelet_reserves_is_left_out_unless_the_file_says_otherwise(
    file_bytes: int | None, reserved_bytes: int, allocatable_bytes: int
) -> None:
    host = HostFacts(memory_total_bytes=1000)
    file = Now(EffectivePolicy(node=NodeSettings(allocatable_memory_bytes=file_bytes), host=host))
    policy = PolicyRules(file, StateFile(CPUManagerState()), Config(reserved=Reserved(500, reserved_bytes)))
    current = policy.current
    assert (current.allocatable_memory_bytes, current.node.kubelet_reserved.cpu_milli) == (allocatable_bytes, 500)
    assert policy.current is current


def test_the_same_rules_are_the_same_object() -> None:
    file, kubelet = Now(NONE), StateFile(CPUManagerState())
    policy = PolicyRules(file, kubelet)
    assert policy.current is NONE
    kubelet.current = CPUManagerState("static")
    made = policy.current
    assert policy.current is made
    file.current = replace(NONE)
    assert policy.current is not made
    kubelet.current = CPUManagerState()
    assert policy.current is file.current
