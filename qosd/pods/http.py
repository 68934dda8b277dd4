"""One GET at a time from kubelet's port, plain or TLS, on asyncio streams.

HTTP/1.0 is spoken because a body then simply ends with the connection: kubelet's server sends no chunks to it.
Any process may listen on the port while kubelet does not. Invariants: a bearer token goes over TLS to a server that was
verified, and nowhere else; an answer is whole or an error (FetchError, naming the URL and why); at most ``MAX_BYTES``
are taken.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

MAX_BYTES = 64 << 20
_HEAD_BYTES = 64 << 10
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----")


class FetchError(ConnectionError):
    """No answer, or not the one that was asked for. ``status`` is HTTP's, 0 if none came.

    ``is_untrusted``: whether we refused the server's certificate.
    """

    def __init__(self, url: str, why: str, status: int = 0, is_untrusted: bool = False) -> None:
        super().__init__(f"{url}: {why}")
        self.url, self.why, self.status, self.is_untrusted = url, why, status, is_untrusted


@dataclass(frozen=True, slots=True)
class KubeletAccess:
    """How a server is reached. The files are read for every request, since they rotate.

    ``cert_file``: our certificate, and its key unless ``key_file`` has that.
    """

    base_url: str
    token_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    ca_file: Path | None = None
    certificates: tuple[Path, ...] = ()
    """If not empty, the server is known by its certificate, the first in one of these files, and not by an authority.
    """


async def get(access: KubeletAccess, path: str, timeout_s: float) -> bytes:
    """Returns the body of ``base_url`` + ``path``. Raises FetchError."""
    url = access.base_url.rstrip("/") + path
    try:
        async with asyncio.timeout(timeout_s):
            return await _get(access, url)
    except TimeoutError:
        raise FetchError(url, f"no answer in {timeout_s:.3g} s") from None
    except (OSError, ssl.SSLError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        if isinstance(error, FetchError):
            raise
        is_untrusted = isinstance(error, ssl.SSLCertVerificationError)
        raise FetchError(url, str(error) or type(error).__name__, is_untrusted=is_untrusted) from error


def bracketed(url: str) -> str:
    """Returns ``url`` with its IPv6 host in brackets. ``https://$(NODE_IP):10250`` has none, and ends in a port."""
    scheme, slashes, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    host, _, port = authority.rpartition(":")
    if ":" not in host or "[" in authority:
        return url
    return f"{scheme}{slashes}[{host}]:{port}{slash}{path}"


async def _get(access: KubeletAccess, url: str) -> bytes:
    parts = urlsplit(bracketed(url))
    secure = parts.scheme == "https"
    if parts.hostname is None or parts.scheme not in ("http", "https"):
        raise FetchError(url, "is no http or https URL")
    reader, writer = await asyncio.open_connection(
        parts.hostname,
        parts.port or (443 if secure else 80),
        ssl=_context(access) if secure else None,
        limit=_HEAD_BYTES,
    )
    try:
        if access.certificates and secure:
            _check_certificate(access, url, writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
        writer.write(_request(access, secure, parts.netloc, parts.path + (f"?{parts.query}" if parts.query else "")))
        status, length = _head(url, await reader.readuntil(b"\r\n\r\n"))
        body = await _body(url, reader)
    finally:
        writer.close()
    if status != 200:
        raise FetchError(url, f"HTTP {status}: {body[:200].decode(errors='replace').strip()}", status)
    if length is not None and len(body) != length:
        raise FetchError(url, f"{len(body)} of {length} bytes came")
    return body


def _check_certificate(access: KubeletAccess, url: str, shown: bytes | None) -> None:
    """Raises FetchError unless it is one that kubelet keeps. That the server has its key, the handshake has shown."""
    known, missing = [], []
    for path in access.certificates:
        try:
            kept = _CERTIFICATE.search(path.read_text(encoding="ascii", errors="replace"))
        except OSError as error:
            missing.append(f"{path}: {error.strerror}")
        else:
            known.append(str(path))
            if kept is not None and ssl.PEM_cert_to_DER_cert(kept[0]) == shown:
                return
    if known:
        why = f"its certificate is not kubelet's ({', '.join(known)}): another process may listen, and is told nothing"
    else:
        why = f"kubelet's certificate is not known, so nobody there is asked ({'; '.join(missing)})"
    raise FetchError(url, why, is_untrusted=True)


def _request(access: KubeletAccess, secure: bool, host: str, target: str) -> bytes:
    lines = [f"GET {target} HTTP/1.0", f"Host: {host}", "Accept: application/json"]
    if access.token_file is not None and secure:
        lines.append(f"Authorization: Bearer {access.token_file.read_text(encoding='ascii').strip()}")
    return "\r\n".join([*lines, "", ""]).encode("ascii")


def _head(url: str, head: bytes) -> tuple[int, int | None]:
    """Returns (status, content length) of an answer's head."""
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
        raise FetchError(url, f"answers {first[:40]!r}, which is no HTTP")
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if "transfer-encoding" in fields:
        raise FetchError(url, "answers HTTP/1.0 with a transfer encoding")
    length = fields.get("content-length", "")
    return int(words[1]), int(length) if length.isdigit() else None


async def _body(url: str, reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while chunk := await reader.read(1 << 18):
        body += chunk
        if len(body) > MAX_BYTES:
            raise FetchError(url, f"answers more than {MAX_BYTES} bytes")
    return bytes(body)


def _context(access: KubeletAccess) -> ssl.SSLContext:
    """Raises OSError, or ``ssl.SSLError``, which is one."""
    context = _unidentified(access)
    if access.cert_file is not None:
        context.load_cert_chain(access.cert_file, access.key_file)
    return context


def _unidentified(access: KubeletAccess) -> ssl.SSLContext:
    if not access.certificates:
        return ssl.create_default_context(cafile=None if access.ca_file is None else str(access.ca_file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without the system's certificates: reading them takes 30 ms
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
