"""The newest report of each node, in the order of their versions, for those who follow them.

Nothing is kept for a follower: what it lacks follows from the version that it has. Invariants: memory is that of one
report a node, and of the names of the last ``MOST_GONE`` that went; who lacks more than that is told all anew.
No clock: each call is told the time, in seconds that never go back.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from koord.model.nodelink import STALE_S
from koord.pb.koord import clusterstate_pb2 as states

MOST_GONE = 1024
FORGET_S = 600.0
"""A node that has said nothing for so long is gone."""
MOST_SKEW_S = 60.0
"""More between the clocks of a node and of the manager is an anomaly: what the node measured looks old, or new."""


@dataclass(slots=True)
class _Entry:
    version: int
    report: bytes
    arrival_s: float
    anomaly: str
    is_silent: bool = False


@dataclass(frozen=True, slots=True)
class Changes:
    """What somebody lacks. ``is_snapshot``: all that there is."""

    version: int
    is_snapshot: bool
    nodes: tuple[str, ...]
    gone: tuple[str, ...]


class NodeStates:
    """``instance``: of this run, as versions are. ``changed``: called after each change, for others to set."""

    def __init__(self) -> None:
        self.instance, self.version = uuid.uuid4().hex, 0
        self.changed: Callable[[], None] = lambda: None
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        """The least version first."""
        self._gone: deque[tuple[int, str]] = deque(maxlen=MOST_GONE)
        self._complete_since = 0
        """Of an earlier version it is not known any more which nodes went."""

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, node: str, report: bytes, sampled_s: float, now_s: float, wall_s: float) -> None:
        """A report has come. ``sampled_s``: since 1970, by the node's clock; ``wall_s``: the same by ours."""
        skew_s = sampled_s - wall_s
        anomaly = ""
        if abs(skew_s) > MOST_SKEW_S:
            anomaly = f"its clock is {abs(skew_s):.0f}s {'ahead' if skew_s > 0 else 'late'}"
        self._change(node, _Entry(0, report, now_s, anomaly))

    def remove(self, node: str) -> None:
        if self._entries.pop(node, None) is not None:
            self.version += 1
            if len(self._gone) == MOST_GONE:
                self._complete_since = self._gone[0][0]
            self._gone.append((self.version, node))
            self.changed()

    def look_for_silence(self, now_s: float) -> None:
        """Nodes that have missed three reports are silent from now on, and gone after ``FORGET_S``."""
        for node, entry in tuple(self._entries.items()):
            if now_s - entry.arrival_s > FORGET_S:
                self.remove(node)
            elif now_s - entry.arrival_s > STALE_S and not entry.is_silent:
                silent = f"its agent has said nothing for {STALE_S:g}s"
                self._change(node, _Entry(0, entry.report, entry.arrival_s, silent, True))

    def since(self, instance: str, version: int) -> Changes:
        """Returns what somebody lacks who has this version of that instance; ``instance`` "": who has nothing."""
        if instance != self.instance or version < self._complete_since or version > self.version:
            return Changes(self.version, True, tuple(self._entries), ())
        return Changes(self.version, False, tuple(self._later(version)), tuple(self._gone_since(version)))

    def state_of(self, node: str, now_s: float) -> states.NodeState | None:
        """None: it is gone by now."""
        entry = self._entries.get(node)
        if entry is None:
            return None
        return states.NodeState(
            node=node,
            report=entry.report,
            age_ms=int((now_s - entry.arrival_s) * 1000),
            agent=states.SILENT if entry.is_silent else states.REPORTING,
            anomaly=entry.anomaly,
        )

    def _change(self, node: str, entry: _Entry) -> None:
        self.version += 1
        entry.version = self.version
        self._entries[node] = entry
        self._entries.move_to_end(node)
        self.changed()

    def _later(self, version: int) -> Iterator[str]:
        for node, entry in reversed(self._entries.items()):
            if entry.version <= version:
                return
            yield node

    def _gone_since(self, version: int) -> Iterator[str]:
        for gone_at, node in reversed(self._gone):
            if gone_at <= version:
                return
            if node not in self._entries:
                yield node
