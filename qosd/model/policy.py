"""The policy that hooks and strategies follow: the node's SLO, the node's own settings, and facts of the host.

All of it is immutable: a reload makes a new ``EffectivePolicy``. CPU pools keep upstream's form (``cpu-shared-pools``:
one entry per socket and NUMA node), so that a node's annotation can be pasted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import cached_property

import msgspec

from koord.model import featuregates, schema, slo_defaults
from koord.model.cpuset import EMPTY, CPUSet
from koord.model.qos import DerivationRules, QoSClass
from koord.model.quantity import Quantity
from koord.model.reservation import NOTHING_RESERVED, Reserved
from koord.model.slo import NodeSLOSpec, ResourceQOS, ResourceQOSStrategy, SystemStrategy
from koord.model.slo_extensions import CPUSuppressBy, CPUSuppressSettings

SYSTEM_CONFIG = "SystemConfig"
"""The feature gate of ``systemStrategy``."""
_UNSET = CPUSuppressSettings()


class CPUManagerPolicy(StrEnum):
    """kubelet's ``cpuManagerPolicy``."""

    NONE = "none"
    STATIC = "static"


@dataclass(frozen=True, slots=True, order=True)
class Pool:
    """The shared CPUs of one NUMA node, as a cpuset list ("0-3,8")."""

    socket: int
    node: int
    cpuset: str


class PressurePolicy(msgspec.Struct, frozen=True):
    """CPU suppression by the CPU waits of latency-sensitive containers. ``set_point_us``: the wait, in µs per second,
    that counts as none; ``ceiling_percent``: how much of the node may be used while best-effort pods are limited."""

    set_point_us: int
    ceiling_percent: int


@dataclass(frozen=True)
class NodeSettings:
    """The section ``node`` of the rules file."""

    cpu_manager_policy: CPUManagerPolicy = CPUManagerPolicy.NONE
    ls_pools: tuple[Pool, ...] = ()
    be_pools: tuple[Pool, ...] = ()
    be_cpu_manager: bool = False
    kubelet_cpus: CPUSet = EMPTY
    """Not from the file: the CPUs that kubelet's CPU manager gave exclusively to pods that stay on them."""
    cpus_unknown: str = ""
    """Not from the file: why the CPUs that kubelet's CPU manager gave exclusively are unknown; "" = they are known.
    While they are unknown, no CPU set is widened."""
    system_cpuset: str = ""
    system_exclusive: bool = True
    """The CPUs of ``system_cpuset`` belong to no pool."""
    reserved_cpus: str = ""
    reserved_cpu_milli: int = 0
    """The reserved thousandths of a CPU, if ``reserved_cpus`` names no CPUs."""
    cpu_normalization_ratio: Fraction | None = None
    is_ratio_announced: bool = False
    """Not from the file: is the ratio that of the Node's annotation?"""
    guaranteed_is_lsr: bool = False
    unset_cpu_quota: bool = True
    limits_in_cri: bool | None = None
    """Do calls to the runtime carry our shares, quota and memory limit? None: only if kubelet is shown its own values.

    Else they carry kubelet's, and ours are written to the cgroup: through NRI before the container's program starts,
    otherwise after it.
    """
    rdt_verified: bool = False
    sandbox_sizing_handlers: frozenset[str] = frozenset()
    """Runtime handlers that size the sandbox by its resources, as Kata Containers does."""
    cpu_suppress: CPUSuppressSettings = _UNSET
    """Settings here win over ``extensions.koord`` of NodeSLO."""
    allocatable_memory_bytes: int | None = None
    allocatable: Mapping[str, Quantity] = field(default_factory=dict)
    """The amounts that pods of the batch and mid bands may request together, by extended resource."""
    eviction_dry_run: bool = False
    """Reclaims from, throttles, freezes and evicts no pod, but reports what it would do."""
    kubelet_reserved: Reserved = NOTHING_RESERVED
    """Not from the file: what kubelet reserves for itself, the system and its hard eviction threshold."""
    hooks: Mapping[str, bool] = field(default_factory=dict)
    features: featuregates.Settings = field(default_factory=dict)

    @cached_property
    def derivation(self) -> DerivationRules:
        """How this node classifies Guaranteed pods without a label."""
        return DerivationRules(self.cpu_manager_policy is CPUManagerPolicy.STATIC, self.guaranteed_is_lsr)


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The facts of the host. ``resctrl_groups``: the class groups that exist.

    ``files``: the optional kernel files that kubelet's cgroups have, by the names of their rows; None while there is no
    such cgroup to look at. ``has_task_slices``: the scheduler takes a slice for each task (Linux 6.12).
    ``system_files``: the files that are there outside cgroups, and each feature of the scheduler
    (``sched_features@NAME``) that the kernel lists. ``lacking``: by feature gate, what this process may not do of what
    the feature needs (``koord.model.grants``). ``kernel``: the two leading numbers of its release; None: they cannot be
    told.
    """

    cgroup_version: int = 1
    resctrl_groups: frozenset[str] = frozenset()
    memory_total_bytes: int = 0
    page_bytes: int = 4096
    files: frozenset[str] | None = None
    has_task_slices: bool = False
    system_files: frozenset[str] = frozenset()
    lacking: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kernel: tuple[int, int] | None = None
    swap_total_bytes: int = 0


@dataclass(frozen=True)
class EffectivePolicy:
    """The policy in force. ``slo``: NodeSLO laid over the defaults, with disabled features neutral."""

    slo: NodeSLOSpec = field(default_factory=lambda: slo_defaults.in_force(NodeSLOSpec()))
    node: NodeSettings = field(default_factory=NodeSettings)
    host: HostFacts = field(default_factory=HostFacts)
    policy_unknown: str = ""
    """Why the policy is unknown; "" = it is known. While it is unknown ``slo`` is empty, so hooks give pods what these
    ask for themselves, and no strategy decides or releases anything."""

    gate_flags: featuregates.Settings = field(default_factory=dict)
    """Not from the file: the feature gates of the command line."""
    slo_generation: int = 0
    """The generation of the cluster's NodeSLO in ``slo``; 0 = there is none."""
    bad_settings: frozenset[str] = frozenset()
    """The paths below ``systemStrategy`` whose values are wrong, and so not in ``slo``."""

    def gate(self, name: str) -> featuregates.GateState:
        """Returns the state of the feature gate, and who has set it."""
        return featuregates.state(name, self.gate_flags, self.node.features)

    @property
    def binds_best_effort(self) -> bool:
        """Are best-effort pods bound to the pools of their NUMA nodes, instead of suppression?"""
        return self.node.be_cpu_manager or self.gate("BECPUManager").is_on

    @property
    def native_ratio(self) -> Fraction | None:
        """The divisor of native CFS quotas; None = they stay.

        By default the feature gate is off: a ratio of this node's own policy counts all the same, a ratio that the
        cluster announces does not.
        """
        is_on, source = self.gate("CPUNormalization")
        is_stated = source == featuregates.DEFAULT and not self.node.is_ratio_announced
        return self.node.cpu_normalization_ratio if is_on or is_stated else None

    @property
    def unused_ratio(self) -> str:
        """Why native quotas are not divided by the ratio; "" = they are, or there is no ratio."""
        ratio = self.node.cpu_normalization_ratio
        if ratio is None or ratio <= 1 or self.native_ratio is not None:
            return ""
        source = self.gate("CPUNormalization").source
        return f"CPU normalization ratio {float(ratio):g} has no effect on LS pods: CPUNormalization is off ({source})"

    def enabled(self, hook: str) -> bool:
        """Is the hook on? Yes, unless ``node.hooks`` turns it off."""
        return self.node.hooks.get(hook, True)

    @property
    def qos_strategy(self) -> ResourceQOSStrategy:
        return self.slo.resource_qos or ResourceQOSStrategy()

    def class_settings(self, qos: QoSClass) -> ResourceQOS:
        """Returns the settings of a class; LSE has LSR's."""
        return self.qos_strategy.of(qos) or ResourceQOS()

    @property
    def system_strategy(self) -> SystemStrategy:
        """The kernel settings of NodeSLO; empty while the feature gate is off."""
        return (self.slo.system if self.gate(SYSTEM_CONFIG).is_on else None) or SystemStrategy()

    @property
    def allocatable_memory_bytes(self) -> int:
        """The amount in the rules file, else the node's memory less what kubelet reserves; 0 = unknown."""
        given = self.node.allocatable_memory_bytes
        return given or max(0, self.host.memory_total_bytes - self.node.kubelet_reserved.memory_bytes)

    @cached_property
    def pressure_policy(self) -> PressurePolicy | None:
        """The policy ``pressure`` of CPU suppression; None: suppression follows NodeSLO's upstream policy."""
        settings = schema.overlay(self.slo.koord.cpu_suppress or CPUSuppressSettings(), self.node.cpu_suppress)
        if settings.policy is not CPUSuppressBy.PRESSURE:
            return None
        return PressurePolicy(1000 * (settings.set_point_milliseconds or 0), settings.ceiling_percent or 0)

    @property
    def suppresses_cpu(self) -> bool:
        """Is BE's CPU suppressed?"""
        return self.slo.thresholds is not None and bool(self.slo.thresholds.enable)


def join(pools: Iterable[Pool], nodes: frozenset[int] | None = None) -> str:
    """Returns the CPU lists of ``pools`` (of NUMA ``nodes`` only, if given), joined in (socket, node) order."""
    return ",".join(pool.cpuset for pool in sorted(pools) if pool.cpuset and (nodes is None or pool.node in nodes))
