"""A TLS server's context whose certificate can be exchanged while it serves.

OpenSSL asks for the context of each handshake (its server name callback, which also comes for clients that name no
server), so a new certificate is a whole new context: connections and handshakes that exist keep theirs, and a
certificate that cannot be loaded changes nothing. Loading a second certificate into one context would keep the first
beside it, if their kinds of key differ, and leave half of it after an error.

The private key never is a file: OpenSSL reads it from a memory file that cannot be opened by name.
Fails with CertificateError.
"""

from __future__ import annotations

import os
import ssl

from koord.tls.certificates import PROVIDED_CA, SERVING_CERTIFICATES, CertificateError, KeyPair, ServingCertificate


class LiveContext:
    """``server_context`` is for a listener; until the first ``load`` it refuses every handshake.

    ``client_ca``: PEM of authorities by which a client's certificate is verified; b"" asks for none, None takes those
    of the certificate that is served. A client without a certificate is let in all the same: what it may see is the
    server's choice.
    """

    def __init__(self, client_ca: bytes | None = b"", protocol: str = "http/1.1") -> None:
        self._client_ca, self._protocol = client_ca, protocol
        self._current: ssl.SSLContext | None = None
        self.certificate: ServingCertificate | None = None
        self.server_context = self._context(b"")
        self.server_context.sni_callback = self._choose

    def load(self, certificate: ServingCertificate) -> None:
        """Handshakes that begin from now on see ``certificate``. Raises CertificateError and changes nothing then."""
        context = self._context(certificate.ca_bundle)
        _load(context, certificate.pair)
        self._current, self.certificate = context, certificate

    def _context(self, own_ca: bytes) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0  # API servers resume no session, and a resumed one would not see a new certificate
        context.set_alpn_protocols([self._protocol])
        if self._client_ca != b"":
            context.verify_mode = ssl.CERT_OPTIONAL
        if client_ca := own_ca if self._client_ca is None else self._client_ca:
            try:
                _trust(context, client_ca)
            except ssl.SSLError as error:
                raise CertificateError(PROVIDED_CA, f"cannot be trusted: {error}") from error
        return context

    def _choose(
        self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, context: ssl.SSLContext
    ) -> int | None:
        if self._current is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = self._current
        return None


def client_context(certificate: ServingCertificate) -> ssl.SSLContext:
    """Returns the context of a client that trusts what API servers are to trust with ``certificate``.

    Without a bundle, which then is somebody else's affair, it trusts the certificate itself. Raises ssl.SSLError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _trust(context, certificate.ca_bundle or certificate.pair.certificate)
    if not certificate.ca_bundle:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _trust(context: ssl.SSLContext, authorities: bytes) -> None:
    """``authorities``: PEM, with whatever text between. Raises ssl.SSLError."""
    context.load_verify_locations(cadata=authorities.decode("ascii", "ignore") or "none")


def _load(context: ssl.SSLContext, pair: KeyPair) -> None:
    descriptor = os.memfd_create("certificate")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(pair.key + b"\n" + pair.certificate)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    except ssl.SSLError as error:
        raise CertificateError(SERVING_CERTIFICATES[0], f"cannot be served: {error}") from error
    finally:
        os.close(descriptor)
