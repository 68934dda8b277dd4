"""Who may say what on NodeLink: real TLS on loopback, certificates and tokens, and what is wrong with them."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from datetime import UTC, datetime, timedelta

import grpc
import pytest

from koord.http2.client import UnaryError
from koord.http2.grpc import (
    FAILED_PRECONDITION,
    INVALID_ARGUMENT,
    NOT_FOUND,
    PERMISSION_DENIED,
    RESOURCE_EXHAUSTED,
    UNAUTHENTICATED,
    UNAVAILABLE,
)
from koord.kube import certificates
from koord.kube.credentials import pem_file
from koord.model.nodelink import SERVER_NAME
from koord.pb.koord import nodelink_pb2 as pb
from koord_manager.nodelink import server as nodelink_server
from koord_manager.nodelink.service import Caller
from qosd.cluster.nodelink import encoded
from tests.koord_manager.nodelink.rig import (
    CALL_S,
    EVICT_POD,
    REPORT,
    USAGE,
    APIServer,
    authenticated,
    plain_context,
    rig,
)
from tests.kube.server import Fault
from tests.kube.support import PODS, until

FOREIGN = certificates.issue_ca(datetime.now(UTC))


async def test_a_node_reports_itself() -> None:
    async with rig() as made:
        with made.client(await made.context()) as node:
            await node.report()
            assert made.fresh.usage("n1") == USAGE
            assert made.fresh.usage("n2") is None
            assert made.link.connections == 1
    assert made.service.counts.reports == 1


async def test_another_node_is_refused() -> None:
    async with rig() as made:
        with made.client(await made.context("n1")) as node:
            assert await node.refusal("n2") == (PERMISSION_DENIED, "node n1 may not report for 'n2'")
            await node.report("n1")
        assert made.fresh.usage("n2") is None


async def test_a_node_that_the_cluster_does_not_have_is_refused() -> None:
    async with rig() as made:
        with made.client(await made.context("n9")) as node:
            assert await node.refusal("n9") == (NOT_FOUND, "there is no Node n9")


async def test_without_certificate_and_token_nobody_is_anybody() -> None:
    async with rig() as made:
        with made.client(plain_context(made.ca)) as node:
            code, message = await node.refusal()
            assert code == UNAUTHENTICATED
            assert "neither a node's certificate nor a bearer token" in message


@pytest.mark.parametrize("fault", ["another authority", "expired"])
async def test_a_bad_certificate_gets_no_connection(fault: str) -> None:
    async with rig() as made:
        if fault == "expired":
            context = await made.context(lifetime=timedelta(minutes=-1))
        else:
            context = await made.context(ca=FOREIGN)
        with made.client(context) as node:
            code, _ = await node.refusal()
            assert code == UNAVAILABLE
        assert made.fresh.usage("n1") is None


async def test_a_certificate_that_expires_while_it_is_connected() -> None:
    async with rig() as made:
        with made.client(await made.context(lifetime=timedelta(hours=1))) as node:
            await node.report()
            made.state.ahead_s = 3601
            assert await node.refusal() == (UNAUTHENTICATED, "the certificate of node n1 has expired")


async def test_a_certificate_of_the_manager_itself_is_no_nodes() -> None:
    async with rig() as made:
        ca = await made.link.read_ca()
        pair = certificates.issue_serving(ca, ["localhost"], datetime.now(UTC))
        context = plain_context(made.ca)
        with pem_file(pair.certificate) as chain, pem_file(pair.key) as key:
            context.load_cert_chain(chain, key)
        with made.client(context) as node:
            code, _ = await node.refusal()
            assert code in (UNAVAILABLE, UNAUTHENTICATED)


async def test_the_server_is_known_by_its_name_and_authority() -> None:
    async with rig() as made:
        context = plain_context(FOREIGN.certificate.decode())
        with made.client(context) as node:
            code, message = await node.refusal()
            assert code == UNAVAILABLE
            assert "CERTIFICATE_VERIFY_FAILED" in message


async def test_who_does_not_lead_names_the_leader() -> None:
    async with rig() as made:
        made.state.leads, made.state.leader = False, "10.0.0.7:9877"
        with made.client(await made.context()) as node:
            assert await node.refusal() == (FAILED_PRECONDITION, "this replica does not lead, 10.0.0.7:9877 does")
            made.state.leader = ""
            assert (await node.refusal())[1] == "this replica does not lead, nobody does"
        assert made.fresh.usage("n1") is None


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (authenticated(node_name="n1"), 0, ""),
        (authenticated(pod_name="koordlet-x", pod_uid="u1"), 0, ""),
        (authenticated(pod_name="koordlet-x", pod_uid="another"), PERMISSION_DENIED, "names neither a node nor a pod"),
        (authenticated(pod_name="gone", pod_uid="u1"), PERMISSION_DENIED, "names neither a node nor a pod"),
        (authenticated(), PERMISSION_DENIED, "names neither a node nor a pod"),
        (authenticated(node_name="n2"), PERMISSION_DENIED, "node n2 may not report for 'n1'"),
        (authenticated("system:serviceaccount:shop:web", node_name="n1"), PERMISSION_DENIED, "is not system:service"),
        (
            authenticated(audience="https://kubernetes", node_name="n1"),
            UNAUTHENTICATED,
            "not one for koord-nodelink",
        ),
        ({"authenticated": False, "error": "expired"}, UNAUTHENTICATED, "koord-nodelink: expired"),
    ],
    ids=["node", "pod", "pod of that name", "no pod", "no claim", "other node", "account", "audience", "expired"],
)
async def test_a_token(status: dict[str, object], code: int, message: str) -> None:
    server = APIServer()
    server.reviews["t"] = status
    server.put(PODS, "koordinator-system", "koordlet-x", metadata={"uid": "u1"}, spec={"nodeName": "n1"})
    async with rig(server=server) as made:
        with made.client(plain_context(made.ca), "t") as node:
            if not code:
                await node.report()
                assert made.fresh.usage("n1") == USAGE
                return
            refusal = await node.refusal()
            assert refusal[0] == code
            assert message in refusal[1]


async def test_a_token_is_reviewed_once_in_a_while() -> None:
    server = APIServer()
    server.reviews["t"] = authenticated(node_name="n1")
    async with rig(server=server) as made:
        with made.client(plain_context(made.ca), "t") as node:
            for _ in range(3):
                await node.report()
            assert reviews(server) == 1
            del server.reviews["t"]
            made.state.now_s += 299
            await node.report()
            made.state.now_s += 2
            assert (await node.refusal())[0] == UNAUTHENTICATED
            assert (await node.refusal())[0] == UNAUTHENTICATED
            assert reviews(server) == 2, "what was refused is remembered, too"


async def test_no_review_is_no_verdict() -> None:
    server = APIServer()
    server.reviews["t"] = authenticated(node_name="n1")
    async with rig(server=server) as made:
        with made.client(plain_context(made.ca), "t") as node:
            server.faults += [Fault("create", status=500, reason="InternalError")] * 2
            assert (await node.refusal())[0] == UNAVAILABLE
            server.faults.clear()
            await node.report()


async def test_a_node_evicts_its_own_pods_alone() -> None:
    async with rig() as made:
        made.put_pod("web", "n1", "u1")
        made.put_pod("other", "n2", "u2")
        await until(lambda: len(made.view.pods.objects) == 2)
        with made.client(await made.context("n1")) as node:
            with pytest.raises(UnaryError, match="pod shop/other is not on node n1") as refused:
                await node.evict("other", "u2")
            assert refused.value.code == PERMISSION_DENIED
            for name, uid in (("web", "u2"), ("nobody", "u1")):
                with pytest.raises(UnaryError, match=f"knows no pod shop/{name} with UID {uid}") as refused:
                    await node.evict(name, uid)
                assert refused.value.code == NOT_FOUND
            with pytest.raises(UnaryError, match="namespace, name and uid") as refused:
                await node.evict("web", "")
            assert refused.value.code == INVALID_ARGUMENT
            assert made.server.count("evict") == 0
            assert (await node.evict("web", "u1")).status == 0
        assert ("shop", "web") not in made.server.objects["/api/v1", "pods"]
        assert ("shop", "other") in made.server.objects["/api/v1", "pods"]


async def test_what_the_api_server_says_to_an_eviction_comes_back() -> None:
    async with rig() as made:
        made.put_pod("web", "n1", "u1")
        await until(lambda: bool(made.view.pods.objects))
        made.server.protected.add("web")
        with made.client(await made.context()) as node:
            answer = await node.evict("web", "u1")
        assert (answer.status, answer.reason, list(answer.budget_causes)) == (429, "TooManyRequests", ["needs 2 pods"])


async def test_bad_bytes_cost_their_own_call() -> None:
    async with rig() as made:
        with made.client(await made.context()) as node:
            for path in (REPORT, EVICT_POD):
                with pytest.raises(UnaryError, match="the request is no") as refused:
                    await node.link.call(path, b"\xff\xff", CALL_S)
                assert refused.value.code == INVALID_ARGUMENT
            with pytest.raises(UnaryError) as refused:
                await node.link.call(REPORT, bytes(nodelink_server.MAX_MESSAGE_BYTES + 1), CALL_S)
            assert refused.value.code == RESOURCE_EXHAUSTED
            await node.report()


async def test_who_does_not_call_loses_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodelink_server, "IDLE_S", 0.1)
    async with rig() as made:
        _, writer = await asyncio.open_connection(
            "127.0.0.1", made.link.port, ssl=plain_context(made.ca), server_hostname=SERVER_NAME
        )
        await until(lambda: made.link.connections == 1)
        await until(lambda: made.link.connections == 0)
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


@pytest.mark.parametrize("token", ["", "bad"], ids=["no token", "refused token"])
async def test_who_is_refused_each_time_loses_its_connection(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    """A node that calls as often keeps its own."""
    monkeypatch.setattr(nodelink_server, "IDLE_S", 0.5)
    server = APIServer()
    server.reviews["t"] = authenticated(node_name="n1")
    async with rig(server=server) as made:
        caller, ends = made.service.caller, list[asyncio.BaseTransport]()

        def came(transport: asyncio.BaseTransport) -> Caller:
            ends.append(transport)
            return caller(transport)

        monkeypatch.setattr(made.service, "caller", came)
        with made.client(plain_context(made.ca), "t") as node, made.client(plain_context(made.ca), token) as other:
            await node.report()
            await other.refusal()
            of_node, of_other = ends
            for _ in range(60):
                await node.report()
                await other.refusal()
                if of_other.is_closing():
                    break
                await asyncio.sleep(0.05)
            assert (of_node.is_closing(), of_other.is_closing()) == (False, True)


async def test_a_client_that_does_not_read_costs_others_nothing() -> None:
    async with rig() as made:
        context = await made.context("n2")
        _, writer = await asyncio.open_connection("127.0.0.1", made.link.port, ssl=context, server_hostname=SERVER_NAME)
        pings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0" + b"\0\0\x08\6\0\0\0\0\0koordlet" * 50_000
        assert isinstance(writer.transport, asyncio.Transport)
        writer.write(pings)
        with made.client(await made.context()) as node:
            await node.report()
            assert made.fresh.usage("n1") == USAGE
        writer.transport.abort()


async def test_a_new_authority_is_taken_over_without_a_restart() -> None:
    """Who deletes the Secret has a new authority; old certificates are worth nothing any more."""
    async with rig() as made:
        before, old = made.ca, await made.context()
        made.server.delete("/api/v1/secrets", "koordinator-system", nodelink_server.SECRET_NAME)
        await until(lambda: made.ca != before)
        with made.client(await made.context()) as node:
            await node.report()
        old.load_verify_locations(cadata=made.ca)
        with made.client(old) as node:
            assert (await node.refusal())[0] == UNAVAILABLE


async def test_grpcio_speaks_it_too() -> None:
    """Another implementation of gRPC over TLS with a node's token."""
    server = APIServer()
    server.reviews["t"] = authenticated(node_name="n1")
    async with rig(server=server) as made:
        credentials = grpc.ssl_channel_credentials(made.ca.encode())
        options = (("grpc.ssl_target_name_override", SERVER_NAME),)
        async with grpc.aio.secure_channel(f"127.0.0.1:{made.link.port}", credentials, options) as channel:
            report = channel.unary_unary(REPORT)
            answer = await report(
                encoded("n1", "i", 1, 0, USAGE), metadata=(("authorization", "Bearer t"),), timeout=CALL_S
            )
        assert pb.NodeReportAnswer.FromString(answer) == pb.NodeReportAnswer()
        assert made.fresh.usage("n1") == USAGE


def reviews(server: APIServer) -> int:
    return sum(path.endswith("/tokenreviews") for _, path, *_ in server.requests)
