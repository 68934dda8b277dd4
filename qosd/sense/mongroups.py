"""Measures memory bandwidth and last-level cache of containers with a monitoring group in resctrl, and of their pods.

A runtime that is told to (OCI ``intelRdt.enableMonitoring``) makes a monitoring group named after the container, in
whatever control group that is; qosd makes none, and reads those there are. Figures are summed over domains, a pod's
over its monitored containers. Invariant: a sum without one of its parts has no sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from koord.host import resctrl
from koord.host.resctrl import LLC_OCCUPANCY, MBM_LOCAL, MBM_TOTAL, MonitoringFile
from qosd.model.metric import Kind, Scope
from qosd.sense.host import CollectorHost
from qosd.sense.rdt import RESOURCE, RDTReading, bandwidth, read
from qosd.sense.row import NO_SAMPLE, SLOW_S, Column, Row
from qosd.sense.targets import SampledCgroup
from qosd.sense.tick import Batch, NotApplicable, Tick

_UNREAD = RDTReading(0, {})
_Readings = Mapping[int, RDTReading]
"""By domain."""


class MonGroupRow(Row):
    llc_occupancy_bytes: Column = Column("bytes", "Last-level cache that containers with a monitoring group occupy.")
    mbm_total_bytes_per_s: Column = Column("bytes/s", "Memory bandwidth of those containers.", Kind.RATE)
    mbm_local_bytes_per_s: Column = Column("bytes/s", "The same, to the sockets' own memory.", Kind.RATE)


_row = MonGroupRow.in_order(["llc_occupancy_bytes", "mbm_total_bytes_per_s", "mbm_local_bytes_per_s"])
MON_GROUPS = MonGroupRow.by_scope((Scope.POD, Scope.CONTAINER), "mon_groups", SLOW_S)


class MonGroupsCollector:
    """The collector ``mon_groups``."""

    name = "mon_groups"
    period_s = SLOW_S
    panels = tuple(row.panel for row in MON_GROUPS.values())

    def __init__(self, host: CollectorHost) -> None:
        self._root, self._clock = host.tree.resctrl, host.clock
        self._before: Mapping[str, _Readings] = {}

    def collect(self, tick: Tick) -> Batch:
        before, self._before = self._before, {}
        monitored = dict(_monitored(self._root, tick.targets.cgroups[Scope.CONTAINER]))
        if not monitored:
            raise NotApplicable(f"no container has a monitoring group at {self._root}")
        self._before = {container.subject: read(files, self._clock) for container, files in monitored.items()}
        figures = {
            container: _figures(files, before.get(container.subject, {}), self._before[container.subject])
            for container, files in monitored.items()
        }
        return [
            (MON_GROUPS[Scope.POD].panel, {pod: _row(each) for pod, each in _by_pod(figures).items()}),
            (MON_GROUPS[Scope.CONTAINER].panel, {container.subject: _row(each) for container, each in figures.items()}),
        ]

    def close(self) -> None:
        self._before = {}


def _monitored(
    root: Path, containers: Sequence[SampledCgroup]
) -> Iterator[tuple[SampledCgroup, Sequence[MonitoringFile]]]:
    """Yields the containers with a monitoring group of their name, and its files."""
    by_id = {cgroup.container.id: cgroup for cgroup in containers if cgroup.container is not None}
    for control_group in ("", *resctrl.groups(root)):
        for name in resctrl.mon_groups(root, control_group):
            if name in by_id:
                yield by_id[name], resctrl.counters(root, control_group, name)


def _by_pod(figures: Mapping[SampledCgroup, Sequence[float]]) -> Mapping[str, Sequence[float]]:
    """Returns the sums of each pod's containers."""
    found: dict[str, list[Sequence[float]]] = {}
    for container, each in figures.items():
        if container.pod is not None:
            found.setdefault(container.pod.cgroup, []).append(each)
    return {pod: [*map(sum, zip(*each, strict=True))] for pod, each in found.items()}


def _figures(files: Sequence[MonitoringFile], before: _Readings, now: _Readings) -> Sequence[float]:
    """Returns the figures in the order of the columns."""

    def domains(feature: str) -> Sequence[int]:
        return [file.domain for file in files if (file.resource, file.feature) == (RESOURCE, feature)]

    def total(figures: Sequence[float]) -> float:
        return sum(figures) if figures else NO_SAMPLE

    return (
        total([now.get(domain, _UNREAD).counts.get(LLC_OCCUPANCY, NO_SAMPLE) for domain in domains(LLC_OCCUPANCY)]),
        *(
            total([bandwidth(feature, before.get(domain), now.get(domain, _UNREAD)) for domain in domains(feature)])
            for feature in (MBM_TOTAL, MBM_LOCAL)
        ),
    )
