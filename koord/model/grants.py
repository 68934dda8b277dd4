"""What a feature of koord-qosd needs of its systemd unit beyond what the unit always allows.

koordctl writes the grants of the features that are on into a drop-in of the unit, and koord-qosd says which of those
that it needs it does not have. A row of the table is for one feature gate. A gate that is off by default is the
operator's own word, so it grants by itself; one that is on by default only where NodeSLO makes use of it. So a node
that was never told anything has the unit as it is.

Files are named by their rows (``koord.host.files``), so that where they are is said once. Everything is written as the
unit writes it: systemd adds what a drop-in says to what the unit says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from koord.model import featuregates
from koord.model.featuregates import NO_SETTINGS, Settings
from koord.model.slo import CPUPolicy, NodeSLOSpec


class Capability(IntEnum):
    """Linux' own names and numbers (capability.h)."""

    CAP_DAC_OVERRIDE = 1
    CAP_SYS_NICE = 23
    CAP_SYS_RESOURCE = 24


class GrantInputs(NamedTuple):
    """What of the rules grants depend on. ``by_pressure``: on this node CPU suppression goes by pressure."""

    spec: NodeSLOSpec
    by_pressure: bool = False


def _always(rules: GrantInputs) -> bool:
    return True


class Grant(NamedTuple):
    """``purpose`` completes "so that koord-qosd may". ``rows``: kernel files of no cgroup that it writes.

    ``attributes``: those of tasks which the capabilities are for. ``is_used``: do the rules in force make use of it?
    """

    purpose: str
    capabilities: tuple[Capability, ...] = ()
    rows: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    is_used: Callable[[GrantInputs], bool] = _always


def _lengthens_slices(rules: GrantInputs) -> bool:
    thresholds = rules.spec.thresholds
    return rules.by_pressure and thresholds is not None and bool(thresholds.enable)


def _has_group_identities(rules: GrantInputs) -> bool:
    strategy = rules.spec.resource_qos
    if strategy is None or (strategy.policies is not None and strategy.policies.cpu_policy is CPUPolicy.CORE_SCHED):
        return False
    classes = (strategy.lsr_class, strategy.ls_class, strategy.be_class)
    return any(each is not None and each.cpu_qos is not None and bool(each.cpu_qos.enable) for each in classes)


GRANTS: Mapping[str, Grant] = MappingProxyType({
    "SystemConfig": Grant(
        "write the kernel's own settings",
        rows=(
            "vm.min_free_kbytes", "vm.watermark_scale_factor", "memcg_reaper.reap_background",
            "kernel.sched_group_identity_enabled", "kernel.sched_idle_saver_wmark", "pagecache_limit.enabled",
            "sched_features",
        ),
    ),
    "GroupIdentity": Grant(
        "switch group identity on, and core scheduling off",
        rows=("kernel.sched_core", "kernel.sched_group_identity_enabled"),
        is_used=_has_group_identities,
    ),
    "BECPUSuppress": Grant(
        "give best-effort tasks of any user longer time slices",
        capabilities=(Capability.CAP_SYS_NICE,),
        attributes=("sched_slice_us",),
        is_used=_lengthens_slices,
    ),
    "OOMScoreAdj": Grant(
        "write oom_score_adj of processes of any user, and lower it",
        capabilities=(Capability.CAP_DAC_OVERRIDE, Capability.CAP_SYS_RESOURCE),
        attributes=("oom_score_adj",),
    ),
})  # fmt: skip
"""By feature gate."""


def wanted(rules: GrantInputs, flags: Settings = NO_SETTINGS, features: Settings = NO_SETTINGS) -> tuple[str, ...]:
    """The features that are on and need a grant, by their gates: ``flags`` of the command line, ``features`` of the
    rules."""
    return tuple(
        [
            name
            for name, grant in GRANTS.items()
            if featuregates.state(name, flags, features).is_on and grant.is_used(rules)
        ]
    )
