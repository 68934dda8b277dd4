"""The table of checks, in the order of the report: what must be there first, comes first."""

from __future__ import annotations

from collections.abc import Callable

from koordctl.doctor import kernel, koord, kubernetes
from koordctl.doctor.facts import Facts
from koordctl.doctor.finding import Finding

Check = Callable[[Facts], Finding]

CHECKS: tuple[Check, ...] = (
    kernel.kernel,
    kernel.cgroup_version,
    kernel.controllers,
    kubernetes.kubelet,
    kubernetes.kubelet_version,
    kubernetes.kubelet_restart,
    kernel.kubelet_tree,
    kubernetes.cgroup_driver,
    kubernetes.cpu_manager,
    kubernetes.in_place_resize,
    kubernetes.kubelet_memory_qos,
    kernel.swap,
    kubernetes.runtime,
    kubernetes.runtime_config,
    kubernetes.cri_events,
    kubernetes.nri,
    kubernetes.other_agents,
    kubernetes.leftovers,
    kernel.psi,
    kernel.cpu_idle,
    kernel.cpu_burst,
    kernel.task_slices,
    kernel.group_identity,
    kernel.memory_qos,
    kernel.memory_reclaim,
    kernel.memory_throttle,
    kernel.cpuset_partition,
    kernel.isolated_cpus,
    kernel.resctrl,
    kernel.perf,
    koord.daemon,
    koord.unit,
    koord.slice_memory,
    koord.kubelet_drop_in,
    koord.open_files,
    koord.grants,
    koord.rules,
    koord.policy,
    koord.warnings,
    koord.hook_file,
    koord.bypass,
    koord.front_end,
    koord.loops,
    koord.contested,
    koord.journal_space,
    koord.journal_drops,
    koord.undo_record,
)


def examine(facts: Facts) -> tuple[Finding, ...]:
    """One finding per check."""
    return tuple(check(facts) for check in CHECKS)
