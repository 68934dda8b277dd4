"""ClusterState.Watch: what nodes report, to schedulers that follow it.

Invariants: a follower has one answer under way, written as fast as it reads, and no queue: what came meanwhile is in
the next one, the newest state of each node alone. An answer goes in parts of ``PART_NODES``, so none is large. While
this replica does not lead, the call ends with the leader's address, within ``TICK_S`` of losing that.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

from google.protobuf.message import DecodeError

from koord.http2.grpc import FAILED_PRECONDITION, INVALID_ARGUMENT
from koord.http2.server import Refusal
from koord.pb.koord import clusterstate_pb2 as pb
from koord_manager.nodelink.service import Leadership
from koord_manager.nodestates import NodeStates

SERVICE = pb.DESCRIPTOR.services_by_name["ClusterState"]
WATCH = f"/{SERVICE.full_name}/Watch"
TICK_S = 1.0
"""Between two answers, at least; and until it is seen that nodes are silent, or another replica leads, at most."""
PART_NODES = 256
"""Of thirty pods each, half a megabyte."""
HEARTBEAT_S = 5.0
"""After so long without news a follower is told that there is none."""


class StateWatcher:
    """``clock``: seconds that go on. ``tick_s``: ``TICK_S``."""

    def __init__(
        self, states: NodeStates, leadership: Leadership, clock: Callable[[], float], tick_s: float = TICK_S
    ) -> None:
        self._states, self._leadership, self._clock, self._tick_s = states, leadership, clock, tick_s
        self._changed = asyncio.Event()
        states.changed = self._changed.set
        self.followers = 0

    async def watch(self, message: bytes) -> AsyncIterator[bytes]:
        """Yields updates. Raises Refusal."""
        try:
            request = pb.WatchRequest.FromString(message)
        except DecodeError as error:
            raise Refusal(INVALID_ARGUMENT, f"the request is no WatchRequest: {error}") from error
        instance, version = request.instance, request.version
        self.followers += 1
        written_s = self._clock()
        try:
            while True:
                self._check_leadership()
                self._states.look_for_silence(self._clock())
                if (instance, version) != (self._states.instance, self._states.version):
                    changes = self._states.since(instance, version)
                    for part in self._parts(changes.is_snapshot, changes.nodes, changes.gone, changes.version):
                        yield part.SerializeToString()
                    instance, version, written_s = self._states.instance, changes.version, self._clock()
                elif self._clock() - written_s >= HEARTBEAT_S:
                    yield pb.Update(instance=instance, version=version, is_complete=True).SerializeToString()
                    written_s = self._clock()
                await asyncio.sleep(self._tick_s)
                await self._next_change()
        finally:
            self.followers -= 1

    async def _next_change(self) -> None:
        """Returns when there is news, or after a tick."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._tick_s):
                await self._changed.wait()

    def _parts(self, is_snapshot: bool, nodes: Sequence[str], gone: Sequence[str], version: int) -> Iterator[pb.Update]:
        """States are read when a part is made, so those of later parts are the newest."""
        starts = range(0, len(nodes), PART_NODES) or range(1)
        for start in starts:
            found = [self._states.state_of(node, self._clock()) for node in nodes[start : start + PART_NODES]]
            yield pb.Update(
                instance=self._states.instance,
                version=version,
                is_snapshot=is_snapshot and start == 0,
                is_complete=start == starts[-1],
                nodes=[each for each in found if each is not None],
                gone=gone if start == 0 else (),
            )

    def _check_leadership(self) -> None:
        """Raises Refusal."""
        if not self._leadership.is_ours():
            leader = self._leadership.leader()
            raise Refusal(FAILED_PRECONDITION, f"this replica does not lead, {leader or 'nobody'} does")
