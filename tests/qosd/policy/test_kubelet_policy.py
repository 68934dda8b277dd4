from __future__ import annotations

from dataclasses import replace

import pytest

from qosd.hooks.rules import CPUManagerPolicy, NodeRules, Rules
from qosd.pods.cpumanager import CPUManagerState
from qosd.policy.kubeletpolicy import PolicyRules
from tests.qosd.pods import Now

NONE = Rules()
STATIC = replace(NONE, node=NodeRules(cpu_manager_policy=CPUManagerPolicy.STATIC))


@pytest.mark.parametrize(
    ("file", "kubelet_is_static", "policy"),
    [(NONE, False, "none"), (NONE, True, "static"), (STATIC, False, "static"), (STATIC, True, "static")],
)
def test_static_wins(file: Rules, kubelet_is_static: bool, policy: str) -> None:
    kubelet = Now(CPUManagerState("static" if kubelet_is_static else "none"))
    assert PolicyRules(Now(file), kubelet).current.node.cpu_manager_policy == policy


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
