"""What is held and done that is no value of a kernel file, explained as if it were one.

The tasks of a cgroup in a resctrl group, a resctrl group that shall be there, an eviction under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from koord.host.evictions import EVICTION
from koord.host.placement import TASKS
from koord.host.resctrlgroup import ABSENT, GROUP, PRESENT
from koord.pb.koord import inspect_pb2 as inspect
from qosd.decide.runner import StrategyResult
from qosd.report import TickReport
from qosd.snapshot import PodView


def of_pods(report: TickReport, resctrl: Path, pods: Iterable[PodView]) -> Iterator[inspect.ExplainedFile]:
    """In which resctrl group the tasks of each container are kept, and how far the pod's eviction is."""
    for pod in pods:
        for container in pod.containers:
            if container.group:
                name = "(sandbox)" if container.is_sandbox else container.name
                yield from _memberships(report, resctrl, container.group, name)
        yield from _eviction(report, pod)


def _memberships(report: TickReport, resctrl: Path, group: str, container: str) -> Iterator[inspect.ExplainedFile]:
    for result in report.decisions.results:
        membership = result.memberships.get(group)
        if membership is not None:
            yield inspect.ExplainedFile(
                path=str(resctrl / membership.resctrl_group / "tasks"),
                group=group,
                name=TASKS,
                pod=membership.pod,
                container=container,
                owner=result.name,
                result=membership.resctrl_group,
                why=membership.why,
                actual=report.placed.get(group, "unknown"),
            )


def _eviction(report: TickReport, pod: PodView) -> Iterator[inspect.ExplainedFile]:
    state = report.evictions.get(pod.uid)
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
            age_s=max(0.0, (report.decisions.monotonic_ns - state.since_ns) / 1e9),
        )


def of_node(results: Iterable[StrategyResult], resctrl: Path) -> Iterator[inspect.ExplainedFile]:
    """The resctrl groups that strategies want."""
    for result in results:
        for name, group in result.resctrl_groups.items():
            path = resctrl / name
            yield inspect.ExplainedFile(
                path=str(path),
                name=f"{GROUP}@{name}",
                owner=result.name,
                result=PRESENT,
                why=group.why,
                actual=PRESENT if path.is_dir() else ABSENT,
            )
