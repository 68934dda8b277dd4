"""The rules file with what kubelet says of itself: the CPU manager policy that runs, and what kubelet reserves.

A file that still says ``none`` on a node whose kubelet is ``static`` would move containers off the CPUs that kubelet
gave them. Invariant: the same object as long as neither the file's rules nor what kubelet says changed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from koord.model.reservation import NOTHING, Reserved
from qosd.model.rules import CPUManagerPolicy, Rules
from qosd.pods.cpumanager import STATIC, CPUManagerState
from qosd.policy.rulesfile import InForce


class Kubelet(Protocol):
    """``CPUManagerFile``: what kubelet's state file says now."""

    current: CPUManagerState


class Reservation(Protocol):
    """``ReservationSource``: what kubelet keeps of the node."""

    current: Reserved


class _NoReservation:
    current = NOTHING


class PolicyRules:
    """``file`` (``RulesSource``), ``kubelet`` and ``reservation`` are looked at for each call, since a pod waits."""

    def __init__(self, file: InForce, kubelet: Kubelet, reservation: Reservation | None = None) -> None:
        self._file, self._kubelet, self._reservation = file, kubelet, reservation or _NoReservation()
        self._from: tuple[Rules, bool, Reserved] | None = None
        self._made = file.current

    @property
    def current(self) -> Rules:
        is_static = self._kubelet.current.policy == STATIC
        rules, reserved = self._file.current, self._reservation.current
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
