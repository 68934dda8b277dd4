"""One hook server: asked with a deadline, behind its own breaker and its own queue for what need not be awaited.

Post hooks go through a bounded queue per server, in order, so that a server that hangs delays nobody but itself; what
does not fit is dropped and counted. Invariant: ``ask`` ends within its timeout with an answer, None (UNIMPLEMENTED:
no opinion) or ``HookFailed``. A server that answers, whatever it says of an object, is up: only one that cannot be
reached, is late, or cannot be understood opens its breaker, for then the pods of others would pay too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from koord.http2.client import UnaryError
from koord.http2.grpc import DEADLINE_EXCEEDED, UNAVAILABLE, UNIMPLEMENTED
from runtimeproxy.hooks.breaker import Breaker
from runtimeproxy.hooks.hookfile import ServerSpec
from runtimeproxy.hooks.observe import Metrics
from runtimeproxy.hooks.stages import Stage
from runtimeproxy.wire.protowire import MalformedMessage

POST_QUEUE = 256
KEPT_BYTES = 1024  # of an answer that may come again
PRESENCE = b"koord-presence"
MAX_REASON = 1000  # characters of a server's own words, which end up in kubelet's events and in the log
GREETING = "/grpc.health.v1.Health/Check"
log = logging.getLogger("runtimeproxy.hooks.server")

T = TypeVar("T")


class Reply(Protocol):
    """``metadata``: initial metadata and trailers as they came, names in lower case."""

    @property
    def message(self) -> bytes: ...
    @property
    def metadata(self) -> Mapping[bytes, bytes]: ...


class UnaryCaller(Protocol):
    """``koord.http2.client.UnaryClient`` as the hooks use it; failures raise its UnaryError, no answer within
    ``timeout_s`` one with DEADLINE_EXCEEDED. ``sent`` is called when the message is on its way, and must not raise."""

    @property
    def peer_pid(self) -> int | None: ...
    def call(
        self,
        path: str,
        message: bytes,
        timeout_s: float,
        metadata: Sequence[tuple[str, str]] = (),
        sent: Callable[[], None] | None = None,
    ) -> Awaitable[Reply]: ...
    def close(self) -> None: ...


Connect = Callable[[str], UnaryCaller]
"""Makes the caller of a socket path; it connects when it is first used."""


class HookFailed(Exception):
    """A hook server could not be asked or did not answer properly; ``result`` is the metric's label."""

    def __init__(self, result: str, reason: str) -> None:
        super().__init__(reason)
        self.result = result


@dataclass(frozen=True, slots=True)
class Opinion(Generic[T]):
    """``presence``: the server declares that what it does not set is untouched and an explicit zero counts."""

    answer: T
    presence: bool


class HookServer:
    """``default_timeout_s`` applies where the spec has none; ``version`` is how the proxy introduces itself."""

    def __init__(
        self,
        spec: ServerSpec,
        caller: UnaryCaller,
        *,
        default_timeout_s: float,
        version: str,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self.spec = spec
        self.default_timeout_s = default_timeout_s
        self._caller = caller
        self._metadata = (("koord-runtime-proxy", version),)
        self._metrics = metrics
        self._clock = clock
        self._breaker = Breaker(clock)
        self._last: dict[Stage, tuple[bytes, Opinion[Any]]] = {}
        self._posts: asyncio.Queue[tuple[Stage, Callable[[], Awaitable[bytes | None]]]] = asyncio.Queue(POST_QUEUE)
        self._worker: asyncio.Task[None] | None = None

    @property
    def peer_pid(self) -> int | None:
        """The process that listens on the server's socket, as far as it is connected."""
        return self._caller.peer_pid

    @property
    def timeout_s(self) -> float:
        return self.default_timeout_s if self.spec.timeout_s is None else self.spec.timeout_s

    def wants(self, stage: Stage) -> bool:
        return stage in self.spec.stages

    async def greet(self) -> None:
        """Connect, by a call that any gRPC server answers somehow; a server that is not there is no failure."""
        try:
            await self._caller.call(GREETING, b"", self.timeout_s, self._metadata)
        except UnaryError as error:
            log.debug("hook server %s: greeted, %s", self.spec.file, error)

    def last(self, stage: Stage) -> Opinion[Any] | None:
        """What the server said last at this stage; what is too long to be said often is not kept."""
        known = self._last.get(stage)
        return None if known is None else known[1]

    async def ask(
        self,
        stage: Stage,
        message: bytes,
        timeout_s: float,
        parse: Callable[[bytes], T],
        sent: Callable[[], None] | None = None,
    ) -> Opinion[T] | None:
        """The server's opinion, the same object as `last` if it says the same; ``parse`` raises MalformedMessage and is
        one for a stage. ``sent`` is called when the question is on its way, and must not raise. Raises HookFailed."""
        if timeout_s <= 0:
            self._metrics.hook_call(self.spec.file, stage, "timeout", 0.0)
            raise HookFailed("timeout", "no time left of the caller's deadline")
        if not self._breaker.allows():
            self._metrics.hook_call(self.spec.file, stage, "open", 0.0)
            raise HookFailed("open", "not asked, it failed too often in a row")
        started = self._clock()
        opinion, failed = None, None
        try:
            reply = await self._caller.call(stage.path, message, timeout_s, self._metadata, sent)
            opinion = self._opinion(stage, reply.message, reply.metadata.get(PRESENCE) == b"1", parse)
            self._breaker.succeeded()
        except (MalformedMessage, UnaryError) as error:
            failed = _failure(error)
            self._judge(error, timeout_s)
        except BaseException:
            self._breaker.abandoned()
            raise
        result = failed.result if failed else "ok" if opinion else "unimplemented"
        self._metrics.hook_call(self.spec.file, stage, result, self._clock() - started)
        if failed is not None:
            raise failed
        return opinion

    def _opinion(self, stage: Stage, answer: bytes, presence: bool, parse: Callable[[bytes], T]) -> Opinion[T]:
        known = self._last.get(stage)
        if known is not None and known[0] == answer and known[1].presence is presence:
            return known[1]
        opinion = Opinion(parse(answer), presence)
        if len(answer) <= KEPT_BYTES:
            self._last[stage] = answer, opinion
        return opinion

    def _judge(self, error: MalformedMessage | UnaryError, timeout_s: float) -> None:
        """What a failed call says of the server itself; one that was given less than its time, nothing."""
        late = isinstance(error, UnaryError) and error.code == DEADLINE_EXCEEDED
        if late and timeout_s < self.timeout_s:
            self._breaker.abandoned()
        elif late or isinstance(error, MalformedMessage) or error.code == UNAVAILABLE:
            self._breaker.failed()
        else:
            self._breaker.succeeded()

    def post(self, stage: Stage, make: Callable[[], Awaitable[bytes | None]]) -> None:
        """Tell the server later; ``make`` yields the request then, None if nothing is known of the object."""
        try:
            self._posts.put_nowait((stage, make))
        except asyncio.QueueFull:
            self._metrics.post_dropped(self.spec.file, stage)
            return
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._deliver(), name=f"post {self.spec.file}")

    async def _deliver(self) -> None:
        while True:
            stage, make = await self._posts.get()
            try:
                message = await make()
                if message is not None:
                    await self.ask(stage, message, self.timeout_s, bytes)
            except HookFailed as error:
                self._metrics.hook_policy(self.spec.file, stage, "ignored")
                log.warning("hook server %s: %s: %s", self.spec.file, stage.value, error)
            except Exception:  # the root of this task: one bad object must not end it
                log.exception("hook server %s: %s: request not made", self.spec.file, stage.value)

    def close(self) -> None:
        """Drop what was not delivered and close the connection."""
        if self._worker is not None:
            self._worker.cancel()
        self._caller.close()


def _failure(error: MalformedMessage | UnaryError) -> HookFailed | None:
    """What went wrong with a call; None if the server does not know the stage."""
    if isinstance(error, MalformedMessage):
        failed = HookFailed("undecodable", str(error))
    elif error.code == UNIMPLEMENTED:
        return None
    else:
        result = "timeout" if error.code == DEADLINE_EXCEEDED else "error"
        words = error.message if len(error.message) <= MAX_REASON else f"{error.message[:MAX_REASON]}…"
        failed = HookFailed(result, f"{words} (code {error.code})")
    failed.__cause__ = error
    return failed
