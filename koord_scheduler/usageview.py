"""The informer of NodeMetrics, which tells the state what nodes use.

The cluster may have no such kind: then no node is measured, and the scheduler does not wait for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from koord.kube.client import Client
from koord.kube.informer import Informer
from koord.kube.kind import NODE_METRIC
from koord.kube.stream import EventStream, ObjectEvent
from koord.model.core import ObjectMeta
from koord.model.nodemetric import NodeMetric
from koord.model.problem import Problem
from koord.scheduling import nodeusage
from koord.scheduling.nodeload import NodeLoads
from koord.scheduling.nodeusage import NodeUsage

_log = logging.getLogger(__name__)


class MeasuredNode(msgspec.Struct, frozen=True):
    """What is kept of a NodeMetric."""

    metadata: ObjectMeta
    usage: NodeUsage
    problems: tuple[Problem, ...]


class UsageView:
    """``loads``: what is told. ``informer``: of the NodeMetrics."""

    def __init__(self, client: Client, loads: NodeLoads, stream: EventStream, monotonic_s: Callable[[], float]) -> None:
        self._loads = loads
        self._told: dict[str, tuple[Problem, ...]] = {}
        self.informer: Informer[NodeMetric, MeasuredNode] = Informer(
            *(client, NODE_METRIC, monotonic_s),
            stream=stream,
            transform=_read,
            handle=self._take,
            does_without=lambda failure: failure.is_refusal,
        )

    async def synced(self) -> None:
        """Returns once all NodeMetrics are known, or the API server has said that it has none to show."""
        await self.informer.synced.wait()
        if self.informer.failure is not None:
            _log.warning("no node is measured: %s", self.informer.error)

    def _take(self, event: ObjectEvent[MeasuredNode]) -> None:
        name, after = event.key.name, event.after
        self._loads.put_metric(name, None if after is None else after.usage)
        problems = () if after is None else after.problems
        if problems != self._told.get(name, ()):
            for problem in problems:
                _log.warning("NodeMetric %s: %s", name, problem)
        if problems:
            self._told[name] = problems
        else:
            self._told.pop(name, None)


def _read(metric: NodeMetric) -> MeasuredNode:
    problems: list[Problem] = []
    usage = nodeusage.of_metric(metric, problems.append)
    return MeasuredNode(replace(metric.metadata, labels={}, annotations={}), usage, tuple(problems))
