"""An API server without sockets: certificate requests, the managers' Lease and their Secret.

Each request takes ``LATENCY_S``. Who requests a certificate is the one whose client it is. Lists come in pages, as they
are asked for, and what a list began with is kept for ``SNAPSHOT_S``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping
from typing import Any

from koord.kube.client import CallLimits, Client
from koord.kube.connections import Check
from koord.kube.errors import APIError
from koord.kube.ratelimit import RateLimit
from koord.kube.transport import HTTPRequest, Transport
from koord.model.nodelink import SIGNER
from tests.kube.server import JSONObject, merged

LATENCY_S = 0.02
BOOKMARK_S = 60.0
SNAPSHOT_S = 300.0
KEPT_S = 3600.0
"""A request that is answered is deleted then, as an API server's controllers do."""


class Watch:
    """What one watch is told."""

    def __init__(self, end_s: float) -> None:
        self._end_s, self._lines, self._told = end_s, deque[bytes](), asyncio.Event()
        self.version = "0"

    def tell(self, type_: str, stored: JSONObject) -> None:
        self.version = stored["metadata"]["resourceVersion"]
        self._lines.append(json.dumps({"type": type_, "object": stored}).encode() + b"\n")
        self._told.set()

    async def readany(self) -> bytes:
        loop = asyncio.get_running_loop()
        while not self._lines:
            left_s = self._end_s - loop.time()
            if left_s <= 0:
                return b""
            self._told.clear()
            try:
                async with asyncio.timeout(min(left_s, BOOKMARK_S)):
                    await self._told.wait()
            except TimeoutError:
                self.tell("BOOKMARK", {"metadata": {"resourceVersion": self.version}})
        lines = b"".join(self._lines)
        self._lines.clear()
        return lines


class Body:
    """An answer that has an end."""

    def __init__(self, document: JSONObject) -> None:
        self._parts = [json.dumps(document).encode(), b""]

    async def readany(self) -> bytes:
        return self._parts.pop(0)


class MemoryServer:
    """``lease``: what nodes read. ``per_second``: how many requests came, by the second. ``longest_page``: of lists."""

    def __init__(self) -> None:
        self.lease: JSONObject = {}
        self.requests: dict[str, JSONObject] = {}
        self.per_second: Counter[int] = Counter()
        self.longest_page = 0
        self._snapshots: dict[str, list[JSONObject]] = {}
        """What each list that is under way began with, by its version."""
        self._watches: dict[str, set[Watch]] = {}
        """By the name of the object that is watched, "" of all."""
        self._version = 1

    def client(self, qps: float, burst: int, who: Mapping[str, Any]) -> Client:
        """``who``: as the server knows him, in what he requests."""
        clock = asyncio.get_running_loop().time
        return Client(_MemoryTransport(self, who), CallLimits(RateLimit(qps, burst, clock)))

    def answer(self, who: Mapping[str, Any], request: HTTPRequest) -> JSONObject:
        """Raises APIError."""
        self.per_second[int(asyncio.get_running_loop().time())] += 1
        name, subresource = ([*request.path.split("certificatesigningrequests")[-1].split("/"), "", ""])[1:3]
        if "/leases/" in request.path:
            return self.lease
        body: Any = json.loads(request.body or b"{}")
        if request.method == "POST":
            return self._create(who, body)
        if not name:
            return self._list(request.query)
        stored = self.requests.get(name)
        if stored is None:
            raise APIError(404, "NotFound", name)
        if request.method == "GET":
            return stored
        if body["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"]:
            raise APIError(409, "Conflict", name)
        changed = self._write(merged(stored, {"status": body["status"]}), "MODIFIED")
        if subresource == "status":
            asyncio.get_running_loop().call_later(KEPT_S, self._delete, name)
        return changed

    def watch(self, request: HTTPRequest) -> tuple[str, Watch]:
        """Which, and what it is told. One begins with what it has missed."""
        self.per_second[int(asyncio.get_running_loop().time())] += 1
        name = request.query["fieldSelector"].partition("metadata.name=")[2]
        made = Watch(asyncio.get_running_loop().time() + float(request.query["timeoutSeconds"]))
        made.version = request.query["resourceVersion"] or "0"
        for stored in [self.requests[name]] if name in self.requests else self.requests.values():
            if int(stored["metadata"]["resourceVersion"]) > int(made.version):
                made.tell("MODIFIED", stored)
        if "sendInitialEvents" in request.query:
            metadata = {"resourceVersion": str(self._version), "annotations": {"k8s.io/initial-events-end": "true"}}
            made.tell("BOOKMARK", {"metadata": metadata})
        self._watches.setdefault(name, set()).add(made)
        return name, made

    def forget(self, name: str, watch: Watch) -> None:
        self._watches[name].discard(watch)
        if not self._watches[name]:
            del self._watches[name]

    def _list(self, query: Mapping[str, str]) -> JSONObject:
        """A token names the moment at which the list began, and where it goes on."""
        version, _, begin = query.get("continue", "").partition(" ")
        if not version:
            version, begin = str(self._version), "0"
            self._snapshots[version] = list(self.requests.values())
            asyncio.get_running_loop().call_later(SNAPSHOT_S, self._snapshots.pop, version, None)
        if version not in self._snapshots:
            raise APIError(410, "Expired", "the list began too long ago")
        end = int(begin) + int(query.get("limit", sys.maxsize))
        items, is_last = self._snapshots[version][int(begin) : end], end >= len(self._snapshots[version])
        self.longest_page = max(self.longest_page, len(items))
        return {
            "metadata": {"resourceVersion": version, "continue": "" if is_last else f"{version} {end}"},
            "items": items,
        }

    def _create(self, who: Mapping[str, Any], body: JSONObject) -> JSONObject:
        name = body["metadata"]["name"]
        if name in self.requests:
            raise APIError(409, "AlreadyExists", name)
        assert body["spec"]["signerName"] == SIGNER
        return self._write({"metadata": {"name": name, "uid": name}, "spec": {**body["spec"], **who}}, "ADDED")

    def _write(self, stored: JSONObject, type_: str) -> JSONObject:
        self._version += 1
        name = stored["metadata"]["name"]
        written = {**stored, "metadata": {**stored["metadata"], "resourceVersion": str(self._version)}}
        if type_ == "DELETED":
            del self.requests[name]
        else:
            self.requests[name] = written
        for watch in (*self._watches.get(name, ()), *self._watches.get("", ())):
            watch.tell(type_, written)
        return written

    def _delete(self, name: str) -> None:
        self._write(self.requests[name], "DELETED")


class _MemoryTransport(Transport):
    def __init__(self, server: MemoryServer, who: Mapping[str, Any]) -> None:
        self._server, self._who = server, who

    async def exchange(self, request: HTTPRequest, timeout_s: float, check: Check | None = None) -> bytes:
        if check is not None:
            check()
        await asyncio.sleep(LATENCY_S / 2)
        answer = json.dumps(self._server.answer(self._who, request)).encode()
        await asyncio.sleep(LATENCY_S / 2)
        return answer

    @contextlib.asynccontextmanager
    async def stream(  # type: ignore[override]  # what it yields is read as aiohttp's
        self, request: HTTPRequest, timeout_s: float
    ) -> AsyncIterator[Watch | Body]:
        await asyncio.sleep(LATENCY_S)
        if "watch" not in request.query:
            yield Body(self._server.answer(self._who, request))
            return
        name, watch = self._server.watch(request)
        try:
            yield watch
        finally:
            self._server.forget(name, watch)
