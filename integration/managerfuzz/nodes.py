"""Attacks of a node that calls as nodes do, only more."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import time
from dataclasses import replace
from typing import Any

import aiohttp

from integration.managerfuzz.apiserver import ATTACKER, pod_of, request_of
from integration.managerfuzz.target import SOURCE, Target
from koord.http2.tlsclient import TLSClient
from koord.kube.clientkey import key_and_request
from koord.model.nodelink import NODE_GROUP, NODE_USER, SERVER_NAME
from koord.pb.koord import nodelink_pb2 as pb

_PATH = "/koord.nodelink.v1.NodeLink/"
CERTIFICATE_REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


async def _called(target: Target, method: str, message: bytes, connections: int, calls: int = 4) -> None:
    """``calls`` at once on each connection, again and again."""
    loop = asyncio.get_running_loop()
    tls = target.node_context(ATTACKER)

    async def call(link: TLSClient) -> None:
        while not target.is_over:
            with contextlib.suppress(Exception):  # a refusal is what it is to get
                await link.call(_PATH + method, message, 10.0)
            await asyncio.sleep(0)

    links = [
        TLSClient("127.0.0.1", target.nodelink, tls, SERVER_NAME, loop, local_addr=(SOURCE, 0))
        for _ in range(connections)
    ]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.1, target.end_s - time.monotonic())):
            await asyncio.gather(*[call(link) for link in links for _ in range(calls)])
    for link in links:
        link.close()


async def many_connections(target: Target) -> None:
    """Opens 500 connections and reports on each."""
    report = pb.NodeReport(node=ATTACKER, instance="i", sequence=1)
    await _called(target, "Report", report.SerializeToString(), 500)


async def many_reports(target: Target) -> None:
    """Of as many empty pods as a message may have."""
    report = pb.NodeReport(node=ATTACKER, instance="i", sequence=1, pods=[pb.PodUsage()] * 30_000)
    await _called(target, "Report", report.SerializeToString(), 50)


async def many_evictions(target: Target) -> None:
    """Asks for evictions that a budget forbids: first on two connections, then on 200, where each new one cuts off an
    older one with its calls."""
    namespace, name, uid = pod_of(ATTACKER)
    request = pb.EvictPodRequest(namespace=namespace, name=name, uid=uid, reason="x" * 30_000).SerializeToString()
    middle_s = (time.monotonic() + target.end_s) / 2
    await _called(replace(target, end_s=middle_s), "EvictPod", request, 2, 400)
    await _called(target, "EvictPod", request, 200)


async def certificate_requests(target: Target) -> None:
    """Those that are signed, of which each tenth is as long as an API server takes that has no policy of ours, which
    needs Kubernetes 1.30."""
    large = base64.b64encode(b"x" * 600_000).decode()
    usual = base64.b64encode(key_and_request(f"{NODE_USER}{ATTACKER}", NODE_GROUP)[1]).decode()
    numbers = iter(range(1000))

    async def post(session: aiohttp.ClientSession) -> None:
        for number in numbers:
            if target.is_over:
                return
            body: dict[str, Any] = request_of(ATTACKER, f"flood-{number}", usual if number % 10 else large)
            with contextlib.suppress(aiohttp.ClientError):
                async with session.post(target.api + CERTIFICATE_REQUESTS, json=body):
                    pass

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*itertools.starmap(post, [(session,)] * 16))
