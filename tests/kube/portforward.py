"""Kubelet's end of a forwarded port, as its WebSocket handler speaks: a channel each for data and errors."""

from __future__ import annotations

import asyncio
import struct

from aiohttp import WSMsgType, web

_PROTOCOL = "v4.channel.k8s.io"


async def forward(request: web.Request, target_port: int, speaks: str = _PROTOCOL) -> web.StreamResponse:
    """Serves one connection; ``target_port``: of this machine, for whatever port is asked for. 0: nobody listens."""
    if request.headers.get("Accept", "*/*") != "*/*":
        return web.Response(status=406)
    port = int(request.query["ports"])
    messages = web.WebSocketResponse(protocols=(speaks,))
    await messages.prepare(request)
    for channel in (0, 1):
        await messages.send_bytes(bytes((channel,)) + struct.pack("<H", port))
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", target_port)
    except OSError as error:
        await messages.send_bytes(b"\x01" + f"an error occurred forwarding {port}: {error}".encode())
        await messages.close()
        return messages

    async def answer() -> None:
        while data := await reader.read(100):
            await messages.send_bytes(b"\x00" + data)
        await messages.close()

    answering = asyncio.create_task(answer())
    async for message in messages:
        if message.type is WSMsgType.BINARY and message.data[:1] == b"\x00":
            writer.write(message.data[1:])
    await answering
    writer.close()
    return messages
