"""Everything that attacks the proxy, in a process of its own: so good calls wait for the proxy, and not for attackers.

The process works for the time that it is given, and then says on its pipe what it did. Anything that its parent writes
to the pipe ends it before, and so does the parent's death, which closes the pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
from collections import Counter, deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

import uvloop

from integration.fuzz.attacks import Attack, attack
from integration.fuzz.hookfiles import scribble
from integration.fuzz.hookservers import Liar, Maker, floods, hook_servers
from integration.fuzz.shifts import in_shifts, works

ATTACKERS = 3
ATTACK_S = 0.5  # longest that one attack may last, which a siege goes on after


@dataclass(slots=True)
class Attacks:
    """What was done; ``recent`` are the last attacks, newest last."""

    count: int = 0
    sent_bytes: int = 0
    sieges: Counter[str] = field(default_factory=Counter)  # bytes sent
    hook_files: int = 0
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=12))

    def lay(self, siege: str) -> None:
        self.sieges[siege] += 0
        self.recent.append(f"siege: {siege}")

    def count_file(self) -> None:
        self.hook_files += 1


@dataclass(frozen=True, slots=True)
class Orders:
    """The target, for so many seconds, by ``seed``; with a ``siege``, only attacks whose name contains it."""

    proxy: Path
    hook_files: Path
    directory: Path  # for sockets
    seed: int
    seconds: float
    siege: str


@contextlib.asynccontextmanager
async def attackers(orders: Orders) -> AsyncIterator[asyncio.Task[Attacks]]:
    """The attackers work during the block, for their time at most. The task ends with them, and has what they did."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(orders, theirs))
    process.start()
    theirs.close()
    done = asyncio.create_task(asyncio.to_thread(ours.recv))
    try:
        yield done
    finally:
        with contextlib.suppress(BrokenPipeError):  # they have ended
            ours.send(None)
        await asyncio.wait([done])
        await asyncio.to_thread(process.join)


def _run(orders: Orders, parent: Connection) -> None:
    tally = Attacks()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_attack(orders, parent, tally))
    parent.send(tally)


async def _attack(orders: Orders, parent: Connection, tally: Attacks) -> None:
    seed, stop = orders.seed, asyncio.Event()
    asyncio.get_running_loop().add_reader(parent.fileno(), stop.set)
    makers: dict[str, Maker] = {"liar": partial(Liar, Random(f"{seed}/hooks")), **floods()}
    async with hook_servers(orders.directory, makers) as hooks:
        lying = hooks.pop("liar")
        sieges = works(orders.proxy, orders.hook_files, hooks, tally.sieges)
        chosen = {name: work for name, work in sieges.items() if orders.siege in name}
        async with asyncio.TaskGroup() as cgroup:
            beside = []
            if not orders.siege:
                beside.append(scribble(orders.hook_files, lying, Random(f"{seed}/files"), tally.count_file))
                beside += [attack_on(orders.proxy, Random(f"{seed}/{number}"), tally) for number in range(ATTACKERS)]
            tasks = [cgroup.create_task(work) for work in beside]
            shifts = cgroup.create_task(in_shifts(chosen, Random(f"{seed}/sieges"), orders.seconds, tally.lay))
            stopping = cgroup.create_task(stop.wait())
            await asyncio.wait([shifts, stopping], return_when=asyncio.FIRST_COMPLETED)
            for task in (*tasks, shifts, stopping):
                task.cancel()
    asyncio.get_running_loop().remove_reader(parent.fileno())


async def attack_on(path: Path, chance: Random, tally: Attacks) -> None:
    """One attack after the other."""
    while True:
        chosen = attack(chance)
        tally.count += 1
        tally.recent.append(f"{chosen.name} ({len(chosen.pieces)} pieces, {sum(map(len, chosen.pieces))} bytes)")
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(ATTACK_S):
                await _deliver(path, chosen, tally)


async def _deliver(path: Path, chosen: Attack, tally: Attacks) -> None:
    reader, writer = await asyncio.open_unix_connection(str(path), limit=1 << 16)
    listening = asyncio.create_task(_discard(reader)) if chosen.reads else None
    try:
        for piece in chosen.pieces:
            for part in [piece[n : n + 1] for n in range(len(piece))] if chosen.drips else [piece]:
                writer.write(part)
                tally.sent_bytes += len(part)
                await writer.drain()
        await asyncio.sleep(0.02)  # what follows hanging up at once is another test than what follows a silence
    finally:
        writer.transport.abort()
        if listening is not None:
            listening.cancel()


async def _discard(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        while await reader.read(1 << 16):
            pass
