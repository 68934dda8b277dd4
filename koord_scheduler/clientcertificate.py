"""The scheduler's certificate for koord-manager: requested at the API server, signed by the manager's own signer.

Fails with NoCertificate or KubeError. A certificate is requested anew when two thirds of its time are over.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import NamedTuple

from cryptography import x509

from koord.kube import certificaterequest
from koord.kube.certificaterequest import UselessAnswer, certificate_of
from koord.kube.client import Client
from koord.kube.clientkey import key_and_request
from koord.kube.kind import CERTIFICATE_SIGNING_REQUEST, Key
from koord.model.nodelink import SCHEDULER_GROUP

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
    key, wanted = key_and_request(user, SCHEDULER_GROUP)
    name = f"koord-scheduler-{secrets.token_hex(6)}"
    stored = await client.create(CERTIFICATE_SIGNING_REQUEST, certificaterequest.document(name, wanted))
    try:
        async with asyncio.timeout(SIGNED_WITHIN_S):
            while not (chain := certificate_of(stored)):
                await asyncio.sleep(_LOOK_S)
                stored = await client.get(CERTIFICATE_SIGNING_REQUEST, Key("", name))
    except UselessAnswer as error:
        raise NoCertificate(str(error)) from error
    except TimeoutError:
        raise NoCertificate(f"CertificateSigningRequest {name} was not signed in {SIGNED_WITHIN_S:g}s") from None
    try:
        made = x509.load_pem_x509_certificate(chain)
    except ValueError as error:
        raise NoCertificate(f"CertificateSigningRequest {name} has no certificate: {error}") from error
    begins_s, ends_s = made.not_valid_before_utc.timestamp(), made.not_valid_after_utc.timestamp()
    return ClientCertificate(key, chain, ends_s - (ends_s - begins_s) / 3)
