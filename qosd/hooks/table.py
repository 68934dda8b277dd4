"""The hooks, in the order in which they run, and what each may edit.

A later hook wins a field. So the CFS quota is one composition: what the pod's batch or mid resources say, or its
own quota divided by the normalization ratio, and -1 above both where CPUs are bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from qosd.hooks import batch, cpuset, groupidentity, idle, memory, normalization, resctrl
from qosd.hooks.context import CONTAINER_STAGES, POD_STAGES, PodContext, Stage
from qosd.hooks.edits import Edits, Field
from qosd.hooks.rules import Rules


@dataclass(frozen=True, slots=True)
class Hook:
    """One row: the name that ``node.hooks`` of the rules file switches, where it runs and what it may edit."""

    name: str
    stages: frozenset[Stage]
    edits: frozenset[Field]
    decide: Callable[[PodContext, Rules], Edits]


_BATCH_FIELDS = frozenset({Field.CPU_SHARES, Field.CPU_QUOTA, Field.MEMORY_LIMIT})
_POD_CGROUP = frozenset({Stage.POD_CGROUP})
_EVERYWHERE = POD_STAGES | CONTAINER_STAGES | _POD_CGROUP

HOOKS: tuple[Hook, ...] = (
    Hook("batchResource", _EVERYWHERE, _BATCH_FIELDS, batch.decide),
    Hook("cpuNormalization", CONTAINER_STAGES, frozenset({Field.CPU_QUOTA, Field.ANNOTATION}), normalization.decide),
    Hook("cpuset", frozenset(Stage), frozenset({Field.CPUSET_CPUS, Field.CPU_QUOTA}), cpuset.decide),
    Hook("groupIdentity", CONTAINER_STAGES | _POD_CGROUP, frozenset({Field.UNIFIED}), groupidentity.decide),
    Hook("cpuIdle", _POD_CGROUP, frozenset({Field.UNIFIED}), idle.decide),
    Hook("memory", CONTAINER_STAGES | _POD_CGROUP, frozenset({Field.UNIFIED}), memory.decide),
    Hook("resctrl", frozenset({Stage.RUN_SANDBOX}), frozenset({Field.ANNOTATION}), resctrl.decide),
)

HOOK_NAMES = tuple(hook.name for hook in HOOKS)
