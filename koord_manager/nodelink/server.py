"""The port that nodes call, on every replica: TLS, connections, and what the leader does beside.

The server's certificate and the authority that signs nodes' certificates come of one Secret, which is kept as the
webhooks' is (`koord.kube.servingcerts`), without a configuration to follow it: nodes read the authorities in the Lease.
Invariants: a connection on which no node has called for ``IDLE_S`` is closed, so one that is half open, or of somebody
who is refused again and again, holds nothing for long; clients that say nothing are bounded by the listener; when a
leadership ends, its nodes are sent away and look for the next.
Fails with OSError if the port cannot be had.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from weakref import WeakSet

from koord.http2.server import Method, PeerServer
from koord.http2.tlsclient import ALPN
from koord.kube import servingloop
from koord.kube.certificates import CA_CERTIFICATE, CA_KEY, CertificateError, KeyPair
from koord.kube.livetls import LiveContext
from koord.kube.servingcerts import Service
from koord.kube.tlslistener import TLSListener
from koord.model.nodelink import CA_ANNOTATION, SERVER_NAME
from koord_manager.certificatestore import CertificateStore
from koord_manager.nodelink.service import Caller, NodeLinkService

_log = logging.getLogger(__name__)
SECRET_NAME = "koordinator-nodelink-certs"  # a name, not a password
MAX_MESSAGE_BYTES = 1 << 20
IDLE_S = 60.0
MAX_CONNECTIONS = 10_000
"""Twice as many as a cluster of Kubernetes may have nodes; handshakes under way count."""
_HANDSHAKE_S, _SHUTDOWN_S = 20.0, 5.0


class NodeLinkServer:
    """``store``: of the Secret ``SECRET_NAME``."""

    def __init__(self, service: NodeLinkService, store: CertificateStore, namespace: str) -> None:
        self._service, self._store = service, store
        self._identity = Service("koordinator-nodelink", namespace, (SERVER_NAME,))
        self._tls = LiveContext(None, ALPN)
        self._server = PeerServer(self._methods_of, MAX_MESSAGE_BYTES)
        self._callers: WeakSet[Caller] = WeakSet()
        self.port = 0

    @property
    def connections(self) -> int:
        return self._server.connections

    def annotations(self) -> Mapping[str, str]:
        """What nodes must know to trust this server; empty before it has a certificate."""
        certificate = self._tls.certificate
        return {} if certificate is None else {CA_ANNOTATION: certificate.ca_bundle.decode("ascii")}

    @contextlib.asynccontextmanager
    async def serving(self, host: str, port: int) -> AsyncIterator[None]:
        """Raises OSError."""
        listener = TLSListener(
            self._tls.server_context,
            self._server.protocol,
            lambda: self._server.connections,
            MAX_CONNECTIONS,
            _HANDSHAKE_S,
            _SHUTDOWN_S,
        )
        _, self.port = await listener.start(host, port)
        _log.info("NodeLink at %s:%d", host, self.port)
        changed = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(servingloop.keep(self._store, self._tls, self._identity, _now, changed)),
                group.create_task(self._store.watch(changed, time.monotonic)),
                group.create_task(self._sweep()),
            ]
            try:
                yield
            finally:
                await listener.stop()
                await listener.cut()
                self._server.close()
                for task in tasks:
                    task.cancel()

    def dismiss(self) -> None:
        """Sends every node away."""
        self._server.close()

    async def read_ca(self) -> KeyPair:
        """The authority that signs. Raises KubeError or CertificateError."""
        secret = await self._store.read_secret()
        data = (secret.data if secret is not None else None) or {}
        for key in (CA_KEY, CA_CERTIFICATE):
            if not data.get(key):
                raise CertificateError(key, f"is missing in Secret {SECRET_NAME}")
        return KeyPair(data[CA_KEY], data[CA_CERTIFICATE])

    def _methods_of(self, transport: asyncio.BaseTransport) -> Mapping[bytes, Method]:
        caller = self._service.caller(transport)
        self._callers.add(caller)
        return caller.methods

    async def _sweep(self) -> None:
        """Closes what has been idle from one look to the next."""
        while True:
            await asyncio.sleep(IDLE_S)
            for caller in list(self._callers):
                if caller.was_idle():
                    caller.transport.close()


def _now() -> datetime:
    return datetime.now(UTC)
