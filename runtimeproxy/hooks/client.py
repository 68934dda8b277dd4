"""Calls one hook server: with a deadline, behind its own breakers, and with its own queue for notifications.

Invariant: ``ask`` ends within its timeout with an answer, None (UNIMPLEMENTED: no opinion) or ``HookFailed``. A server
that answers is up, even if it refuses an object. Only one that cannot be reached, is late, or sends what cannot be
decoded opens a breaker: it would delay every other pod too.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from koord.http2.client import Answer, UnaryError
from koord.http2.grpc import DEADLINE_EXCEEDED, OK, UNAVAILABLE, UNIMPLEMENTED
from runtimeproxy.hooks.breaker import Breakers
from runtimeproxy.hooks.hookfile import ServerSpec
from runtimeproxy.hooks.posts import Post, Posts
from runtimeproxy.hooks.stages import CallStage
from runtimeproxy.metrics import Metrics
from runtimeproxy.wire.protowire import MalformedMessage

OUTCOME = "koord-outcome"  # metadata of after hooks: the gRPC status of the call that they are about
PRESENCE = b"koord-presence"
MAX_ANSWER_BYTES = 4 << 20  # what a gRPC client in Go takes by default, and so upstream's proxy
MAX_REASON = 1000  # characters of a server's error message, which ends up in kubelet's events and in the log
GREETING = "/grpc.health.v1.Health/Check"
log = logging.getLogger("runtimeproxy.hooks.client")

T = TypeVar("T")
Metadata = tuple[tuple[str, str], ...]


class UnaryCaller(Protocol):
    """Calls one socket, as ``koord.http2.client.UnaryClient`` does; failures raise its UnaryError, no answer within
    ``timeout_s`` one with DEADLINE_EXCEEDED.
    """

    @property
    def peer_pid(self) -> int | None: ...
    def call(
        self,
        path: str,
        message: bytes,
        timeout_s: float,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> Awaitable[Answer]: ...
    def close(self) -> None: ...


Connect = Callable[[str], UnaryCaller]
"""Makes the caller of a socket path; it connects when it is first used."""


class HookFailed(Exception):
    """A hook server could not be asked or did not answer properly; ``result`` is the metric's label."""

    def __init__(self, result: str, reason: str) -> None:
        super().__init__(reason)
        self.result = result


@dataclass(frozen=True, slots=True)
class HookAnswer(Generic[T]):
    """A server's answer. ``presence``: a field that it does not set is untouched, an explicit zero counts."""

    answer: T
    presence: bool


class HookClient:
    """Asks and notifies one server. ``default_timeout_s`` applies where the spec has none; ``version``: the proxy's."""

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
        self._metadata: Metadata = (("koord-runtime-proxy", version), ("koord-restores-status", "1"))
        self._metrics = metrics
        self._clock = clock
        self._breakers = Breakers(clock)
        self._posts = Posts(spec.file, self._notify, metrics)

    @property
    def peer_pid(self) -> int | None:
        """The process that listens on the server's socket, as far as it is connected."""
        return self._caller.peer_pid

    @property
    def timeout_s(self) -> float:
        return self.default_timeout_s if self.spec.timeout_s is None else self.spec.timeout_s

    def awaits(self, stage: CallStage, handler: str) -> bool:
        """Returns whether a call waits for the server's answer about a pod with this runtime handler."""
        return stage not in self.spec.advice or handler in self.spec.awaited_handlers

    def may_await(self, stage: CallStage) -> bool:
        """Returns whether a call waits for its answer about any pod."""
        return stage in self.spec.stages and (stage not in self.spec.advice or bool(self.spec.awaited_handlers))

    async def greet(self) -> None:
        """Connects, by a call that any gRPC server answers; a server that is not there is no failure."""
        try:
            await self._caller.call(GREETING, b"", self.timeout_s, self._metadata)
        except UnaryError:
            return
        except Exception:  # the tasks that wait for it can do nothing about it
            self._metrics.fault("greeting")
            log.exception("hook server %s: connecting ahead of the first question failed", self.spec.file)

    async def ask(
        self,
        stage: CallStage,
        message: bytes,
        timeout_s: float,
        parse: Callable[[bytes], Awaitable[T]],
        metadata: Metadata = (),
    ) -> HookAnswer[T] | None:
        """Returns the server's opinion; ``parse`` raises MalformedMessage, ``metadata`` is added. Raises HookFailed."""
        if timeout_s <= 0:
            self._metrics.hook_call(self.spec.file, stage, "timeout", 0.0)
            raise HookFailed("timeout", "no time left of the caller's deadline")
        if not self._breakers.allows(stage):
            self._metrics.hook_call(self.spec.file, stage, "open", 0.0)
            raise HookFailed("open", "not asked, it failed too often in a row")
        started = self._clock()
        opinion, failed = None, None
        try:
            reply = await self._caller.call(stage.path, message, timeout_s, (*self._metadata, *metadata))
            opinion = HookAnswer(await parse(reply.message), reply.metadata.get(PRESENCE) == b"1")
            self._breakers.succeeded(stage)
        except (MalformedMessage, UnaryError) as error:
            failed = _failure(error)
            self._judge(stage, error, timeout_s)
        except BaseException:
            self._breakers.abandoned(stage)
            raise
        result = failed.result if failed else "ok" if opinion else "unimplemented"
        self._metrics.hook_call(self.spec.file, stage, result, self._clock() - started)
        if failed is not None:
            raise failed
        return opinion

    def _judge(self, stage: CallStage, error: MalformedMessage | UnaryError, timeout_s: float) -> None:
        """Judges the server by a failed call; a call with less time than its own timeout does not count."""
        late = isinstance(error, UnaryError) and error.code == DEADLINE_EXCEEDED
        if late and timeout_s < self.timeout_s:
            self._breakers.abandoned(stage)
        elif late or isinstance(error, MalformedMessage):
            self._breakers.failed(stage)
        elif error.code == UNAVAILABLE:
            self._breakers.unreachable(stage)
        else:
            self._breakers.succeeded(stage)

    def post(self, stage: CallStage, make: Callable[[], Awaitable[bytes | None]], outcome: int = OK) -> None:
        """Notifies the server later how a call ended; of one that failed, only if its file wants that."""
        if outcome == OK or self.spec.failed_calls:
            self._posts.put(Post(stage, make, outcome))

    async def delivered(self) -> None:
        """Waits until no notification is left."""
        await self._posts.delivered()

    async def _notify(self, post: Post) -> None:
        try:
            message = await post.make()
            if message is not None:
                outcome = ((OUTCOME, str(post.outcome)),)
                await self.ask(post.stage, message, self.timeout_s, _unread, outcome)
        except HookFailed as error:
            self._metrics.hook_failure(self.spec.file, post.stage, "ignored")
            log.warning("hook server %s: %s: %s", self.spec.file, post.stage.value, error)
        except Exception:  # one bad object must not stop the notifications behind it
            self._metrics.fault("posting")
            log.exception("hook server %s: %s: request not made", self.spec.file, post.stage.value)

    def close(self) -> None:
        """Drops what was not delivered and closes the connection."""
        self._posts.close()
        self._caller.close()


async def _unread(answer: bytes) -> bytes:
    """Ignores the answer to a notification."""
    return answer


def _failure(error: MalformedMessage | UnaryError) -> HookFailed | None:
    """Returns what went wrong with a call; None if the server does not know the stage."""
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
