"""The node or scheduler at the other end of a call, by its connection's certificate.

gRPC verified the certificate in the handshake by the manager's own authorities, which sign ``system:node:`` names for
nodes alone, and for schedulers those of another group; its end is looked at with each call, since a connection may
outlive it. Fails with Refusal (UNAUTHENTICATED), which says what lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from cryptography import x509
from cryptography.x509.oid import NameOID

from koord.http2.grpc import PERMISSION_DENIED, UNAUTHENTICATED
from koord.http2.server import Refusal
from koord.model.nodelink import NODE_GROUP, NODE_USER, SCHEDULER_GROUP

_CERTIFICATE = "x509_pem_cert"
"""gRPC's name of the peer's certificate (``GRPC_X509_PEM_CERT_PROPERTY_NAME``)."""
_MOST_READ = 20_000


@dataclass(frozen=True, slots=True)
class CertificateIdentity:
    """``node`` "": the certificate is no node's; ``scheduler``: the name of a scheduler's certificate, which no other
    one has, "" of one that is none. ``expires_s``: seconds since 1970.
    """

    node: str
    expires_s: float
    scheduler: str = ""


def node_of(peer: Mapping[str, Iterable[bytes]], wall_s: float) -> str:
    """The node at the other end; ``peer``: gRPC's properties of it. Raises Refusal."""
    identity = _read(next(iter(peer.get(_CERTIFICATE, ())), b""))
    if not identity.node:
        raise Refusal(UNAUTHENTICATED, "the certificate is no node's")
    if wall_s >= identity.expires_s:
        raise Refusal(UNAUTHENTICATED, f"the certificate of node {identity.node} has expired")
    return identity.node


def scheduler_of(peer: Mapping[str, Iterable[bytes]], wall_s: float) -> str:
    """The scheduler at the other end, by a name that each of its replicas has for itself. Raises Refusal."""
    identity = _read(next(iter(peer.get(_CERTIFICATE, ())), b""))
    if not identity.scheduler:
        raise Refusal(PERMISSION_DENIED, "the certificate is no scheduler's")
    if wall_s >= identity.expires_s:
        raise Refusal(UNAUTHENTICATED, f"the certificate of {identity.scheduler} has expired")
    return identity.scheduler


@lru_cache(maxsize=_MOST_READ)
def _read(pem: bytes) -> CertificateIdentity:
    """Reads ``pem``, a certificate that the handshake verified."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        names = {attribute.oid: str(attribute.value) for attribute in certificate.subject}
    except ValueError:
        return CertificateIdentity("", 0.0)
    user = names.get(NameOID.COMMON_NAME, "")
    group, is_nodes_name = names.get(NameOID.ORGANIZATION_NAME), user.startswith(NODE_USER)
    return CertificateIdentity(
        user.removeprefix(NODE_USER) if is_nodes_name and group == NODE_GROUP else "",
        certificate.not_valid_after_utc.timestamp(),
        f"{user} {certificate.serial_number:x}" if group == SCHEDULER_GROUP and not is_nodes_name else "",
    )
