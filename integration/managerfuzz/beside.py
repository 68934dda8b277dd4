"""Repeats, in a process of its own, a call that an attack must not delay:
``python -m integration.managerfuzz.beside NAME`` of an attack. Prints the longest time, in seconds.

It waits for calls that have no answer when the attack ends; a call without an answer counts as ``PATIENCE_S``.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import aiohttp

from integration.managerfuzz import apiserver
from integration.managerfuzz.honest import review
from integration.managerfuzz.nodes import CERTIFICATE_REQUESTS
from integration.managerfuzz.target import Target, parsed
from koord.http2.client import UnaryError
from koord.http2.tlsclient import TLSClient
from koord.kube.clientkey import key_and_request
from koord.model.nodelink import NODE_GROUP, NODE_USER, SERVER_NAME
from koord.pb.koord import nodelink_pb2 as pb
from koord_manager.webhooks.judges import MUTATE_POD, VALIDATE_CONFIG_MAP
from qosd.cluster.nodelink import CALL_S
from tests.koord_manager.webhooks.rig import config_review

PATIENCE_S, _AGAIN_S = 20.0, 0.1
SOURCE = "127.0.1.2"
"""Another network than the attackers': reviews of ConfigMaps take turns by network."""
TOO_MANY_REQUESTS = 429
_MERGE = {"Content-Type": "application/merge-patch+json"}
_PROFILE = f"/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles/{apiserver.PROFILE_NAME}"
_POLICY = f"/api/v1/namespaces/{apiserver.NAMESPACE}/configmaps/{apiserver.CONFIG_MAP}"
_SLOS = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"


class Neighbour:
    """An honest client: a node that does not attack, or an API server that asks the webhooks."""

    def __init__(self, target: Target, session: aiohttp.ClientSession) -> None:
        self._target, self._session = target, session
        self._numbers = itertools.count(1)
        loop, context = asyncio.get_running_loop(), target.node_context(apiserver.OTHER)
        self._link = TLSClient("127.0.0.1", target.nodelink, context, SERVER_NAME, loop)

    async def evict(self) -> None:
        """Until the API server's answer is there, which is that a budget forbids it."""
        namespace, name, uid = apiserver.pod_of(apiserver.OTHER)
        message = pb.EvictPodRequest(namespace=namespace, name=name, uid=uid, reason="memory").SerializeToString()

        async def is_forbidden() -> bool:
            try:
                answer = await self._link.call("/koord.nodelink.v1.NodeLink/EvictPod", message, CALL_S)
            except UnaryError:
                return False
            return bool(pb.EvictPodAnswer.FromString(answer.message).status == TOO_MANY_REQUESTS)

        await _until(is_forbidden)

    async def be_certified(self) -> None:
        """From the request until the certificate is there."""
        request = key_and_request(f"{NODE_USER}{apiserver.OTHER}", NODE_GROUP)[1]
        name = f"other-{next(self._numbers)}"
        body = apiserver.request_of(apiserver.OTHER, name, base64.b64encode(request).decode())

        async def is_certified() -> bool:
            status = (await self._api("GET", f"{CERTIFICATE_REQUESTS}/{name}")).get("status", {})
            return "certificate" in status

        await self._api("POST", CERTIFICATE_REQUESTS, body)
        await _until(is_certified)
        await self._api("DELETE", f"{CERTIFICATE_REQUESTS}/{name}", {})

    async def change_policies(self) -> None:
        """From the changes of a profile and of the ConfigMap until a pod has the one and its nodes have the other."""
        number = next(self._numbers)
        value, percent = f"v{number}", 50 + number % 40
        await self._api("PATCH", _PROFILE, {"spec": {"labels": {apiserver.PROFILE_LABEL: value}}})
        await self._api("PATCH", _POLICY, {"data": apiserver.policy(percent)})

        async def has_profile() -> bool:
            return f'"{value}"' in await self._patch_of_a_pod()

        async def has_policy() -> bool:
            return all([await self._threshold(f"node-{index}") == percent for index in range(apiserver.FEW)])

        await _until(has_profile)
        await _until(has_policy)

    async def store_config_map(self) -> None:
        """Until it is allowed. An API server asks again after 503."""
        body = config_review(apiserver.policy(65))

        async def is_allowed() -> bool:
            answer = await self._review(VALIDATE_CONFIG_MAP, body)
            return bool(answer.get("response", {}).get("allowed"))

        await _until(is_allowed)

    async def _patch_of_a_pod(self) -> str:
        answer = await self._review(MUTATE_POD, review(0))
        return base64.b64decode(answer.get("response", {}).get("patch", "")).decode()

    async def _review(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        url = f"https://127.0.0.1:{self._target.webhooks}{path}?timeout=10s"
        try:
            async with self._session.post(url, json=body, server_hostname="localhost") as answer:
                found: dict[str, Any] = await answer.json(content_type=None) if answer.status == 200 else {}
        except (aiohttp.ClientError, TimeoutError, ValueError, OSError):
            return {}
        return found

    async def _threshold(self, node: str) -> int | None:
        spec = (await self._api("GET", f"{_SLOS}/{node}")).get("spec", {})
        percent: int | None = spec.get("resourceUsedThresholdWithBE", {}).get("cpuSuppressThresholdPercent")
        return percent

    async def _api(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        headers = _MERGE if method == "PATCH" else None
        url = self._target.api + path
        async with self._session.request(method, url, json=body, headers=headers) as answer:
            found: dict[str, Any] = await answer.json()
        return found


async def _until(is_so: Callable[[], Awaitable[bool]]) -> None:
    while True:
        if await is_so():
            return
        await asyncio.sleep(_AGAIN_S)


class Figure(NamedTuple):
    """``once``: what is to be done within ``most_s``, each ``each_s``; of a policy that each node is looked at for,
    operators write no more often than every few seconds."""

    name: str
    most_s: float
    once: Callable[[Neighbour], Awaitable[None]]
    each_s: float = 1.0


FIGURES = {
    "a node's 800 evictions": Figure("another node's eviction", 2.0, Neighbour.evict),
    "a node's 1,000 certificate requests": Figure("another node's certificate", 2.0, Neighbour.be_certified),
    "reviews in forged namespaces": Figure("a change of policies", 5.0, Neighbour.change_policies, 5.0),
    "reviews of long ConfigMaps": Figure("another ConfigMap's review", 5.0, Neighbour.store_config_map),
}
"""By attack. An API server waits ten seconds for a review of a ConfigMap; before it come half a second on the CPU of
somebody else's, which gives way to the manager, and a process that begins."""


async def longest_s(once: Callable[[], Awaitable[None]], each_s: float, end_s: float) -> float:
    """Of those that began until ``end_s``."""
    found_s = 0.0
    while (begun_s := time.monotonic()) < end_s:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await once()
        except TimeoutError:
            pass
        passed_s = time.monotonic() - begun_s
        found_s = max(found_s, passed_s)
        await asyncio.sleep(max(0.0, each_s - passed_s))
    return found_s


async def main() -> None:
    name, target = parsed("What somebody else wants while the manager is attacked.", FIGURES)
    connector = aiohttp.TCPConnector(ssl=False, local_addr=(SOURCE, 0))
    async with aiohttp.ClientSession(connector=connector) as session:
        neighbour = Neighbour(target, session)
        figure = FIGURES[name]
        print(await longest_s(lambda: figure.once(neighbour), figure.each_s, target.end_s), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
