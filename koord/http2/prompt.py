"""Awaiting an answer without waiting for the event loop's next turn.

asyncio starts a task one turn of the loop after it was made, and resumes it one turn after what it awaits is there.
A process that sleeps between two calls has none of that in its caches, so each turn costs more than what is done in
it. A `PromptTask` runs its coroutine at once, and goes on in the very callback that settles the `PromptFuture` it
awaits. Invariant: to anyone else a PromptFuture is a future like any other, and a PromptTask may await any future;
what needs asyncio's current task (``asyncio.timeout``) must be in a task of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class PromptFuture(asyncio.Future[T]):
    """Whoever settles it calls `settled` behind that, from where it does not mind what the waiting coroutine does."""

    resume: Callable[[], None] | None = None

    def settled(self) -> None:
        resume, self.resume = self.resume, None
        if resume is not None:
            resume()


class PromptTask:
    """Runs ``work``, which must not raise, from `start` on; `cancel` may be called at any time."""

    __slots__ = ("_awaits", "_work")

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._work = work
        self._awaits: asyncio.Future[Any] | None = None

    def cancel(self) -> None:
        """Raise CancelledError where ``work`` waits; nothing if it has ended, or is what calls this."""
        awaits, self._awaits = self._awaits, None
        if awaits is not None:
            awaits.remove_done_callback(self._wake)
            if isinstance(awaits, PromptFuture):
                awaits.resume = None
            awaits.cancel()
            self._step(asyncio.CancelledError())

    def _wake(self, awaited: asyncio.Future[Any]) -> None:
        self._step()

    def _step(self, error: BaseException | None = None) -> None:
        self._awaits = None
        try:
            awaits = self._work.send(None) if error is None else self._work.throw(error)
        except (StopIteration, asyncio.CancelledError):
            return
        awaits._asyncio_future_blocking = False  # as Task does: taken, and free to be awaited by others too
        self._awaits = awaits
        if isinstance(awaits, PromptFuture):
            awaits.resume = self._step
        else:
            awaits.add_done_callback(self._wake)

    start = _step
