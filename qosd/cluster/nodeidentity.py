"""Who this node is on NodeLink: by a certificate that it requests with kubelet's credential, or by a pod's token.

The certificate's key lives in this process alone: a restart requests another one, and nothing is left on a disk. It is
renewed after two thirds of its life, when the manager's authorities change, and when it was refused. A token's file is
read again each minute, since kubelet replaces it. Fails with KubeError or NoIdentity, which says what lacks.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Protocol

import msgspec

from koord.http2.tlsclient import ALPN
from koord.kube.client import Client, Selection
from koord.kube.credentials import pem_file
from koord.kube.kind import CERTIFICATE_SIGNING_REQUEST, Unstructured
from koord.model.nodelink import CERTIFICATE_LIFETIME_S, NODE_GROUP, NODE_USER, SIGNER

SIGNED_WITHIN_S = 60.0
TOKEN_S = 60.0
_CHILD_S = 30.0
_PROGRAM = "qosd.cluster.certificaterequest"
"""Never imported here: what it needs is as much memory as all of the link's own."""
_KEY_END = b"-----END PRIVATE KEY-----\n"
_NAME_CHARACTERS = 200
Metadata = Sequence[tuple[str, str]]


class NoIdentity(Exception):
    """There is nothing to say who this node is."""


class Identity(Protocol):
    """``context``: TLS for a server that ``ca`` (PEM) verifies. ``metadata``: what goes with each call."""

    async def context(self, ca: str) -> ssl.SSLContext: ...
    def metadata(self) -> Metadata: ...
    def is_due(self) -> bool:
        """Is it time for another ``context``?"""

    def reject(self) -> None:
        """The manager did not accept it."""


class Certificate:
    """``user``: the node's, as the API server knows who requests."""

    def __init__(self, client: Client, node_name: str, clock: Callable[[], float]) -> None:
        self._client, self._node_name, self._clock = client, node_name, clock
        self._key = self._certificate = b""
        self._ca = ""
        self._issued_s = float("-inf")

    async def context(self, ca: str) -> ssl.SSLContext:
        if self.is_due() or ca != self._ca:
            self._key, self._certificate = await self._request()
            self._ca, self._issued_s = ca, self._clock()
        context = _context(ca)
        with pem_file(self._certificate) as chain, pem_file(self._key) as key:
            context.load_cert_chain(chain, key)
        return context

    def metadata(self) -> Metadata:
        return ()

    def is_due(self) -> bool:
        return self._clock() >= self._issued_s + CERTIFICATE_LIFETIME_S * 2 / 3

    def reject(self) -> None:
        self._issued_s = float("-inf")

    async def _request(self) -> tuple[bytes, bytes]:
        key, request = await _key_and_request(f"{NODE_USER}{self._node_name}", NODE_GROUP)
        name = f"nodelink-{self._node_name[:_NAME_CHARACTERS]}-{secrets.token_hex(5)}"
        body: dict[str, Any] = {
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
        created = await self._client.create(CERTIFICATE_SIGNING_REQUEST, body)
        try:
            async with asyncio.timeout(SIGNED_WITHIN_S):
                return key, await self._signed(created)
        except TimeoutError:
            raise NoIdentity(f"CertificateSigningRequest {name} is not signed in {SIGNED_WITHIN_S:g} s") from None

    async def _signed(self, request: Unstructured) -> bytes:
        """Raises NoIdentity, KubeError or TimeoutError."""
        name, version = request.metadata.name, request.metadata.resource_version
        selection = Selection(fields=f"metadata.name={name}")
        watch = self._client.watch(CERTIFICATE_SIGNING_REQUEST, version, selection, SIGNED_WITHIN_S)
        async with aclosing(watch) as changes:
            async for change in changes:
                if change.entry.object is not None and (certificate := _certificate(change.entry.object)):
                    return certificate
        raise NoIdentity(f"CertificateSigningRequest {name} was not signed while it was watched")


class Token:
    """``file``: a projected token for ``AUDIENCE``."""

    def __init__(self, file: Path, clock: Callable[[], float]) -> None:
        self._file, self._clock = file, clock
        self._token, self._read_s = "", float("-inf")

    async def context(self, ca: str) -> ssl.SSLContext:
        self._read()
        return _context(ca)

    def metadata(self) -> Metadata:
        if self._clock() >= self._read_s + TOKEN_S:
            self._read()
        return (("authorization", f"Bearer {self._token}"),)

    def is_due(self) -> bool:
        return False

    def reject(self) -> None:
        self._read_s = float("-inf")

    def _read(self) -> None:
        try:
            self._token = self._file.read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            raise NoIdentity(f"the token cannot be read: {error}") from error
        self._read_s = self._clock()


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    message: str = ""


class _Status(msgspec.Struct, frozen=True):
    certificate: bytes = b""
    conditions: tuple[_Condition, ...] = ()


def _certificate(request: Unstructured) -> bytes:
    """PEM; b"" if it is not there yet. Raises NoIdentity for a request that was denied."""
    content: Mapping[str, Any] = request.content
    status = msgspec.convert(content.get("status") or {}, _Status)
    for condition in status.conditions:
        if condition.type in ("Denied", "Failed"):
            raise NoIdentity(f"CertificateSigningRequest {request.metadata.name}: {condition.message}")
    return status.certificate


async def _key_and_request(user: str, group: str) -> tuple[bytes, bytes]:
    """Raises NoIdentity."""
    command = (sys.executable, "-m", _PROGRAM, user, group)
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(_CHILD_S):
            output, errors = await child.communicate()
    except TimeoutError:
        raise NoIdentity(f"no key in {_CHILD_S:g} s") from None
    finally:
        if child.returncode is None:
            child.kill()
    if child.returncode:
        last = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise NoIdentity(f"no key could be made: {last or f'exit code {child.returncode}'}")
    key, end, request = output.partition(_KEY_END)
    return key + end, request


def _context(ca: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols([ALPN])
    try:
        context.load_verify_locations(cadata=ca)
    except ssl.SSLError as error:
        raise NoIdentity(f"the Lease has no authorities that can be used: {error}") from error
    return context
