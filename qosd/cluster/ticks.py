"""The part of the node that reports are made of, and how its ticks wake them.

Each report has its own rule for its next time: NodeMetric an interval and a pause after failures, NodeLink a
connection, NodeResourceTopology a difference. They share how they wait.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Protocol

from qosd.metrics import Metrics
from qosd.report import TickReport
from qosd.sense.store import SampleStore


class _Loop(Protocol):
    @property
    def report(self) -> TickReport: ...


class _Sense(Protocol):
    @property
    def store(self) -> SampleStore: ...


class MeasuredNode(Protocol):
    """The part of ``qosd.node.Node`` that reports are made of."""

    @property
    def loop(self) -> _Loop: ...
    @property
    def sense(self) -> _Sense: ...
    @property
    def metrics(self) -> Metrics: ...
    @property
    def after_tick(self) -> list[Callable[[], None]]: ...


@contextlib.contextmanager
def after_each_tick(listeners: list[Callable[[], None]], look: Callable[[], None]) -> Iterator[None]:
    """Makes the node call ``look`` after each tick for as long as the block lasts."""
    listeners.append(look)
    try:
        yield
    finally:
        listeners.remove(look)


async def set_within(event: asyncio.Event, timeout_s: float) -> None:
    """Returns when ``event`` is set, after ``timeout_s`` at the latest."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, timeout_s)):
            await event.wait()
