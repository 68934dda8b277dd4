"""Which sieges are laid when: a few at a time, each for as long as the others, all of them where the time suffices.

All at once would only take the proxy's CPU time from each other; one alone shows best what it does, and is what
``SIEGE=`` is for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from random import Random

from integration.fuzz.hookfiles import good
from integration.fuzz.sieges import SIEGES, lay

TOGETHER = 3
SHORTEST_S = 3.0
Work = Callable[[], Coroutine[None, None, None]]


def works(proxy: Path, hook_files: Path, floods: Mapping[str, Path], sent: Counter[str]) -> dict[str, Work]:
    """Every siege by name, and every flooding hook server (``floods``: name, socket); bytes are added to ``sent``."""

    def add(name: str, size: int) -> None:
        sent[name] += size

    by_clients: dict[str, Work] = {each.name: partial(lay, proxy, each, partial(add, each.name)) for each in SIEGES}
    by_servers: dict[str, Work] = {
        f"hook server: {name}": partial(_let_flood, hook_files / f"flood-{name.replace(' ', '-')}.json", socket)
        for name, socket in floods.items()
    }
    return {**by_clients, **by_servers}


async def _let_flood(file: Path, socket: Path) -> None:
    """The proxy knows the hook server for as long as this goes on."""
    await asyncio.to_thread(file.write_text, json.dumps(good(socket, ["PreCreateContainer"])))
    try:
        await asyncio.Event().wait()
    finally:
        os.unlink(file)


async def in_shifts(all_works: Mapping[str, Work], chance: Random, seconds: float, laid: Callable[[str], None]) -> None:
    """``TOGETHER`` of them at a time, dealt by ``chance``; ``laid`` is told their names. Takes ``seconds``."""
    names = sorted(all_works)
    chance.shuffle(names)
    groups = [names[n : n + TOGETHER] for n in range(0, len(names), TOGETHER)]
    while groups and len(groups) * SHORTEST_S > max(seconds, SHORTEST_S):
        groups.pop()
    for cgroup in groups:
        for name in cgroup:
            laid(name)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds / len(groups)), asyncio.TaskGroup() as running:
                for name in cgroup:
                    running.create_task(all_works[name]())
