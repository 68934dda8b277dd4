"""What is held and done that is no value of a kernel file, explained as if it were one.

The tasks of a cgroup in a resctrl group, a resctrl group that shall be there, an eviction under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from koord.host.evictions import EVICTION
from koord.host.notes import ABSENT, GROUP, PRESENT, TASKS
from koord.pb.koord import inspect_pb2 as inspect
from qosd.decide.runner import StrategyResult
from qosd.inspect.sources import Sources
from qosd.snapshot import NodeSnapshot, PodView


def of_pods(
    sources: Sources, snapshot: NodeSnapshot, results: Sequence[StrategyResult], pods: Iterable[PodView]
) -> Iterator[inspect.ExplainedFile]:
    """In which resctrl group the tasks of each container are kept, and how far the pod's eviction is."""
    for pod in pods:
        for container in pod.containers:
            if container.group:
                name = "(sandbox)" if container.is_sandbox else container.name
                yield from _memberships(sources, results, container.group, name)
        yield from _eviction(snapshot, pod)


def _memberships(
    sources: Sources, results: Sequence[StrategyResult], group: str, container: str
) -> Iterator[inspect.ExplainedFile]:
    for result in results:
        membership = result.memberships.get(group)
        if membership is not None:
            yield inspect.ExplainedFile(
                path=str(sources.tree.resctrl / membership.resctrl_group / "tasks"),
                group=group,
                name=TASKS,
                pod=membership.pod,
                container=container,
                owner=result.name,
                result=membership.resctrl_group,
                why=membership.why,
                actual=sources.placed().get(group, "unknown"),
            )


def _eviction(snapshot: NodeSnapshot, pod: PodView) -> Iterator[inspect.ExplainedFile]:
    state = snapshot.evictions.get(pod.uid)
    if state is not None:
        yield inspect.ExplainedFile(
            path=pod.group,
            group=pod.group,
            name=EVICTION,
            pod=pod.key,
            owner=state.who,
            result="stopped",
            why=f"{state.why} (attempt {state.attempts}){f': {state.problem}' if state.problem else ''}",
            actual=state.phase,
            age_s=max(0.0, (snapshot.monotonic_ns - state.since_ns) / 1e9),
        )


def of_node(sources: Sources, results: Iterable[StrategyResult]) -> Iterator[inspect.ExplainedFile]:
    """The resctrl groups that strategies want."""
    for result in results:
        for name, group in result.resctrl_groups.items():
            path = sources.tree.resctrl / name
            yield inspect.ExplainedFile(
                path=str(path),
                name=f"{GROUP}@{name}",
                owner=result.name,
                result=PRESENT,
                why=group.why,
                actual=PRESENT if path.is_dir() else ABSENT,
            )
