"""The webhook server's certificates, as PEM: a certification authority of our own, what it signs, and what is wrong.

An API server calls a webhook only if the ``caBundle`` of its configuration verifies what the server shows. Both come
from one Secret, whose keys and whose use are upstream's, so that either program takes over from the other; a Secret
that somebody else fills (``kubernetes.io/tls``, as cert-manager writes it) is judged, never made.

Keys are ECDSA P-256, where upstream has RSA 2048: one is drawn in 0.1 ms instead of a tenth of a second, for which the
server would stand still, and a handshake signs in a tenth of the time. An authority that is RSA, upstream's, goes on
signing until its own rotation. Lifetimes: a serving certificate one year, an authority three, each replaced after two
thirds; so an authority has a full serving certificate's life left when it is replaced, and cuts none short.

Invariant: nothing here reads a clock, a file or a network; keys alone are drawn at random. Fails with
CertificateError, which names the key of the Secret; ``judge`` never fails, it says so.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SERVING_LIFETIME = timedelta(days=365)
CA_LIFETIME = 3 * SERVING_LIFETIME
BACKDATE = timedelta(hours=1)
"""By how much a certificate begins in the past, for API servers whose clocks are behind."""

CA_KEY, CA_CERTIFICATE = "ca-key.pem", "ca-cert.pem"
SERVING_KEYS = ("tls.key", "key.pem")
SERVING_CERTIFICATES = ("tls.crt", "cert.pem")
"""Two names of one value each; the first is the one that is read."""

PROVIDED_CA = "ca.crt"
"""Of a Secret that somebody else fills: with ``tls.key`` and ``tls.crt``."""

_CA_NAME = "webhook-cert-ca"
_SERVING_NAME = "koord-webhook"  # a service's DNS name may be too long for a common name
_END = b"-----END CERTIFICATE-----"
_BEGIN = b"-----BEGIN CERTIFICATE-----"

_SigningKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
_PrivateKey = _SigningKey | ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey


class CertificateError(ValueError):
    """The value of ``key`` (of a Secret) cannot be used; ``why`` completes the sentence "key …"."""

    def __init__(self, key: str, why: str) -> None:
        self.key, self.why = key, why
        super().__init__(f"{key} {why}")


class CertificateCondition(StrEnum):
    FINE = "fine"
    RENEW_SERVING = "renew serving certificate"
    RENEW_CA = "renew CA"
    BROKEN = "broken"
    """Its authority cannot sign: all is to be made anew."""


@dataclass(frozen=True, slots=True)
class CertificateVerdict:
    condition: CertificateCondition
    why: str
    """A sentence without its full stop."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A private key (PKCS #8) and its certificate, both PEM; after the certificate its intermediates, if any."""

    key: bytes
    certificate: bytes


@dataclass(frozen=True, slots=True)
class ServingCertificate:
    """What a server shows, and the authorities by which its clients verify it (PEM; b"" if others see to them)."""

    pair: KeyPair
    ca_bundle: bytes


# making


def issue_ca(now: datetime) -> KeyPair:
    """Returns a new authority, self-signed and valid from an hour ago until ``now + CA_LIFETIME``."""
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = {NameOID.COMMON_NAME: _CA_NAME, NameOID.SERIAL_NUMBER: f"{x509.random_serial_number():x}"}
    # OpenSSL finds an issuer by its name: with the number in it, a new authority is not taken for the one before.
    name = x509.Name([x509.NameAttribute(*attribute) for attribute in attributes.items()])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _builder(name, name, key.public_key(), now, now + CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(key, certificate)


def issue_serving(ca: KeyPair, names: Sequence[str], now: datetime) -> KeyPair:
    """A new server certificate for ``names`` (DNS names and IP addresses) signed by ``ca``.

    It is valid from an hour ago for ``SERVING_LIFETIME``, but no longer than ``ca``. Raises CertificateError.
    """
    ca_key, ca_certificate = _signing_key(ca.key), read_certificate(ca.certificate, CA_CERTIFICATE)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _SERVING_NAME)])
    end = min(now + SERVING_LIFETIME, ca_certificate.not_valid_after_utc)
    builder = (
        _builder(subject, ca_certificate.subject, key.public_key(), now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
    )
    identifier = _key_identifier(ca_certificate)
    if identifier is not None:  # a verifier with two authorities of one name tells them apart by it
        builder = builder.add_extension(identifier, critical=False)
    return _pair(key, builder.sign(ca_key, hashes.SHA256()))


def issue_client(ca: KeyPair, request: x509.CertificateSigningRequest, now: datetime, lifetime: timedelta) -> bytes:
    """The certificate (PEM) of a client: subject and key are those of ``request``, and nothing else of it is.

    It is valid from an hour ago for ``lifetime``, but no longer than ``ca``. Raises CertificateError, and ValueError
    for a key of a kind that cannot be certified.
    """
    ca_key, ca_certificate = _signing_key(ca.key), read_certificate(ca.certificate, CA_CERTIFICATE)
    key = request.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey):
        raise ValueError("the key is neither RSA nor ECDSA")
    end = min(now + lifetime, ca_certificate.not_valid_after_utc)
    builder = (
        _builder(request.subject, ca_certificate.subject, key, now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    )
    identifier = _key_identifier(ca_certificate)
    if identifier is not None:
        builder = builder.add_extension(identifier, critical=False)
    return _pem(builder.sign(ca_key, hashes.SHA256()))


def serving_names(service: str, namespace: str, others: Iterable[str] = ()) -> tuple[str, ...]:
    """The names of a webhook server: first the one by which API servers call it, then ``localhost`` and ``others``."""
    return tuple(dict.fromkeys((f"{service}.{namespace}.svc", "localhost", *others)))


# reading


def read_certificate(pem: bytes, key: str) -> x509.Certificate:
    """The first certificate in ``pem``. Raises CertificateError, with ``key`` as the place."""
    if not pem.strip():
        raise CertificateError(key, "is missing")
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise CertificateError(key, f"is no certificate: {error}") from error


def certificates(pem: bytes) -> tuple[x509.Certificate, ...]:
    """Returns every certificate in ``pem`` that can be read, each once; other text in it is skipped."""
    return tuple(dict.fromkeys(_certificates(pem)))


def same_certificates(first: bytes, second: bytes) -> bool:
    """Returns whether both hold the same certificates, in whatever order and spelling."""
    return set(certificates(first)) == set(certificates(second))


def bundle(pems: Iterable[bytes], now: datetime) -> bytes:
    """The certificates in ``pems`` as one PEM, each once, without those that have expired."""
    unique = dict.fromkeys(certificate for pem in pems for certificate in _certificates(pem))
    return b"".join(_pem(certificate) for certificate in unique if now < certificate.not_valid_after_utc)


def trusts(ca_bundle: bytes, chain: bytes, now: datetime) -> bool:
    """Returns whether a client that trusts ``ca_bundle`` verifies ``chain`` (a certificate and its intermediates) at
    ``now``.

    By issuer, signature and validity; names are another matter (`covers`).
    """
    anchors = {each for each in certificates(ca_bundle) if _is_valid(each, now)}
    leaf, *intermediates = certificates(chain) or (None,)
    issuers = [each for each in (*anchors, *intermediates) if _is_valid(each, now)]
    return leaf is not None and _is_valid(leaf, now) and _leads_to(anchors, leaf, issuers)


def covers(certificate: x509.Certificate, name: str) -> bool:
    """Returns whether the certificate is one for ``name``, a DNS name or an IP address. A wildcard stands for one whole
    label.
    """
    address, names = _address(name), _alternative_names(certificate)
    if address is not None:
        return address in names.get_values_for_type(x509.IPAddress)
    wildcard = "*." + name.partition(".")[2]
    acceptable = (name.lower(), wildcard.lower())
    return any(each.lower() in acceptable for each in names.get_values_for_type(x509.DNSName))


# judging


def due(certificate: x509.Certificate, now: datetime) -> bool:
    """Two thirds of its life are over."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= begin + (end - begin) * 2 / 3


def judge(stored: Mapping[str, bytes], names: Sequence[str], now: datetime) -> CertificateVerdict:
    """Returns what is to become of the certificates in ``stored``, the data of our own Secret."""
    try:
        ca = read_ca(stored, now)
    except CertificateError as error:
        return CertificateVerdict(CertificateCondition.BROKEN, str(error))
    why = _serving_fault(stored, ca, names, now)
    if why:
        return CertificateVerdict(CertificateCondition.RENEW_SERVING, why)
    if due(ca, now):
        return CertificateVerdict(
            CertificateCondition.RENEW_CA, f"{CA_CERTIFICATE} has lived two thirds of its life: {_until(ca)}"
        )
    serving = read_certificate(stored[SERVING_CERTIFICATES[0]], SERVING_CERTIFICATES[0])
    return CertificateVerdict(
        CertificateCondition.FINE, f"{SERVING_CERTIFICATES[0]} is {_until(serving)}, {CA_CERTIFICATE} {_until(ca)}"
    )


def judge_provided(stored: Mapping[str, bytes], name: str, now: datetime) -> CertificateVerdict:
    """Returns FINE if the data of a Secret that another program fills can be used for ``name``, else BROKEN."""
    try:
        certificate = read_pair(stored, SERVING_KEYS[0], SERVING_CERTIFICATES[0])
        why = _fault_of_period(certificate, now) or _fault_of_names(certificate, [name])
        if why:
            raise CertificateError(SERVING_CERTIFICATES[0], why)
        anchors = stored.get(PROVIDED_CA, b"")
        if anchors.strip() and not trusts(anchors, stored[SERVING_CERTIFICATES[0]], now):
            raise CertificateError(PROVIDED_CA, f"does not verify {SERVING_CERTIFICATES[0]}")
    except CertificateError as error:
        return CertificateVerdict(CertificateCondition.BROKEN, str(error))
    return CertificateVerdict(
        CertificateCondition.FINE, f"{SERVING_CERTIFICATES[0]} is provided and {_until(certificate)}"
    )


def read_ca(
    stored: Mapping[str, bytes], now: datetime, key: str = CA_KEY, place: str = CA_CERTIFICATE
) -> x509.Certificate:
    """The certificate of an authority that can sign at ``now``. Raises CertificateError."""
    certificate = read_pair(stored, key, place)
    why = _fault_of_period(certificate, now) or ("" if _is_authority(certificate) else "is not that of an authority")
    if why:
        raise CertificateError(place, why)
    _signing_key(stored[key], key)
    return certificate


def read_pair(stored: Mapping[str, bytes], key: str, place: str) -> x509.Certificate:
    """The certificate at ``place``, of which ``key`` holds the private key. Raises CertificateError."""
    certificate = read_certificate(stored.get(place, b""), place)
    private = _private_key(stored.get(key, b""), key)
    if private.public_key() != certificate.public_key():
        raise CertificateError(place, f"does not belong to {key}")
    return certificate


def _serving_fault(stored: Mapping[str, bytes], ca: x509.Certificate, names: Sequence[str], now: datetime) -> str:
    """Why the serving certificate is to be replaced, "" if it is not."""
    place = SERVING_CERTIFICATES[0]
    try:
        certificate = read_pair(stored, SERVING_KEYS[0], place)
    except CertificateError as error:
        return str(error)
    for first, second in (SERVING_KEYS, SERVING_CERTIFICATES):
        if stored[first] != stored.get(second):
            return f"{second} is not the same as {first}"
    if not _is_signed_by(certificate, ca):
        return f"{place} is not signed by {CA_CERTIFICATE}"
    why = (
        _fault_of_period(certificate, now) or _fault_of_names(certificate, names) or _fault_of_age(certificate, ca, now)
    )
    return f"{place} {why}" if why else ""


def _fault_of_period(certificate: x509.Certificate, now: datetime) -> str:
    if now < certificate.not_valid_before_utc:
        return f"is not valid before {_time(certificate.not_valid_before_utc)}"
    if now >= certificate.not_valid_after_utc:
        return f"has expired at {_time(certificate.not_valid_after_utc)}"
    return ""


def _fault_of_names(certificate: x509.Certificate, names: Iterable[str]) -> str:
    uncovered = [name for name in names if not covers(certificate, name)]
    return f"is not for {', '.join(uncovered)}" if uncovered else ""


def _fault_of_age(certificate: x509.Certificate, ca: x509.Certificate, now: datetime) -> str:
    """One that ends with its authority is not replaced by another that would end then, too."""
    lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    if lifetime > SERVING_LIFETIME + 2 * BACKDATE:
        return f"is valid for {lifetime.days} days, longer than {SERVING_LIFETIME.days}"
    if due(certificate, now) and certificate.not_valid_after_utc < ca.not_valid_after_utc:
        return f"has lived two thirds of its life: {_until(certificate)}"
    return ""


# PEM and X.509


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
    now: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(end)
    )


def _key_usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key_identifier(ca: x509.Certificate) -> x509.AuthorityKeyIdentifier | None:
    """Returns the name that ``ca`` has for its own key; None if it has none, as with older programs."""
    try:
        subject = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except (x509.ExtensionNotFound, ValueError):
        return None
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(subject)


def _pair(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> KeyPair:
    encoding, no_encryption = serialization.Encoding.PEM, serialization.NoEncryption()
    return KeyPair(key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, no_encryption), _pem(certificate))


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private_key(pem: bytes, place: str) -> _PrivateKey:
    if not pem.strip():
        raise CertificateError(place, "is missing")
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:  # TypeError: it is encrypted
        raise CertificateError(place, f"is no private key: {error}") from error
    if not isinstance(key, _PrivateKey):
        raise CertificateError(place, "is of a kind that no server uses")
    return key


def _signing_key(pem: bytes, place: str = CA_KEY) -> _SigningKey:
    key = _private_key(pem, place)
    if not isinstance(key, _SigningKey):
        raise CertificateError(place, "is neither RSA nor ECDSA")
    return key


def _certificates(pem: bytes) -> Iterator[x509.Certificate]:
    for block in pem.split(_END)[:-1]:
        begin = block.find(_BEGIN)
        try:
            yield x509.load_pem_x509_certificate(block[max(begin, 0) :] + _END)
        except ValueError:
            continue


def _is_valid(certificate: x509.Certificate, now: datetime) -> bool:
    return not _fault_of_period(certificate, now)


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def _is_signed_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):  # another name, another kind of key, another key
        return False
    return True


def _leads_to(
    anchors: set[x509.Certificate], certificate: x509.Certificate, issuers: Sequence[x509.Certificate]
) -> bool:
    """Returns whether a chain of issuers leads there; each certificate is used once at most."""
    if certificate in anchors:
        return True
    return any(
        _leads_to(anchors, issuer, [each for each in issuers if each is not issuer])
        for issuer in issuers
        if _is_authority(issuer) and _is_signed_by(certificate, issuer)
    )


def _alternative_names(certificate: x509.Certificate) -> x509.SubjectAlternativeName:
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return x509.SubjectAlternativeName([])


def _general_name(name: str) -> x509.GeneralName:
    address = _address(name)
    return x509.DNSName(name) if address is None else x509.IPAddress(address)


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _until(certificate: x509.Certificate) -> str:
    return f"valid until {_time(certificate.not_valid_after_utc)}"


def _time(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
