"""The parts of an answer that goes on, the lines of a watch above all, and a limit to how long none may come.

Invariant: what was cut off at the end of a stream is never taken for a line, and ends it without an error: whoever
watches goes on from the last resource version in either case.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from koord.kube.errors import BadAnswer, Stalled

MAX_LINE_BYTES = 32 << 20
"""An object has 1.5 MiB at most by default; more is no line, and never held."""

Read = Callable[[], Awaitable[bytes]]
"""``aiohttp.StreamReader.readany``: the bytes that have come; b"" at the end."""


async def next_chunk(read: Read, stall_s: float) -> bytes:
    """Returns the next bytes of an answer; b"" at its end. Raises Stalled, and what ``read`` raises."""
    try:
        async with asyncio.timeout(stall_s):
            return await read()
    except TimeoutError as error:
        raise Stalled(stall_s) from error


async def lines(read: Read, stall_s: float) -> AsyncGenerator[bytes, None]:
    """Yields each line without its end. Raises Stalled or BadAnswer, and what ``read`` raises."""
    buffer, searched = bytearray(), 0
    while chunk := await next_chunk(read, stall_s):
        buffer += chunk
        begin = 0
        while (end := buffer.find(b"\n", max(begin, searched))) >= 0:
            if end > begin:
                yield bytes(buffer[begin:end])
            begin = end + 1
        del buffer[:begin]
        searched = len(buffer)
        if searched > MAX_LINE_BYTES:
            raise BadAnswer(f"a line of a watch has more than {MAX_LINE_BYTES} bytes")
