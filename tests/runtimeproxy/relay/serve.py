"""The relay as a process of its own, so that a test can watch its memory and survive its death.

Usage: python -m tests.runtimeproxy.relay.serve LISTEN BACKEND; holds CreateContainer, whose verdict never comes.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import uvloop

from runtimeproxy.relay.server import RelayServer
from tests.runtimeproxy.relay.rig import holding, listening

HELD_BUDGET_BYTES = 8 << 20


async def serve(listen: Path, backend: str) -> None:
    relay = RelayServer(asyncio.get_running_loop(), backend, holding(bytes), held_budget_bytes=HELD_BUDGET_BYTES)
    relay.add_listener(listening(listen))
    print("serving", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(Path(sys.argv[1]), sys.argv[2]))
