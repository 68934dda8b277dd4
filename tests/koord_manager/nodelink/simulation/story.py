"""What a cluster goes through, and how many of its nodes were fresh meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from tests.koord_manager.nodelink.simulation.fleet import Budget, Fleet

LEAST_SHARE = 0.99
TAKEOVER_S, KILLED_S = 2.0, 17.0
"""Until another replica leads: after one that ended, and one that was killed."""
QUARTER_S, DAY_S = 900.0, 86_400.0


@dataclass(frozen=True, slots=True)
class Row:
    """``share``: of the nodes' time. ``until_s``: until ``LEAST_SHARE`` of the nodes were fresh."""

    name: str
    seconds: float
    share: float
    until_s: float
    most_requests: int

    def text(self) -> str:
        until = "never" if math.isinf(self.until_s) else f"after {self.until_s:.0f} s"
        return (
            f"{self.name:43} {self.seconds:6.0f} s  fresh {100 * self.share:6.2f} %  "
            f"{100 * LEAST_SHARE:g} % of the nodes {until:14} API server at most {self.most_requests} requests/s"
        )


class Story:
    def __init__(self, nodes: int, budget: Budget) -> None:
        self.fleet, self._nodes = Fleet(nodes, budget.of(nodes)), nodes
        self.rows: list[Row] = []

    async def tell(self, print_row: Callable[[Row], None] = lambda row: None) -> None:
        """Every chapter, one after the other."""
        fleet = self.fleet
        chapters: tuple[tuple[str, float, Callable[[], Awaitable[None]]], ...] = (
            ("every agent starts at once", QUARTER_S, self._start),
            ("a day, in which certificates are renewed", DAY_S, self._nothing),
            ("the manager ends and another one leads", QUARTER_S, lambda: self._replace(TAKEOVER_S)),
            ("the manager is killed", QUARTER_S, lambda: self._replace(KILLED_S)),
            ("a fifth of the agents are upgraded at once", QUARTER_S, self._upgrade),
            ("every agent restarts, and the manager later", QUARTER_S, self._restart),
        )
        for name, seconds, begin in chapters:
            self.rows.append(await self._row(name, seconds, begin))
            print_row(self.rows[-1])
        await fleet.end()

    @property
    def share(self) -> float:
        """Of all the nodes' time."""
        return sum(row.share * row.seconds for row in self.rows) / sum(row.seconds for row in self.rows)

    async def _row(self, name: str, seconds: float, begin: Callable[[], Awaitable[None]]) -> Row:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        await begin()
        await asyncio.sleep(begun_s + seconds - loop.time())
        figures, per_second = self.fleet.figures, self.fleet.server.per_second
        until_s = figures.reached_s(LEAST_SHARE, begun_s, begun_s + seconds)
        most = max((count for second, count in per_second.items() if begun_s <= second), default=0)
        return Row(name, seconds, figures.share(begun_s, begun_s + seconds), until_s, most)

    async def _start(self) -> None:
        self.fleet.start_manager()
        await self.fleet.start_agents(range(self._nodes), 1.0)

    async def _nothing(self) -> None:
        pass

    async def _replace(self, after_s: float) -> None:
        await self.fleet.end_manager()
        await asyncio.sleep(after_s)
        self.fleet.start_manager()

    async def _upgrade(self) -> None:
        await self.fleet.start_agents(range(self._nodes // 5), 1.0)

    async def _restart(self) -> None:
        """The manager finds everybody's requests, which it has to list."""
        await self.fleet.end_manager()
        await self.fleet.start_agents(range(self._nodes), 1.0)
        await asyncio.sleep(KILLED_S)
        self.fleet.start_manager()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Within the block nothing is logged of who is away, which each of the agents would say."""
    loggers = [
        logging.getLogger(name) for name in ("qosd.cluster", "koord_manager.nodelink", "koord.kube", "koord.tls")
    ]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
