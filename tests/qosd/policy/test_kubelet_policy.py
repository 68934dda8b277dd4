from __future__ import annotations

from dataclasses import replace

import pytest

from qosd.hooks.rules import CPUManagerPolicy, NodeRules, Rules
from qosd.policy.kubeletpolicy import PolicyRules

NONE = Rules()
STATIC = replace(NONE, node=NodeRules(cpu_manager_policy=CPUManagerPolicy.STATIC))


@pytest.mark.parametrize(
    ("file", "kubelet_is_static", "policy"),
    [(NONE, False, "none"), (NONE, True, "static"), (STATIC, False, "static"), (STATIC, True, "static")],
)
def test_static_wins(file: Rules, kubelet_is_static: bool, policy: str) -> None:
    assert PolicyRules(lambda: file, lambda: kubelet_is_static).current.node.cpu_manager_policy == policy


def test_the_same_rules_are_the_same_object() -> None:
    file, is_static = NONE, False
    rules = PolicyRules(lambda: file, lambda: is_static)
    assert rules.current is NONE
    is_static = True
    made = rules.current
    assert rules.current is made
    file = replace(NONE)
    assert rules.current is not made
    is_static = False
    assert rules.current is file
