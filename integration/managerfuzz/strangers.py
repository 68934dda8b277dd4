"""Attacks of strangers, who have no credential."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import ssl
import time
from collections.abc import Iterator

from integration.managerfuzz.honest import review
from integration.managerfuzz.target import PAUSE_S, Attack, Target, anybody, held, opened
from koord.http2.frames import PREFACE, SETTINGS, frame
from koord.http2.tlsclient import ALPN
from koord.model.nodelink import SERVER_NAME
from koord_manager.webhooks.judges import MUTATE_POD, VALIDATE_CONFIG_MAP
from tests.koord_manager.webhooks.rig import config_review, many_pairs


async def idle_webhooks(target: Target) -> None:
    await held(target, target.webhooks, 600, anybody(), b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 5.0)


async def slow_heads(target: Target) -> None:
    await held(target, target.webhooks, 560, anybody(), b"POST /mutate-pod HTTP/1.1\r\nX: ", 8.0)


async def slow_posts(target: Target) -> None:
    head = b"POST /mutate-pod HTTP/1.1\r\nHost: x\r\nContent-Length: 7000000\r\n\r\n{"
    await held(target, target.webhooks, 100, anybody(), head, 4.0)


async def status_pages(target: Target) -> None:
    """Of both ports, half of the connections send a head that never ends, and half send nothing."""
    ports, said = (target.metrics, target.health), (b"GET /x", b"")
    await asyncio.gather(*[held(target, port, 32, None, each, 6.0) for port in ports for each in said])


async def handshakes(target: Target) -> None:
    """Connections to NodeLink that show no certificate, and send frames at once."""
    await held(target, target.nodelink, 50, anybody(ALPN), PREFACE + frame(SETTINGS, 0, 0) * 20_000, 0.2)


async def silent_nodelink(target: Target) -> None:
    await held(target, target.nodelink, 6000, None, b"", 20.0)


async def unfinished_handshakes(target: Target) -> None:
    await held(target, target.nodelink, 6000, None, _hello(), 20.0)


def _hello() -> bytes:
    """What a handshake begins with."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        anybody(ALPN).wrap_bio(incoming, outgoing, server_hostname=SERVER_NAME).do_handshake()
    return outgoing.read()


def containers(count: int, connections: int) -> Attack:
    """Reviews of a pod with so many."""
    document = review(0)
    listed = [{"name": f"c{number}", "resources": {"requests": {"cpu": "1"}}} for number in range(count)]
    document["request"]["object"]["spec"]["containers"] = listed  # type: ignore[index]
    return _posting(json.dumps(document, separators=(",", ":")).encode(), connections)


def empty_objects(count: int, connections: int) -> Attack:
    """Reviews that are many times as large in memory."""
    document = json.dumps(review(0)).encode()
    objects = b"[" + b",".join([b"{}"] * count) + b"]"
    return _posting(document.replace(b'"spec": {', b'"spec": {"unheardOf": ' + objects + b", "), connections)


def _posting(body: bytes, connections: int) -> Attack:
    async def attack(target: Target) -> None:
        await _posted(target, connections, [body])

    return attack


async def forged_reviews(target: Target) -> None:
    """Of namespaces that there are not."""

    def bodies() -> Iterator[bytes]:
        for number in itertools.count():
            document = review(number)
            document["request"]["namespace"] = f"nowhere-{number}"  # type: ignore[index]
            yield json.dumps(document).encode()

    await _posted(target, 64, bodies())


async def config_maps(target: Target) -> None:
    """Reviews of the kind whose rules take longest."""
    await _posted(target, 8, [json.dumps(config_review(many_pairs())).encode()], VALIDATE_CONFIG_MAP)


async def _posted(target: Target, count: int, bodies: Iterator[bytes] | list[bytes], path: str = MUTATE_POD) -> None:
    head = f"POST {path}?timeout=10s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: ".encode()
    endless = itertools.cycle(bodies) if isinstance(bodies, list) else bodies
    tls = anybody()

    async def post() -> None:
        while not target.is_over:
            body = next(endless)
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(max(0.1, target.end_s - time.monotonic())):
                    reader, writer = await opened(target.webhooks, tls)
                    writer.write(head + b"%d\r\n\r\n" % len(body) + body)
                    while await reader.read(1 << 16):
                        pass
                    writer.transport.abort()
            await asyncio.sleep(PAUSE_S)

    await asyncio.gather(*[post() for _ in range(count)])
