"""The rules file with what kubelet says of itself: the CPU manager policy that runs, and what kubelet reserves.

A file that still says ``none`` on a node whose kubelet is ``static`` would move containers off the CPUs that kubelet
gave them. Invariant: the same object as long as neither the file's rules nor what kubelet says changed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from koord.model.reservation import NOTHING, Reserved
from qosd.model.rules import CPUManagerPolicy, Rules
from qosd.pods.cpumanager import CPUManagerState
from qosd.policy.rulesfile import InForce


class Kubelet(Protocol):
    """``CPUManagerFile``: what kubelet's state file says now."""

    current: CPUManagerState


class Config(Protocol):
    """``KubeletConfigSource``: what kubelet keeps of the node."""

    @property
    def reserved(self) -> Reserved: ...


class _Untold:
    reserved = NOTHING


class PolicyRules:
    """``file`` (``RulesSource``), ``kubelet`` and ``config`` are looked at for each call, since a pod waits."""

    def __init__(self, file: InForce, kubelet: Kubelet, config: Config | None = None) -> None:
        self._file, self._kubelet, self._config = file, kubelet, config or _Untold()
        self._from: tuple[Rules, bool, Reserved] | None = None
        self._made = file.current

    @property
    def current(self) -> Rules:
        is_static = self._kubelet.current.gives_cpus
        rules, reserved = self._file.current, self._config.reserved
        before = self._from
        if before is None or before[0] is not rules or before[1:] != (is_static, reserved):
            self._from = rules, is_static, reserved
            self._made = _with(rules, is_static, reserved)
        return self._made


def _with(rules: Rules, is_static: bool, reserved: Reserved) -> Rules:
    """``rules`` itself where kubelet says nothing else."""
    policy = CPUManagerPolicy.STATIC if is_static else rules.node.cpu_manager_policy
    node = replace(rules.node, cpu_manager_policy=policy, kubelet_reserved=reserved)
    return rules if node == rules.node else replace(rules, node=node)
