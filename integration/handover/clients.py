"""Clients that go on calling, and what came of their calls.

A call that failed is excused if its connection ended because a process was killed, or the runtime went away, after the
connection was made: right after that moment, and so once per client, which has one call at a time. Everything else is
a loss.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from integration.fuzz.attacks import SERVICE
from integration.fuzz.calls import create_request
from integration.fuzz.peers import EDITED_MARK, digest
from integration.storm.client import Caller, Failed, Interrupted, calling
from koord.pb.cri import api_pb2 as pb

VERSION_SHARE = 0.3
Excuse = Callable[[float, float], bool]  # when a connection was made and when it ended, by time.monotonic


@dataclass(slots=True)
class Tally:
    """``lost``: why, for each call that failed with no excuse; ``cut_off`` connections ended before they began."""

    answered: int = 0
    fresh: int = 0
    excused: int = 0
    cut_off: int = 0
    slowest_s: float = 0.0
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Clients:
    """Makes calls on ``path``; every one is looked at."""

    path: Path
    tally: Tally
    excuse: Excuse

    async def keep_calling(self, chance: random.Random, over: asyncio.Event) -> None:
        """On one connection, which is replaced when the proxy says so, one call after the other."""
        async with calling(self.path) as caller:
            while not over.is_set():
                await self._one(caller, chance)
                await asyncio.sleep(chance.uniform(0, 0.02))
            self._look_at_connections(caller)

    async def one_on_a_fresh_connection(self, chance: random.Random, after_s: float) -> None:
        """A call right after connecting, during any fault."""
        await asyncio.sleep(after_s)
        async with calling(self.path) as caller:
            await self._one(caller, chance)
            self._look_at_connections(caller)
        self.tally.fresh += 1

    async def _one(self, caller: Caller, chance: random.Random) -> None:
        began = time.monotonic()
        try:
            if chance.random() < VERSION_SHARE:
                answer = await caller.call(SERVICE + "Version", pb.VersionRequest(), pb.VersionResponse)
                wrong = answer.runtime_name != "fuzz"
            else:
                request = create_request(chance)
                made = await caller.call(SERVICE + "CreateContainer", request, pb.CreateContainerResponse)
                wrong = made.container_id != digest(request) + EDITED_MARK
        except (Interrupted, Failed) as error:
            if self.excuse(caller.connected_at, time.monotonic()):
                self.tally.excused += 1
            else:
                self.tally.lost.append(f"{error}, after {time.monotonic() - began:.3f} s")
            return
        self.tally.answered += 1
        self.tally.slowest_s = max(self.tally.slowest_s, time.monotonic() - began)
        if wrong:
            self.tally.wrong.append("a creation was answered otherwise than edited")

    def _look_at_connections(self, caller: Caller) -> None:
        for began, ended in caller.cut_off:
            self.tally.cut_off += 1
            if not self.excuse(began, ended):
                self.tally.lost.append("a connection was accepted and cut off before it began")
        if caller.refused:
            self.tally.lost.append(f"{caller.refused} connections were refused")
