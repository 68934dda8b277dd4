"""Explains acts that are no value of a kernel file as if they were one, by the reports of every actor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from koord.pb.koord import inspect_pb2 as inspect
from qosd.act.actor import ExplainedAct
from qosd.model.snapshot import PodView
from qosd.report import TickReport


def of_pods(
    report: TickReport, pods: Iterable[PodView], labels: Mapping[str, tuple[str, str]]
) -> Iterator[inspect.ExplainedFile]:
    """Yields the acts of ``pods``. ``labels``: pod and container by cgroup."""
    for pod in pods:
        for act_report in report.act_reports:
            for act in act_report.of_pod(report.decisions, pod):
                yield _message(act, labels.get(act.target.cgroup, ("", ""))[1])


def _message(act: ExplainedAct, container: str) -> inspect.ExplainedFile:
    return inspect.ExplainedFile(
        path=act.path,
        cgroup=act.target.cgroup,
        name=act.target.name,
        pod=act.pod,
        container=container,
        owner=act.owner,
        result=act.result,
        why=act.why,
        actual=act.actual,
        age_s=act.age_s,
    )
