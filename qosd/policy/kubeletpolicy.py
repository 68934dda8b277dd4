"""The rules file with what kubelet says of itself: the CPU manager policy that runs, and what kubelet reserves.

A file that still says ``none`` on a node whose kubelet is ``static`` would move containers off the CPUs that kubelet
gave them. Where kubelet's state file tells no allocations although another source says that there are some, or may say
so with kubelet's first answer, they are unknown: then the policy counts as ``static``, and
``NodeSettings.cpus_unknown`` says why no CPU set may be widened. Invariant: the same object as long as neither the
file's rules nor what kubelet says changed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from koord.model.kubeletconfig import NONE
from koord.model.reservation import NOTHING, Reserved
from qosd.model.policy import CPUManagerPolicy, EffectivePolicy
from qosd.pods.cpumanager import CPUManagerState
from qosd.policy.rulesfile import InForce


class Kubelet(Protocol):
    """``CPUManagerFile``: what kubelet's state file said last; ``untold``: why it does not say it now."""

    current: CPUManagerState
    untold: str
    is_absent: bool


class Config(Protocol):
    """``KubeletConfigSource``: what kubelet keeps of the node; its CPU manager's policy, "" = not told.

    ``is_awaited``: kubelet is asked for the first time.
    """

    @property
    def reserved(self) -> Reserved: ...
    @property
    def cpu_manager_policy(self) -> str: ...
    @property
    def is_awaited(self) -> bool: ...


class _Untold:
    reserved = NOTHING
    cpu_manager_policy = ""
    is_awaited = False


class PolicyRules:
    """``file`` (``RulesSource``), ``kubelet`` and ``config`` are looked at for each call, since a pod waits."""

    def __init__(self, file: InForce, kubelet: Kubelet, config: Config | None = None) -> None:
        self._file, self._kubelet, self._config = file, kubelet, config or _Untold()
        self._from: tuple[EffectivePolicy, bool, str, Reserved] | None = None
        self._made = file.current

    @property
    def current(self) -> EffectivePolicy:
        is_static = self._kubelet.current.gives_cpus
        policy, reserved = self._file.current, self._config.reserved
        unknown = _unknown(self._kubelet, self._config, policy.node.cpu_manager_policy)
        before = self._from
        if before is None or before[0] is not policy or before[1:] != (is_static, unknown, reserved):
            self._from = policy, is_static, unknown, reserved
            self._made = _with(policy, is_static, unknown, reserved)
        return self._made


def _unknown(kubelet: Kubelet, config: Config, stated: CPUManagerPolicy) -> str:
    """Why nobody knows which CPUs kubelet gave exclusively; "" = it is known. ``stated``: the rules file's policy."""
    configured = config.cpu_manager_policy
    if configured == NONE or (kubelet.current.gives_cpus and not kubelet.untold):
        return ""
    if kubelet.untold and not kubelet.is_absent:
        return kubelet.untold
    says = kubelet.untold or f"kubelet's state file says {kubelet.current.policy}"
    if configured:
        return f"kubelet's configuration says cpuManagerPolicy: {configured}, but {says}"
    if kubelet.is_absent and stated is CPUManagerPolicy.STATIC:
        return f"the rules file says cpuManagerPolicy: {stated}, but {says}"
    if kubelet.is_absent and config.is_awaited:
        return f"kubelet has not told its configuration yet, and {says}"
    return ""


def _with(policy: EffectivePolicy, is_static: bool, unknown: str, reserved: Reserved) -> EffectivePolicy:
    """``policy`` itself where kubelet says nothing else."""
    manager = CPUManagerPolicy.STATIC if is_static or unknown else policy.node.cpu_manager_policy
    node = replace(policy.node, cpu_manager_policy=manager, cpus_unknown=unknown, kubelet_reserved=reserved)
    return policy if node == policy.node else replace(policy, node=node)
