"""TLS of the webhook server: versions, clients, and a change of certificates under load."""

from __future__ import annotations

import asyncio
import ssl

import aiohttp
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from koord.kube.credentials import pem_file
from koord.tls import certificates
from koord.tls.certificates import CertificateError, KeyPair, ServingCertificate, read_certificate
from koord.tls.context import LiveContext, client_context
from koord.webhook.server import ServerLimits
from tests.support.waiting import until
from tests.tls.pki import DAY, HOUR, NAMES, foreign, handshake
from tests.webhook.rig import (
    CA,
    FIRST,
    NOW,
    SECOND,
    Running,
    request,
    response,
    running,
)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
@pytest.mark.parametrize(
    ("version", "is_served"),
    [(ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, True)],
)
async def test_tls_versions(version: ssl.TLSVersion, is_served: bool) -> None:
    context = client_context(FIRST)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    async with running() as run:
        if is_served:
            assert (await run.post("/allow", context=context))[0] == 200
        else:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await run.connect(context)


async def test_a_client_that_names_no_server_sees_the_certificate_all_the_same() -> None:
    context = client_context(FIRST)
    context.check_hostname = False
    async with running() as run:
        _, writer = await run.connect(context, name=None)
        writer.close()


async def test_only_http_1_is_offered() -> None:
    context = client_context(FIRST)
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with running() as run:
        _, writer = await run.connect(context)
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
        writer.close()


def rsa_certificate() -> ServingCertificate:
    """As upstream's: the other kind of key."""
    pair, _ = foreign(rsa.generate_private_key(65537, 2048), NOW - HOUR, NOW + DAY, names=NAMES)
    return ServingCertificate(pair, pair.certificate)


async def test_a_change_of_certificates_fails_no_handshake() -> None:
    """Under load; every new connection sees the newest certificate, an old one lives on."""
    in_turn = (FIRST, SECOND, rsa_certificate())
    trusted = ServingCertificate(FIRST.pair, b"".join(each.ca_bundle for each in in_turn))
    context, changes, handshakes = client_context(trusted), 0, 0

    async def call(run: Running) -> None:
        nonlocal handshakes
        while changes < 30:
            before = changes
            reader, writer = await run.connect(context)
            newest = {_der(in_turn[number % 3]) for number in range(before, changes + 1)}
            assert writer.get_extra_info("ssl_object").getpeercert(binary_form=True) in newest
            handshakes += 1
            writer.write(request("/allow"))
            assert (await response(reader))[0] == 200
            writer.close()

    async with running(limits=ServerLimits()) as run:
        old_reader, old_writer = await run.connect()
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(call(run))
            while changes < 30:
                enough = handshakes + 3
                await until(lambda enough=enough: handshakes >= enough)  # type: ignore[misc]
                changes += 1
                run.tls.load(in_turn[changes % 3])
        old_writer.write(request("/allow"))
        assert (await response(old_reader))[0] == 200
        assert old_writer.get_extra_info("ssl_object").getpeercert(binary_form=True) == _der(FIRST)
        old_writer.close()


def _der(certificate: ServingCertificate | None) -> bytes:
    assert certificate is not None
    return ssl.PEM_cert_to_DER_cert(certificate.pair.certificate.decode())


def test_before_a_certificate_is_loaded_handshakes_are_refused() -> None:
    with pytest.raises(ssl.SSLError, match=r"."):
        handshake(LiveContext().server_context, client_context(FIRST), NAMES[0])


@pytest.mark.parametrize(
    "pair",
    [KeyPair(b"", b""), KeyPair(SECOND.pair.key, FIRST.pair.certificate), KeyPair(FIRST.pair.key, b"nonsense")],
    ids=["nothing", "another's key", "nonsense"],
)
def test_a_certificate_that_cannot_be_loaded_changes_nothing(pair: KeyPair) -> None:
    tls = LiveContext()
    tls.load(FIRST)
    with pytest.raises(CertificateError, match=r"tls\.crt cannot be served"):
        tls.load(ServingCertificate(pair, CA.certificate))
    assert tls.certificate == FIRST
    assert handshake(tls.server_context, client_context(FIRST), NAMES[0]) == _der(FIRST)


GARBLED = CA.certificate.replace(b"MII", b"M!!", 1)


@pytest.mark.parametrize(
    "bundle",
    [b"nonsense", b"\xff\xfe", GARBLED, CA.certificate + GARBLED],
    ids=["nonsense", "no text", "garbled", "second garbled"],
)
def test_authorities_that_cannot_be_read_change_nothing(bundle: bytes) -> None:
    tls = LiveContext(client_ca=None)
    tls.load(FIRST)
    with pytest.raises(CertificateError, match=r"ca\.crt cannot be trusted"):
        tls.load(ServingCertificate(SECOND.pair, bundle))
    assert tls.certificate == FIRST
    with pytest.raises(CertificateError):
        LiveContext(client_ca=bundle)


def test_authorities_may_have_comments_in_any_encoding() -> None:
    commented = ServingCertificate(FIRST.pair, "# Autorité\n".encode() + CA.certificate + b"# \xff\n")
    tls = LiveContext(client_ca=None)
    tls.load(commented)
    assert handshake(tls.server_context, client_context(commented), NAMES[0]) == _der(FIRST)


CLIENT_CA = certificates.issue_ca(NOW)


@pytest.mark.parametrize(
    ("signer", "path", "status"),
    [(None, "/allow", 403), (None, "/healthz", 200), (CLIENT_CA, "/allow", 200), (CA, "/allow", None)],
    ids=["no certificate", "no certificate, health", "a certificate", "another authority's"],
)
async def test_clients_are_verified_if_their_authority_is_known(
    signer: KeyPair | None, path: str, status: int | None
) -> None:
    context = client_context(FIRST) if signer is None else presenting(signer)
    async with running(client_ca=CLIENT_CA.certificate) as run:
        if status is None:
            with pytest.raises((aiohttp.ClientError, ssl.SSLError, ConnectionError)):
                await run.post(path, context=context)
        else:
            assert (await run.post(path, context=context))[0] == status
        assert await run.server.unreadiness() == ""


@pytest.mark.parametrize(
    ("names", "status"), [((), 200), (("apiserver", "client"), 200), (("apiserver",), 403), (("Client",), 403)]
)
async def test_clients_may_be_known_by_name(names: tuple[str, ...], status: int) -> None:
    """An authority may sign for more than API servers."""
    context = presenting(CLIENT_CA)
    async with running(client_ca=CLIENT_CA.certificate, client_names=names) as run:
        found, body, _ = await run.post("/allow", context=context)
        assert found == status
        assert status == 200 or body == b"the client is client, which is none of those let in\n"


@pytest.mark.parametrize(("signer", "is_let_in"), [(CA, True), (CLIENT_CA, False)])
async def test_clients_of_the_servers_own_authority(signer: KeyPair, is_let_in: bool) -> None:
    """It comes with the certificate that is served, and changes with it."""
    context = presenting(signer)
    async with running(client_ca=None) as run:
        if is_let_in:
            assert (await run.post("/allow", context=context))[0] == 200
        else:
            with pytest.raises((aiohttp.ClientError, ssl.SSLError, ConnectionError)):
                await run.post("/allow", context=context)
        run.tls.load(ServingCertificate(FIRST.pair, CLIENT_CA.certificate + FIRST.ca_bundle))
        assert (await run.post("/allow", context=context))[0] == 200


def presenting(signer: KeyPair) -> ssl.SSLContext:
    """A client's, with a certificate that ``signer`` has signed."""
    context = client_context(FIRST)
    key, certificate = client_pair(signer)
    with pem_file(key + certificate) as file:
        context.load_cert_chain(file)
    return context


def client_pair(signer: KeyPair) -> tuple[bytes, bytes]:
    key = load_pem_private_key(signer.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    authority = read_certificate(signer.certificate, "ca")
    pair, _ = foreign(ec.generate_private_key(ec.SECP256R1()), NOW - HOUR, NOW + DAY, (key, authority), ("client",))
    return pair.key, pair.certificate
