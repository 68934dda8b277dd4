"""The unary client over TCP and TLS: a node's link to the manager.

Invariant: nothing is sent to a server whose certificate does not verify for ``server_name``. A connection that cannot
be made, in time or at all, is a `UnaryError` with UNAVAILABLE or DEADLINE_EXCEEDED, like every other failure.
"""

from __future__ import annotations

import asyncio
import ssl

from koord.http2.client import ClientLink, UnaryClient
from koord.http2.grpc import MAX_MESSAGE_BYTES

ALPN = "h2"


class TLSClient(UnaryClient):
    """``context``: with the authorities to trust, and the client's own certificate if it has one."""

    def __init__(
        self,
        host: str,
        port: int,
        context: ssl.SSLContext,
        server_name: str,
        loop: asyncio.AbstractEventLoop,
        max_answer_bytes: int = MAX_MESSAGE_BYTES,
        local_addr: tuple[str, int] | None = None,
    ) -> None:
        super().__init__(f"{host}:{port}", loop, max_answer_bytes=max_answer_bytes)
        self._host, self._port, self._context, self._server_name = host, port, context, server_name
        self._local_addr = local_addr

    @property
    def peer(self) -> str:
        """``host:port``."""
        return self._path

    async def connect(self) -> ClientLink:
        _, link = await self._loop.create_connection(
            lambda: ClientLink(self._loop, self._max_answer_bytes),
            self._host,
            self._port,
            ssl=self._context,
            server_hostname=self._server_name,
            local_addr=self._local_addr,
        )
        return link
