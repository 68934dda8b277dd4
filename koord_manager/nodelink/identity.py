"""Which node is at the other end of a connection: by its certificate, or by the token that comes with its calls.

A certificate was verified in the handshake by the manager's own authorities, which sign ``system:node:`` names for
nobody else; its end is looked at with each call, since a connection may outlive it. A token is reviewed by the API
server (``tokens``). Fails with Refusal (UNAUTHENTICATED), which says what lacks.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from koord.http2.grpc import UNAUTHENTICATED
from koord.http2.server import Refusal
from koord.model.nodelink import NODE_GROUP, NODE_USER

_BEARER = b"Bearer "


@dataclass(frozen=True, slots=True)
class CertificateIdentity:
    """``expires_s``: seconds since 1970."""

    node: str
    expires_s: float

    def check(self, wall_s: float) -> None:
        """Raises Refusal."""
        if wall_s >= self.expires_s:
            raise Refusal(UNAUTHENTICATED, f"the certificate of node {self.node} has expired")


def of_connection(transport: asyncio.BaseTransport) -> CertificateIdentity | None:
    """None without a certificate, or with one that is no node's."""
    certificate: Mapping[str, Any] = transport.get_extra_info("peercert") or {}
    names = dict(pair for part in certificate.get("subject", ()) for pair in part)
    user = names.get("commonName", "")
    if not user.startswith(NODE_USER) or names.get("organizationName") != NODE_GROUP:
        return None
    end = certificate.get("notAfter")
    return CertificateIdentity(user.removeprefix(NODE_USER), ssl.cert_time_to_seconds(end) if end else -math.inf)


def token(fields: Mapping[bytes, bytes]) -> str:
    """The bearer token of a call. Raises Refusal."""
    value = fields.get(b"authorization", b"")
    if not value.startswith(_BEARER):
        raise Refusal(UNAUTHENTICATED, "neither a node's certificate nor a bearer token: who is this?")
    return value.removeprefix(_BEARER).decode("latin-1")
