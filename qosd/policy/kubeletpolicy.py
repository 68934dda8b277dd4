"""The rules file against what kubelet says of itself: the CPU manager policy that runs is the one that counts.

A file that still says ``none`` on a node whose kubelet is ``static`` would move containers off the CPUs that kubelet
gave them. Invariant: the same object as long as neither the file's rules nor the policy changed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from qosd.hooks.rules import CPUManagerPolicy, Rules
from qosd.pods.cpumanager import STATIC, CPUManagerState
from qosd.policy.rulesfile import InForce


class Kubelet(Protocol):
    """``CPUManagerFile``: what kubelet's state file says now."""

    current: CPUManagerState


class PolicyRules:
    """``file`` (``RulesSource``) and ``kubelet`` are looked at for each call: attributes, since a pod waits."""

    def __init__(self, file: InForce, kubelet: Kubelet) -> None:
        self._file, self._kubelet = file, kubelet
        self._from = self._made = file.current

    @property
    def current(self) -> Rules:
        rules = self._file.current
        if self._kubelet.current.policy != STATIC or rules.node.cpu_manager_policy is CPUManagerPolicy.STATIC:
            return rules
        if rules is not self._from or self._made is rules:
            self._from = rules
            self._made = replace(rules, node=replace(rules.node, cpu_manager_policy=CPUManagerPolicy.STATIC))
        return self._made
