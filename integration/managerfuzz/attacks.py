"""The attacks, one in a process: ``python -m integration.managerfuzz.attacks NAME``. They end after ``--seconds``.

A stranger has no credential; a node has a certificate, of a node that the cluster has, and speaks HTTP/2 as it likes.
All come from one address, which is no honest client's. Aimed at loopback alone.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import itertools
import json
import logging
import ssl
import struct
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from bench.nodelinkload import context as node_context
from integration.managerfuzz.honest import review
from koord.http2.frames import (
    DATA,
    DEFAULT_MAX_FRAME_BYTES,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    split,
)
from koord.http2.hpack import literal
from koord.http2.tlsclient import ALPN, TLSClient
from koord.kube.certificates import KeyPair
from koord.model.nodelink import SERVER_NAME, SIGNER
from koord.pb.koord import nodelink_pb2 as pb

SOURCE = "127.0.0.66"
ATTACKER = "node-0"
_PATH = "/koord.nodelink.v1.NodeLink/"
_PAUSE_S = 0.01


@dataclass
class Target:
    """Ports on loopback. ``ca``: signs the attacking node's certificate. ``api``: the URL of the API server."""

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


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Attack = Callable[[Target], Awaitable[None]]


async def opened(port: int, tls: ssl.SSLContext | None = None) -> Stream:
    name = SERVER_NAME if tls is not None else None
    return await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name, local_addr=(SOURCE, 0))


def anybody(protocol: str = "http/1.1") -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    made.set_alpn_protocols([protocol])
    return made


async def held(target: Target, port: int, count: int, tls: ssl.SSLContext | None, said: bytes, again_s: float) -> None:
    """``count`` connections, each of which says ``said`` from time to time and comes again when it is cut."""

    async def hold() -> None:
        while not target.is_over:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                reader, writer = await opened(port, tls)
                try:
                    while not target.is_over:
                        writer.write(said)
                        async with asyncio.timeout(again_s):
                            while await reader.read(1 << 16):
                                pass
                            break
                except TimeoutError:
                    pass
                finally:
                    writer.transport.abort()
            await asyncio.sleep(_PAUSE_S)

    await asyncio.gather(*[hold() for _ in range(count)])


# strangers


async def idle_webhooks(target: Target) -> None:
    await held(target, target.webhooks, 600, anybody(), b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 5.0)


async def slow_heads(target: Target) -> None:
    await held(target, target.webhooks, 560, anybody(), b"POST /mutate-pod HTTP/1.1\r\nX: ", 8.0)


async def slow_posts(target: Target) -> None:
    head = b"POST /mutate-pod HTTP/1.1\r\nHost: x\r\nContent-Length: 7000000\r\n\r\n{"
    await held(target, target.webhooks, 100, anybody(), head, 4.0)


async def idle_pages(target: Target) -> None:
    ports = target.metrics, target.health
    await asyncio.gather(*[held(target, port, 64, None, b"", 4.0) for port in ports])


async def handshakes(target: Target) -> None:
    """Connections to NodeLink that show no certificate."""
    await held(target, target.nodelink, 50, anybody(ALPN), PREFACE, 0.2)


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
    return posting(json.dumps(document, separators=(",", ":")).encode(), connections)


def empty_objects(count: int, connections: int) -> Attack:
    """Reviews that are many times as large in memory."""
    document = json.dumps(review(0)).encode()
    objects = b"[" + b",".join([b"{}"] * count) + b"]"
    return posting(document.replace(b'"spec": {', b'"spec": {"unheardOf": ' + objects + b", "), connections)


def posting(body: bytes, connections: int) -> Attack:
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


async def _posted(target: Target, count: int, bodies: Iterator[bytes] | list[bytes]) -> None:
    head = b"POST /mutate-pod?timeout=10s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: "
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
            await asyncio.sleep(_PAUSE_S)

    await asyncio.gather(*[post() for _ in range(count)])


# a node


def _call_head() -> bytes:
    pseudo = (b":method", b"POST"), (b":scheme", b"https"), (b":path", f"{_PATH}Report".encode()), (b":authority", b"x")
    return b"".join(literal(*each) for each in (*pseudo, (b"content-type", b"application/grpc"), (b"te", b"trailers")))


async def _proven(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Iterator[int]:
    """Makes one call, by which the manager knows the node. Returns the streams that follow. Raises OSError and
    TimeoutError."""
    call = frame(HEADERS, END_HEADERS, 1, _call_head()) + frame(DATA, END_STREAM, 1, bytes(5))
    writer.write(PREFACE + frame(SETTINGS, 0, 0, b"") + call)
    said = b""
    async with asyncio.timeout(5):
        while not any(each[1] & END_STREAM and each[2] == 1 for each in split(said, 0, DEFAULT_MAX_FRAME_BYTES)[0]):
            if not (more := await reader.read(1 << 16)):
                raise ConnectionResetError
            said += more
    return itertools.count(3, 2)


def _pings(streams: Iterator[int]) -> bytes:
    return frame(PING, 0, 0, b"12345678") * 1000


def _settings(streams: Iterator[int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"") * 1500


def _windows(streams: Iterator[int]) -> bytes:
    return frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)) * 1200


def _resets(streams: Iterator[int]) -> bytes:
    cancelled = struct.pack(">I", 8)
    numbers = [next(streams) for _ in range(200)]
    return b"".join(frame(HEADERS, END_HEADERS, n, _call_head()) + frame(RST_STREAM, 0, n, cancelled) for n in numbers)


def _empty_data(streams: Iterator[int]) -> bytes:
    number = next(streams)
    return frame(HEADERS, END_HEADERS, number, _call_head()) + frame(DATA, 0, number, b"") * 1500


def _large_heads(streams: Iterator[int]) -> bytes:
    number = next(streams)
    return frame(HEADERS, 0, number, b"".join(literal(b"x%d" % index, b"v") for index in range(1500))[:16_000])


def _unfinished(streams: Iterator[int]) -> bytes:
    number = next(streams)
    part = b"\0\0\x0f\xff\xff" + bytes(16_000)
    return frame(HEADERS, END_HEADERS, number, _call_head()) + frame(DATA, 0, number, part)


def flood(frames: Callable[[Iterator[int]], bytes], connections: int = 2) -> Attack:
    """One node's connections, each proven by a call, send ``frames`` as fast as they are taken; every other one reads
    no answer."""

    async def attack(target: Target) -> None:
        tls = node_context(ATTACKER, target.ca, target.ca.certificate)

        async def send(is_deaf: bool) -> None:
            while not target.is_over:
                with contextlib.suppress(OSError, TimeoutError):
                    reader, writer = await opened(target.nodelink, tls)
                    draining = None
                    try:
                        streams = await _proven(reader, writer)
                        draining = None if is_deaf else asyncio.create_task(_drained(reader))
                        while not target.is_over and not writer.is_closing():
                            writer.write(frames(streams))
                            async with asyncio.timeout(2):
                                await writer.drain()
                    finally:
                        if draining is not None:
                            draining.cancel()
                        writer.transport.abort()
                await asyncio.sleep(_PAUSE_S)

        await asyncio.gather(*[send(bool(number % 2)) for number in range(connections)])

    return attack


async def _drained(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        while await reader.read(1 << 16):
            pass


async def _called(target: Target, method: str, message: bytes, at_once: int) -> None:
    """The node's calls, so many at once, by connections of four each."""
    loop = asyncio.get_running_loop()
    tls = node_context(ATTACKER, target.ca, target.ca.certificate)

    async def call(link: TLSClient) -> None:
        while not target.is_over:
            with contextlib.suppress(Exception):  # a refusal is what it is to get
                await link.call(_PATH + method, message, 10.0)
            await asyncio.sleep(0)

    links = [TLSClient("127.0.0.1", target.nodelink, tls, SERVER_NAME, loop) for _ in range(max(1, at_once // 4))]
    async with asyncio.timeout(max(0.1, target.end_s - time.monotonic())):
        await asyncio.gather(*[call(link) for link in links for _ in range(4)])


async def many_connections(target: Target) -> None:
    """On each of which it has reported."""
    report = pb.NodeReport(node=ATTACKER, instance="i", sequence=1)
    await _called(target, "Report", report.SerializeToString(), 2000)


async def many_reports(target: Target) -> None:
    """Of as many empty pods as a message may have."""
    report = pb.NodeReport(node=ATTACKER, instance="i", sequence=1, pods=[pb.PodUsage()] * 30_000)
    await _called(target, "Report", report.SerializeToString(), 200)


async def many_evictions(target: Target) -> None:
    """Which a budget forbids."""
    request = pb.EvictPodRequest(namespace="shop", name="web-0", uid="u0", reason="x" * 30_000)
    await _called(target, "EvictPod", request.SerializeToString(), 800)


async def large_certificate_requests(target: Target) -> None:
    """As the API server takes them, which has no policy of ours before Kubernetes 1.30."""
    spec = {"request": base64.b64encode(b"x" * 600_000).decode(), "signerName": SIGNER, "usages": ["client auth"]}
    url = f"{target.api}/apis/certificates.k8s.io/v1/certificatesigningrequests"
    async with aiohttp.ClientSession() as session:
        for number in range(150):
            if target.is_over:
                return
            body = {"metadata": {"name": f"large-{number}"}, "spec": spec}
            with contextlib.suppress(aiohttp.ClientError):
                async with session.post(url, json=body):
                    pass


ATTACKS: dict[str, Attack] = {
    "handshakes without a certificate": handshakes,
    "silent connections to NodeLink": silent_nodelink,
    "unfinished handshakes with NodeLink": unfinished_handshakes,
    "600 idle webhook connections": idle_webhooks,
    "560 slow heads": slow_heads,
    "reviews of 250 containers": containers(250, 64),
    "reviews of 4,096 containers": containers(4096, 8),
    "reviews of 62,000 containers": containers(62_000, 8),
    "reviews of 2,000,000 empty objects": empty_objects(2_000_000, 8),
    "idle status connections": idle_pages,
    "reviews in forged namespaces": forged_reviews,
    "100 slow posts of 7 MB": slow_posts,
    "a node's PINGs": flood(_pings),
    "a node's SETTINGS": flood(_settings),
    "a node's WINDOW_UPDATEs": flood(_windows),
    "a node's resets": flood(_resets),
    "a node's empty DATA": flood(_empty_data),
    "a node's endless heads": flood(_large_heads),
    "a node's unfinished messages": flood(_unfinished, 200),
    "a node's 500 connections": many_connections,
    "a node's large reports": many_reports,
    "a node's 800 evictions": many_evictions,
    "a node's large certificate requests": large_certificate_requests,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="One attack on koord-manager.")
    parser.add_argument("name", choices=ATTACKS)
    for port in ("webhooks", "nodelink", "metrics", "health"):
        parser.add_argument(f"--{port}", type=int, required=True)
    parser.add_argument("--pki", type=Path, required=True, help="a directory with ca.key and ca.crt")
    parser.add_argument("--api", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    ca = KeyPair((options.pki / "ca.key").read_bytes(), (options.pki / "ca.crt").read_bytes())
    ports = options.webhooks, options.nodelink, options.metrics, options.health
    target = Target(*ports, ca, options.api, time.monotonic() + options.seconds)

    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # of each write to a connection that was cut

    async def run() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(options.seconds + 1):
                await ATTACKS[options.name](target)

    asyncio.run(run())


if __name__ == "__main__":
    main()
