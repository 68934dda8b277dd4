"""Certificates: what is made, what is wrong with what is found, and who verifies whom (OpenSSL agrees)."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from koord.tls import certificates
from koord.tls.certificates import (
    CA_LIFETIME,
    SERVING_LIFETIME,
    CertificateCondition,
    CertificateError,
    KeyPair,
    ServingCertificate,
    judge,
    judge_provided,
    read_certificate,
)
from koord.tls.context import LiveContext, client_context
from tests.tls.pki import (
    DAY,
    HOUR,
    NAMES,
    NOW,
    YEAR,
    foreign,
    handshake,
    own_data,
    provided_data,
    secret_data,
    upstream_data,
)

S = timedelta(seconds=1)
Data = dict[str, bytes]

_own, _upstream, _provided = cache(own_data), cache(upstream_data), cache(provided_data)


def own(changes: Mapping[str, bytes | None] = {}) -> Data:
    """The data of a Secret of ours, with keys changed or (None) missing."""
    return {key: value for key, value in {**_own(NOW), **changes}.items() if value is not None}


def ca(data: Data) -> KeyPair:
    return KeyPair(data["ca-key.pem"], data["ca-cert.pem"])


def issued(now: datetime = NOW, names: tuple[str, ...] = NAMES, by: KeyPair | None = None) -> Data:
    """A Secret of ours with another serving certificate."""
    authority = by or ca(own())
    return secret_data(ca(own()), certificates.issue_serving(authority, names, now))


def leaf_as_ca() -> Data:
    """A Secret whose authority is a server's certificate."""
    pair, _ = foreign(ec.generate_private_key(ec.SECP256R1()), NOW, NOW + YEAR, names=("ca",))
    return secret_data(pair, certificates.issue_serving(ca(own()), NAMES, NOW))


def ed25519_ca() -> Data:
    pair, _ = foreign(ed25519.Ed25519PrivateKey.generate(), NOW, NOW + YEAR, is_ca=True)
    return {**own(), "ca-key.pem": pair.key, "ca-cert.pem": pair.certificate}


OTHER = certificates.issue_ca(NOW)
GARBAGE = b"-----BEGIN CERTIFICATE-----\nbm9uc2Vuc2U=\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("data", "condition", "why"),
    [
        (lambda: {}, CertificateCondition.BROKEN, "ca-cert.pem is missing"),
        (lambda: own({"ca-cert.pem": None}), CertificateCondition.BROKEN, "ca-cert.pem is missing"),
        (lambda: own({"ca-cert.pem": b" \n"}), CertificateCondition.BROKEN, "ca-cert.pem is missing"),
        (lambda: own({"ca-cert.pem": b"nonsense"}), CertificateCondition.BROKEN, "ca-cert.pem is no certificate"),
        (lambda: own({"ca-cert.pem": GARBAGE}), CertificateCondition.BROKEN, "ca-cert.pem is no certificate"),
        (lambda: own({"ca-key.pem": None}), CertificateCondition.BROKEN, "ca-key.pem is missing"),
        (lambda: own({"ca-key.pem": b"nonsense"}), CertificateCondition.BROKEN, "ca-key.pem is no private key"),
        (
            lambda: own({"ca-key.pem": OTHER.key}),
            CertificateCondition.BROKEN,
            "ca-cert.pem does not belong to ca-key.pem",
        ),
        (leaf_as_ca, CertificateCondition.BROKEN, "ca-cert.pem is not that of an authority"),
        (ed25519_ca, CertificateCondition.BROKEN, "ca-key.pem is neither RSA nor ECDSA"),
        (
            lambda: own_data(NOW - CA_LIFETIME),
            CertificateCondition.BROKEN,
            "ca-cert.pem has expired at 2026-11-25T12:00:00Z",
        ),
        (
            lambda: own_data(NOW + 2 * HOUR),
            CertificateCondition.BROKEN,
            "ca-cert.pem is not valid before 2026-11-25T13:00:00Z",
        ),
        (lambda: own({"tls.crt": None}), CertificateCondition.RENEW_SERVING, "tls.crt is missing"),
        (lambda: own({"tls.key": None}), CertificateCondition.RENEW_SERVING, "tls.key is missing"),
        (lambda: own({"tls.crt": GARBAGE}), CertificateCondition.RENEW_SERVING, "tls.crt is no certificate"),
        (lambda: own({"tls.key": OTHER.key}), CertificateCondition.RENEW_SERVING, "tls.crt does not belong to tls.key"),
        (lambda: own({"cert.pem": None}), CertificateCondition.RENEW_SERVING, "cert.pem is not the same as tls.crt"),
        (lambda: own({"key.pem": OTHER.key}), CertificateCondition.RENEW_SERVING, "key.pem is not the same as tls.key"),
        (lambda: issued(by=OTHER), CertificateCondition.RENEW_SERVING, "tls.crt is not signed by ca-cert.pem"),
        (
            lambda: issued(names=("a.b.svc",)),
            CertificateCondition.RENEW_SERVING,
            f"tls.crt is not for {NAMES[0]}, localhost",
        ),
        (lambda: issued(NOW - YEAR), CertificateCondition.RENEW_SERVING, "tls.crt has expired at 2026-11-25T12:00:00Z"),
        (
            lambda: issued(NOW + 2 * HOUR),
            CertificateCondition.RENEW_SERVING,
            "tls.crt is not valid before 2026-11-25T13:00:00Z",
        ),
        (
            lambda: issued(NOW - 250 * DAY),
            CertificateCondition.RENEW_SERVING,
            "tls.crt has lived two thirds of its life",
        ),
        (lambda: _upstream(NOW), CertificateCondition.RENEW_SERVING, "tls.crt is valid for 3650 days, longer than 365"),
        (
            lambda: issued(names=(*NAMES, "10.0.0.1")),
            CertificateCondition.FINE,
            "tls.crt is valid until 2027-11-25T12:00:00Z",
        ),
        (
            own,
            CertificateCondition.FINE,
            "tls.crt is valid until 2027-11-25T12:00:00Z, ca-cert.pem valid until 2029-11-24T12",
        ),
    ],
)
def test_verdicts(data: Callable[[], Data], condition: CertificateCondition, why: str) -> None:
    verdict = judge(data(), NAMES, NOW)
    assert (verdict.condition, verdict.why[: len(why)]) == (condition, why)


def test_an_authority_is_renewed_after_two_thirds_of_its_life() -> None:
    end_of_two_thirds = NOW - HOUR + (CA_LIFETIME + HOUR) * 2 / 3
    for now, condition in (
        (end_of_two_thirds - S, CertificateCondition.FINE),
        (end_of_two_thirds, CertificateCondition.RENEW_CA),
    ):
        data = secret_data(ca(own()), certificates.issue_serving(ca(own()), NAMES, now))
        assert judge(data, NAMES, now).condition is condition


def test_a_serving_certificate_that_ends_with_its_authority_is_not_renewed_over_and_over() -> None:
    now = NOW + CA_LIFETIME - timedelta(minutes=10)
    data = secret_data(ca(own()), certificates.issue_serving(ca(own()), NAMES, now))
    assert judge(data, NAMES, now).condition is CertificateCondition.RENEW_CA


@pytest.mark.parametrize(
    ("changes", "name", "now", "why"),
    [
        ({}, NAMES[0], NOW, ""),
        ({"ca.crt": b""}, NAMES[0], NOW, ""),
        ({}, "other.svc", NOW, "tls.crt is not for other.svc"),
        ({}, NAMES[0], NOW + 90 * DAY, "tls.crt has expired at"),
        ({}, NAMES[0], NOW - S, "tls.crt is not valid before"),
        ({"tls.crt": b""}, NAMES[0], NOW, "tls.crt is missing"),
        ({"tls.key": OTHER.key}, NAMES[0], NOW, "tls.crt does not belong to tls.key"),
        ({"ca.crt": OTHER.certificate}, NAMES[0], NOW, "ca.crt does not verify tls.crt"),
    ],
)
def test_verdicts_on_a_provided_secret(changes: Data, name: str, now: datetime, why: str) -> None:
    verdict = judge_provided({**_provided(NOW), **changes}, name, now)
    if why:
        assert (verdict.condition, verdict.why[: len(why)]) == (CertificateCondition.BROKEN, why)
    else:
        assert verdict.condition is CertificateCondition.FINE


@pytest.mark.parametrize("name", ["service.namespace.svc", "SERVICE.namespace.svc", "10.0.0.1", "::1", "a" * 63 + ".b"])
def test_a_certificate_covers_the_names_it_was_made_for(name: str) -> None:
    pair = certificates.issue_serving(OTHER, [name], NOW)
    certificate = read_certificate(pair.certificate, "tls.crt")
    assert certificates.covers(certificate, name)
    assert not certificates.covers(certificate, "b.namespace.svc")
    assert not certificates.covers(certificate, "10.0.0.2")


@pytest.mark.parametrize(
    ("name", "is_covered"),
    [("a.example", True), ("A.example", True), ("a.b.example", False), ("example", False), ("x.other", False)],
)
def test_a_wildcard_is_one_label(name: str, is_covered: bool) -> None:
    _, certificate = foreign(ec.generate_private_key(ec.SECP256R1()), NOW, NOW + YEAR, names=("*.example",))
    assert certificates.covers(certificate, name) is is_covered


@given(st.timedeltas(timedelta(0), CA_LIFETIME - S))
def test_no_certificate_outlives_its_authority_or_a_year(age: timedelta) -> None:
    now = NOW + age
    pair = certificates.issue_serving(ca(own()), NAMES, now)
    certificate = read_certificate(pair.certificate, "tls.crt")
    authority = read_certificate(own()["ca-cert.pem"], "ca-cert.pem")
    end = min(now + SERVING_LIFETIME, authority.not_valid_after_utc).replace(microsecond=0)
    assert certificate.not_valid_after_utc == end
    assert certificate.not_valid_before_utc == (now - HOUR).replace(microsecond=0)
    assert certificates.trusts(own()["ca-cert.pem"], pair.certificate, now)


def test_no_serving_certificate_is_cut_short_before_its_authority_is_due() -> None:
    begin_of_last_third = NOW - HOUR + (CA_LIFETIME + HOUR) * 2 / 3
    pair = certificates.issue_serving(ca(own()), NAMES, begin_of_last_third - HOUR)
    certificate = read_certificate(pair.certificate, "tls.crt")
    assert certificate.not_valid_after_utc == begin_of_last_third - HOUR + SERVING_LIFETIME


# bundles


def test_a_bundle_has_each_certificate_once_and_none_that_has_expired() -> None:
    old = certificates.issue_ca(NOW - CA_LIFETIME)
    whole = certificates.bundle(
        [OTHER.certificate, b"text\n" + own()["ca-cert.pem"], GARBAGE, old.certificate, OTHER.certificate], NOW
    )
    assert whole == OTHER.certificate + own()["ca-cert.pem"]


@pytest.mark.parametrize("pem", [b"", b"\n", b"nonsense", GARBAGE, b"-----END CERTIFICATE-----" * 3])
def test_placeholders_hold_no_certificate(pem: bytes) -> None:
    assert certificates.certificates(pem) == ()
    assert not certificates.trusts(pem, own()["tls.crt"], NOW)


def test_the_same_certificates_in_another_order_and_spelling() -> None:
    one, two = OTHER.certificate, own()["ca-cert.pem"]
    assert certificates.same_certificates(one + two, b"# a comment\n" + two.replace(b"\n", b"\r\n") + one)
    assert not certificates.same_certificates(one, one + two)


# trust: ours and OpenSSL's opinion


REAL = datetime.now(UTC)
_real_own, _real_upstream, _real_provided = (cache(make) for make in (own_data, upstream_data, provided_data))


def strange_identifier() -> Data:
    """An authority whose key identifier is not the usual digest of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    pair, _ = foreign(key, REAL - HOUR, REAL + YEAR, is_ca=True, key_identifier=b"strange")
    return secret_data(pair, certificates.issue_serving(pair, NAMES, REAL))


def by_upstreams_ca() -> Data:
    authority = ca(_real_upstream(REAL - HOUR))
    return secret_data(authority, certificates.issue_serving(authority, NAMES, REAL))


@pytest.mark.parametrize(
    ("data", "ca_bundle", "is_trusted"),
    [
        (lambda: _real_own(REAL), lambda data: data["ca-cert.pem"], True),
        (lambda: _real_own(REAL), lambda data: OTHER.certificate + data["ca-cert.pem"], True),
        (lambda: _real_own(REAL), lambda data: data["ca-cert.pem"] + OTHER.certificate, True),
        (lambda: _real_own(REAL), lambda data: OTHER.certificate, False),
        (lambda: _real_upstream(REAL - HOUR), lambda data: data["ca-cert.pem"], True),
        (by_upstreams_ca, lambda data: data["ca-cert.pem"], True),
        (by_upstreams_ca, lambda data: OTHER.certificate + data["ca-cert.pem"], True),
        (by_upstreams_ca, lambda data: OTHER.certificate, False),
        (strange_identifier, lambda data: data["ca-cert.pem"], True),
        (lambda: _real_provided(REAL - HOUR), lambda data: data["ca.crt"], True),
        (lambda: _real_provided(REAL - HOUR), lambda data: OTHER.certificate, False),
        (lambda: own_data(REAL - YEAR), lambda data: data["ca-cert.pem"], False),
        (lambda: own_data(REAL - CA_LIFETIME), lambda data: data["ca-cert.pem"], False),
        (lambda: own_data(REAL + 2 * HOUR), lambda data: data["ca-cert.pem"], False),
    ],
    ids=[
        "ours",
        "ours after another",
        "ours before another",
        "another",
        "upstream's",
        "ours by upstream's authority",
        "ours by upstream's, after another",
        "ours by upstream's, another trusted",
        "a strange key identifier",
        "provided with an intermediate",
        "provided, another trusted",
        "expired",
        "its authority expired",
        "not yet valid",
    ],
)
def test_openssl_trusts_what_we_say_it_does(
    data: Callable[[], Data], ca_bundle: Callable[[Data], bytes], is_trusted: bool
) -> None:
    stored = data()
    bundle = ca_bundle(stored)
    pair = KeyPair(stored["tls.key"], stored["tls.crt"])
    assert certificates.trusts(bundle, pair.certificate, REAL) is is_trusted
    tls = LiveContext()
    tls.load(ServingCertificate(pair, bundle))
    client = client_context(ServingCertificate(pair, bundle))
    if is_trusted:
        leaf = read_certificate(pair.certificate, "tls.crt")
        assert handshake(tls.server_context, client, NAMES[0]) == leaf.public_bytes(Encoding.DER)
    else:
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(tls.server_context, client, NAMES[0])


def test_no_two_authorities_have_one_name() -> None:
    """OpenSSL goes by the name, and upstream's certificates say nothing else about who signed them."""
    subjects = {read_certificate(each.certificate, "ca").subject for each in (OTHER, certificates.issue_ca(NOW))}
    subjects.add(read_certificate(_real_upstream(REAL - HOUR)["ca-cert.pem"], "ca").subject)
    assert len(subjects) == 3


def test_an_issuer_that_is_no_authority_leads_nowhere() -> None:
    key, leaf_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer, certificate = foreign(key, NOW, NOW + YEAR, names=("issuer",))
    leaf, _ = foreign(leaf_key, NOW, NOW + YEAR, (key, certificate), ("leaf",))
    assert not certificates.trusts(issuer.certificate, leaf.certificate, NOW)


def test_a_self_signed_certificate_is_its_own_authority() -> None:
    pair, _ = foreign(ec.generate_private_key(ec.SECP256R1()), NOW, NOW + YEAR, names=("self",))
    assert certificates.trusts(pair.certificate, pair.certificate, NOW)


def test_a_key_for_signing_only() -> None:
    pair, _ = foreign(ed25519.Ed25519PrivateKey.generate(), NOW, NOW + YEAR, is_ca=True)
    with pytest.raises(CertificateError, match=r"ca-key\.pem is neither RSA nor ECDSA"):
        certificates.issue_serving(pair, NAMES, NOW)


def test_an_rsa_authority_signs_an_ecdsa_certificate() -> None:
    pair, _ = foreign(rsa.generate_private_key(65537, 2048), NOW, NOW + YEAR, is_ca=True)
    serving = certificates.issue_serving(pair, NAMES, NOW)
    public = read_certificate(serving.certificate, "tls.crt").public_key()
    assert isinstance(public, ec.EllipticCurvePublicKey)
    assert certificates.trusts(pair.certificate, serving.certificate, NOW)
