"""Serves a unary gRPC server on a unix socket for as long as a block lasts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from koord.http2.server import UnaryServer
from koord.service import unixsocket


@asynccontextmanager
async def listening(path: Path, mode: int, server: UnaryServer) -> AsyncIterator[None]:
    """Serves on ``path``, with the permissions ``mode``. Raises SocketTaken or OSError."""
    unixsocket.prepare(path)
    with unixsocket.permissions(mode):
        listener = await asyncio.get_running_loop().create_unix_server(server.protocol, str(path))
    try:
        yield
    finally:
        listener.close()
        server.close()
