"""Serves ``/healthz``, ``/readyz`` and ``/metrics``: at which address, and to whom.

Invariant: metrics leave the machine only behind a bearer token or TLS that the operator configured; an option that
contradicts this is a ConfigError at start that names option and value. The two health pages need no token.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from koord.service import optionvalues, unixsocket
from koord.service.config import ConfigError
from koord.service.statusserver import HEALTH_PAGES, Maker, StatusServer, TokenGuard, read_token
from qosd.options import Options


def address(endpoint: str) -> str:
    """Returns the path of ``unix:///path``, or ``host:port``. Raises ConfigError."""
    path = unixsocket.without_scheme(endpoint)
    if path.startswith("/"):
        return path
    try:
        optionvalues.host_port(endpoint)
    except ValueError as error:
        raise ConfigError("options", "metrics-endpoint", endpoint, "must be unix:///path or host:port") from error
    return endpoint


def server(options: Options, pages: Mapping[str, Maker]) -> StatusServer:
    """Returns a server of ``pages`` by the options. Raises ConfigError."""
    guard, tls = _guard(options.metrics_token_file), _tls(options.metrics_cert_file, options.metrics_key_file)
    where = address(options.metrics_endpoint)
    is_local = where.startswith("/") or optionvalues.host_port(where)[0] in optionvalues.LOOPBACK
    if not is_local and guard is None and tls is None:
        raise ConfigError(
            "options",
            "metrics-endpoint",
            options.metrics_endpoint,
            "is reached from other machines: give --metrics-token-file or --metrics-cert-file too",
        )
    return StatusServer(pages, guard, tls)


def _guard(file: str) -> TokenGuard | None:
    if not file:
        return None
    try:
        return TokenGuard(read_token(file), HEALTH_PAGES)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("options", "metrics-token-file", file, f"cannot be read: {error}") from error
    except ValueError as error:
        raise ConfigError("options", "metrics-token-file", file, str(error)) from error


def _tls(cert_file: str, key_file: str) -> ssl.SSLContext | None:
    if not cert_file and key_file:
        raise ConfigError("options", "metrics-key-file", key_file, "is of no use without --metrics-cert-file")
    if not cert_file:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert_file, key_file or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError("options", "metrics-cert-file", cert_file, f"cannot be used: {error}") from error
    return context
