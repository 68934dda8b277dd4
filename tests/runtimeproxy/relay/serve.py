"""The relay as a process of its own, so that a test can watch its memory and survive its death.

It holds CreateContainer, whose verdict never comes.
"""

from __future__ import annotations

import asyncio
from multiprocessing.connection import Connection
from pathlib import Path

import uvloop

from runtimeproxy.relay.server import RelayServer
from tests.runtimeproxy.relay.rig import holding, listening

HELD_BUDGET_BYTES = 8 << 20


def run(listen: Path, backend: Path, serving: Connection) -> None:
    """Serve for ever; ``serving`` hears so."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(listen, str(backend), serving))


async def _serve(listen: Path, backend: str, serving: Connection) -> None:
    relay = RelayServer(asyncio.get_running_loop(), backend, holding(bytes), held_budget_bytes=HELD_BUDGET_BYTES)
    relay.add_listener(listening(listen))
    serving.send(None)
    await asyncio.Event().wait()
