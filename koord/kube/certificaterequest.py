"""CertificateSigningRequests for koord-manager's signer: what is requested of it, and what came of that.

For those who show koord-manager a certificate: nodes, and schedulers. Fails with UselessAnswer.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import msgspec

from koord.kube.kind import CERTIFICATE_SIGNING_REQUEST, Unstructured
from koord.model.nodelink import CERTIFICATE_LIFETIME_S, SIGNER


class UselessAnswer(Exception):
    """The answer to a request is final, and no certificate; the text says why."""


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    message: str = ""


class _Status(msgspec.Struct, frozen=True):
    certificate: bytes = b""
    conditions: tuple[_Condition, ...] = ()


def document(name: str, request: bytes) -> dict[str, Any]:
    """Returns the object to be created. ``request``: PEM."""
    return {
        "apiVersion": CERTIFICATE_SIGNING_REQUEST.api_version,
        "kind": CERTIFICATE_SIGNING_REQUEST.name,
        "metadata": {"name": name},
        "spec": {
            "request": b64encode(request).decode(),
            "signerName": SIGNER,
            "usages": ["digital signature", "client auth"],
            "expirationSeconds": CERTIFICATE_LIFETIME_S,
        },
    }


def certificate_of(stored: Unstructured) -> bytes:
    """Returns the certificate, PEM; b"" if it is not there yet. Raises UselessAnswer for a request that was denied."""
    content: Mapping[str, Any] = stored.content
    try:
        status = msgspec.convert(content.get("status") or {}, _Status)
    except msgspec.ValidationError as error:
        raise UselessAnswer(f"CertificateSigningRequest {stored.metadata.name} cannot be read: {error}") from error
    for condition in status.conditions:
        if condition.type in ("Denied", "Failed"):
            raise UselessAnswer(f"CertificateSigningRequest {stored.metadata.name}: {condition.message}")
    return status.certificate
