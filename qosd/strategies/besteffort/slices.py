"""Gives the tasks of best-effort pods long time slices, where suppression has found that these help (Linux 6.12).

A task with long slices is preempted less often, and so comes back less often and preempts others then. Forks inherit
the slice. The limits of best-effort pods (``qosd.model.besteffort``) say which slice. Pods in virtual machines are left
alone: their threads are the machine's. Invariant: without a slice in the limits this wants nothing, so every thread
gets its own slice back.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import ClassVar

from koord.host.sched import SLICE
from koord.host.taskattributes import TaskAttribute
from qosd.decide.decision import Decision, Stage, Strategy
from qosd.model.besteffort import BestEffortScheduling
from qosd.model.policy import NodeSettings
from qosd.model.snapshot import PODS_MAX_AGE_S, NodeSnapshot, PodView, running_containers
from qosd.policy.scheduling import is_covered
from qosd.strategies.memo import Memo, decide_anew
from qosd.strategies.perpod import count
from qosd.strategies.suppression.strategy import GATE


class BestEffortSlices(Strategy[Memo]):
    """The strategy ``bestEffortSlices``."""

    name: ClassVar[str] = "bestEffortSlices"
    stage: ClassVar[Stage] = Stage.SUPPRESSION
    gate: ClassVar[str] = GATE
    rows: ClassVar[frozenset[str]] = frozenset()
    needs: ClassVar[Mapping[str, float]] = MappingProxyType({"pods": PODS_MAX_AGE_S})
    grants: ClassVar[tuple[str, ...]] = (GATE,)

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        """Always: without a slice in the limits it wants nothing."""
        return True

    def decide(self, snapshot: NodeSnapshot, last: Memo | None) -> tuple[Decision, Memo]:
        inputs = (snapshot.policy.node, snapshot.limits.scheduling, snapshot.pods)
        return decide_anew(last, inputs, partial(_decision, *inputs))


def _decision(node: NodeSettings, left: BestEffortScheduling, pods: tuple[PodView, ...]) -> Decision:
    slice_us = left.slice_us
    if not slice_us:
        return Decision("tasks run in the kernel's own slices")
    why = f"best-effort tasks run for {slice_us} us in one go: {left.why}"
    acts = tuple([
        TaskAttribute(SLICE, container.cgroup, slice_us, why, pod.key)
        for pod in pods
        if is_covered(pod, node)
        for container in running_containers(pod)
    ])  # fmt: skip
    return Decision(f"slices of {slice_us} us for the tasks of {count(len(acts), 'container')}", acts=acts)
