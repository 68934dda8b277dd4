"""An API server in memory, on a real socket: lists in pages, watches with bookmarks, conflicts, and every way to fail.

It knows no kinds: what a URL names is a collection. ``faults`` are met by the next requests of their verb, in order; a
watch that is to begin with a list is of the verb "stream". Lists of ``resourceVersion=0`` are what ``cache`` has, in
one piece, and those not older than a version wait for nothing: a cache that is older refuses them.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import ssl
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

JSONObject = dict[str, Any]
Collection = tuple[str, str]

_PATH = re.compile(
    r"(?P<root>/api/v1|/apis/[^/]+/[^/]+)(/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<plural>[^/]+)(/(?P<name>[^/]+))?(/(?P<subresource>[^/]+))?"
)


@dataclass(frozen=True)
class Fault:
    """What happens to the next request of ``verb`` instead of the right thing, or to the right answer.

    ``status``: an error with ``reason``, ``headers`` and ``body`` (or a Status of its own making); ``cut``: the
    connection ends after so many bytes of the answer's body; ``hang``: no answer; ``until``: none before that is set;
    ``drop``: the connection ends without one, after the work was done if ``done``; ``silent``: a watch without events
    and bookmarks; ``line``: what a watch says first.
    """

    verb: str
    status: int = 0
    reason: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    cut: int | None = None
    hang: bool = False
    until: asyncio.Event | None = None
    drop: bool = False
    done: bool = False
    silent: bool = False
    line: bytes = b""


@dataclass(frozen=True)
class Change:
    version: int
    collection: Collection
    before: JSONObject | None
    after: JSONObject | None


class Refused(Exception):
    def __init__(self, status: int, reason: str, message: str = "", details: Any = None) -> None:
        self.status, self.reason, self.message, self.details = status, reason, message, details


def status_of(code: int, reason: str, message: str = "", details: Any = None) -> JSONObject:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return body | {"message": message or f"the server says {reason}"} | ({"details": details} if details else {})


class Server:
    def __init__(self, bookmark_s: float = 0.05, streams_lists: bool = False) -> None:
        """``streams_lists``: can watches begin with a list, or is that refused?"""
        self.bookmark_s, self.streams_lists = bookmark_s, streams_lists
        self.cache: tuple[int, list[JSONObject]] | None = None
        """What lists from the cache are of, while that is not the newest: a version, and the objects."""
        self.version = 100
        self.compacted = 0
        self.objects: dict[Collection, dict[tuple[str, str], JSONObject]] = {}
        self.history: list[Change] = []
        self.snapshots: dict[tuple[Collection, int], list[JSONObject]] = {}
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str, dict[str, str], dict[str, str]]] = []
        self.protected: set[str] = set()
        self.absent: set[Collection] = set()
        """The server does not know these."""
        self.tokens: set[str] | None = None
        self.forwards: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
        """Serves ``portforward`` of pods."""
        self.url = ""
        self._changed = asyncio.Event()
        self._watches: set[asyncio.Transport] = set()

    # what tests say

    def put(self, path: str, namespace: str, name: str, **members: Any) -> JSONObject:
        """Creates or replaces: ``path`` is that of a collection over all namespaces."""
        metadata = members.pop("metadata", {}) | {"name": name} | ({"namespace": namespace} if namespace else {})
        return self.write(_collection(path), (namespace, name), {"metadata": metadata, **members})

    def write(self, collection: Collection, key: tuple[str, str], value: JSONObject | None) -> JSONObject:
        """``value`` None deletes. Returns the object as it is now, or was at last."""
        objects = self.objects.setdefault(collection, {})
        before = objects.get(key)
        self.version += 1
        stamped = deepcopy(value if value is not None else before) or {}
        metadata = stamped["metadata"]
        metadata["resourceVersion"] = str(self.version)
        metadata.setdefault("uid", before["metadata"]["uid"] if before else f"uid-{self.version}")
        if value is None:
            del objects[key]
            self.history.append(Change(self.version, collection, stamped, None))
        else:
            objects[key] = stamped
            self.history.append(Change(self.version, collection, before, stamped))
        self._changed.set()
        return stamped

    def delete(self, path: str, namespace: str, name: str) -> None:
        self.write(_collection(path), (namespace, name), None)

    def compact(self) -> None:
        """Forgets the past: earlier resource versions are expired from here on."""
        self.version += 1
        self.compacted = self.version
        self.history.clear()
        self.snapshots.clear()

    def stop_cache(self, path: str) -> None:
        """Lists from the cache are as things are now, until ``cache`` is None again."""
        self.cache = self.version, list(self.objects.get(_collection(path), {}).values())

    def cut_watches(self) -> None:
        for transport in list(self._watches):
            transport.close()

    def count(self, verb: str) -> int:
        return sum(requested == verb for requested, *_ in self.requests)

    # HTTP

    @asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[str]:
        application = web.Application(client_max_size=1 << 24)
        application.router.add_route("*", "/{path:.*}", self._serve)
        silent = logging.Logger("aiohttp.server", logging.CRITICAL + 1)  # it takes a cut connection for a mistake
        runner = web.AppRunner(application, shutdown_timeout=0.01, access_log=None, logger=silent)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls)
        await site.start()
        port = runner.addresses[0][1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        try:
            yield self.url
        finally:
            await runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        matched = _PATH.fullmatch(request.path)
        if matched is None:
            return web.json_response({"path": request.path})
        verb = _verb(request, matched)
        self.requests.append((verb, request.path, dict(request.query), dict(request.headers)))
        fault = next((fault for fault in self.faults if fault.verb in (verb, "any")), None)
        if fault is not None:
            self.faults.remove(fault)
        if self.tokens is not None and request.headers.get("Authorization", "")[7:] not in self.tokens:
            return web.json_response(status_of(401, "Unauthorized"), status=401)
        fault = fault or Fault(verb)
        if fault.hang:
            await asyncio.sleep(3600)
        if fault.until is not None:
            await fault.until.wait()
        if fault.status:
            body = json.dumps(status_of(fault.status, fault.reason)).encode() if fault.body is None else fault.body
            return web.Response(status=fault.status, body=body, headers=fault.headers)
        if fault.drop and not fault.done:
            return _dropped(request)
        if matched["subresource"] == "portforward" and self.forwards is not None:
            return await self.forwards(request)
        try:
            if (matched["root"], matched["plural"]) in self.absent:
                raise Refused(404, "NotFound", "the server could not find the requested resource")
            if verb in ("watch", "stream"):
                return await self._watch(request, matched, fault)
            answer = json.dumps(await self._answer(verb, request, matched), separators=(",", ":")).encode()
        except Refused as refused:
            refusal = status_of(refused.status, refused.reason, refused.message, refused.details)
            return web.json_response(refusal, status=refused.status)
        if fault.drop:
            return _dropped(request)
        if fault.cut is not None:
            return await _cut(request, answer, fault.cut)
        return web.Response(body=fault.body or answer, content_type="application/json")

    async def _answer(self, verb: str, request: web.Request, matched: re.Match[str]) -> JSONObject:
        collection: Collection = (matched["root"], matched["plural"])
        key = (matched["namespace"] or "", matched["name"] or "")
        if verb == "list":
            return self._list(collection, matched["namespace"], request.query)
        if verb == "create":
            return self._create(collection, key[0], await request.json())
        objects = self.objects.get(collection, {})
        if key not in objects:
            raise Refused(404, "NotFound", f'{key[1]} "{collection[1]}" not found')
        current = objects[key]
        if verb == "get":
            return current
        body = await request.json() if request.can_read_body else {}
        if verb == "evict":
            return self._evict(collection, key, body)
        if verb == "bind":
            return self._bind(collection, key, body)
        if verb == "delete":
            _require(body.get("preconditions", {}), current)
            return self.write(collection, key, None)
        _require(body.get("metadata", {}), current)
        changed = body if verb == "replace" else merged(current, body)
        return self.write(collection, key, changed)

    def _create(self, collection: Collection, namespace: str, body: JSONObject) -> JSONObject:
        key = (namespace, body["metadata"]["name"])
        if key in self.objects.get(collection, {}):
            raise Refused(409, "AlreadyExists", f"{key[1]} already exists")
        return self.write(collection, key, body)

    def _evict(self, collection: Collection, key: tuple[str, str], body: JSONObject) -> JSONObject:
        if key[1] in self.protected:
            details = {"causes": [{"reason": "DisruptionBudget", "message": "needs 2 pods"}]}
            raise Refused(429, "TooManyRequests", "Cannot evict pod", details)
        _require(body.get("deleteOptions", {}).get("preconditions", {}), self.objects[collection][key])
        return self.write(collection, key, None)

    def _bind(self, collection: Collection, key: tuple[str, str], body: JSONObject) -> JSONObject:
        pod = deepcopy(self.objects[collection][key])
        failed = f'Operation cannot be fulfilled on pods/binding "{key[1]}"'
        uid, node = body["metadata"].get("uid"), pod.get("spec", {}).get("nodeName")
        if uid and uid != pod["metadata"]["uid"]:
            raise Refused(409, "Conflict", f"Precondition failed: UID in precondition: {uid}")
        if node:
            raise Refused(409, "Conflict", f'{failed}: pod {key[1]} is already assigned to node "{node}"')
        pod.setdefault("spec", {})["nodeName"] = body["target"]["name"]
        self.write(collection, key, pod)
        return {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}

    def _list(self, collection: Collection, namespace: str | None, query: Mapping[str, str]) -> JSONObject:
        start, version = 0, self.version
        if "continue" not in query and query.get("resourceVersion"):
            return self._cached_list(collection, namespace, query)
        if token := query.get("continue"):
            version, start = json.loads(base64.b64decode(token))
            if (collection, version) not in self.snapshots:
                raise Refused(410, "Expired", "The provided continue parameter is too old")
        else:
            objects = self.objects.get(collection, {})
            found = [objects[key] for key in sorted(objects) if namespace in (None, key[0])]
            self.snapshots[collection, version] = [value for value in found if _selects(query, value)]
        limit = int(query.get("limit", 0))
        items = self.snapshots[collection, version][start : start + limit if limit else None]
        end = start + len(items)
        rest = base64.b64encode(json.dumps([version, end]).encode()).decode()
        more = rest if end < len(self.snapshots[collection, version]) else ""
        return {"kind": "List", "metadata": {"resourceVersion": str(version), "continue": more}, "items": items}

    def _cached_list(self, collection: Collection, namespace: str | None, query: Mapping[str, str]) -> JSONObject:
        objects = self.objects.get(collection, {})
        version, items = self.cache or (self.version, [objects[key] for key in sorted(objects)])
        least = int(query["resourceVersion"])
        if least > version:
            raise Refused(504, "Timeout", f"Too large resource version: {least}, current: {version}")
        found = [
            each for each in items
            if namespace in (None, each["metadata"].get("namespace", "")) and _selects(query, each)
        ]  # fmt: skip
        return {"kind": "List", "metadata": {"resourceVersion": str(version)}, "items": found}

    async def _watch(self, request: web.Request, matched: re.Match[str], fault: Fault) -> web.StreamResponse:
        begins_with_list = request.query.get("sendInitialEvents") == "true"
        if begins_with_list and not self.streams_lists:
            raise Refused(422, "Invalid", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch")
        position = int(request.query["resourceVersion"] or self.version)
        if position < self.compacted and not begins_with_list:
            raise Refused(410, "Expired", f"too old resource version: {position}")
        if position > self.version:
            raise Refused(504, "Timeout", f"Too large resource version: {position}, current: {self.version}")
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        transport = request.transport
        assert transport is not None
        self._watches.add(transport)
        out = _Limited(request, answer, fault.cut)
        try:
            if fault.line:
                await out.write(fault.line)
            async with asyncio.timeout(float(request.query["timeoutSeconds"])):
                if fault.silent:
                    await asyncio.Event().wait()
                if begins_with_list:
                    position = await self._tell_list(out, (matched["root"], matched["plural"]), request.query)
                await self._tell(out, (matched["root"], matched["plural"]), request.query, position)
        except TimeoutError:
            await answer.write_eof()
        except ConnectionResetError:
            pass
        finally:
            self._watches.discard(transport)
        return answer

    async def _tell_list(self, out: _Limited, collection: Collection, query: Mapping[str, str]) -> int:
        """The version that it is of."""
        version, objects = self.version, dict(self.objects.get(collection, {}))
        for value in objects.values():
            if _selects(query, value):
                await out.write(json.dumps({"type": "ADDED", "object": value}, separators=(",", ":")).encode() + b"\n")
        metadata = {"resourceVersion": str(version), "annotations": {"k8s.io/initial-events-end": "true"}}
        await out.write(json.dumps({"type": "BOOKMARK", "object": {"metadata": metadata}}).encode() + b"\n")
        return version

    async def _tell(self, out: _Limited, collection: Collection, query: Mapping[str, str], position: int) -> None:
        while True:
            self._changed.clear()
            first = bisect_right(self.history, position, key=lambda each: each.version)
            for change in self.history[first:]:
                position = change.version
                if change.collection == collection and (line := _line(query, change)):
                    await out.write(line)
            try:
                async with asyncio.timeout(self.bookmark_s):
                    await self._changed.wait()
            except TimeoutError:
                if not self.history or self.history[-1].version <= position:
                    position = max(position, self.version)
                    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(position)}}}
                    await out.write(json.dumps(bookmark).encode() + b"\n")


class _Limited:
    """Writes to an answer that may be cut after so many bytes."""

    def __init__(self, request: web.Request, answer: web.StreamResponse, cut: int | None) -> None:
        self._request, self._answer, self._left = request, answer, cut

    async def write(self, data: bytes) -> None:
        if self._left is None:
            await self._answer.write(data)
            return
        part = data[: self._left]
        self._left -= len(part)
        if part:
            await self._answer.write(part)
        if not self._left:
            assert self._request.transport is not None
            self._request.transport.close()
            raise ConnectionResetError


def merged(current: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(current) if isinstance(current, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def _verb(request: web.Request, matched: re.Match[str]) -> str:
    if matched["subresource"] in ("eviction", "binding"):
        return {"eviction": "evict", "binding": "bind"}[matched["subresource"]]
    if request.method == "GET" and not matched["name"]:
        if request.query.get("sendInitialEvents") == "true":
            return "stream"
        return "watch" if request.query.get("watch") == "true" else "list"
    return {"GET": "get", "POST": "create", "PUT": "replace", "PATCH": "patch", "DELETE": "delete"}[request.method]


def _collection(path: str) -> Collection:
    root, _, plural = path.rpartition("/")
    return root, plural


def _require(conditions: JSONObject, current: JSONObject) -> None:
    for name in ("uid", "resourceVersion"):
        if name in conditions and conditions[name] != current["metadata"][name]:
            raise Refused(409, "Conflict", "the object has been modified")


def _selects(query: Mapping[str, str], value: JSONObject | None) -> bool:
    if value is None:
        return False
    labels = value["metadata"].get("labels", {})
    fields = {
        "spec.nodeName": value.get("spec", {}).get("nodeName", ""),
        "metadata.name": value["metadata"]["name"],
        "status.phase": value.get("status", {}).get("phase", ""),
        "spec.signerName": value.get("spec", {}).get("signerName", ""),
        "involvedObject.kind": value.get("involvedObject", {}).get("kind", ""),
    }
    for member, values in (("labelSelector", labels), ("fieldSelector", fields)):
        for part in filter(None, query.get(member, "").split(",")):
            name, _, text = part.partition("=")
            if values.get(name) != text:
                return False
    return True


def _line(query: Mapping[str, str], change: Change) -> bytes:
    was, now = _selects(query, change.before), _selects(query, change.after)
    if not was and not now:
        return b""
    word = "DELETED" if not now else "MODIFIED" if was else "ADDED"
    value = deepcopy(change.after if now else change.before) or {}
    value["metadata"]["resourceVersion"] = str(change.version)
    return json.dumps({"type": word, "object": value}).encode() + b"\n"


def _dropped(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


async def _cut(request: web.Request, body: bytes, after: int) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Length": str(len(body))})
    await answer.prepare(request)
    await answer.write(body[:after])
    assert request.transport is not None
    request.transport.close()
    return answer
