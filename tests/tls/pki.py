"""What tests of the webhook's certificates share: certificates of upstream, of cert-manager and of mistakes."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from koord.tls import certificates
from koord.tls.certificates import CA_CERTIFICATE, CA_KEY, SERVING_CERTIFICATES, SERVING_KEYS, KeyPair
from koord.tls.servingcerts import Service, ServiceReference

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
SERVICE = Service("koordinator-webhook-service", "koordinator-system")
OURS = ServiceReference(SERVICE.name, SERVICE.namespace)
NAMES = SERVICE.names
KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
PLACEHOLDER = b"\n"
"""Of a chart, for the ``caBundle`` that it does not know."""

YEAR, DAY, HOUR = timedelta(days=365), timedelta(days=1), timedelta(hours=1)

Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def secret_data(ca: KeyPair, serving: KeyPair) -> dict[str, bytes]:
    return {
        CA_KEY: ca.key,
        CA_CERTIFICATE: ca.certificate,
        **dict.fromkeys(SERVING_KEYS, serving.key),
        **dict.fromkeys(SERVING_CERTIFICATES, serving.certificate),
    }


def own_data(now: datetime) -> dict[str, bytes]:
    """A Secret as it is after the first pass."""
    ca = certificates.issue_ca(now)
    return secret_data(ca, certificates.issue_serving(ca, NAMES, now))


def key_pem(key: Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def foreign(
    key: Key,
    begin: datetime,
    end: datetime,
    issuer: tuple[Key, x509.Certificate] | None = None,
    names: tuple[str, ...] = (),
    is_ca: bool = False,
    key_identifier: bytes | None = None,
) -> tuple[KeyPair, x509.Certificate]:
    """A certificate as another program makes it: no key identifiers unless ``key_identifier`` says one."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64] if names else "webhook-cert-ca")])
    signing, issuer_name = (key, subject) if issuer is None else (issuer[0], issuer[1].subject)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer_name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )
    if is_ca:
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(each) for each in names]), False)
    if key_identifier is not None:
        builder = builder.add_extension(x509.SubjectKeyIdentifier(key_identifier), critical=False)
    algorithm = None if isinstance(signing, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    certificate = builder.sign(signing, algorithm)
    return KeyPair(key_pem(key), certificate.public_bytes(serialization.Encoding.PEM)), certificate


def upstream_data(now: datetime) -> dict[str, bytes]:
    """As upstream's manager writes it: RSA, ten years, authorities without key identifiers."""
    ca_key, serving_key = (rsa.generate_private_key(65537, 2048) for _ in range(2))
    ca, certificate = foreign(ca_key, now, now + 10 * YEAR, is_ca=True)
    serving, _ = foreign(serving_key, now, now + 10 * YEAR, (ca_key, certificate), NAMES)
    return secret_data(ca, serving)


def provided_data(now: datetime, name: str = NAMES[0]) -> dict[str, bytes]:
    """As cert-manager writes it: an authority of its own, an intermediate, a certificate for 90 days."""
    root_key, middle_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    root, root_certificate = foreign(root_key, now, now + YEAR, is_ca=True)
    middle, middle_certificate = foreign(
        middle_key, now, now + YEAR, (root_key, root_certificate), ("middle",), is_ca=True, key_identifier=b"middle"
    )
    leaf, _ = foreign(key, now, now + 90 * DAY, (middle_key, middle_certificate), (name,))
    return {"tls.key": leaf.key, "tls.crt": leaf.certificate + middle.certificate, "ca.crt": root.certificate}


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str | None) -> bytes:
    """The certificate (DER) that the client was shown. Raises ssl.SSLError, as the client or the server does."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    shown = ends[0].getpeercert(binary_form=True)
    assert shown is not None
    return shown
