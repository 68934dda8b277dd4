"""Who may say what on NodeLink: real TLS on loopback, nodes' certificates, and what is wrong with them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast

import grpc
import pytest
from cryptography import x509

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
from koord.kube.clientkey import key_and_request
from koord.kube.credentials import pem_file
from koord.model.nodelink import SERVER_NAME
from koord.pb.koord import nodelink_pb2 as pb
from koord.tls import certificates
from koord_manager.nodelink import server as nodelink_server
from koord_manager.nodelink import service as nodelink_service
from koord_manager.nodelink.gate import NODE_CONNECTIONS
from koord_manager.nodelink.server import MAX_CALLS
from koord_manager.nodelink.service import MAX_PODS, MAX_REASON_CHARACTERS
from qosd.cluster.nodelink import encoded
from tests.koord_manager.nodelink.rig import CALL_S, EVICT_POD, NAMESPACE, REPORT, USAGE, plain_context, rig
from tests.kube.server import Fault
from tests.kube.support import NODES
from tests.support.waiting import HANG_S, until
from tests.tls.pki import provided_data

SECRETS = "/api/v1/secrets"
FOREIGN = certificates.issue_ca(datetime.now(UTC))


async def test_a_node_reports_itself() -> None:
    async with rig() as made:
        with made.client(await made.context()) as node:
            await node.report()
            assert made.fresh.usage("n1") == USAGE
            assert made.fresh.usage("n2") is None
    assert made.service.results["reported"] == 1


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


async def test_without_a_certificate_nobody_gets_past_the_handshake() -> None:
    async with rig() as made:
        with made.client(plain_context(made.ca)) as node:
            code, _ = await node.refusal()
            assert code == UNAVAILABLE
    assert made.service.results["refused"] == 0


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


async def test_strangers_who_break_off_handshakes_end_nothing() -> None:
    """With several at a time gRPC must not be given a certificate anew for each of them."""
    async with rig() as made:
        loop, ended_s = asyncio.get_running_loop(), asyncio.get_running_loop().time() + 1.5

        async def stranger() -> None:
            while loop.time() < ended_s:
                with contextlib.suppress(OSError):
                    context = plain_context(made.ca)
                    _, writer = await asyncio.open_connection("127.0.0.1", made.link.port, ssl=context,
                                                              server_hostname=SERVER_NAME)  # fmt: skip
                    await asyncio.sleep(0.01)
                    writer.transport.abort()

        await asyncio.gather(*[stranger() for _ in range(50)])
        with made.client(await made.context()) as node:
            await node.report()


async def test_handshakes_are_told_of_a_certificate_once() -> None:
    async with rig() as made, asyncio.timeout(HANG_S):
        with made.client(await made.context()) as node:
            await node.report()
        assert made.link._take_news() is None and made.link.certificate is not None
        made.link.load(made.link.certificate)
        assert [made.link._take_news() is None for _ in range(2)] == [False, True]


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


async def test_a_certificate_that_outlives_its_node_evicts_nothing() -> None:
    """The pods of a Node that is deleted stay for a while."""
    async with rig() as made:
        made.put_pod("web", "n1", "u1")
        await until(lambda: bool(made.view.pods.objects))
        context = await made.context("n1")
        made.server.delete(NODES, "", "n1")
        await until(lambda: len(made.view.nodes.objects) == 1)
        with made.client(context) as node:
            with pytest.raises(UnaryError, match="there is no Node n1") as refused:
                await node.evict("web", "u1")
            assert refused.value.code == NOT_FOUND
        assert made.server.count("evict") == 0


async def test_the_reason_of_an_eviction_is_logged_in_brief(caplog: pytest.LogCaptureFixture) -> None:
    async with rig() as made:
        made.put_pod("web", "n1", "u1")
        await until(lambda: bool(made.view.pods.objects))
        with made.client(await made.context()) as node, caplog.at_level(logging.INFO, "koord_manager.nodelink"):
            await node.evict("web", "u1", reason="x" * 10_000)
        (line,) = [each.getMessage() for each in caplog.records if "evicts" in each.getMessage()]
        assert line == f"node n1 evicts pod shop/web: {'x' * MAX_REASON_CHARACTERS}"


async def test_a_secret_that_somebody_else_fills_makes_nobody_a_node(caplog: pytest.LogCaptureFixture) -> None:
    """As cert-manager fills it: whomever its authority certifies would be one."""
    async with rig() as made:
        context, own = await made.context(), await made.link.read_ca()
        data = {key: b64encode(value).decode() for key, value in provided_data(datetime.now(UTC), SERVER_NAME).items()}
        made.server.put(SECRETS, NAMESPACE, nodelink_server.SECRET_NAME, type="kubernetes.io/tls", data=data)
        await until(lambda: "is filled by somebody else" in caplog.text)
        assert await made.link.read_ca() == own
        with made.client(context) as node:
            await node.report()


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


async def test_a_report_of_more_pods_than_a_node_has_is_refused() -> None:
    async with rig() as made:
        with made.client(await made.context()) as node:
            for pods, message in ((MAX_PODS + 1, "pods: 1025 are more than the 1024"), (MAX_PODS, "")):
                report = pb.NodeReport(node="n1", instance="i", sequence=pods, pods=[pb.PodUsage()] * pods)
                if not message:
                    await node.link.call(REPORT, report.SerializeToString(), CALL_S)
                    continue
                with pytest.raises(UnaryError, match=message) as refused:
                    await node.link.call(REPORT, report.SerializeToString(), CALL_S)
                assert refused.value.code == INVALID_ARGUMENT


async def test_a_node_has_some_calls_at_a_time_and_not_the_others() -> None:
    """Its evictions wait for one another, by however many connections they come; others' do not wait for them."""
    async with rig() as made, contextlib.AsyncExitStack() as stack:
        made.put_pod("web", "n1", "u1")
        made.put_pod("other", "n2", "u2")
        await until(lambda: len(made.view.pods.objects) == 2)
        made.server.faults.append(Fault("evict", hang=True))
        nodes = [stack.enter_context(made.client(await made.context("n1"))) for _ in range(NODE_CONNECTIONS)]
        calls = [asyncio.create_task(nodes[index % 2].evict("web", "u1")) for index in range(MAX_CALLS)]
        await until(lambda: made.link.calls_of("n1") == MAX_CALLS and made.server.count("evict") > 0)
        for node in nodes:
            with pytest.raises(UnaryError, match=f"{MAX_CALLS} calls of n1 are under way") as refused:
                await node.evict("web", "u1")
            assert refused.value.code == RESOURCE_EXHAUSTED
        with made.client(await made.context("n2")) as other:
            assert (await other.evict("other", "u2")).status == 0
            await other.report("n2")
        assert made.server.count("evict") == 2
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await until(lambda: made.link.calls_of("n1") == 0)


@pytest.mark.parametrize(
    ("fault", "evicted", "became"),
    [
        (Fault("evict"), 2, "the API server evicted it"),
        (Fault("evict", status=403, reason="Forbidden"), 1, "the API server says 403 Forbidden: the server says"),
        (Fault("evict", drop=True), 1, "pod shop/web is not evicted: "),
    ],
    ids=["evicted", "refused", "a connection that broke"],
)
async def test_the_next_eviction_of_a_node_waits_for_one_that_it_gave_up(
    caplog: pytest.LogCaptureFixture, fault: Fault, evicted: int, became: str
) -> None:
    """Or who gives up calls, and connections, would have the API server work on any number of evictions."""
    caplog.set_level(logging.INFO, "koord_manager.nodelink")
    answered = asyncio.Event()
    async with rig() as made:
        for name, uid in (("web", "u1"), ("next", "u2")):
            made.put_pod(name, "n1", uid)
        await until(lambda: len(made.view.pods.objects) == 2)
        made.server.faults.append(replace(fault, until=answered))
        with made.client(await made.context()) as node:
            given_up = asyncio.create_task(node.evict("web", "u1"))
            await until(lambda: made.server.count("evict") == 1)
        await asyncio.gather(given_up, return_exceptions=True)
        await until(lambda: made.link.calls_of("n1") == 0)
        with made.client(await made.context()) as node:
            call = asyncio.create_task(node.evict("next", "u2"))
            await until(lambda: made.link.calls_of("n1") == 1)
            await node.report()
            assert made.server.count("evict") == 1
            answered.set()
            assert (await call).status == 0
        assert made.server.count("evict") == 2
        assert made.service.results["evicted"] == evicted
    assert f"node n1 waited no longer for its eviction of pod shop/web: {became}" in caplog.text


async def test_an_eviction_without_an_answer_delays_the_nodes_next_one_for_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nodelink_service, "EVICTION_TIMEOUT_S", 0.5)
    async with rig() as made:
        made.put_pod("web", "n1", "u1")
        await until(lambda: bool(made.view.pods.objects))
        made.server.faults.append(Fault("evict", hang=True))
        with made.client(await made.context()) as node:
            given_up = asyncio.create_task(node.evict("web", "u1"))
            await until(lambda: made.server.count("evict") == 1)
            given_up.cancel()
            assert (await node.evict("web", "u1")).status == 0


async def test_an_eviction_under_way_ends_with_the_replica(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "koord_manager.nodelink")
    async with rig() as made:
        made.put_pod("web", "n1", "u1")
        await until(lambda: bool(made.view.pods.objects))
        made.server.faults.append(Fault("evict", hang=True))
        with made.client(await made.context()) as node:
            call = asyncio.create_task(node.evict("web", "u1"))
            await until(lambda: made.server.count("evict") == 1)
        await asyncio.gather(call, return_exceptions=True)
        await until(lambda: made.link.calls_of("n1") == 0)
    assert "eviction of pod shop/web: this replica ended before the API server answered" in caplog.text


@contextlib.asynccontextmanager
async def raw(port: int, context: ssl.SSLContext) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=SERVER_NAME)
    try:
        yield reader, writer
    finally:
        cast(asyncio.Transport, writer.transport).abort()


@pytest.mark.parametrize("limit", ["IDLE_S", "AGE_S", "HANDSHAKE_S"])
async def test_nobody_keeps_a_connection(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """Who does not call, who has been there for long, and who does not say who he is."""
    monkeypatch.setattr(nodelink_server, limit, 0.5)
    monkeypatch.setattr(nodelink_server, "GRACE_S", 0.5)
    async with rig() as made:
        if limit == "HANDSHAKE_S":
            reader, writer = await asyncio.open_connection("127.0.0.1", made.link.port)
            async with asyncio.timeout(CALL_S):
                assert await reader.read() == b""
            writer.close()
            return
        async with raw(made.link.port, await made.context()) as (reader, writer), asyncio.timeout(CALL_S):
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
            with contextlib.suppress(ConnectionError):
                while await reader.read(1 << 16):
                    pass


async def test_a_client_that_does_not_read_costs_others_nothing() -> None:
    async with rig() as made, raw(made.link.port, await made.context("n2")) as (_, writer):
        pings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0" + b"\0\0\x08\6\0\0\0\0\0koordlet" * 50_000
        writer.write(pings)
        with made.client(await made.context()) as node:
            await node.report()
            assert made.fresh.usage("n1") == USAGE


async def test_a_new_authority_is_taken_over_without_a_restart() -> None:
    """Who deletes the Secret has a new authority; old certificates are worth nothing any more."""
    async with rig() as made:
        before, old = made.ca, await made.context()
        made.server.delete(SECRETS, "koordinator-system", nodelink_server.SECRET_NAME)
        await until(lambda: made.ca != before)
        with made.client(await made.context()) as node:
            await node.report()
        old.load_verify_locations(cadata=made.ca)
        with made.client(old) as node:
            assert (await node.refusal())[0] == UNAVAILABLE


async def test_grpcios_client_speaks_it_too() -> None:
    async with rig() as made:
        key, request = key_and_request("system:node:n1", "system:nodes")
        ca = await made.link.read_ca()
        signed = certificates.issue_client(ca, x509.load_pem_x509_csr(request), datetime.now(UTC), timedelta(hours=1))
        credentials = grpc.ssl_channel_credentials(made.ca.encode(), key, signed)
        options = (("grpc.ssl_target_name_override", SERVER_NAME),)
        async with grpc.aio.secure_channel(f"127.0.0.1:{made.link.port}", credentials, options) as channel:
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(REPORT)
            answer = await call(encoded("n1", "i", 1, 0, USAGE), timeout=CALL_S)
        assert pb.NodeReportAnswer.FromString(answer) == pb.NodeReportAnswer()
        assert made.fresh.usage("n1") == USAGE
