"""Collects the held requests of one connection, asks about them, then releases or refuses them.

Invariant: a held request reaches the runtime whole, once, edited or (fail open) as it came; or it is refused, and
then the runtime never sees a message of it. The connection's other streams never wait for a held one.
What is held is bounded: bytes, not frames or list entries, count against the budget of all connections (`Budget`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from functools import partial

from koord.http2.frames import DEFAULT_WINDOW_BYTES, FLOW_CONTROL_ERROR, FrameError
from koord.http2.grpc import (
    FAILED_PRECONDITION,
    INTERNAL,
    MAX_MESSAGE_BYTES,
    PREFIX_BYTES,
    RESOURCE_EXHAUSTED,
    grpc_body,
    grpc_message,
    grpc_timeout_s,
)
from runtimeproxy.intercept import Call, CannotBeEdited, Forward, Refuse, Treatment
from runtimeproxy.relay.accounts import Accounts
from runtimeproxy.relay.pair import ConnectionPair
from runtimeproxy.relay.policy import CREDIT_BATCH_BYTES, histogram_of
from runtimeproxy.relay.refusals import Refusals
from runtimeproxy.relay.stream import Route, Stream, StreamState
from runtimeproxy.relay.streams import Streams
from runtimeproxy.relay.uplink import Uplink

log = logging.getLogger("koord.relay")


class HeldStreams:
    def __init__(
        self, pair: ConnectionPair, accounts: Accounts, uplink: Uplink, streams: Streams, refusals: Refusals
    ) -> None:
        self._pair = pair
        self._accounts = accounts
        self._uplink = uplink
        self._streams = streams
        self._refusals = refusals
        self._metrics = pair.metrics
        self._budget = pair.policy.budget
        self._held = pair.held
        self.initial_window_bytes = DEFAULT_WINDOW_BYTES  # of the runtime's streams
        self.largest_window_bytes = DEFAULT_WINDOW_BYTES  # that the client was ever told

    # opening

    def open(self, stream_id: int, route: Route, fields: Mapping[bytes, bytes]) -> None:
        """Taps or holds a new stream whose route is not to pass (or, where it cannot, releases or refuses it)."""
        call = Call(route.path, grpc_timeout_s(fields.get(b"grpc-timeout")), time.monotonic())
        holds = route.plan.treatment is Treatment.HOLD
        state = StreamState.HOLDING if holds else StreamState.TAPPED
        stream = Stream(stream_id, route, call, state, self.initial_window_bytes)
        self._streams.add(stream)
        if not holds:
            self._pair.tapped[stream_id] = stream
            return
        self._held[stream_id] = stream
        if unheld := _cannot_be_edited(fields):
            self._give_up_holding(stream, unheld, FAILED_PRECONDITION)
        elif self._budget.is_exceeded:
            self._budget.relieve()

    # collecting

    def take(self, stream: Stream, payload: bytes, size_bytes: int, ended: bool) -> None:
        """Takes DATA of a stream that is not TAPPED. ``size_bytes`` counts its padding too."""
        accounts = self._accounts
        accounts.credit_connection(size_bytes)
        stream.client_ended = stream.client_ended or ended
        if stream.state is StreamState.RELEASED:
            self._take_released(stream, payload, size_bytes)
            return
        if not ended:
            accounts.credit_stream(stream, size_bytes)
        if stream.state is not StreamState.HOLDING:  # refusing: what still comes is dropped
            return
        stream.put(payload)
        accounts.account(stream, len(payload))
        if stream.held_bytes > PREFIX_BYTES + MAX_MESSAGE_BYTES:
            self._give_up_holding(stream, "over 16 MiB", RESOURCE_EXHAUSTED)
            return
        if self._budget.is_exceeded:
            self._budget.relieve()
        if ended and stream.id in self._held:
            self._complete(stream)

    def _take_released(self, stream: Stream, payload: bytes, size_bytes: int) -> None:
        stream.uncredited_bytes += len(payload)
        if not stream.client_ended:
            self._accounts.credit_stream(stream, size_bytes - len(payload))  # padding is dropped here
        if stream.uncredited_bytes > self.largest_window_bytes:
            raise FrameError(FLOW_CONTROL_ERROR, f"DATA beyond the window of stream {stream.id}")
        stream.put(payload)
        self._send(stream)

    # giving up

    def give_way(self) -> None:
        """Gives up holding the request that was opened last."""
        stream = self._held[next(reversed(self._held))]
        self._give_up_holding(stream, "held bytes over budget", RESOURCE_EXHAUSTED)

    def _give_up_holding(self, stream: Stream, reason: str, code: int) -> None:
        """Sends the request on unedited, since it cannot be edited, or refuses it where a server's policy is Fail."""
        self._metrics.not_held[reason] += 1
        stream.take_back()
        if stream.route.plan.fail_closed:
            self._refusals.refuse(stream, Refuse(code, f"koord-runtime-proxy: the request cannot be edited ({reason})"))
        else:
            log.warning("%s goes on unedited: %s", stream.route.path, reason)
            self._release(stream)

    def interrupted(self, stream: Stream) -> bool:
        """Notes trailers from the client: no gRPC client sends them, so this is not a unary call, and is not edited.

        True if the stream was ours and its message has to go before them.
        """
        if stream.id in self._held:
            self._give_up_holding(stream, "trailers from the client", FAILED_PRECONDITION)
        return stream.state is StreamState.RELEASED

    def release_all(self) -> None:
        """Sends all held requests on as they came, for the bypass."""
        for stream in list(self._held.values()):
            self._metrics.fail_open["bypass"] += 1
            stream.take_back()
            self._release(stream)

    # asking

    def _complete(self, stream: Stream) -> None:
        message = grpc_message(stream.data)
        if message is None:
            self._give_up_holding(stream, "not one uncompressed message", FAILED_PRECONDITION)
            return
        stream.replace(b"")
        stream.message = message
        self._accounts.to_state(stream, StreamState.ASKING)
        if self._budget.is_exceeded:
            self._budget.relieve()
            if stream.state is not StreamState.ASKING:  # it has given way itself
                return
        self._metrics.held_streams += 1
        stream.task = self._pair.loop.create_task(self._ask(stream, message))
        stream.task.add_done_callback(partial(self._count_hold, stream))

    def _count_hold(self, stream: Stream, task: asyncio.Task[None]) -> None:
        self._metrics.held_streams -= 1
        times = histogram_of(stream.call.path, self._metrics.hold_duration_seconds)
        times.observe(time.monotonic() - stream.call.started)

    async def _ask(self, stream: Stream, message: bytes) -> None:
        verdict, edited = await self._verdict(stream, message)
        stream.task = None
        try:
            if isinstance(verdict, Refuse):
                self._refusals.refuse(stream, verdict)
                return
            self._metrics.edited_requests += edited is not None
            self._release_whole(stream, grpc_body(message) if edited is None else edited)
        except Exception:  # half a request may have gone: nothing on this connection can be relied on any more
            log.exception("connection closed: %s could not be sent on", stream.route.path)
            self._pair.close()
            return
        if verdict.then is not None:
            try:
                verdict.then()
            except Exception:
                log.exception("%s was sent on, but the work behind it failed", stream.route.path)

    async def _verdict(self, stream: Stream, message: bytes) -> tuple[Forward | Refuse, bytes | None]:
        """Decides on the request, and its body if it is edited. A fault of ours must never stop a pod."""
        try:
            verdict = await self._pair.policy.interceptor.request(stream.call, message)
            if isinstance(verdict, Refuse) or verdict.message is message:
                return verdict, None
            if len(verdict.message) <= MAX_MESSAGE_BYTES or len(message) > MAX_MESSAGE_BYTES:
                return verdict, grpc_body(verdict.message)
        except asyncio.CancelledError as error:
            if stream.task is None:  # `stop_asking`
                raise
            return self._verdict_after_failure(stream, message, "cancelled", error), None
        except CannotBeEdited as error:
            return self._verdict_after_failure(stream, message, error.reason, None, error.code), None
        except Exception as error:  # noqa: BLE001 - fail open, or closed where that is the policy
            return self._verdict_after_failure(stream, message, type(error).__name__, error), None
        return self._verdict_after_failure(stream, message, "over 16 MiB", None), None

    def _verdict_after_failure(
        self, stream: Stream, message: bytes, reason: str, error: BaseException | None, code: int = INTERNAL
    ) -> Forward | Refuse:
        """Counts and logs an edit that failed. Returns to refuse the request where a server's policy is Fail, else to
        send it on as it came; then the cache takes it.
        """
        self._metrics.fail_open[reason] += 1
        log.error("%s: the edit failed (%s)", stream.route.path, reason, exc_info=error)
        if stream.route.plan.fail_closed:
            return Refuse(code, f"koord-runtime-proxy: the edit failed ({reason})")
        # The cache's work comes after the request has gone: it may fail as the edit did.
        return Forward(message, partial(self._pair.policy.interceptor.tapped, stream.call, message))

    # releasing

    def _release(self, stream: Stream) -> None:
        """Sends on what there is of the request, and what will come."""
        if stream.state not in (StreamState.REFUSING, StreamState.RELEASED):
            self._held.pop(stream.id, None)
            self._accounts.to_state(stream, StreamState.RELEASED)
            self._send(stream)

    def _release_whole(self, stream: Stream, body: bytes) -> None:
        """Releases a request that has been decided on: mostly one frame that nothing stands in the way of."""
        uplink = self._uplink
        frames = None if uplink.is_congested else uplink.outbox.whole(stream, body)
        if frames is None:
            stream.replace(body)
            self._release(stream)
            return
        self._held.pop(stream.id, None)
        self._accounts.empty(stream)
        self._accounts.to_state(stream, StreamState.RELEASED)
        self._pair.to_runtime.inject(frames)

    def _send(self, stream: Stream) -> None:
        self._accounts.account(stream, stream.left_bytes - stream.held_bytes)
        self._uplink.outbox.release(stream)
        self._uplink.pump()
        if self._budget.is_exceeded:
            self._budget.relieve()

    # windows

    def initial_window(self, size_bytes: int) -> None:
        """Moves the window of every stream by the change of the runtime's SETTINGS_INITIAL_WINDOW_SIZE."""
        change = size_bytes - self.initial_window_bytes
        self.largest_window_bytes = max(self.largest_window_bytes, size_bytes)
        self.initial_window_bytes = size_bytes
        self._pair.credit_stream_batch_bytes = min(CREDIT_BATCH_BYTES, max(1, size_bytes // 4))
        for stream in self._pair.streams.values():
            if isinstance(stream, Stream):
                stream.window_bytes += change
                if stream.owed_bytes and not stream.client_ended:
                    self._accounts.credit_stream(stream, 0)


def _cannot_be_edited(fields: Mapping[bytes, bytes]) -> str | None:
    if b"content-length" in fields:
        return "content-length"
    if fields.get(b"grpc-encoding", b"identity") != b"identity":
        return "grpc-encoding"
    return None
