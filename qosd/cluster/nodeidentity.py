"""This node's identity on NodeLink: a certificate, requested with kubelet's credential or with the agent's pod's.

The certificate's key lives in this process alone: a restart requests another one, and nothing is left on a disk. It is
renewed after two thirds of its life, when the manager's authorities change, and when it was refused. Invariants: a good
certificate is used until there is a newer one, and until it expires; there is one request at a time, which is waited
for again until it is answered. After a useless answer (such as a denial) the next request waits some minutes, and after
the manager has refused a certificate until that is some minutes old: each request is an object that the API server
keeps for an hour. Fails with KubeError or NoIdentity, which says what is missing.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from koord.http2.tlsclient import ALPN
from koord.kube import certificaterequest
from koord.kube.certificaterequest import UselessAnswer, certificate_of
from koord.kube.client import Client, Selection
from koord.kube.credentials import pem_file
from koord.kube.errors import APIError, KubeError
from koord.kube.kind import CERTIFICATE_SIGNING_REQUEST, Key, Unstructured
from koord.model.nodelink import CERTIFICATE_LIFETIME_S, NODE_GROUP, NODE_USER
from koord.service.process import own_environment

SIGNED_WITHIN_S = 60.0
RENEWED_WITHIN_S = 10.0
"""The time that a link may stand still while its certificate, which is still good, is renewed."""
RETRY_S = 300.0
"""The pause after a failed renewal, a useless answer, and a refused certificate."""
_CHILD_S = 30.0
_PROGRAM = "koord.kube.clientkey"
"""Never imported here: its imports take as much memory as all of the link's own."""
_KEY_END = b"-----END PRIVATE KEY-----\n"
_NAME_CHARACTERS = 200
_log = logging.getLogger(__name__)


class NoIdentity(Exception):
    """This node has no certificate to show; the message says why."""


class _Unusable(NoIdentity):
    """The answer to a request is final, and of no use."""


@dataclass(frozen=True, slots=True)
class _Issued:
    key: bytes
    certificate: bytes
    ca: str
    issued_s: float


@dataclass(frozen=True, slots=True)
class _Request:
    """A certificate that is wanted for ``key``; ``request`` is PEM, ``name`` the object's."""

    key: bytes
    request: bytes
    name: str


class NodeIdentity:
    """``clock``: seconds, from any moment on. ``key_and_request``: PEM of both, for a user and a group."""

    def __init__(
        self,
        client: Client,
        node_name: str,
        clock: Callable[[], float],
        key_and_request: Callable[[str, str], Awaitable[tuple[bytes, bytes]]] | None = None,
    ) -> None:
        self._client, self._node_name, self._clock = client, node_name, clock
        self._key_and_request = key_and_request or _key_and_request
        self._issued: _Issued | None = None
        self._due_s = float("-inf")
        self._unanswered: _Request | None = None
        self._useless, self._again_s = "", float("-inf")
        self._said = ""

    async def context(self, ca: str) -> ssl.SSLContext:
        """Returns a TLS context for a server that ``ca`` (PEM) verifies. Raises KubeError or NoIdentity."""
        issued = self._issued
        if issued is None or ca != issued.ca or self._clock() >= issued.issued_s + CERTIFICATE_LIFETIME_S:
            return await self._renewed(ca)
        if self.is_due():
            try:
                async with asyncio.timeout(RENEWED_WITHIN_S):
                    return await self._renewed(ca)
            except (KubeError, NoIdentity, TimeoutError) as error:
                self._put_off(str(error) or f"it is not signed in {RENEWED_WITHIN_S:g} s")
        return _context(ca, issued)

    def is_due(self) -> bool:
        """Returns whether it is time for another ``context``."""
        return self._clock() >= self._due_s

    def reject(self) -> None:
        """Takes note that the manager did not accept the certificate.

        A new one fares no better soon, so this one stays until it is some minutes old.
        """
        if self._issued is not None and self._clock() < self._issued.issued_s + RETRY_S:
            self._due_s = min(self._due_s, self._issued.issued_s + RETRY_S)
        else:
            self._issued, self._due_s = None, float("-inf")

    async def _renewed(self, ca: str) -> ssl.SSLContext:
        """Raises KubeError or NoIdentity, and then what was issued before is what is there."""
        _context(ca)
        if self._clock() < self._again_s:
            raise NoIdentity(self._useless)
        try:
            key, certificate = await self._certified()
            issued = _Issued(key, certificate, ca, self._clock())
            context = _context(ca, issued)
        except _Unusable as error:
            self._unanswered = None
            self._useless = f"{error} (another one is requested after {RETRY_S:g} s)"
            self._again_s = self._clock() + RETRY_S
            raise NoIdentity(self._useless) from error
        self._issued, self._due_s, self._said = issued, issued.issued_s + CERTIFICATE_LIFETIME_S * 2 / 3, ""
        return context

    def _put_off(self, why: str) -> None:
        self._due_s = self._clock() + RETRY_S
        if why != self._said:
            _log.warning("NodeLink: the certificate cannot be renewed yet, and the old one is used: %s", why)
        self._said = why

    async def _certified(self) -> tuple[bytes, bytes]:
        """Returns a key and its certificate. Raises KubeError or NoIdentity."""
        if self._unanswered is None:
            self._unanswered = await self._new_request()
        wanted = self._unanswered
        created = await self._created(wanted)
        try:
            async with asyncio.timeout(SIGNED_WITHIN_S):
                certificate = await self._signed(created)
        except TimeoutError:
            why = f"CertificateSigningRequest {wanted.name} is not signed in {SIGNED_WITHIN_S:g} s"
            raise NoIdentity(why) from None
        self._unanswered = None
        return wanted.key, certificate

    async def _new_request(self) -> _Request:
        """Raises NoIdentity."""
        key, request = await self._key_and_request(f"{NODE_USER}{self._node_name}", NODE_GROUP)
        name = f"nodelink-{self._node_name[:_NAME_CHARACTERS]}-{secrets.token_hex(5)}"
        return _Request(key, request, name)

    async def _created(self, wanted: _Request) -> Unstructured:
        """Returns the object as it is, made if it is not there: a server forgets unanswered ones. Raises KubeError."""
        body = certificaterequest.document(wanted.name, wanted.request)
        try:
            return await self._client.create(CERTIFICATE_SIGNING_REQUEST, body)
        except APIError as error:
            if not error.is_already_exists:
                raise
            return await self._client.get(CERTIFICATE_SIGNING_REQUEST, Key("", wanted.name))

    async def _signed(self, request: Unstructured) -> bytes:
        """Raises NoIdentity or KubeError."""
        if certificate := _certificate(request):
            return certificate
        name, version = request.metadata.name, request.metadata.resource_version
        selection = Selection(fields=f"metadata.name={name}")
        watch = self._client.watch(CERTIFICATE_SIGNING_REQUEST, version, selection, SIGNED_WITHIN_S)
        async with aclosing(watch) as changes:
            async for change in changes:
                if change.entry.object is not None and (certificate := _certificate(change.entry.object)):
                    return certificate
        raise NoIdentity(f"CertificateSigningRequest {name} was not signed while it was watched")


def _certificate(request: Unstructured) -> bytes:
    """As ``certificate_of``. Raises _Unusable."""
    try:
        return certificate_of(request)
    except UselessAnswer as error:
        raise _Unusable(str(error)) from error


async def _key_and_request(user: str, group: str) -> tuple[bytes, bytes]:
    """Raises NoIdentity."""
    pipe = asyncio.subprocess.PIPE
    try:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", _PROGRAM, user, group),
            stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=own_environment(),
        )  # fmt: skip
    except OSError as error:
        raise NoIdentity(f"no key could be made: {error}") from error
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


def _context(ca: str, issued: _Issued | None = None) -> ssl.SSLContext:
    """Raises NoIdentity."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols([ALPN])
    try:
        context.load_verify_locations(cadata=ca)
    except (ssl.SSLError, ValueError, TypeError) as error:
        raise NoIdentity(f"the Lease has no authorities that can be used: {error}") from error
    if issued is not None:
        try:
            with pem_file(issued.certificate) as chain, pem_file(issued.key) as key:
                context.load_cert_chain(chain, key)
        except ssl.SSLError as error:
            raise _Unusable(f"the certificate cannot be used: {error}") from error
        except OSError as error:
            raise NoIdentity(f"the certificate cannot be loaded: {error}") from error
    return context
