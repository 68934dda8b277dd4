"""An API server without sockets or a clock of its own: objects, watches and requests, whose answers the driver gives.

A request waits in ``calls`` until the driver has it carried out, answered, or lost; one that its client gave up may be
carried out until ``deadline_s`` of its sending. A watch says nothing until the driver lets it, each by itself. What the
server does with a request is what kube-apiserver does: versions, preconditions, bindings, graceful deletion.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from koord.kube.connections import Check
from koord.kube.errors import APIError, Unreachable
from koord.kube.transport import HTTPRequest, Transport
from tests.kube.server import merged
from tests.support.simloop import SimLoop

Document = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name."""

PODS, NODES, NAMESPACES = "/api/v1/pods", "/api/v1/nodes", "/api/v1/namespaces"
CLAIMS, VOLUMES = "/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
SERVICES, REPLICA_SETS = "/api/v1/services", "/apis/apps/v1/replicasets"
POD_GROUPS = "/apis/scheduling.sigs.k8s.io/v1alpha1/podgroups"
LEASES = "/apis/coordination.k8s.io/v1/leases"
_PATH = re.compile(
    r"(?P<root>/api/v1|/apis/[^/]+/[^/]+)(/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<plural>[^/]+)(/(?P<name>[^/]+))?(/(?P<subresource>[^/]+))?"
)
_SUCCESS = {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}


class Change(NamedTuple):
    """``document``: as it is now, or was at last; ``json``: that."""

    version: int
    word: str
    key: Key
    document: Document
    json: bytes


@dataclass(slots=True)
class Collection:
    """``log``: the changes since ``compacted``. ``old``: what a cache that is behind has, with its version."""

    objects: dict[Key, Change] = field(default_factory=dict)
    log: list[Change] = field(default_factory=list)
    compacted: int = 0
    old: tuple[int, list[bytes]] | None = None


@dataclass(eq=False, slots=True)
class Sender:
    """A process: ``sent`` is called with each request of it before the server has it."""

    name: str
    sent: Callable[[Call], None]
    is_alive: bool = True


@dataclass(eq=False, slots=True)
class Call:
    """``carried_out``: whether it was, with effect or not. ``result``: what it came to then; None: nothing yet."""

    sender: Sender
    request: HTTPRequest
    sent_s: float
    deadline_s: float
    answer: asyncio.Future[bytes]
    carried_out: bool = False
    result: bytes | APIError | None = None

    @property
    def is_awaited(self) -> bool:
        return not self.answer.done()

    @property
    def is_bind(self) -> bool:
        return self.request.path.endswith("/binding")


class Watch:
    """``position``: how far the driver has let it say what the collection's log has."""

    def __init__(self, sender: Sender, path: str, version: int) -> None:
        self.sender, self.path, self.version = sender, path, version
        self._lines, self._told = deque[bytes](), asyncio.Event()
        self.is_over = False
        self.last: bytes = b""

    def tell(self, line: bytes) -> None:
        self._lines.append(line)
        self._told.set()

    def end(self, *, is_broken: bool = False) -> None:
        self.is_over = True
        self._is_broken = is_broken
        self._told.set()

    async def readany(self) -> bytes:
        while not self._lines:
            if self.is_over:
                if self._is_broken:
                    raise Unreachable("the connection broke", may_have_arrived=True)
                return b""
            self._told.clear()
            await self._told.wait()
        lines = b"".join(self._lines)
        self._lines.clear()
        return lines


class _Body:
    def __init__(self, whole: bytes) -> None:
        self._parts = [whole, b""]

    async def readany(self) -> bytes:
        return self._parts.pop(0)


class APIServer:
    """``refuses``: asked of each list and watch for the error that it meets; None: none.

    ``streams_lists``: can watches begin with a list, or is that refused?
    """

    def __init__(self, loop: SimLoop, refuses: Callable[[], Exception | None], streams_lists: bool) -> None:
        self.loop, self._refuses, self._streams_lists = loop, refuses, streams_lists
        self.version = 100
        self.collections: dict[str, Collection] = {}
        self.calls: list[Call] = []
        self.watches: list[Watch] = []
        self.uids = 0
        self.bound: Callable[[Call, Document], None] = lambda call, pod: None
        """Called with each binding that was carried out with effect, and the pod; the driver's to set."""

    # objects

    def collection(self, path: str) -> Collection:
        found = self.collections.get(path)
        if found is None:
            found = self.collections[path] = Collection()
        return found

    def documents(self, path: str) -> list[Document]:
        return [each.document for each in self.collection(path).objects.values()]

    def get(self, path: str, key: Key) -> Document | None:
        found = self.collection(path).objects.get(key)
        return None if found is None else found.document

    def put(self, path: str, document: Document) -> Document:
        """Creates or replaces."""
        metadata = document["metadata"]
        key = metadata.get("namespace", ""), metadata["name"]
        there = self.collection(path)
        before = there.objects.get(key)
        self.version += 1
        if before is None:
            self.uids += 1
        uid = f"uid-{self.uids:06}" if before is None else before.document["metadata"]["uid"]
        stamped = {**document, "metadata": {**metadata, "uid": uid, "resourceVersion": str(self.version)}}
        word = "ADDED" if before is None else "MODIFIED"
        change = Change(self.version, word, key, stamped, msgspec.json.encode(stamped))
        there.objects[key] = change
        there.log.append(change)
        return stamped

    def remove(self, path: str, key: Key) -> None:
        there = self.collection(path)
        self.version += 1
        last = there.objects.pop(key).document
        stamped = {**last, "metadata": {**last["metadata"], "resourceVersion": str(self.version)}}
        there.log.append(Change(self.version, "DELETED", key, stamped, msgspec.json.encode(stamped)))

    def compact(self, path: str) -> None:
        """Forgets what was before now."""
        there = self.collection(path)
        there.log.clear()
        self.version += 1
        there.compacted = self.version

    def fall_behind(self, path: str) -> None:
        """A cache has from now on what there is now; lists of "any version" may be from it."""
        there = self.collection(path)
        there.old = self.version, [each.json for each in there.objects.values()]

    # requests

    def carry_out(self, call: Call) -> None:
        """Does what the request says; the client learns of it when it is answered."""
        assert self.loop.time() <= call.deadline_s, f"{call.request.path} is carried out after its time"
        call.carried_out = True
        try:
            call.result = msgspec.json.encode(self._done(call))
        except APIError as error:
            call.result = error

    def reply(self, call: Call, error: Exception | None = None) -> None:
        """Answers with what the request came to, or with ``error``."""
        self.calls.remove(call)
        if not call.is_awaited:
            return
        if error is None and isinstance(call.result, APIError):
            error = call.result
        if error is not None:
            call.answer.set_exception(error)
        else:
            assert isinstance(call.result, bytes)
            call.answer.set_result(call.result)

    def _done(self, call: Call) -> Document:
        """Raises APIError."""
        request = call.request
        matched = _PATH.fullmatch(request.path)
        assert matched is not None, request.path
        path, subresource = f"{matched['root']}/{matched['plural']}", matched["subresource"]
        key = matched["namespace"] or "", matched["name"] or ""
        body: Any = msgspec.json.decode(request.body or b"{}")
        if request.method == "POST" and not key[1]:
            if self.get(path, (key[0], body["metadata"]["name"])) is not None:
                raise APIError(409, "AlreadyExists", body["metadata"]["name"])
            return self.put(path, body)
        found = self.get(path, key)
        if found is None:
            raise APIError(404, "NotFound", f'{matched["plural"]} "{key[1]}" not found')
        if request.method == "GET":
            return found
        if subresource == "binding":
            return self._bind(call, found, body)
        if request.method == "DELETE":
            _require(body.get("preconditions", {}), found)
            return self.delete(found) if path == PODS else found
        _require(body["metadata"], found)
        if subresource == "status":
            return self.put(path, {**found, "status": _with_status(found.get("status", {}), body["status"])})
        return self.put(path, merged(found, body))

    def _bind(self, call: Call, pod: Document, body: Document) -> Document:
        metadata, name = pod["metadata"], pod["metadata"]["name"]
        failed = f'Operation cannot be fulfilled on pods/binding "{name}"'
        if body["metadata"]["uid"] != metadata["uid"]:
            raise APIError(409, "Conflict", "Precondition failed: UID in precondition")
        if "deletionTimestamp" in metadata:
            raise APIError(409, "Conflict", f"{failed}: pod {name} is being deleted, cannot be assigned to a host")
        if node := pod["spec"].get("nodeName"):
            raise APIError(409, "Conflict", f'{failed}: pod {name} is already assigned to node "{node}"')
        if pod["spec"].get("schedulingGates"):
            raise APIError(409, "Conflict", f"{failed}: pod {name} has non-empty .spec.schedulingGates")
        bound = self.assign(pod, body["target"]["name"])
        self.bound(call, bound)
        return _SUCCESS

    def assign(self, pod: Document, node: str) -> Document:
        condition = {"type": "PodScheduled", "status": "True"}
        status = _with_status(pod.get("status", {}), {"conditions": [condition]})
        return self.put(PODS, {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": status})

    def delete(self, pod: Document) -> Document:
        """A pod that is on a node is there until its kubelet says otherwise."""
        metadata = pod["metadata"]
        key = metadata["namespace"], metadata["name"]
        if not pod["spec"].get("nodeName") or pod["spec"].get("terminationGracePeriodSeconds") == 0:
            self.remove(PODS, key)
            return pod
        if "deletionTimestamp" in metadata:
            return pod
        return self.put(PODS, {**pod, "metadata": {**metadata, "deletionTimestamp": "2026-11-30T00:00:00Z"}})

    # lists and watches

    def listed(self, path: str, query: Mapping[str, str]) -> bytes:
        there, version = self.collection(path), self.version
        items = [each.json for each in there.objects.values()]
        wanted = query.get("resourceVersion", "")
        if wanted and there.old is not None and there.old[0] >= max(int(wanted), there.compacted):
            version, items = there.old
        return b'{"metadata":{"resourceVersion":"%d"},"items":[%b]}' % (version, b",".join(items))

    def watch(self, sender: Sender, path: str, query: Mapping[str, str]) -> Watch:
        """Raises APIError."""
        there = self.collection(path)
        begins_with_list = query.get("sendInitialEvents") == "true"
        if begins_with_list and not self._streams_lists:
            raise APIError(422, "Invalid", "sendInitialEvents is forbidden for watch")
        version = self.version if begins_with_list else int(query["resourceVersion"])
        if version < there.compacted:
            raise APIError(410, "Expired", f"too old resource version: {version}")
        watch = Watch(sender, path, version)
        if begins_with_list:
            for each in there.objects.values():
                watch.tell(b'{"type":"ADDED","object":%b}\n' % each.json)
            watch.tell(_bookmark(version, b',"annotations":{"k8s.io/initial-events-end":"true"}'))
        self.watches.append(watch)
        return watch

    def untold(self, watch: Watch) -> list[Change]:
        """Returns what the watch has not said yet."""
        log = self.collection(watch.path).log
        if not log or log[-1].version <= watch.version:
            return []
        begin = len(log)
        while begin and log[begin - 1].version > watch.version:
            begin -= 1
        return log[begin:]

    def tell(self, watch: Watch, most: int) -> int:
        """Lets the watch say up to ``most`` of what it has not said. Returns how many it said."""
        changes = self.untold(watch)[:most]
        for change in changes:
            watch.last = b'{"type":"%b","object":%b}\n' % (change.word.encode(), change.json)
            watch.tell(watch.last)
            watch.version = change.version
        return len(changes)

    def bookmark(self, watch: Watch) -> None:
        if not self.untold(watch):
            watch.version = max(watch.version, self.version)
            watch.tell(_bookmark(watch.version))

    def expire(self, watch: Watch) -> None:
        """What the watch has missed is not to be had any more."""
        status = {"code": 410, "reason": "Expired", "message": f"too old resource version: {watch.version}"}
        watch.tell(msgspec.json.encode({"type": "ERROR", "object": status}) + b"\n")
        watch.end()

    def transport(self, sender: Sender) -> Transport:
        return _MemoryTransport(self, sender)

    def refusal(self) -> Exception | None:
        return self._refuses()


class _MemoryTransport(Transport):
    """A client's way to the server."""

    def __init__(self, server: APIServer, sender: Sender) -> None:
        self._server, self._sender = server, sender

    async def exchange(self, request: HTTPRequest, timeout_s: float, check: Check | None = None) -> bytes:
        if not self._sender.is_alive:
            raise Unreachable("the process is dead", may_have_arrived=False)
        if check is not None:
            check()
        loop = self._server.loop
        now_s = loop.time()
        call = Call(self._sender, request, now_s, now_s + timeout_s, loop.create_future())
        self._sender.sent(call)
        self._server.calls.append(call)
        try:
            async with asyncio.timeout(timeout_s):
                return await call.answer
        except TimeoutError:
            raise Unreachable("no answer in time", may_have_arrived=True) from None

    @contextlib.asynccontextmanager
    async def stream(  # type: ignore[override]  # what it yields is read as aiohttp's
        self, request: HTTPRequest, timeout_s: float
    ) -> AsyncIterator[Watch | _Body]:
        if not self._sender.is_alive:
            raise Unreachable("the process is dead", may_have_arrived=False)
        error = self._server.refusal()
        if error is not None:
            raise error
        if request.query.get("watch") != "true":
            yield _Body(self._server.listed(request.path, request.query))
            return
        watch = self._server.watch(self._sender, request.path, request.query)
        try:
            yield watch
        finally:
            watch.end()
            self._server.watches.remove(watch)


def _bookmark(version: int, annotations: bytes = b"") -> bytes:
    return b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d"%b}}}\n' % (version, annotations)


def _require(conditions: Document, current: Document) -> None:
    for name in ("uid", "resourceVersion"):
        if name in conditions and conditions[name] != current["metadata"][name]:
            raise APIError(409, "Conflict", f"the object has been modified: {name}")


def _with_status(status: Document, change: Document) -> Document:
    """Returns ``status`` with a strategic merge of ``change``: conditions go by their type."""
    conditions = {each["type"]: each for each in status.get("conditions", ())}
    conditions |= {each["type"]: each for each in change.get("conditions", ())}
    others = {name: value for name, value in {**status, **change}.items() if value is not None}
    return {**others, "conditions": list(conditions.values())}
