"""The part of the policy that comes from kubelet: the CPU manager policy that runs, and kubelet's reservation.

A rules file that still says ``none`` on a node whose kubelet is ``static`` would move containers off the CPUs that
kubelet gave them. The allocations are unknown where kubelet's state file has none, although another source says that
there are some, or may say so with kubelet's first answer: then the policy counts as ``static``, and
``NodeSettings.cpus_unknown`` says why no CPU set may be widened. Pure but for ``said_by``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from koord.model.kubeletconfig import NONE
from koord.model.reservation import NOTHING_RESERVED, Reserved
from qosd.model.policy import CPUManagerPolicy, NodeSettings
from qosd.pods.cpumanager import CPUManagerFile
from qosd.pods.kubeletconfig import KubeletConfigSource


class KubeletPolicyInputs(NamedTuple):
    """``policy``: of the CPU manager, as its state file said last, and whether it ``gives_cpus`` to containers alone;
    ``untold``: why the file does not say it now. ``configured``: the policy of kubelet's configuration, "" = not told;
    ``is_awaited``: kubelet is asked for its configuration for the first time."""

    policy: str = NONE
    gives_cpus: bool = False
    untold: str = ""
    is_absent: bool = False
    configured: str = ""
    is_awaited: bool = False
    reserved: Reserved = NOTHING_RESERVED


def said_by(cpu_manager: CPUManagerFile, config: KubeletConfigSource) -> KubeletPolicyInputs:
    """Returns the facts as they are now."""
    state = cpu_manager.current
    return KubeletPolicyInputs(
        state.policy, state.gives_cpus, cpu_manager.untold, cpu_manager.is_absent,
        config.cpu_manager_policy, config.is_awaited, config.reserved,
    )  # fmt: skip


def overlay(node: NodeSettings, kubelet: KubeletPolicyInputs) -> NodeSettings:
    """Returns ``node`` with what kubelet says."""
    unknown = _unknown(kubelet, node.cpu_manager_policy)
    manager = CPUManagerPolicy.STATIC if kubelet.gives_cpus or unknown else node.cpu_manager_policy
    return replace(node, cpu_manager_policy=manager, cpus_unknown=unknown, kubelet_reserved=kubelet.reserved)


def _unknown(kubelet: KubeletPolicyInputs, stated: CPUManagerPolicy) -> str:
    """Returns why the CPUs that kubelet gave exclusively are unknown; "" = they are known. ``stated``: the file's
    policy.
    """
    if kubelet.configured == NONE or (kubelet.gives_cpus and not kubelet.untold):
        return ""
    if kubelet.untold and not kubelet.is_absent:
        return kubelet.untold
    says = kubelet.untold or f"kubelet's state file says {kubelet.policy}"
    if kubelet.configured:
        return f"kubelet's configuration says cpuManagerPolicy: {kubelet.configured}, but {says}"
    if kubelet.is_absent and stated is CPUManagerPolicy.STATIC:
        return f"the rules file says cpuManagerPolicy: {stated}, but {says}"
    if kubelet.is_absent and kubelet.is_awaited:
        return f"kubelet has not told its configuration yet, and {says}"
    return ""
