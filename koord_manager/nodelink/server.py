"""The port that nodes call, on every replica: gRPC over TLS, for clients with a certificate of the manager's authority.

grpcio serves it, behind a `ConnectionGate` that takes the network's connections: gRPC's transport works in threads of
its own, so what is said on a connection costs the manager's event loop no more than to hand it on. The server's
certificate and the authority that signs nodes' certificates come of one Secret, which is kept as the webhooks' is
(`koord.tls.servingcerts`), but without a configuration to follow it (nodes read the authorities in the Lease), and by
the manager alone: whom the authority certifies can be a node. Before the first certificate is there the server has one
that no client trusts.

Invariants: who has no certificate gets no further than the handshake, which has ``HANDSHAKE_S``; connections of
strangers and of each node, calls of one connection, and bytes of a call are bounded; a node has ``MAX_CALLS`` calls at
a time, and what goes beyond is refused, so none can take the others' place; connections end after ``AGE_S``, and after
``IDLE_S`` without a call.
Fails with OSError if the port cannot be had.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import grpc
import grpc.aio

from koord.http2.grpc import INTERNAL, RESOURCE_EXHAUSTED
from koord.http2.server import Refusal
from koord.model.nodelink import CA_ANNOTATION, SERVER_NAME
from koord.tls import certificates
from koord.tls.certificates import CA_CERTIFICATE, CA_KEY, CertificateError, KeyPair, ServingCertificate
from koord.tls.certificatestore import CertificateStore
from koord.tls.context import LiveContext
from koord.tls.listener import listening_socket
from koord.tls.servingcerts import Service
from koord_manager.nodelink import identity
from koord_manager.nodelink.gate import ConnectionGate
from koord_manager.nodelink.service import NodeLinkService
from koord_manager.nodelink.watching import WATCH, StateWatcher

_log = logging.getLogger(__name__)
SECRET_NAME = "koordinator-nodelink-certs"  # a name, not a password
MAX_MESSAGE_BYTES = 64 << 10
MAX_METADATA_BYTES = 8 << 10
TLS_RECORD_BYTES = 2 << 10
"""Of what is answered, which is a few hundred: gRPC has a buffer of one for each connection, by default of 16 KiB."""
MAX_CALLS = 16
"""Of a node, and of a connection."""
HANDSHAKE_S, IDLE_S, AGE_S, GRACE_S = 10.0, 60.0, 3600.0, 30.0
"""``GRACE_S``: for calls under way on a connection of that age."""
_DRAIN_S = 1.0
_MESSAGE_CHARACTERS = 1000
"""Of a refusal: with percent signs three times as long, and a header block has 8 KiB."""
_STATUS = {code.value[0]: code for code in grpc.StatusCode}
Answer = Callable[[str, bytes], Awaitable[bytes]]
"""From the calling node and its message. Raises Refusal."""


def options() -> list[tuple[str, int]]:
    """gRPC's channel arguments of the server."""
    return [
        ("grpc.max_concurrent_streams", MAX_CALLS),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.server_handshake_timeout_ms", int(HANDSHAKE_S * 1000)),
        ("grpc.max_connection_idle_ms", int(IDLE_S * 1000)),
        ("grpc.max_connection_age_ms", int(AGE_S * 1000)),
        ("grpc.max_connection_age_grace_ms", int(GRACE_S * 1000)),
        ("grpc.http2.max_ping_strikes", 2),
        ("grpc.tsi.max_frame_size", TLS_RECORD_BYTES),
        ("grpc.so_reuseport", 0),
    ]


class NodeLinkServer:
    """``store``: of the Secret ``SECRET_NAME``."""

    def __init__(
        self,
        service: NodeLinkService,
        store: CertificateStore,
        namespace: str,
        watcher: StateWatcher | None = None,
    ) -> None:
        self._watcher = watcher
        self._service, self._store = service, store
        self._identity = Service("koordinator-nodelink", namespace, (SERVER_NAME,))
        self._calls = Counter[str]()
        self._gate = ConnectionGate()
        nobodys = certificates.issue_ca(_now())
        pair = certificates.issue_serving(nobodys, [SERVER_NAME], _now())
        self._configuration = _configuration(pair, nobodys.certificate)
        self._news = deque[grpc.ServerCertificateConfiguration](maxlen=1)
        """What no handshake has been told of yet."""
        self._ca: KeyPair | None = None
        """What signs, since it was read for the certificate that is served."""
        self.certificate: ServingCertificate | None = None
        self.port = 0

    def calls_of(self, node: str) -> int:
        """Returns how many calls of ``node`` are under way."""
        return self._calls[node]

    def annotations(self) -> Mapping[str, str]:
        """Returns what nodes must know to trust this server; empty before it has a certificate."""
        return {} if self.certificate is None else {CA_ANNOTATION: self.certificate.ca_bundle.decode("ascii")}

    @contextlib.asynccontextmanager
    async def serving(self, host: str, port: int) -> AsyncIterator[None]:
        """Raises OSError."""
        server = grpc.aio.server(options=options())
        server.add_generic_rpc_handlers((_Handlers(self._methods()),))
        take_news: Any = self._take_news  # the stubs do not know that there may be none
        credentials = grpc.dynamic_ssl_server_credentials(self._configuration, take_news, True)
        inner_port = server.add_secure_port("127.0.0.1:0", credentials)
        listener = listening_socket(host, port)
        self.port = listener.getsockname()[1]
        await server.start()
        _log.info("NodeLink at %s:%d", host, self.port)
        async with self._gate.open(listener, inner_port), self._store.kept_in(self, self._identity):
            try:
                yield
            finally:
                await server.stop(_DRAIN_S)
                await self._service.end_evictions()

    def load(self, certificate: ServingCertificate) -> None:
        """Handshakes that begin from now on see ``certificate``. Raises CertificateError and changes nothing then."""
        LiveContext(None).load(certificate)  # gRPC would find out with the next handshake
        self._news.append(_configuration(certificate.pair, certificate.ca_bundle or certificate.pair.certificate))
        self.certificate, self._ca = certificate, None

    async def read_ca(self) -> KeyPair:
        """The authority that signs. Raises KubeError or CertificateError."""
        if self._ca is not None:
            return self._ca
        served = self.certificate
        secret = await self._store.read_secret()
        data = (secret.data if secret is not None else None) or {}
        for key in (CA_KEY, CA_CERTIFICATE):
            if not data.get(key):
                raise CertificateError(key, f"is missing in Secret {SECRET_NAME}")
        ca = KeyPair(data[CA_KEY], data[CA_CERTIFICATE])
        if served is not None and served is self.certificate:
            self._ca = ca
        return ca

    def _take_news(self) -> grpc.ServerCertificateConfiguration | None:
        """Returns, for each handshake, in a thread of gRPC's, a certificate that is newer than the last one; None if
        there is none.

        gRPC replaces what it has by what it gets here, and frees what other handshakes may be about to use
        (https://github.com/grpc/grpc/issues/36693): with the same answer for each of them, a client
        that broke off handshakes ended the process.
        """
        try:
            return self._news.pop()
        except IndexError:
            return None

    def _methods(self) -> Mapping[str, grpc.RpcMethodHandler[bytes, bytes]]:
        found = {path: self._handler(path, answer) for path, answer in self._service.methods.items()}
        if self._watcher is not None:
            found[WATCH] = self._stream_handler(self._watcher)
        return found

    def _handler(self, path: str, answer: Answer) -> grpc.RpcMethodHandler[bytes, bytes]:
        async def handle(message: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            try:
                return await self._answered(answer, message, context)
            except Refusal as refusal:
                self._service.results["refused"] += 1
                code, text = refusal.code, refusal.message[:_MESSAGE_CHARACTERS]
            except Exception:  # noqa: BLE001 - the root of a call
                _log.exception("%s failed", path)
                code, text = INTERNAL, "the manager failed; its log says how"
            await context.abort(_STATUS[code], text)

        return grpc.unary_unary_rpc_method_handler(handle)

    def _stream_handler(self, watcher: StateWatcher) -> grpc.RpcMethodHandler[bytes, bytes]:
        async def handle(message: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> AsyncIterator[bytes]:
            try:
                scheduler = identity.scheduler_of(context.auth_context(), self._service.wall_s())
                with self._call_of(scheduler, context):
                    async for update in watcher.watch(message):
                        yield update
                return
            except Refusal as refusal:
                code, text = refusal.code, refusal.message[:_MESSAGE_CHARACTERS]
            await context.abort(_STATUS[code], text)

        return grpc.unary_stream_rpc_method_handler(handle)

    async def _answered(self, answer: Answer, message: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        """Raises Refusal."""
        node = identity.node_of(context.auth_context(), self._service.wall_s())
        with self._call_of(node, context):
            return await answer(node, message)

    @contextlib.contextmanager
    def _call_of(self, name: str, context: grpc.aio.ServicerContext[bytes, bytes]) -> Iterator[None]:
        """Counts the call of a node or scheduler. Raises Refusal."""
        self._gate.prove(int(context.peer().rpartition(":")[2]), name)
        if self._calls[name] >= MAX_CALLS:
            raise Refusal(RESOURCE_EXHAUSTED, f"{MAX_CALLS} calls of {name} are under way")
        self._calls[name] += 1
        try:
            yield
        finally:
            self._calls[name] -= 1
            if not self._calls[name]:
                del self._calls[name]


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, methods: Mapping[str, grpc.RpcMethodHandler[bytes, bytes]]) -> None:
        self._methods = methods

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        return self._methods.get(handler_call_details.method)


def _configuration(pair: KeyPair, ca: bytes) -> grpc.ServerCertificateConfiguration:
    """Returns gRPC's form of a certificate. ``ca``: PEM of the authorities that verify clients."""
    return grpc.ssl_server_certificate_configuration([(pair.key, pair.certificate)], ca)


def _now() -> datetime:
    return datetime.now(UTC)
