"""The target, and the connections that attackers make: from one address, which is no honest client's, and only to
loopback."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.nodelinkload import context
from koord.model.nodelink import SERVER_NAME
from koord.tls.certificates import KeyPair

SOURCE = "127.0.0.66"
PAUSE_S = 0.01


@dataclass
class Target:
    """Ports on loopback. ``ca``: signs nodes' certificates. ``api``: the URL of the API server. ``end_s``: when the
    attack ends."""

    webhooks: int
    nodelink: int
    metrics: int
    health: int
    ca: KeyPair
    api: str
    end_s: float

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.end_s

    def node_context(self, node: str) -> ssl.SSLContext:
        return context(node, self.ca, self.ca.certificate)


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Attack = Callable[[Target], Awaitable[None]]


def parsed(description: str, names: Iterable[str]) -> tuple[str, Target]:
    """One of ``names``, and the target, from the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("name", choices=list(names))
    ports = "webhooks", "nodelink", "metrics", "health"
    for port in ports:
        parser.add_argument(f"--{port}", type=int, required=True)
    parser.add_argument("--pki", type=Path, required=True, help="a directory with ca.key and ca.crt")
    parser.add_argument("--api", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    ca = KeyPair((options.pki / "ca.key").read_bytes(), (options.pki / "ca.crt").read_bytes())
    end_s = time.monotonic() + options.seconds
    webhooks, nodelink, metrics, health = (getattr(options, port) for port in ports)
    return options.name, Target(webhooks, nodelink, metrics, health, ca, options.api, end_s)


async def opened(port: int, tls: ssl.SSLContext | None = None) -> Stream:
    name = SERVER_NAME if tls is not None else None
    return await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name, local_addr=(SOURCE, 0))


def anybody(protocol: str = "http/1.1") -> ssl.SSLContext:
    """Who shows no certificate, and looks at none."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    made.set_alpn_protocols([protocol])
    return made


async def held(target: Target, port: int, count: int, tls: ssl.SSLContext | None, said: bytes, again_s: float) -> None:
    """``count`` connections, each of which says ``said``, and comes again after ``again_s`` or when it is cut."""

    async def hold() -> None:
        while not target.is_over:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                reader, writer = await opened(port, tls)
                try:
                    writer.write(said)
                    async with asyncio.timeout(again_s):
                        while await reader.read(1 << 16):
                            pass
                finally:
                    writer.transport.abort()
            await asyncio.sleep(PAUSE_S)

    await asyncio.gather(*[hold() for _ in range(count)])
