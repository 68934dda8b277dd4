"""What takes seconds of CPU time: the largest messages, and many of them held at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.runtimeproxy.relay.endpoint import Tuning
from tests.runtimeproxy.relay.rig import CREATE, VERSION, holding, rigged, text

LIMIT_BYTES = 16 * 1024 * 1024


async def test_64_held_creates_of_1_mib_do_not_stop_a_version_call(tmp_path: Path) -> None:
    """The windows are 64 KiB, so the proxy must credit what it holds at once."""
    scripted = holding(lambda message: message[:-6] + b"edited")
    mib, usual = 1 << 20, Tuning(credit_batch=16_384)
    async with asyncio.timeout(25), rigged(tmp_path, scripted, client=usual, runtime=usual) as rig:
        held = [asyncio.create_task(rig.client.call(CREATE, text(mib, bytes([64 + n])))) for n in range(64)]
        await rig.client.endpoint.until(lambda: len(rig.server.streams) == 64)
        while len(scripted.asked) < 64:
            reply = await rig.client.call(VERSION, b"still there")
            assert reply.messages == [b"still there"]
        assert (await rig.client.call(VERSION, b"all held")).messages == [b"all held"]
        assert not any(task.done() for task in held)
        scripted.gate.set()
        for number, reply in enumerate(await asyncio.gather(*held)):
            assert reply.messages == [text(mib, bytes([64 + number]))[:-6] + b"edited"]


async def test_16_mib_both_ways(tmp_path: Path) -> None:
    scripted = holding(lambda message: b"e" + message[1:], opened=True)
    async with asyncio.timeout(15), rigged(tmp_path, scripted) as rig:
        message = text(LIMIT_BYTES)
        reply = await rig.client.call(CREATE, message)
        assert reply.messages == [b"e" + message[1:]]
        reply = await rig.client.call(VERSION, message)
        assert reply.messages == [message]
