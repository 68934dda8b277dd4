"""Held streams of one connection: collect, ask, then release or refuse.

Invariant: a held request reaches the runtime whole, once, edited or (fail open) as it came; or it is refused, and
then the runtime never sees a message of it. The connection's other streams never wait for a held one.

Refusing is delicate: the client must not lose a header block that the runtime has sent, or their HPACK tables
part. So the stream is reset towards the runtime and an empty SETTINGS follows as a barrier. What the runtime
answered before it acknowledges the barrier goes to the client (its answer wins); after that nothing can come, and
the client gets our status in literals that touch no table.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from koord.http2.frames import (
    CANCEL,
    DEFAULT_WINDOW_BYTES,
    END_HEADERS,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    HEADERS,
    NO_ERROR,
    FrameError,
    frame,
    rst_stream,
    settings,
)
from koord.http2.grpc import (
    ANSWER_HEAD,
    FAILED_PRECONDITION,
    INTERNAL,
    MAX_MESSAGE_BYTES,
    PREFIX_BYTES,
    RESOURCE_EXHAUSTED,
    grpc_body,
    grpc_message,
    grpc_timeout_s,
    status_fields,
)
from koord.http2.prompt import PromptTask
from runtimeproxy.intercept import Call, Forward, Refuse, Treatment
from runtimeproxy.relay.stream import Route, State, Stream

if TYPE_CHECKING:
    from runtimeproxy.relay.connection import Connection

log = logging.getLogger("koord.relay")


class HeldStreams:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._counters = connection.counters
        self.initial_window_bytes = DEFAULT_WINDOW_BYTES  # of the runtime's streams
        self.largest_window_bytes = DEFAULT_WINDOW_BYTES  # that the client was ever told

    # opening

    def open(self, stream_id: int, route: Route, fields: Mapping[bytes, bytes]) -> None:
        """A new stream whose route is not to pass: tapped or held (or, where it cannot be, released or refused)."""
        call = Call(route.path, grpc_timeout_s(fields.get(b"grpc-timeout")), time.monotonic())
        holds = route.plan.treatment is Treatment.HOLD
        state = State.HOLDING if holds else State.TAPPED
        stream = Stream(stream_id, route, call, state, self.initial_window_bytes)
        self._connection.streams[stream_id] = stream
        if holds and (unheld := _cannot_be_edited(fields)):
            self._give_up_holding(stream, unheld, FAILED_PRECONDITION)

    def _give_up_holding(self, stream: Stream, reason: str, code: int) -> None:
        """The request cannot be edited: it goes on as it is, or is refused where a hook server's policy is Fail."""
        self._counters.not_held[reason] += 1
        if stream.route.plan.fail_closed:
            self.refuse(stream, Refuse(code, f"koord-runtime-proxy: the request cannot be edited ({reason})"))
        else:
            log.warning("%s goes on unedited: %s", stream.route.path, reason)
            self._release(stream, stream.chunks)

    # collecting

    def take(self, stream: Stream, payload: bytes, size_bytes: int, ended: bool) -> None:
        """DATA of a stream that is not TAPPED. ``size_bytes`` counts its padding too."""
        connection = self._connection
        connection.credit_connection(size_bytes)
        stream.client_ended = stream.client_ended or ended
        if stream.state is State.RELEASED:
            stream.uncredited_bytes += size_bytes
            if stream.uncredited_bytes > self.largest_window_bytes:
                raise FrameError(FLOW_CONTROL_ERROR, f"DATA beyond the window of stream {stream.id}")
            stream.put_out(payload)
            self._send(stream)
            return
        if not ended:
            connection.credit_stream(stream.id, size_bytes)
        if stream.state is not State.HOLDING:  # refusing: what still comes is dropped
            return
        stream.chunks.append(payload)
        connection.account(stream, len(payload))
        if stream.held_bytes > PREFIX_BYTES + MAX_MESSAGE_BYTES:
            self._give_up_holding(stream, "over 16 MiB", RESOURCE_EXHAUSTED)
        elif self._counters.held_bytes > connection.policy.held_budget_bytes:
            self._give_up_holding(stream, "held bytes over budget", RESOURCE_EXHAUSTED)
        elif ended:
            self._complete(stream)

    def tap(self, stream: Stream, payload: bytes, ended: bool) -> None:
        """DATA of a TAPPED stream has passed."""
        connection = self._connection
        if len(payload) + self._counters.held_bytes <= connection.policy.held_budget_bytes:
            stream.chunks.append(payload)
            connection.account(stream, len(payload))
        if ended:
            message = grpc_message(b"".join(stream.chunks))
            stream.chunks = []
            connection.account(stream, -stream.held_bytes)
            if message is not None:
                connection.loop.call_soon(connection.policy.interceptor.tapped, stream.call, message)

    def interrupted(self, stream: Stream) -> bool:
        """Trailers from the client: no gRPC client sends them, so this is not a unary call, and is not edited.

        True if the stream was ours and its message has to go before them.
        """
        if stream.state in (State.HOLDING, State.ASKING):
            if stream.task is not None:
                stream.task.cancel()
            self._give_up_holding(stream, "trailers from the client", FAILED_PRECONDITION)
        return stream.state is State.RELEASED

    def release_all(self) -> None:
        """Bypass: what is held goes on as it came."""
        for stream in list(self._connection.streams.values()):
            if isinstance(stream, Stream) and stream.state in (State.HOLDING, State.ASKING):
                if stream.task is not None:
                    stream.task.cancel()
                self._counters.fail_open["bypass"] += 1
                self._release(stream, stream.chunks)

    # asking

    def _complete(self, stream: Stream) -> None:
        body = b"".join(stream.chunks)
        message = grpc_message(body)
        if message is None:
            self._give_up_holding(stream, "not one uncompressed message", FAILED_PRECONDITION)
            return
        stream.state = State.ASKING
        stream.chunks = [body]
        self._counters.held_streams += 1
        stream.task = PromptTask(self._ask(stream, body, message))
        stream.task.start()

    async def _ask(self, stream: Stream, body: bytes, message: bytes) -> None:
        try:
            verdict = await self._connection.policy.interceptor.request(stream.call, message)
        except Exception as error:  # noqa: BLE001 - a fault of ours must never stop a pod: fail open
            verdict = self._fault(stream, message, type(error).__name__, error)
        finally:
            self._counters.held_streams -= 1
            stream.task = None
        if isinstance(verdict, Forward) and len(verdict.message) > MAX_MESSAGE_BYTES >= len(message):
            verdict = self._fault(stream, message, "over 16 MiB", None)
        if isinstance(verdict, Refuse):
            self.refuse(stream, verdict)
        elif verdict.message is message:
            self._release_whole(stream, body)
        else:
            self._counters.edited += 1
            self._release_whole(stream, grpc_body(verdict.message))
        if isinstance(verdict, Forward) and verdict.then is not None:
            try:
                verdict.then()
            except Exception:
                log.exception("%s went on, but not all that follows was done", stream.route.path)

    def _fault(self, stream: Stream, message: bytes, reason: str, error: Exception | None) -> Forward | Refuse:
        self._counters.fail_open[reason] += 1
        log.error("%s: the edit failed (%s)", stream.route.path, reason, exc_info=error)
        if stream.route.plan.fail_closed:
            return Refuse(INTERNAL, f"koord-runtime-proxy: the edit failed ({reason})")
        self._connection.policy.interceptor.tapped(stream.call, message)
        return Forward(message)

    # releasing

    def _release(self, stream: Stream, chunks: list[bytes]) -> None:
        if stream.state in (State.REFUSING, State.RELEASED):
            return
        stream.state = State.RELEASED
        stream.chunks = []
        for chunk in chunks:
            stream.put_out(chunk)
        self._send(stream)

    def _release_whole(self, stream: Stream, body: bytes) -> None:
        """Release a request that has been decided on: mostly one frame that nothing stands in the way of."""
        requests = self._connection.requests
        frames = requests.outbox.whole(stream, body)
        if frames is None:
            self._release(stream, [body])
            return
        stream.state = State.RELEASED
        stream.chunks = []
        self._connection.account(stream, -stream.held_bytes)
        requests.inject(frames)

    def _send(self, stream: Stream) -> None:
        connection = self._connection
        connection.account(stream, stream.out_left_bytes - stream.held_bytes)
        connection.requests.outbox.release(stream)
        connection.requests.pump()

    # refusing

    def refuse(self, stream: Stream, verdict: Refuse) -> None:
        connection = self._connection
        self._counters.refused += 1
        connection.forget(stream)
        stream.state = State.REFUSING
        stream.verdict = (verdict.code, verdict.message)
        barrier = rst_stream(stream.id, CANCEL) + settings()
        connection.requests.send_behind_headers(stream.id, barrier, lambda: connection.expect_barrier(stream))

    def barrier(self, stream: Stream) -> None:
        """The runtime has acknowledged the SETTINGS behind our reset: nothing of the stream can come any more."""
        connection = self._connection
        if connection.streams.get(stream.id) is not stream or stream.verdict is None:
            return
        code, message = stream.verdict
        status = status_fields(code, message)
        block = status if stream.answered else ANSWER_HEAD + status
        answer = frame(HEADERS, END_HEADERS | END_STREAM, stream.id, block)
        if not stream.client_ended:
            answer += rst_stream(stream.id, NO_ERROR)
            connection.requests.abandoned(stream.id)
        connection.to_client(answer)
        connection.finish(stream.id, code)

    # windows

    def initial_window(self, size_bytes: int) -> None:
        """The runtime's SETTINGS_INITIAL_WINDOW_SIZE: moves the window of every stream by the difference."""
        change = size_bytes - self.initial_window_bytes
        self.largest_window_bytes = max(self.largest_window_bytes, size_bytes)
        self.initial_window_bytes = size_bytes
        for stream in self._connection.streams.values():
            if isinstance(stream, Stream):
                stream.window_bytes += change


def _cannot_be_edited(fields: Mapping[bytes, bytes]) -> str | None:
    if b"content-length" in fields:
        return "content-length"
    if fields.get(b"grpc-encoding", b"identity") != b"identity":
        return "grpc-encoding"
    return None
