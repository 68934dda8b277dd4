"""Which certificate requests are signed: a node's own name, a client's purpose, and nothing more."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from base64 import b64encode, encodebytes
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from koord.kube.kind import Key as KubeKey
from koord.kube.kind import Unstructured
from koord.model.core import ObjectMeta, Pod, PodSpec
from koord.model.nodelink import NODE_USER, SCHEDULER_GROUP, SIGNER
from koord.tls import certificates
from koord.tls.certificates import CertificateError, KeyPair
from koord_manager.nodelink import signing as judging
from koord_manager.nodelink.signer import MAX_WAITING, Signer
from koord_manager.nodelink.signing import (
    LIFETIME,
    MAX_REQUEST_BYTES,
    MAX_WHY_CHARACTERS,
    Agents,
    Approved,
    CertificateRequest,
    Denied,
    read,
    signed,
)
from tests.koord_manager.nodelink.rig import AGENT, pods_token
from tests.kube.server import Fault, JSONObject, Server
from tests.kube.support import client
from tests.support.waiting import until

NOW = datetime(2026, 11, 26, tzinfo=UTC)
CA = certificates.issue_ca(NOW)
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey
P256: Key = ec.generate_private_key(ec.SECP256R1())
GROUPS = ("system:nodes", "system:authenticated")
AGENT_POD = Pod(metadata=ObjectMeta(name="koordlet-x", uid="u1"), spec=PodSpec(node_name="n1"))
AGENTS = Agents(AGENT, {KubeKey("koordinator-system", "koordlet-x"): AGENT_POD}.get)


def pem(
    names: Sequence[str] = ("system:node:n1",),
    organizations: Sequence[str] = ("system:nodes",),
    key: Key = P256,
    host: str = "",
) -> bytes:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    attributes += [x509.NameAttribute(NameOID.COMMON_NAME, each) for each in names]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(attributes))
    if host:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, algorithm).public_bytes(serialization.Encoding.PEM)


def spec(request: bytes | None = None, **members: Any) -> JSONObject:
    return {
        "request": b64encode(request or pem()).decode(),
        "signerName": SIGNER,
        "username": "system:node:n1",
        "groups": list(GROUPS),
        "usages": ["digital signature", "client auth"],
        **members,
    }


def stored(spec: JSONObject, **status: Any) -> Unstructured:
    return Unstructured(ObjectMeta(name="r"), {"metadata": {"name": "r"}, "spec": spec, "status": status})


def judge(stored: Unstructured, agents: Agents) -> Approved | Denied:
    request = read(stored)
    assert request is not None
    return judging.judge(request, agents)


def tampered() -> bytes:
    """A request of which a bit of the signature is another."""
    der = bytearray(x509.load_pem_x509_csr(pem()).public_bytes(serialization.Encoding.DER))
    der[-1] ^= 1
    return armored(der)


def armored(der: bytes | bytearray) -> bytes:
    begin, end = (f"-----{word} CERTIFICATE REQUEST-----\n".encode() for word in ("BEGIN", "END"))
    return begin + encodebytes(der) + end


def with_an_x400_name() -> bytes:
    """A request for another name, of a kind that the library does not read."""
    names = x509.UnrecognizedExtension(x509.SubjectAlternativeName.oid, b"\x30\x02\xa3\x00")
    subject = x509.load_pem_x509_csr(pem()).subject
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject).add_extension(names, critical=False)
    return builder.sign(P256, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def of_version_2() -> bytes:
    """A request whose version is one that there is not."""
    der = bytearray(x509.load_pem_x509_csr(pem()).public_bytes(serialization.Encoding.DER))
    der[der.index(b"\x02\x01\x00") + 2] = 1
    return armored(der)


@pytest.mark.parametrize(
    ("request_spec", "why"),
    [
        (spec(pem(names=("system:node:n2",))), "system:node:n1 may not be certified as system:node:n2"),
        (spec(pem(names=("system:node:n1", "system:node:n2"))), "as system:node:n1, system:node:n2"),
        (spec(pem(names=())), "may not be certified as nobody"),
        (spec(pem(organizations=("system:masters",))), "CN=system:node:n1,O=system:nodes alone"),
        (spec(pem(organizations=())), "CN=system:node:n1,O=system:nodes alone"),
        (spec(pem(host="nodelink.koord.sh")), "has extensions"),
        (spec(username="kubernetes-admin"), "kubernetes-admin is no node"),
        (spec(username="system:node:"), "system:node: is no node"),
        (spec(groups=["system:authenticated"]), "system:node:n1 is no node"),
        (spec(usages=["server auth"]), "server auth is more or less than a client needs"),
        (spec(usages=["client auth", "cert sign"]), "client auth, cert sign is more"),
        (spec(usages=[]), "is more or less"),
        (spec(pem(key=rsa.generate_private_key(65537, 1024))), "neither ECDSA P-256 or P-384 nor RSA of 2048"),
        (spec(pem(key=ec.generate_private_key(ec.SECP224R1()))), "neither ECDSA P-256"),
        (spec(pem(key=ed25519.Ed25519PrivateKey.generate())), "neither ECDSA P-256"),
        (spec(b"x" * (MAX_REQUEST_BYTES + 1)), "spec.request has 8193 bytes, which is more than 8192"),
        (spec(b"no request"), "spec.request is no certificate request"),
        (spec(tampered()), "is not signed by its own key"),
        (spec(of_version_2()), "spec.request is no certificate request"),
        (spec(with_an_x400_name()), "spec.request is no certificate request"),
        ({"signerName": SIGNER}, "cannot be read"),
        (spec(expirationSeconds="soon"), "cannot be read"),
    ],
)
def test_denied(request_spec: JSONObject, why: str) -> None:
    verdict = judge(stored(request_spec), AGENTS)
    assert isinstance(verdict, Denied)
    assert why in verdict.why


def test_a_denial_quotes_a_stranger_in_brief() -> None:
    """It is logged, and stands in the object."""
    verdict = judge(stored(spec(pem(names=["n" * 64] * 60))), AGENTS)
    assert isinstance(verdict, Denied)
    assert verdict.why.startswith("system:node:n1 may not be certified as nnn")
    assert len(verdict.why) == MAX_WHY_CHARACTERS


@pytest.mark.parametrize(
    ("requester", "why"),
    [
        (pods_token(node_name="n1"), ""),
        (pods_token(pod_name="koordlet-x", pod_uid="u1"), ""),
        (pods_token(pod_name="koordlet-x", pod_uid="another"), "names neither a node nor a pod that is known"),
        (pods_token(pod_name="gone", pod_uid="u1"), "names neither a node nor a pod that is known"),
        (pods_token(), f"the token of {AGENT} names neither a node nor a pod that is known"),
        (pods_token(node_name="n2"), "may not be certified as system:node:n1: CN=system:node:n2"),
        (pods_token("system:serviceaccount:shop:web", node_name="n1"), "system:serviceaccount:shop:web is no node"),
    ],
    ids=["node", "pod", "pod of that name", "no pod", "no claim", "other node", "account"],
)
def test_the_pod_of_an_agent(requester: JSONObject, why: str) -> None:
    verdict = judge(stored(spec(**requester)), AGENTS)
    if why:
        assert isinstance(verdict, Denied)
        assert why in verdict.why
    else:
        assert isinstance(verdict, Approved)
        assert verdict.user == f"{NODE_USER}n1"


@pytest.mark.parametrize("key", [P256, ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65537, 2048)])
def test_what_is_signed_is_a_client_of_that_name_and_nothing_else(key: Key) -> None:
    verdict = judge(stored(spec(pem(key=key))), AGENTS)
    assert isinstance(verdict, Approved)
    assert verdict.user == f"{NODE_USER}n1"
    certificate = x509.load_pem_x509_certificate(signed(verdict, CA, NOW))
    assert certificate.subject.rfc4514_string() == "CN=system:node:n1,O=system:nodes"
    assert certificate.public_key() == key.public_key()
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    with pytest.raises(x509.ExtensionNotFound):
        certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(CA.certificate))
    assert certificate.not_valid_after_utc == NOW + LIFETIME


@pytest.mark.parametrize(
    ("seconds", "lifetime"),
    [
        (None, LIFETIME),
        (3600, timedelta(hours=1)),
        (1, timedelta(minutes=10)),
        (-1, timedelta(minutes=10)),
        (2**62, LIFETIME),
    ],
)
def test_how_long_it_is_valid(seconds: int | None, lifetime: timedelta) -> None:
    members: dict[str, Any] = {} if seconds is None else {"expirationSeconds": seconds}
    verdict = judge(stored(spec(**members)), AGENTS)
    assert isinstance(verdict, Approved)
    assert verdict.lifetime == lifetime


def test_it_ends_with_the_authority_at_the_latest() -> None:
    verdict = judge(stored(spec()), AGENTS)
    assert isinstance(verdict, Approved)
    late = NOW + certificates.CA_LIFETIME - timedelta(days=1)
    assert x509.load_pem_x509_certificate(signed(verdict, CA, late)).not_valid_after_utc == late + timedelta(days=1)


@pytest.mark.parametrize(
    ("request_spec", "status"),
    [
        (spec(signerName="kubernetes.io/kube-apiserver-client"), {}),
        (spec(), {"conditions": [{"type": "Denied"}]}),
        (spec(), {"conditions": [{"type": "Failed"}]}),
        (spec(), {"conditions": [{"type": "Approved"}], "certificate": b64encode(b"PEM").decode()}),
    ],
    ids=["another signer's", "denied", "failed", "done"],
)
def test_nothing_is_left_to_do(request_spec: JSONObject, status: JSONObject) -> None:
    assert read(stored(request_spec, **status)) is None


@asynccontextmanager
async def signing(server: Server, ca: KeyPair | None = CA, made: type[Signer] = Signer) -> AsyncIterator[Signer]:
    async def read_ca() -> KeyPair:
        if ca is None:
            raise CertificateError("ca-key.pem", "is missing")
        return ca

    async with server.serving() as url, client(url) as api:
        signer = made(api, read_ca, AGENTS, time.monotonic, lambda: NOW)
        running = asyncio.create_task(signer.run())
        try:
            yield signer
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


def status_of(server: Server, name: str) -> JSONObject:
    found: JSONObject = server.objects["/apis/certificates.k8s.io/v1", "certificatesigningrequests"]["", name]
    status: JSONObject = found.get("status", {})
    return status


async def test_the_signer_approves_first_and_leaves_others_requests_alone() -> None:
    server = Server()
    server.put(REQUESTS, "", "early", spec=spec())
    server.put(REQUESTS, "", "others", spec=spec(signerName="example.com/signer"))
    async with signing(server):
        server.put(REQUESTS, "", "late", spec=spec())
        server.put(REQUESTS, "", "wrong", spec=spec(pem(names=("system:node:n2",))))
        for name in ("early", "late"):
            await until(lambda name=name: "certificate" in status_of(server, name))  # type: ignore[misc]
            assert [each["type"] for each in status_of(server, name)["conditions"]] == ["Approved"]
        await until(lambda: bool(status_of(server, "wrong")))
    (denied,) = status_of(server, "wrong")["conditions"]
    assert (denied["type"], denied["reason"]) == ("Denied", "NotThisNode")
    assert "may not be certified as system:node:n2" in denied["message"]
    assert "certificate" not in status_of(server, "wrong")
    assert status_of(server, "others") == {}
    subresources = [path.rpartition("/")[2] for verb, path, *_ in server.requests if verb == "patch"]
    assert sorted(subresources) == ["approval", "approval", "approval", "status", "status"]


async def test_an_approval_without_a_certificate_is_followed_up() -> None:
    server = Server()
    server.put(REQUESTS, "", "r", spec=spec(), status={"conditions": [{"type": "Approved", "status": "True"}]})
    async with signing(server):
        await until(lambda: "certificate" in status_of(server, "r"))
    assert len(status_of(server, "r")["conditions"]) == 1


async def test_without_an_authority_it_is_tried_again() -> None:
    server = Server()
    server.put(REQUESTS, "", "r", spec=spec())
    async with signing(server, None):
        await until(lambda: bool(status_of(server, "r")))
        await asyncio.sleep(0.2)
    assert "certificate" not in status_of(server, "r")
    assert [each["type"] for each in status_of(server, "r")["conditions"]] == ["Approved"]


async def test_requesters_take_turns() -> None:
    """One with a dozen requests keeps another waiting for one of them."""
    server = Server()
    server.put(REQUESTS, "", "many-000", spec=spec())
    server.put(REQUESTS, "", "one", spec=spec(pem(names=("system:node:n2",)), username="system:node:n2"))
    for number in range(1, 12):
        server.put(REQUESTS, "", f"many-{number:03}", spec=spec())
    happened: list[str] = []  # in the signer: requests of several connections arrive in any order

    class Recorded(Signer):
        def _take(self, stored: Unstructured) -> None:
            happened.append(f"{stored.metadata.name} comes")
            super()._take(stored)

        async def _carry_out(self, request: CertificateRequest) -> None:
            happened.append(f"{request.name} begins")
            await super()._carry_out(request)

    async with signing(server, made=Recorded):
        await until(lambda: "certificate" in status_of(server, "one"))
    meanwhile = happened[happened.index("one comes") : happened.index("one begins")]
    assert sum(each.endswith("begins") for each in meanwhile) <= 1, happened


async def test_a_certificate_is_two_requests_and_no_more() -> None:
    """However late the events of the signer's own writes are."""
    server = Server()
    names = [f"r-{number:02}" for number in range(40)]
    for number, name in enumerate(names):
        user = f"system:node:n{number}"
        server.put(REQUESTS, "", name, spec=spec(pem(names=(user,)), username=user))
    async with signing(server):
        await until(lambda: all("certificate" in status_of(server, name) for name in names))
        await asyncio.sleep(0.3)
    assert server.count("patch") == 2 * len(names)


async def test_a_request_made_again_under_the_name_of_one_that_was_signed() -> None:
    server = Server()
    async with signing(server):
        for uid in ("u1", "u2"):
            server.put(REQUESTS, "", "r", metadata={"uid": uid}, spec=spec())
            await until(lambda: "certificate" in status_of(server, "r"))


async def test_of_a_nodes_requests_the_newest_few_are_known_and_signed() -> None:
    """The agent waits for its last one. In a list their order is that of their names."""
    server = Server()
    ages = {"a": 5, "b": 9, "c": 1, "d": 8, "e": 2, "f": 7, "g": 3}
    for name, seconds in ages.items():
        created = (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        server.put(REQUESTS, "", name, metadata={"creationTimestamp": created}, spec=spec())
    newest = sorted(ages, key=ages.__getitem__)[:MAX_WAITING]
    async with signing(server) as signer:
        await until(lambda: all("certificate" in status_of(server, name) for name in newest))
        await until(lambda: signer.waiting == 0)
    assert not any(status_of(server, name) for name in set(ages) - set(newest))
    assert signer.results == {"signed": MAX_WAITING, "superseded": len(ages) - MAX_WAITING}


async def test_strangers_wait_in_one_place_whoever_they_are() -> None:
    server = Server()
    for number in range(15):
        server.put(REQUESTS, "", f"r-{number:02}", spec=spec(username=f"user-{number}"))
    server.put(REQUESTS, "", "own", spec=spec())
    async with signing(server) as signer:
        await until(lambda: "certificate" in status_of(server, "own"))
        await until(lambda: signer.results["denied"] == MAX_WAITING)
    assert signer.results["superseded"] == 15 - MAX_WAITING


async def test_what_is_in_memory_of_large_requests(caplog: pytest.LogCaptureFixture) -> None:
    """They come in pages of which none is large, the answered ones leave nothing, and the others their name."""
    caplog.set_level("INFO")
    server, large = Server(), b"x" * 200_000
    for number in range(40):
        status = {"status": {"conditions": [{"type": "Denied"}]}} if number % 2 else {}
        user = f"system:node:n{number}"
        server.put(REQUESTS, "", f"r-{number:02}", spec=spec(large, username=user), **status)
    tracemalloc.start()
    try:
        async with signing(server, None) as signer:
            await until(lambda: signer.results["too long"] == 20)
            await until(lambda: signer.waiting == 0)
        of_ours = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/koord/kube/reading.py")])
    finally:
        tracemalloc.stop()
    assert sum(each.size for each in of_ours.statistics("filename")) < 5 * len(large)
    pages = [query for verb, _, query, _ in server.requests if verb == "list"]
    assert len(pages) == 3
    assert {query["limit"] for query in pages} == {"16"}
    assert "spec.request has 200000 bytes, which is more than 8192" in caplog.text
    (denied,) = status_of(server, "r-00")["conditions"]
    assert (denied["type"], denied["reason"]) == ("Denied", "TooLong")


async def test_what_somebody_approved_and_is_not_signed_has_failed() -> None:
    """An API server takes no denial of what is approved."""
    server = Server()
    approved = {"conditions": [{"type": "Approved", "status": "True"}]}
    server.put(REQUESTS, "", "r", spec=spec(pem(names=("system:node:n2",))), status=approved)
    async with signing(server):
        await until(lambda: len(status_of(server, "r")["conditions"]) == 2)
    assert [each["type"] for each in status_of(server, "r")["conditions"]] == ["Approved", "Failed"]
    assert [path.rpartition("/")[2] for verb, path, *_ in server.requests if verb == "patch"] == ["status"]


async def test_a_long_list_is_never_one_answer() -> None:
    """Not even where the server forgets the moment between two pages."""
    server = Server()
    for number in range(40):
        user = f"system:node:n{number}"
        server.put(REQUESTS, "", f"r-{number:02}", spec=spec(pem(names=(user,)), username=user))
    server.faults = [Fault("list"), Fault("list", status=410, reason="Expired")]
    async with signing(server):
        await until(lambda: all("certificate" in status_of(server, f"r-{number:02}") for number in range(40)))
    assert all("limit" in query for verb, _, query, _ in server.requests if verb == "list")


SCHEDULER = "system:serviceaccount:koordinator-system:koord-scheduler"


@pytest.mark.parametrize(
    ("username", "request_pem", "account", "why"),
    [
        (SCHEDULER, pem((SCHEDULER,), (SCHEDULER_GROUP,)), SCHEDULER, ""),
        (SCHEDULER, pem((SCHEDULER,), (SCHEDULER_GROUP,)), "", "is no node"),
        (SCHEDULER, pem((SCHEDULER,), ("system:nodes",)), SCHEDULER, f"CN={SCHEDULER},O={SCHEDULER_GROUP} alone"),
        (SCHEDULER, pem(("system:node:n1",), ("system:nodes",)), SCHEDULER, "may not be certified as system:node:n1"),
        (SCHEDULER, pem(("other",), (SCHEDULER_GROUP,)), SCHEDULER, "may not be certified as other"),
        ("system:node:n1", pem((SCHEDULER,), (SCHEDULER_GROUP,)), SCHEDULER, "may not be certified as system:serv"),
        ("somebody", pem((SCHEDULER,), (SCHEDULER_GROUP,)), SCHEDULER, "somebody is no node"),
    ],
    ids=["itself", "none is certified", "as a node's group", "as a node", "another name", "a node", "a stranger"],
)
def test_a_scheduler_is_certified_as_itself(username: str, request_pem: bytes, account: str, why: str) -> None:
    agents = Agents(AGENT, AGENTS.pod, account)
    verdict = judge(stored(spec(request_pem, username=username)), agents)
    if why:
        assert isinstance(verdict, Denied)
        assert why in verdict.why
    else:
        assert isinstance(verdict, Approved)
        certificate = x509.load_pem_x509_certificate(signed(verdict, CA, NOW))
        assert certificate.subject.rfc4514_string() == f"CN={SCHEDULER},O={SCHEDULER_GROUP}"
