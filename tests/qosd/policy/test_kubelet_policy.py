from __future__ import annotations

from dataclasses import replace

import pytest

from koord.model.kubeletconfig import KubeletConfig
from koord.model.reservation import Reserved
from qosd.model.rules import CPUManagerPolicy, HostFacts, NodeRules, Rules
from qosd.pods.cpumanager import CPUManagerState
from qosd.policy.kubeletpolicy import PolicyRules
from tests.qosd.contexts import Now

NONE = Rules()
STATIC = replace(NONE, node=NodeRules(cpu_manager_policy=CPUManagerPolicy.STATIC))


@pytest.mark.parametrize(
    ("file", "kubelet_is_static", "policy"),
    [(NONE, False, "none"), (NONE, True, "static"), (STATIC, False, "static"), (STATIC, True, "static")],
)
def test_static_wins(file: Rules, kubelet_is_static: bool, policy: str) -> None:
    kubelet = Now(CPUManagerState("static" if kubelet_is_static else "none"))
    assert PolicyRules(Now(file), kubelet).current.node.cpu_manager_policy == policy


@pytest.mark.parametrize(
    ("file_bytes", "reserved_bytes", "allocatable_bytes"), [(None, 0, 1000), (None, 300, 700), (600, 300, 600)]
)
def test_what_kubelet_reserves_is_left_out_unless_the_file_says_otherwise(
    file_bytes: int | None, reserved_bytes: int, allocatable_bytes: int
) -> None:
    host = HostFacts(memory_total_bytes=1000)
    file = Now(Rules(node=NodeRules(allocatable_memory_bytes=file_bytes), host=host))
    rules = PolicyRules(file, Now(CPUManagerState()), KubeletConfig(reserved=Reserved(500, reserved_bytes)))
    current = rules.current
    assert (current.allocatable_memory_bytes, current.node.kubelet_reserved.cpu_milli) == (allocatable_bytes, 500)
    assert rules.current is current


def test_the_same_rules_are_the_same_object() -> None:
    file, kubelet = Now(NONE), Now(CPUManagerState())
    rules = PolicyRules(file, kubelet)
    assert rules.current is NONE
    kubelet.current = CPUManagerState("static")
    made = rules.current
    assert rules.current is made
    file.current = replace(NONE)
    assert rules.current is not made
    kubelet.current = CPUManagerState()
    assert rules.current is file.current
