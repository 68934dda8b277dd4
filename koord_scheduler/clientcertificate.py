"""The scheduler's certificate for koord-manager: requested at the API server, signed by the manager's own signer.

Fails with NoCertificate or KubeError. A certificate is requested anew when two thirds of its time are over.
"""

from __future__ import annotations

import asyncio
import secrets
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from koord.kube.client import Client
from koord.kube.kind import CERTIFICATE_SIGNING_REQUEST, Key, Unstructured
from koord.model.nodelink import CERTIFICATE_LIFETIME_S, SCHEDULER_GROUP, SIGNER

SIGNED_WITHIN_S, _LOOK_S = 30.0, 0.5


class NoCertificate(Exception):
    """The text says why."""


class ClientCertificate(NamedTuple):
    """PEM. ``renew_s``: when to request another one, in seconds since 1970."""

    key: bytes
    chain: bytes
    renew_s: float


async def request(client: Client, user: str) -> ClientCertificate:
    """Returns a certificate for ``user``, who this process is to the API server. Raises NoCertificate or KubeError."""
    key, wanted = _key_and_request(user)
    name = f"koord-scheduler-{secrets.token_hex(6)}"
    spec = {
        "request": b64encode(wanted).decode(),
        "signerName": SIGNER,
        "usages": ["digital signature", "client auth"],
        "expirationSeconds": CERTIFICATE_LIFETIME_S,
    }
    body = {
        "apiVersion": CERTIFICATE_SIGNING_REQUEST.api_version,
        "kind": CERTIFICATE_SIGNING_REQUEST.name,
        "metadata": {"name": name},
        "spec": spec,
    }
    stored = await client.create(CERTIFICATE_SIGNING_REQUEST, body)
    try:
        async with asyncio.timeout(SIGNED_WITHIN_S):
            while not (chain := _certificate(stored)):
                await asyncio.sleep(_LOOK_S)
                stored = await client.get(CERTIFICATE_SIGNING_REQUEST, Key("", name))
    except TimeoutError:
        raise NoCertificate(f"CertificateSigningRequest {name} was not signed in {SIGNED_WITHIN_S:g}s") from None
    try:
        made = x509.load_pem_x509_certificate(chain)
    except ValueError as error:
        raise NoCertificate(f"CertificateSigningRequest {name} has no certificate: {error}") from error
    begins_s, ends_s = made.not_valid_before_utc.timestamp(), made.not_valid_after_utc.timestamp()
    return ClientCertificate(key, chain, ends_s - (ends_s - begins_s) / 3)


def _key_and_request(user: str) -> tuple[bytes, bytes]:
    """PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = ((NameOID.ORGANIZATION_NAME, SCHEDULER_GROUP), (NameOID.COMMON_NAME, user))
    subject = x509.Name([x509.NameAttribute(*each) for each in names])
    wanted = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    encoding, no_encryption = serialization.Encoding.PEM, serialization.NoEncryption()
    return (
        key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, no_encryption),
        wanted.public_bytes(encoding),
    )


def _certificate(stored: Unstructured) -> bytes:
    """b"": not signed yet. Raises NoCertificate for a request that was denied."""
    status: Mapping[str, Any] = stored.content.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") in ("Denied", "Failed"):
            raise NoCertificate(f"CertificateSigningRequest {stored.metadata.name}: {condition.get('message', '')}")
    return b64decode(status.get("certificate") or "")
