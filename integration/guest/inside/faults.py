"""The faults of a storm under systemd, and the order in which a seed deals them.

A deck holds every kind at least once per few rounds: kills of the proxy, of the node daemon and of containerd, alone
and together, and SIGSTOPs. A stopped proxy is left to systemd's watchdog; the others go on after a moment.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import Enum

PROXY, QOSD, CONTAINERD = "koord-runtime-proxy.service", "koord-qosd.service", "containerd.service"
BACK_S = 300.0
LOOK_S = 0.25


class Kind(Enum):
    KILL = "kill"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Fault:
    kind: Kind
    units: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind.value} {' + '.join(unit.removesuffix('.service') for unit in self.units)}"


_USUAL = ((PROXY,), (PROXY,), (PROXY,), (PROXY,), (QOSD,), (PROXY, QOSD), (CONTAINERD,))
_TOGETHER = ((PROXY, CONTAINERD), (QOSD, CONTAINERD), (PROXY, QOSD, CONTAINERD))


def dealt(chance: random.Random) -> Iterator[Fault]:
    """Faults without end: seven usual ones, one of several units with containerd and one SIGSTOP in each round."""
    together = itertools.cycle(chance.sample(_TOGETHER, len(_TOGETHER)))
    stopped = itertools.cycle(chance.sample((PROXY, QOSD, CONTAINERD), 3))
    while True:
        deck = [Fault(Kind.KILL, units) for units in (*_USUAL, next(together))]
        deck.append(Fault(Kind.STOP, (next(stopped),)))
        chance.shuffle(deck)
        for fault in deck:
            yield Fault(fault.kind, tuple(chance.sample(fault.units, len(fault.units))))


async def until(predicate: Callable[[], Awaitable[bool]], timeout_s: float | None = BACK_S) -> None:
    """Look until it holds; TimeoutError if it never does."""
    async with asyncio.timeout(timeout_s):
        while not await predicate():  # noqa: ASYNC110 - nothing tells of another process's state
            await asyncio.sleep(LOOK_S)


async def systemctl(*arguments: str) -> str:
    """Its output; a signal to a unit that has no process at the moment is no error."""
    process = await asyncio.create_subprocess_exec("systemctl", *arguments, stdout=asyncio.subprocess.PIPE)
    return (await process.communicate())[0].decode().strip()


async def signal(name: str, *units: str) -> None:
    """To the main processes only: containerd's shims, and what a draining proxy serves, live in the same cgroup."""
    await systemctl("kill", f"--signal={name}", "--kill-whom=main", *units)


async def main_pid(unit: str) -> int:
    return int(await systemctl("show", "--property=MainPID", "--value", unit))


async def active(*units: str) -> bool:
    return (await systemctl("is-active", *units)).split() == ["active"] * len(units)
