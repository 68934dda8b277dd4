"""A pod that waits to be placed, and pods that wait in an order.

No clock: times are told, in seconds that never go back.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import count
from math import ceil
from typing import NamedTuple

from koord.scheduling.podinfo import PodInfo


class BackoffTimes(NamedTuple):
    """After the first failure, twice as long after each further one, and at most."""

    first_s: int = 1
    most_s: int = 10

    def after(self, failures: int) -> int:
        return min(self.first_s << min(failures - 1, 30), self.most_s)


@dataclass(eq=False)
class QueuedPod:
    """``added_s``: since when it waits; ``entered_s``: since when it is where it is, or was taken. ``tries``: how often
    it was taken, ``tried_from_s``: since when it could be. ``attempts``: decisions that found no node; ``errors``:
    failures of another kind in a row, such as a binding that the API server refused.
    """

    pod: PodInfo
    added_s: float
    entered_s: float
    tries: int = 0
    tried_from_s: float = -1.0
    """-1: it was gated until now."""
    attempts: int = 0
    errors: int = 0
    backoff_until_s: float = 0.0
    rejected_by: frozenset[str] = frozenset()
    """The plugins that left no node, of a parked pod."""
    woken_by_row: int = -1
    """The node that had room for it when it woke; -1: it woke for something else."""

    def begin_backoff(self, now_s: float, length_s: int) -> None:
        """Pods whose time is up in the same second are then in the order of their priorities."""
        self.backoff_until_s = ceil(now_s + length_s)


class PodOrder:
    """Pods by a key, smallest first; one that was removed is passed over."""

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[float, ...], int, QueuedPod]] = []
        self._live: dict[str, int] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, uid: str) -> bool:
        return uid in self._live

    def push(self, queued: QueuedPod, *key: float) -> None:
        number = next(self._numbers)
        self._live[queued.pod.uid] = number
        heapq.heappush(self._heap, (key, number, queued))

    def discard(self, uid: str) -> None:
        self._live.pop(uid, None)

    def first(self) -> tuple[tuple[float, ...], QueuedPod] | None:
        while self._heap:
            key, number, queued = self._heap[0]
            if self._live.get(queued.pod.uid) == number:
                return key, queued
            heapq.heappop(self._heap)
        return None

    def pop(self) -> QueuedPod:
        found = self.first()
        assert found is not None
        heapq.heappop(self._heap)
        del self._live[found[1].pod.uid]
        return found[1]
