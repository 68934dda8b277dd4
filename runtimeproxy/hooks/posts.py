"""Notifies a hook server after the event: in order, by one task, out of a bounded queue.

A server that hangs delays only itself. Invariant: each notification that is given to ``put`` reaches the server, or
fails there and is logged, or is counted as dropped: if the queue is full, or if it still waits at ``close``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from runtimeproxy.hooks.stages import CallStage
from runtimeproxy.metrics import Metrics

POST_QUEUE = 256
log = logging.getLogger("runtimeproxy.hooks.posts")


@dataclass(frozen=True, slots=True)
class Post:
    """One notification. ``make`` returns the hook request when its turn comes, None if the object is not known;
    ``outcome`` is the gRPC status of the runtime's answer.
    """

    stage: CallStage
    make: Callable[[], Awaitable[bytes | None]]
    outcome: int


class Posts:
    """Notifies one server. ``notify`` delivers to that of hook file ``file``, and deals with its failures."""

    def __init__(self, file: str, notify: Callable[[Post], Awaitable[None]], metrics: Metrics) -> None:
        self._file = file
        self._notify = notify
        self._metrics = metrics
        self._waiting: deque[Post] = deque()  # the first one is being delivered
        self._worker: asyncio.Task[None] | None = None

    def put(self, post: Post) -> None:
        """Delivers ``post`` when those before it have been."""
        if len(self._waiting) >= POST_QUEUE:
            self._metrics.post_dropped(self._file, post.stage)
            return
        self._waiting.append(post)
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._deliver(), name=f"post {self._file}")

    async def delivered(self) -> None:
        """Waits until the queue is empty."""
        while self._worker is not None:
            await asyncio.wait((self._worker,))

    def close(self) -> None:
        """Delivers no more, and drops the queue."""
        if self._worker is not None:
            self._worker.cancel()
        if self._waiting:
            log.warning("hook server %s: %d after hooks were not delivered", self._file, len(self._waiting))
        for post in self._waiting:
            self._metrics.post_dropped(self._file, post.stage)
        self._waiting.clear()

    async def _deliver(self) -> None:
        try:
            while self._waiting:
                await self._notify(self._waiting[0])
                self._waiting.popleft()
        except Exception:  # the root of this task: the next post begins another one
            self._metrics.fault("posting")
            log.exception("hook server %s: an after hook was not delivered", self._file)
            if self._waiting:
                self._metrics.post_dropped(self._file, self._waiting.popleft().stage)
        finally:
            self._worker = None
