"""What agents report of nodes, in objects of the API server: informers that tell the state.

The cluster may lack the kinds, so nobody waits for them for long. Of an object only what the state goes by is kept;
what of it cannot be read is logged when it changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec
from msgspec.structs import replace

from koord.kube.client import Client
from koord.kube.errors import KubeError
from koord.kube.informer import Informer, lacks_kind
from koord.kube.kind import NODE_METRIC, NODE_RESOURCE_TOPOLOGY, Kind, Object
from koord.kube.stream import EventStream, ObjectEvent
from koord.model.core import ObjectMeta
from koord.model.nodemetric import NodeMetric
from koord.model.noderesourcetopology import NodeResourceTopology
from koord.model.problem import Bad, Problem
from koord.scheduling import nodeusage
from koord.scheduling.nodeload import NodeLoads
from koord.scheduling.nodeusage import NodeUsage
from koord.scheduling.numa import nodesettings
from koord.scheduling.numa.nodesettings import ReportedTopology
from koord.scheduling.state import ClusterState

_log = logging.getLogger(__name__)
_PATIENCE_S = 5.0
Wire = TypeVar("Wire", bound=Object)
Report = TypeVar("Report")


class _ReadReport(msgspec.Struct, Generic[Report], frozen=True):
    """What is kept of an object."""

    metadata: ObjectMeta
    report: Report
    problems: tuple[Problem, ...]


class _NodeReports(Generic[Wire, Report]):
    """``read``: tells what cannot be read. ``put``: takes what is reported of a node, None: nothing any more.
    ``does_without``: as the informer's.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind[Wire],
        stream: EventStream,
        monotonic_s: Callable[[], float],
        read: Callable[[Wire, Bad], Report],
        put: Callable[[str, Report | None], None],
        does_without: Callable[[KubeError], bool],
    ) -> None:
        self._read, self._put = read, put
        self.informer: Informer[Wire, _ReadReport[Report]] = Informer(
            *(client, kind, monotonic_s),
            stream=stream,
            transform=self._kept,
            handle=self._take,
            does_without=does_without,
        )

    def _kept(self, stored: Wire) -> _ReadReport[Report]:
        problems: list[Problem] = []
        report = self._read(stored, problems.append)
        return _ReadReport(replace(stored.metadata, labels={}, annotations={}), report, tuple(problems))

    def _take(self, event: ObjectEvent[_ReadReport[Report]]) -> None:
        name, before, after = event.key.name, event.before, event.after
        if after is not None and (before is None or before.problems != after.problems):
            for problem in after.problems:
                _log.warning("%s %s: %s", self.informer.kind.name, name, problem)
        self._put(name, None if after is None else after.report)


class UsageView(_NodeReports[NodeMetric, NodeUsage]):
    """``loads``: what is told. A scheduler that may not read NodeMetrics goes without them, too."""

    def __init__(self, client: Client, loads: NodeLoads, stream: EventStream, monotonic_s: Callable[[], float]) -> None:
        super().__init__(
            *(client, NODE_METRIC, stream, monotonic_s),
            *(nodeusage.of_metric, loads.put_metric, lambda failure: failure.is_refusal),
        )

    async def synced(self) -> None:
        """Returns once all NodeMetrics are known, or the API server has said that it has none to show."""
        await self.informer.synced.wait()
        if self.informer.failure is not None:
            _log.warning("no node is measured: %s", self.informer.error)


class TopologyView(_NodeReports[NodeResourceTopology, ReportedTopology]):
    """``changed``: called with the name of a node of which something else is known now. Pods that need to know a node's
    CPUs are told that they are not known.
    """

    def __init__(
        self,
        client: Client,
        state: ClusterState,
        stream: EventStream,
        monotonic_s: Callable[[], float],
        changed: Callable[[str], None],
    ) -> None:
        def put(node: str, reported: ReportedTopology | None) -> None:
            if state.put_topology(node, reported):
                changed(node)

        super().__init__(
            *(client, NODE_RESOURCE_TOPOLOGY, stream, monotonic_s), *(nodesettings.reported, put, lacks_kind)
        )

    async def synced(self) -> None:
        """Returns once all that there was is read, or there is none, or when that takes too long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await self.informer.synced.wait()
