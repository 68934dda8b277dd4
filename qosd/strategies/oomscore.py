"""Sets the OOM scores that a pod's annotations ask for, for every process of each container.

``oom-score-adj-spec`` of the container counts, else ``oom-score-adj`` of the pod. An entry that cannot be read is left
out: its container has the pod's score. The sandbox, whose process holds the pod's namespaces, is never written. When an
annotation goes, every process gets its own score back. Pods in virtual machines are left alone: their processes are the
guest's.

The act names the number of the container's tasks, if that is measured: only when it changes may a process have come
that did not inherit its score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import ClassVar

from msgspec.structs import replace

from koord.host.taskattributes import OOM_SCORE, TaskAttribute
from qosd.decide.decision import Decision, Stage, Strategy
from qosd.model.metric import Scope
from qosd.model.policy import NodeSettings
from qosd.model.snapshot import PODS_MAX_AGE_S, NodeSnapshot, PodView, is_kata, live, running_containers
from qosd.sense.pids import PIDS
from qosd.strategies.perpod import count, of_each

GATE = "OOMScoreAdj"
_TASKS = PIDS[Scope.CONTAINER].pids
_Scores = tuple[TaskAttribute, ...]


@dataclass(frozen=True, slots=True)
class ScoreMemo:
    """The last decision and its inputs. ``tasks``: the number for each of ``scores``, in their order."""

    handlers: frozenset[str]
    pods: tuple[PodView, ...]
    by_uid: Mapping[str, tuple[PodView, _Scores]]
    scores: _Scores
    tasks: tuple[int | None, ...]
    decision: Decision


class OOMScores(Strategy[ScoreMemo]):
    """The strategy ``oomScoreAdj``."""

    name: ClassVar[str] = "oomScoreAdj"
    stage: ClassVar[Stage] = Stage.SPEC
    gate: ClassVar[str] = GATE
    rows: ClassVar[frozenset[str]] = frozenset()
    needs: ClassVar[Mapping[str, float]] = MappingProxyType({"pods": PODS_MAX_AGE_S})
    grants: ClassVar[tuple[str, ...]] = (GATE,)

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        return True

    def decide(self, snapshot: NodeSnapshot, last: ScoreMemo | None) -> tuple[Decision, ScoreMemo]:
        node, pods = snapshot.policy.node, snapshot.pods
        handlers = node.sandbox_sizing_handlers
        if last is not None and last.pods is pods and last.handlers == handlers:
            by_uid, scores = last.by_uid, last.scores
        else:
            known = last.by_uid if last is not None and last.handlers == handlers else {}
            by_uid = of_each(pods, known, partial(of_pod, node=node))
            scores = tuple([score for _, every in by_uid.values() for score in every])
        tasks = tuple([_tasks(snapshot, score) for score in scores])
        decision = Decision("") if last is None else last.decision
        if last is None or scores != last.scores or tasks != last.tasks:
            acts = tuple([replace(score, tasks=its) for score, its in zip(scores, tasks, strict=True)])
            decision = Decision(f"{count(len(scores), 'container')} with an OOM score by annotation", acts=acts)
        return decision, ScoreMemo(handlers, pods, by_uid, scores, tasks, decision)


def _tasks(snapshot: NodeSnapshot, score: TaskAttribute) -> int | None:
    its = snapshot.value(_TASKS, score.cgroup)
    return None if its is None else int(its)


def of_pod(pod: PodView, node: NodeSettings) -> _Scores:
    """Returns the scores of the processes of one pod's containers."""
    annotations = pod.context.annotations
    if not live(pod) or is_kata(pod, node):
        return ()
    return tuple([
        TaskAttribute(OOM_SCORE, container.cgroup, score, _why(pod, container.name), pod.key)
        for container in running_containers(pod)
        if (score := annotations.oom_score_adj_of(container.name)) is not None
    ])  # fmt: skip


def _why(pod: PodView, container: str) -> str:
    by_spec = container in pod.context.annotations.oom_score_adj_spec
    return f"annotation oom-score-adj{'-spec' if by_spec else ''} of the pod"
