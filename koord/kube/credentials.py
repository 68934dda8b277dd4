"""What a connection to the API server needs now: its URL, TLS and a token, read again whenever they rotate.

Service account tokens are replaced each hour, kubelet's client certificate a few times a year, a plugin's token each
quarter of an hour. ``access`` looks at the files' signatures at most every ``CHECK_S``, and at once after ``reject``
(the server answered 401). Invariant: new files that cannot be used, or are only half written, change nothing: the last
good access stays, and the next check tries again. Fails with ``CredentialsError`` as long as there was none.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from koord.kube import execplugin
from koord.kube.errors import KubeError
from koord.kube.execplugin import PluginError, PluginStatus
from koord.kube.kubeconfig import Material, RESTConfig
from koord.model.core import unix_s

_log = logging.getLogger(__name__)
CHECK_S = 10.0
SHORTEST_PAUSE_S = 1.0
"""After a check, whatever the server says: a credential that it refuses is no reason for a storm."""

EXPIRY_MARGIN_S = 60.0
"""A plugin's credential is replaced that long before it ends."""


class CredentialsError(KubeError):
    """There are no credentials that can be used."""


@dataclass(frozen=True, slots=True)
class APIAccess:
    """``tls`` is None for plain HTTP; it stays the same object while certificates do, and so do its connections."""

    server: str
    tls: ssl.SSLContext | None
    token: str
    server_name: str | None = None
    proxy: str | None = None


Load = Callable[[], RESTConfig]
"""Reads the configuration; called again when its files change. Raises ConfigError or OSError."""

_Signature = tuple[tuple[int, ...] | None, ...]


class Credentials:
    """Keeps what to connect with, by the configuration that ``load`` reads. ``loads``: how often it was renewed.

    ``environ``: that of a credential plugin. ``clock``: seconds, by which checks are timed. ``wall_s``: seconds since
    1970, for a plugin's expiry.
    """

    def __init__(
        self, load: Load, environ: Mapping[str, str], clock: Callable[[], float], wall_s: Callable[[], float]
    ) -> None:
        self._load, self._environ, self._clock, self._wall_s = load, environ, clock, wall_s
        self._files: tuple[Path, ...] = ()
        self._signature: _Signature = ()
        self._tls: tuple[TLSMaterial, ssl.SSLContext] | None = None
        self._access: APIAccess | None = None
        self._checked_s = float("-inf")
        self._expires_s = float("inf")
        self._rejected = False
        self._lock = asyncio.Lock()
        self.loads = 0

    @property
    def server(self) -> str:
        """The API server's URL; "" before it is known."""
        return "" if self._access is None else self._access.server

    @property
    def checked(self) -> APIAccess | None:
        """What to connect with now; None where ``access`` has to look first."""
        return None if self._is_due() else self._access

    async def access(self) -> APIAccess:
        """What to connect with now. Raises CredentialsError."""
        if self._access is None or self._is_due():
            async with self._lock:
                if self._access is None or self._is_due():
                    await self._check()
        assert self._access is not None
        return self._access

    def reject(self, access: APIAccess) -> None:
        """The server did not accept ``access``."""
        if access is self._access:
            self._rejected = True

    def _is_due(self) -> bool:
        since_s = self._clock() - self._checked_s
        return since_s >= CHECK_S or (since_s >= SHORTEST_PAUSE_S and self._is_rejected_or_expired())

    def _is_rejected_or_expired(self) -> bool:
        return self._rejected or self._wall_s() >= self._expires_s

    async def _check(self) -> None:
        """Renews the access if it was rejected, has expired or its files have changed. Raises CredentialsError where
        there is none yet; otherwise the old one stays where there is no new one.
        """
        is_known_good = self._access is not None and not self._is_rejected_or_expired()
        self._checked_s, self._rejected = self._clock(), False
        if is_known_good and _signature_of(self._files) == self._signature:
            return
        try:
            await self._renew()
        except (OSError, ValueError, PluginError) as error:  # of TLS and configuration, too
            if self._access is None:
                raise CredentialsError(str(error)) from error
            _log.warning("new credentials cannot be used, the old ones stay: %s", error)

    async def _renew(self) -> None:
        settings = self._load()
        files = settings.watched_files
        signature = _signature_of(files)  # before the reading: what changes meanwhile is read again
        status = PluginStatus() if settings.plugin is None else await execplugin.run(settings.plugin, self._environ)
        tls = self._context(settings, status) if settings.server.startswith("https://") else None
        token = status.token or _token(settings)
        self._access = APIAccess(settings.server, tls, token, settings.server_name, settings.proxy)
        self._files, self._signature = files, signature
        self._expires_s = _expiry_s(status)
        self.loads += 1

    def _context(self, settings: RESTConfig, status: PluginStatus) -> ssl.SSLContext:
        material = _tls_material(settings, status)
        if self._tls is None or self._tls[0] != material:
            self._tls = material, material.context()
        return self._tls[1]


@dataclass(frozen=True, slots=True)
class TLSMaterial:
    """PEM each; None: not configured."""

    authority: bytes | None
    certificate: bytes | None
    key: bytes | None
    verify: bool

    def context(self) -> ssl.SSLContext:
        """Raises OSError (``ssl.SSLError`` is one) or ValueError."""
        context = ssl.create_default_context(cadata=None if self.authority is None else self.authority.decode())
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate is not None:
            key = self.certificate if self.key is None else self.key
            with pem_file(self.certificate) as chain, pem_file(key) as private:
                context.load_cert_chain(chain, private)
        return context


def _tls_material(settings: RESTConfig, status: PluginStatus) -> TLSMaterial:
    authority, certificate, key = _pem(settings.ca), _pem(settings.certificate), _pem(settings.key)
    if status.client_certificate_data:
        certificate, key = status.client_certificate_data.encode(), status.client_key_data.encode()
    return TLSMaterial(authority, certificate, key, settings.verify)


def _pem(material: Material | None) -> bytes | None:
    return material.read_bytes() if isinstance(material, Path) else material


def _token(settings: RESTConfig) -> str:
    """That of the file wins, as for client-go."""
    if settings.token_file is None:
        return settings.token
    token = settings.token_file.read_text(encoding="utf-8").strip()
    if not token:
        raise ValueError(f"{settings.token_file} is empty")
    return token


def _expiry_s(status: PluginStatus) -> float:
    end_s = unix_s(status.expiration_timestamp)
    return float("inf") if end_s is None else end_s - EXPIRY_MARGIN_S


@contextlib.contextmanager
def pem_file(pem: bytes) -> Iterator[str]:
    """A path for a library that takes no bytes; so a private key never reaches a disk."""
    descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pem)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _signature_of(files: tuple[Path, ...]) -> _Signature:
    return tuple(_file_signature(path) for path in files)


def _file_signature(path: Path) -> tuple[int, ...] | None:
    try:
        entry = path.stat()
    except OSError:
        return None
    return (entry.st_dev, entry.st_ino, entry.st_size, entry.st_mtime_ns)
