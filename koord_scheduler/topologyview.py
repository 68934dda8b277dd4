"""Follows what agents report of nodes' CPUs and NUMA nodes, and tells the state.

The kind is another project's, and may not be there: nobody waits for it for long, and pods that need it are told that a
node's CPUs are not known. Of an object only what the state goes by is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

import msgspec

from koord.kube.client import Client
from koord.kube.informer import Informer, lacks_kind
from koord.kube.kind import NODE_RESOURCE_TOPOLOGY
from koord.kube.stream import EventStream, ObjectEvent
from koord.model.core import ObjectMeta
from koord.model.noderesourcetopology import NodeResourceTopology
from koord.model.problem import Problem
from koord.scheduling.numa import nodesettings
from koord.scheduling.numa.nodesettings import ReportedTopology
from koord.scheduling.state import ClusterState

_log = logging.getLogger(__name__)
_PATIENCE_S = 5.0


class KeptTopology(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    reported: ReportedTopology
    problems: tuple[str, ...]


class TopologyView:
    """``changed``: called with the name of a node of which something else is known now."""

    def __init__(
        self,
        client: Client,
        state: ClusterState,
        stream: EventStream,
        monotonic_s: Callable[[], float],
        changed: Callable[[str], None],
    ) -> None:
        self._state, self._changed = state, changed
        self.informer: Informer[NodeResourceTopology, KeptTopology] = Informer(
            *(client, NODE_RESOURCE_TOPOLOGY, monotonic_s),
            stream=stream,
            transform=_kept,
            handle=self._take,
            does_without=lacks_kind,
        )

    async def synced(self) -> None:
        """Returns once all that there was is read, or there is none, or when that takes too long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await self.informer.synced.wait()

    def _take(self, event: ObjectEvent[KeptTopology]) -> None:
        name, after = event.key.name, event.after
        if after is not None and (event.before is None or event.before.problems != after.problems):
            for problem in after.problems:
                _log.warning("NodeResourceTopology %s: %s", name, problem)
        if self._state.put_topology(name, None if after is None else after.reported):
            self._changed(name)


def _kept(stored: NodeResourceTopology) -> KeptTopology:
    problems: list[Problem] = []
    reported = nodesettings.reported(stored, problems.append)
    metadata = msgspec.structs.replace(stored.metadata, labels={}, annotations={})
    return KeptTopology(metadata, reported, tuple(map(str, problems)))
