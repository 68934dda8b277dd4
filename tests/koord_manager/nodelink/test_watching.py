"""ClusterState.Watch on a real socket: who may follow, and that one who does not read costs nothing."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import grpc
import grpc.aio
import pytest
from cryptography import x509

from koord.kube.clientkey import key_and_request
from koord.model.nodelink import NODE_GROUP, NODE_USER, SCHEDULER_GROUP, SERVER_NAME
from koord.pb.koord import clusterstate_pb2 as pb
from koord.tls import certificates
from koord_manager.nodelink.watching import PART_NODES, WATCH
from tests.koord_manager.nodelink.rig import REPORT, Rig, rig
from tests.support.waiting import until

USER = "system:serviceaccount:koordinator-system:koord-scheduler"
ANSWER_S = 5.0
Call = grpc.aio.UnaryStreamCall[bytes, bytes]


@contextlib.asynccontextmanager
async def channel(made: Rig, user: str = USER, group: str = SCHEDULER_GROUP) -> AsyncIterator[grpc.aio.Channel]:
    key, request = key_and_request(user, group)
    ca, now = await made.link.read_ca(), datetime.now(UTC)
    chain = certificates.issue_client(ca, x509.load_pem_x509_csr(request), now, timedelta(days=1))
    credentials = grpc.ssl_channel_credentials(made.ca.encode(), key, chain)
    options = (("grpc.ssl_target_name_override", SERVER_NAME), ("grpc.use_local_subchannel_pool", 1))
    async with grpc.aio.secure_channel(f"127.0.0.1:{made.link.port}", credentials, options=options) as opened:
        yield opened


def put(made: Rig, node: str, report: bytes = b"") -> None:
    made.states.put(node, report, 0, time.monotonic(), 0)


def watch(opened: grpc.aio.Channel, instance: str = "", version: int = 0) -> Call:
    method: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = opened.unary_stream(WATCH)
    return method(pb.WatchRequest(instance=instance, version=version).SerializeToString())


async def update(call: Call) -> pb.Update:
    async with asyncio.timeout(ANSWER_S):
        message = await call.read()
    assert isinstance(message, bytes)
    return pb.Update.FromString(message)


async def refusal(call: Call) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await update(call)
    return caught.value.code(), caught.value.details() or ""


async def test_a_snapshot_then_what_changes() -> None:
    async with rig() as made, channel(made) as opened:
        with made.client(await made.context("n1")) as node:
            await node.report()
            call = watch(opened)
            first = await update(call)
            assert (first.is_snapshot, first.is_complete, [each.node for each in first.nodes]) == (True, True, ["n1"])
            with made.client(await made.context("n2")) as other:
                await other.report("n2")
                second = await update(call)
            assert (second.is_snapshot, [each.node for each in second.nodes]) == (False, ["n2"])
            assert second.nodes[0].agent == pb.REPORTING
            await node.report()
            assert [each.node for each in (await update(call)).nodes] == ["n1"]
            again = watch(opened, second.instance, second.version)
            resumed = await update(again)
            assert (resumed.is_snapshot, [each.node for each in resumed.nodes]) == (False, ["n1"])


@pytest.mark.parametrize(
    ("user", "group"),
    [(f"{NODE_USER}n1", NODE_GROUP), ("somebody", "system:masters"), (f"{NODE_USER}n1", SCHEDULER_GROUP)],
    ids=["a node", "somebody", "a node's name"],
)
async def test_who_is_no_scheduler_is_refused(user: str, group: str) -> None:
    async with rig() as made, channel(made, user, group) as opened:
        code, text = await refusal(watch(opened))
        assert (code, text) == (grpc.StatusCode.PERMISSION_DENIED, "the certificate is no scheduler's")
        assert made.watcher.followers == 0


async def test_a_scheduler_reports_for_no_node() -> None:
    async with rig() as made, channel(made) as opened:
        with pytest.raises(grpc.aio.AioRpcError, match="the certificate is no node's"):
            method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = opened.unary_unary(REPORT)
            await method(b"")


async def test_who_has_no_certificate_costs_his_connection_alone() -> None:
    async with rig() as made, channel(made) as opened:
        put(made, "n1", b"")
        call = watch(opened)
        await update(call)
        credentials = grpc.ssl_channel_credentials(made.ca.encode())
        options = (("grpc.ssl_target_name_override", SERVER_NAME), ("grpc.use_local_subchannel_pool", 1))
        async with grpc.aio.secure_channel(f"127.0.0.1:{made.link.port}", credentials, options=options) as stranger:
            code, _ = await refusal(watch(stranger))
        assert code is grpc.StatusCode.UNAVAILABLE
        put(made, "n2", b"")
        assert [each.node for each in (await update(call)).nodes] == ["n2"]


async def test_who_follows_is_told_when_another_replica_leads() -> None:
    async with rig() as made, channel(made) as opened:
        put(made, "n1", b"")
        call = watch(opened)
        await update(call)
        made.state.leads, made.state.leader = False, "10.0.0.2:10353"
        text = "this replica does not lead, 10.0.0.2:10353 does"
        assert await refusal(call) == (grpc.StatusCode.FAILED_PRECONDITION, text)
        assert await refusal(watch(opened)) == (grpc.StatusCode.FAILED_PRECONDITION, text)


async def test_one_who_does_not_read_gets_the_newest_later_and_holds_nobody_up() -> None:
    """A thousand nodes of 2 KiB change again and again: far more than the buffers between the two take."""
    count, rounds = 1000, 40
    async with rig() as made, channel(made) as opened, channel(made, f"{USER}-2") as other:
        for index in range(count):
            put(made, f"n{index}", bytes(2048))
        stalled, reader = watch(opened), watch(other)
        parts = [await update(stalled)]  # and no more of the snapshot, nor of what follows
        for number in range(rounds):
            for index in range(count):
                put(made, f"n{index}", number.to_bytes(4, "big") + bytes(2044))
            seen: set[int] = set()
            while number not in seen or len(seen) > 1:
                seen = {int.from_bytes(each.report[:4], "big") for each in (await update(reader)).nodes}
        assert made.watcher.followers == 2
        newest: dict[str, bytes] = {}
        for _ in range(20 * (count // PART_NODES + 1)):
            parts.append(await update(stalled))
            newest |= {each.node: each.report[:4] for each in parts[-1].nodes}
            if len(newest) == count and set(newest.values()) == {(rounds - 1).to_bytes(4, "big")}:
                break
        assert set(newest.values()) == {(rounds - 1).to_bytes(4, "big")}, "what was in between is not sent"
        stalled.cancel()
        await until(lambda: made.watcher.followers == 1)


async def test_a_large_snapshot_comes_in_parts() -> None:
    async with rig() as made, channel(made) as opened:
        for index in range(2 * PART_NODES + 1):
            put(made, f"n{index}", b"")
        call = watch(opened)
        parts = [await update(call) for _ in range(3)]
        assert [each.is_snapshot for each in parts] == [True, False, False]
        assert [each.is_complete for each in parts] == [False, False, True]
        assert len({node.node for each in parts for node in each.nodes}) == 2 * PART_NODES + 1
