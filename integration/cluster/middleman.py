"""A man in the middle between clients under test and the real API server: he passes on, fails as told, and takes notes.

    with middleman.between(plane, "system:kube-scheduler") as middle:
        path = middle.kubeconfig("a")                                 # for a client that is "a" in the record
        middle.meets(Fault(BINDING, status=429, retry_after_s=1), 3)  # the next three bindings
        with middle.stale("pods"):                                    # watches of pods say nothing meanwhile
            ...
        middle.calls                                                  # all requests so far, and what came of them

Clients speak HTTP to him, and he TLS to the server, as one user whoever asks. What a client has given up is passed on
all the same: so a network delivers late what nobody waits for any more. Where no server answers, the client's
connection breaks, too. Invariant: he neither changes an answer nor repeats a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from integration.cluster.controlplane import ControlPlane

BINDING = r"POST .*/binding"
LEASE = r"(GET|PUT|PATCH|POST) .*/leases.*"
START_S = 10.0
_POLL_S = 0.01
_LINE_BYTES = 1 << 22
_DELETED = b'{"type":"DELETED"'
_PASSED_ON = ("Content-Type", "Accept", "User-Agent")
_PLURAL = re.compile(r"/(?:api/v1|apis/[^/]+/[^/]+)(?:/namespaces/[^/]+)?/([^/]+)$")
KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{url}"}}}}]
users: [{{name: u, user: {{token: "{name}"}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
current-context: c
"""


@dataclass(eq=False)
class Call:
    """A request. Times are of the monotonic clock; 0: that has not happened. ``status``: of the server's answer."""

    who: str
    method: str
    path: str
    body: bytes
    came_s: float
    sent_s: float = 0.0
    answered_s: float = 0.0
    status: int = 0

    @property
    def text(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)
        return document


@dataclass(frozen=True)
class Fault:
    """What happens to a request whose ``METHOD path`` is ``text``, a regular expression; ``who``: "" is any client.

    ``until``, ``hold_s``: it is passed on no earlier. ``status``: it is answered with that instead. ``loses``: the
    "request", which then reaches nobody, or the "answer" to what is done; the connection breaks.
    """

    text: str
    who: str = ""
    status: int = 0
    reason: str = ""
    retry_after_s: int = 0
    until: threading.Event | None = None
    hold_s: float = 0.0
    loses: str = ""


@dataclass(eq=False)
class _Meeting:
    fault: Fault
    left: int


@dataclass(eq=False)
class _Watch:
    who: str
    plural: str
    answer: web.StreamResponse
    request: web.Request
    lines: list[bytes] = field(default_factory=list)
    hangs: bool = False


class Middleman:
    def __init__(self, plane: ControlPlane, user: str, groups: tuple[str, ...]) -> None:
        self._directory, self._server = plane.directory, plane.server_url
        self._tls = ssl.create_default_context(cafile=str(plane.authority.certificate))
        identity = plane.identity(user, groups)
        self._tls.load_cert_chain(identity.certificate, identity.key)
        self._meetings: list[_Meeting] = []
        self._stale: list[tuple[str, str]] = []
        self._watches: list[_Watch] = []
        self._lock = threading.Lock()
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self.held = 0
        """Requests that are held for now."""
        self.url = ""
        self.calls: list[Call] = []
        """All but GETs, in the order in which they came."""

    def kubeconfig(self, name: str) -> Path:
        """The kubeconfig file of the client that is called ``name``."""
        path = self._directory / f"{name}.kubeconfig"
        path.write_text(KUBECONFIG.format(url=self.url, name=name))
        return path

    def meets(self, fault: Fault, times: int = 1) -> None:
        """The next ``times`` requests that the fault is for meet it."""
        with self._lock:
            self._meetings.append(_Meeting(fault, times))

    def is_met(self) -> bool:
        """Returns whether every fault was met as often as it was to be."""
        with self._lock:
            return not self._meetings

    def forget(self) -> None:
        """Ends all faults and the record."""
        with self._lock:
            self._meetings.clear()
        self.calls = []

    @contextlib.contextmanager
    def stale(self, plural: str, who: str = "") -> Iterator[None]:
        """Within the block watches of ``plural`` say nothing, new ones neither; then they say all that they held."""
        self._stale.append((plural, who))
        try:
            yield
        finally:
            self._stale.remove((plural, who))

    def replay(self, plural: str, who: str = "") -> int:
        """Watches say again what they have said so far, but not what was deleted; returns how many lines that is.

        A client may hang up on it: then it is fewer."""
        return self._at_once(lambda: self._replay(plural, who))

    def hang(self, plural: str, who: str = "") -> int:
        """The watches that there are say nothing more, but do not end; returns how many."""
        return self._at_once(lambda: self._hang(plural, who))

    def watch_count(self, plural: str, who: str = "") -> int:
        """How many watches there are, those that hang among them."""
        return self._at_once(lambda: len(self._watches_of(plural, who)))

    def cut(self, plural: str, who: str = "") -> int:
        """The connections of watches break; returns how many."""
        return self._at_once(lambda: self._cut(plural, who))

    def bindings(self, who: str = "") -> list[Call]:
        return [call for call in list(self.calls) if re.fullmatch(BINDING, call.text) and who in ("", call.who)]

    # in the loop's thread

    async def serve(self, started: threading.Event) -> None:
        """Serves until `stop`."""
        self._loop = asyncio.get_running_loop()
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0)
        application = web.Application(client_max_size=1 << 24)
        application.router.add_route("*", "/{path:.*}", self._pass_on)
        runner = web.AppRunner(application, shutdown_timeout=0.1, access_log=None)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False, read_bufsize=_LINE_BYTES
        ) as self._session:
            await runner.setup()
            try:
                site = web.TCPSite(runner, "127.0.0.1", 0)
                await site.start()
                self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
                started.set()
                await self._stopping.wait()
                self._cut("", "")
            finally:
                await runner.cleanup()

    def stop(self) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stopping.set)

    def _at_once(self, act: Callable[[], Coroutine[Any, Any, int] | int]) -> int:
        assert self._loop is not None

        async def acting() -> int:
            result = act()
            return result if isinstance(result, int) else await result

        return asyncio.run_coroutine_threadsafe(acting(), self._loop).result(START_S)

    async def _replay(self, plural: str, who: str) -> int:
        count = 0
        for watch in self._watches_of(plural, who):
            with contextlib.suppress(ConnectionError):  # the client has heard enough
                for line in [line for line in watch.lines if not line.startswith(_DELETED)]:
                    await watch.answer.write(line)
                    count += 1
        return count

    def _hang(self, plural: str, who: str) -> int:
        watches = self._watches_of(plural, who)
        for watch in watches:
            watch.hangs = True
        return len(watches)

    def _cut(self, plural: str, who: str) -> int:
        watches = self._watches_of(plural, who)
        for watch in watches:
            _break(watch.request)
        return len(watches)

    def _watches_of(self, plural: str, who: str) -> list[_Watch]:
        return [each for each in self._watches if plural in ("", each.plural) and who in ("", each.who)]

    def _is_stale(self, watch: _Watch) -> bool:
        stale = tuple(self._stale)
        return watch.hangs or any(plural == watch.plural and who in ("", watch.who) for plural, who in stale)

    def _fault_of(self, call: Call) -> Fault | None:
        with self._lock:
            for meeting in self._meetings:
                fault = meeting.fault
                if fault.who in ("", call.who) and re.fullmatch(fault.text, call.text):
                    meeting.left -= 1
                    if not meeting.left:
                        self._meetings.remove(meeting)
                    return fault
        return None

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        who = request.headers.get("Authorization", "").rpartition(" ")[2]
        call = Call(who, request.method, request.path, await request.read(), time.monotonic())
        if request.method != "GET":
            self.calls.append(call)
        fault = self._fault_of(call) or Fault("")
        self.held += 1
        await asyncio.sleep(fault.hold_s)
        while fault.until is not None and not fault.until.is_set():  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(_POLL_S)
        self.held -= 1
        if fault.status:
            return _refusal(fault)
        if fault.loses == "request":
            return _break(request)
        try:
            answer = await self._answer(call, request)
        except (aiohttp.ClientError, OSError):
            return _break(request)
        return _break(request) if fault.loses == "answer" else answer

    async def _answer(self, call: Call, request: web.Request) -> web.StreamResponse:
        assert self._session is not None
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        call.sent_s = time.monotonic()
        async with self._session.request(
            request.method, self._server + request.raw_path, data=call.body or None, headers=headers
        ) as answer:
            if answer.ok and request.query.get("watch") == "true":
                return await self._follow(call, request, answer)
            body = await answer.read()
            call.status, call.answered_s = answer.status, time.monotonic()
            kept = {name: answer.headers[name] for name in ("Content-Type", "Retry-After") if name in answer.headers}
            return web.Response(status=answer.status, body=body, headers=kept)

    async def _follow(self, call: Call, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        passed = web.StreamResponse(headers={"Content-Type": answer.headers["Content-Type"]})
        matched = _PLURAL.search(call.path)
        watch = _Watch(call.who, matched[1] if matched else "", passed, request)
        await passed.prepare(request)
        self._watches.append(watch)
        try:
            async for line in answer.content:
                while self._is_stale(watch):  # noqa: ASYNC110 - a thread ends it
                    await asyncio.sleep(_POLL_S)
                watch.lines.append(line)
                await passed.write(line)
            await passed.write_eof()
        finally:
            self._watches.remove(watch)
        return passed


def _refusal(fault: Fault) -> web.Response:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": fault.status, "reason": fault.reason}
    headers = {"Retry-After": str(fault.retry_after_s)} if fault.retry_after_s else {}
    return web.json_response(status | {"message": "as told"}, status=fault.status, headers=headers)


def _break(request: web.Request) -> web.StreamResponse:
    """Ends the connection without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


@contextlib.contextmanager
def between(plane: ControlPlane, user: str, groups: tuple[str, ...] = ()) -> Iterator[Middleman]:
    """One who serves until the end of the block, and is ``user`` to the server."""
    made = Middleman(plane, user, groups)
    started = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(made.serve(started)), daemon=True)
    thread.start()
    try:
        assert started.wait(START_S)
        yield made
    finally:
        made.stop()
        thread.join(START_S)
