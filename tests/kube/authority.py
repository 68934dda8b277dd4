"""A certificate authority for tests, and the certificates that it gives."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


class Authority:
    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("test authority")
        builder = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(True, None), critical=True)
        self.pem = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def issue(self, common_name: str) -> bytes:
        """A certificate for that name and for 127.0.0.1, and its key after it: PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName(
            [x509.DNSName(common_name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        )
        certificate = self._builder(_name(common_name), key).add_extension(names, critical=False)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return certificate.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM) + private

    def server_context(self, directory: Path) -> ssl.SSLContext:
        """Of a server that wants a client's certificate."""
        (directory / "server.pem").write_bytes(self.issue("server"))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=self.pem.decode())
        context.load_cert_chain(directory / "server.pem")
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
        )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
