"""The certificates of a test cluster: one authority, and the key pairs that it issues.

An API server takes a client's user from the certificate's common name and its groups from the organizations; there is
no other registry of users. Invariant: every file lies in the authority's directory, and private keys are readable by
their owner only. A name that is issued twice gets a new key pair in the same files, as a rotation does.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=7)
CLOCK_SKEW = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM files."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority that keeps its files in ``directory``; ``now`` is the clock that validity starts from."""

    def __init__(self, directory: Path, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._now = now
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _name("koord-test-cluster")
        builder = self._builder(self._subject, self._key.public_key(), LIFETIME)
        self._files = self._write("ca", self._key, _sign_authority(builder, self._key))

    @property
    def certificate(self) -> Path:
        """The authority's own certificate: what a client or server must trust."""
        return self._files.certificate

    @property
    def key(self) -> Path:
        """The authority's private key, for the controller that signs certificate requests."""
        return self._files.key

    def issue_client(self, user: str, groups: Sequence[str] = (), lifetime: timedelta = LIFETIME) -> KeyPair:
        """A client's key pair; a ``lifetime`` below zero gives a certificate that has expired already."""
        name = file_name(user, groups)
        return self._issue(name, _name(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH, (), lifetime)

    def issue_server(self, name: str, hosts: Sequence[str], lifetime: timedelta = LIFETIME) -> KeyPair:
        """A server's key pair for ``hosts``: DNS names and IP addresses."""
        return self._issue(name, _name(name), ExtendedKeyUsageOID.SERVER_AUTH, hosts, lifetime)

    def _issue(
        self, name: str, subject: x509.Name, usage: x509.ObjectIdentifier, hosts: Sequence[str], lifetime: timedelta
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            self._builder(subject, key.public_key(), lifetime)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(list(map(_host, hosts))), critical=False)
        return self._write(name, key, builder.sign(self._key, hashes.SHA256()))

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, lifetime: timedelta
    ) -> x509.CertificateBuilder:
        end = self._now() + lifetime
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(self._now(), end) - CLOCK_SKEW)
            .not_valid_after(end)
            .add_extension(issuer, critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )

    def _write(self, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> KeyPair:
        pair = KeyPair(self._directory / f"{name}.crt", self._directory / f"{name}.key")
        _replace(pair.key, _pem(key))
        _replace(pair.certificate, certificate.public_bytes(serialization.Encoding.PEM))
        return pair


def file_name(user: str, groups: Sequence[str] = ()) -> str:
    """What files of ``user`` in ``groups`` are called, without a suffix: ``system-node-n1.system-nodes``."""
    return ".".join((user, *groups)).replace(":", "-").replace("/", "-")


def write_signing_key(path: Path) -> None:
    """Write a new private key, such as the one that signs service-account tokens."""
    _replace(path, _pem(ec.generate_private_key(ec.SECP256R1())))


def _sign_authority(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    constrained = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return constrained.add_extension(usage, critical=True).sign(key, hashes.SHA256())


def _name(common_name: str, organizations: Sequence[str] = ()) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """SEC 1, not PKCS 8: the API server takes a public key out of a private one's file only from that."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _replace(path: Path, content: bytes) -> None:
    """Whole or not at all, and never readable by others."""
    draft = path.with_name(f".{path.name}")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    draft.rename(path)
