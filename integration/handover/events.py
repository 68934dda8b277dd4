"""What can happen to a hand-over: one function per kind, each at moments that a seeded source chooses.

Each is given the node and ends when its fault is over; whether the node is then as it must be is looked at by the
caller. ``KINDS`` weighs them equally.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from integration.handover.clients import Clients
from integration.handover.manager import Manager, until
from integration.handover.peers import Backend

LONGEST_START_S = 0.4  # of a successor, or so: the steps of a hand-over lie in between
FRESH = 4


@dataclass(frozen=True, slots=True)
class Node:
    manager: Manager
    backend: Backend
    clients: Clients
    chance: random.Random

    async def hand_over(self) -> int:
        """SIGUSR2 to the main process, which may be about to be started again; returns its pid."""
        await until(lambda: self.manager.main != 0, "a main process")
        main = self.manager.main
        self.manager.signal(main, signal.SIGUSR2)
        return main

    async def some_time(self, longest_s: float = LONGEST_START_S) -> None:
        await asyncio.sleep(self.chance.uniform(0, longest_s))

    async def replaced(self, old: int) -> None:
        await until(lambda: self.manager.main not in (old, 0), f"a main process after {old}")


async def at_any_moment(node: Node) -> None:
    await node.replaced(await node.hand_over())


async def in_the_accept_window(node: Node) -> None:
    """Clients connect just before the signal, with it, and while the old process lets go."""
    async with asyncio.TaskGroup() as cgroup:
        for number in range(FRESH):
            after_s = 0.0 if number % 2 else node.chance.uniform(0, LONGEST_START_S)
            cgroup.create_task(node.clients.one_on_a_fresh_connection(node.chance, after_s))
        await asyncio.sleep(0)
        old = await node.hand_over()
        await node.replaced(old)
        for _ in range(FRESH):  # the old one drains now
            cgroup.create_task(node.clients.one_on_a_fresh_connection(node.chance, node.chance.uniform(0, 0.01)))


async def twice_in_a_row(node: Node) -> None:
    old = await node.hand_over()
    await node.some_time()
    await node.hand_over()
    await node.replaced(old)


async def old_killed(node: Node) -> None:
    old = await node.hand_over()
    await node.some_time()
    node.manager.signal(old, signal.SIGKILL)
    await node.replaced(old)


async def new_killed(node: Node) -> None:
    known = node.manager.living()
    old = await node.hand_over()
    await until(lambda: bool(node.manager.living() - known), f"a successor of {old}")
    (new,) = node.manager.living() - known
    await node.some_time()
    node.manager.signal(new, signal.SIGKILL)
    await until(lambda: new not in node.manager.living() and bool(node.manager.main), "a main process again")


async def runtime_away(node: Node) -> None:
    await node.some_time()
    async with asyncio.TaskGroup() as cgroup:
        cgroup.create_task(node.backend.leave_for(node.chance.uniform(0.05, 0.5)))
        await node.some_time(0.1)
        await node.replaced(await node.hand_over())


async def manager_deaf(node: Node) -> None:
    """What is told to the service manager is lost for a while; the old process stays until it is heard."""
    with node.manager.deaf():
        old = await node.hand_over()
        await asyncio.sleep(node.chance.uniform(0.1, 1.0))
    await node.replaced(old)


KINDS: dict[str, Callable[[Node], Awaitable[None]]] = {
    "at any moment": at_any_moment,
    "in the accept window": in_the_accept_window,
    "twice in a row": twice_in_a_row,
    "old killed": old_killed,
    "new killed": new_killed,
    "runtime away": runtime_away,
    "manager deaf": manager_deaf,
}
