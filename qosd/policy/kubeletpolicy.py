"""The rules file against what kubelet says of itself: the CPU manager policy that runs is the one that counts.

A file that still says ``none`` on a node whose kubelet is ``static`` would move containers off the CPUs that kubelet
gave them. Invariant: the same object as long as neither the file's rules nor the policy changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from qosd.hooks.rules import CPUManagerPolicy, Rules


class PolicyRules:
    """``file_rules`` and ``is_static`` (kubelet's state file) are asked at each call."""

    def __init__(self, file_rules: Callable[[], Rules], is_static: Callable[[], bool]) -> None:
        self._file_rules, self._is_static = file_rules, is_static
        self._from = self._made = file_rules()

    @property
    def current(self) -> Rules:
        rules = self._file_rules()
        if not self._is_static() or rules.node.cpu_manager_policy is CPUManagerPolicy.STATIC:
            return rules
        if rules is not self._from or self._made is rules:
            self._from = rules
            self._made = replace(rules, node=replace(rules.node, cpu_manager_policy=CPUManagerPolicy.STATIC))
        return self._made
