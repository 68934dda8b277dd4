"""The hooks, in the order in which they run, and the fields that each may edit.

A later hook wins a field. So the CFS quota is one composition: that of the pod's batch or mid resources, or its own
quota divided by the normalization ratio, and -1 above both where CPUs are bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from koord.model.crifields import Field
from qosd.hooks import batch, cpuset, groupidentity, idle, memory, memoryqos, normalization, resctrl
from qosd.hooks.edits import Edit, Edits
from qosd.model.besteffort import BestEffortLimits
from qosd.model.pod import CONTAINER_STAGES, POD_STAGES, HookStage, PodContext
from qosd.model.policy import EffectivePolicy

RECONCILER = "hooks"
"""The strategy that applies the edits of every hook that has no strategy of its own."""


@dataclass(frozen=True, slots=True)
class Hook:
    """One row: the name that ``node.hooks`` of the rules file switches, where it runs and what it may edit.

    ``rows``: names of kernel files. ``annotates``: it may also set annotations. ``strategy``: the strategy that applies
    its edits to running containers. ``gate``: the feature gate that it stands behind (``koord.model.featuregates``); ""
    = none, or its own to ask.
    """

    name: str
    stages: frozenset[HookStage]
    rows: frozenset[str]
    decide: Callable[[PodContext, EffectivePolicy, BestEffortLimits], Edits]
    annotates: bool = False
    strategy: str = RECONCILER
    gate: str = ""

    def may_edit(self, edit: Edit) -> bool:
        return self.annotates if edit.field is Field.ANNOTATION else edit.name in self.rows


_POD_CGROUP = frozenset({HookStage.POD_CGROUP})
_EVERYWHERE = POD_STAGES | CONTAINER_STAGES | _POD_CGROUP
_QUOTA, _CPUS = Field.CPU_QUOTA.value, Field.CPUSET_CPUS.value
_BATCH = frozenset({Field.CPU_SHARES.value, _QUOTA, Field.MEMORY_LIMIT.value})

HOOKS: tuple[Hook, ...] = (
    Hook("batchResource", _EVERYWHERE, _BATCH, batch.decide, gate="BatchResource"),
    Hook("cpuNormalization", CONTAINER_STAGES, frozenset({_QUOTA}), normalization.decide, annotates=True),
    Hook("cpuset", frozenset(HookStage), frozenset({_CPUS, _QUOTA}), cpuset.decide, gate="CPUSetAllocator"),
    Hook(
        groupidentity.HOOK,
        CONTAINER_STAGES | _POD_CGROUP,
        frozenset({groupidentity.FILE}),
        groupidentity.decide,
        strategy=groupidentity.HOOK,
    ),
    Hook("cpuIdle", _POD_CGROUP, frozenset({idle.FILE}), idle.decide),
    Hook(
        "memory",
        (CONTAINER_STAGES | _POD_CGROUP) - {HookStage.GUEST_CGROUP},
        memory.ROWS,
        memory.decide,
        gate=memoryqos.GATE,
    ),
    Hook("resctrl", frozenset({HookStage.RUN_SANDBOX}), frozenset(), resctrl.decide, annotates=True, gate=resctrl.GATE),
)

HOOK_NAMES = tuple(hook.name for hook in HOOKS)


def hooks_of(strategy: str) -> tuple[Hook, ...]:
    """Returns the hooks whose edits ``strategy`` applies to running containers."""
    return tuple([hook for hook in HOOKS if hook.strategy == strategy])


def rows_of(hooks: Iterable[Hook]) -> frozenset[str]:
    """Returns every kernel file that one of ``hooks`` may edit."""
    return frozenset().union(*(hook.rows for hook in hooks))


ROWS_OF_HOOKS = rows_of(HOOKS)
