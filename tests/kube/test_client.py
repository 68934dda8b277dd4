"""The API's verbs against a server that fails in each way there is."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from koord.kube import connections, watch
from koord.kube.client import CallLimits, Client, PatchType, Preconditions, Propagation, Selection
from koord.kube.errors import APIError, BadAnswer, KubeError, NotLeader, Stalled, Unreachable
from koord.kube.kind import CONFIG_MAP, NODE, POD, Key
from koord.kube.kubeconfig import RESTConfig
from koord.kube.ratelimit import RateLimit
from koord.kube.reading import ObjectEntry, WatchEventType
from koord.kube.transport import Transport
from koord.model.core import Node
from tests.kube.authority import Authority
from tests.kube.server import Fault, Server
from tests.kube.support import NODES, PODS, client, credentials
from tests.support.waiting import HANG_S, until

WEB = Key("default", "web")


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    async with server.serving():
        server.put(PODS, "default", "web", spec={"nodeName": "n1"})
        yield server


class Pauses(list[float]):
    """Sleeps that are noted instead."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


async def test_a_write_is_asked_for_when_it_is_sent(server: Server) -> None:
    """It waited for its turn, or for the pause before another try, and the leadership ended meanwhile."""
    leads = True

    def check() -> None:
        if not leads:
            raise NotLeader("another one leads")

    async def pause(_: float) -> None:
        nonlocal leads
        leads = False

    async with Transport(credentials(RESTConfig(server.url)), "test") as transport:
        api = Client(transport, CallLimits(), pause).guarded(check)
        await api.patch(POD, WEB, {"metadata": {"labels": {"a": "1"}}})
        server.faults.append(OVERLOAD)
        before = server.count("patch")
        with pytest.raises(NotLeader):
            await api.with_limits(CallLimits()).patch(POD, WEB, {"metadata": {"labels": {"a": "2"}}})
        assert server.count("patch") == before + 1
        for write in (api.delete(POD, WEB), api.evict(WEB, "u1"), api.create(POD, {}, "default")):
            with pytest.raises(NotLeader):
                await write
        assert (await api.get(POD, WEB)).metadata.labels == {"a": "1"}, "who does not lead may read"


async def test_a_write_is_asked_for_when_it_has_its_connection(server: Server, tmp_path: Path) -> None:
    """Which takes time where the network fails: here the first bytes of a TLS handshake wait."""
    authority, came, may_go_on, leads = Authority(), asyncio.Event(), asyncio.Event(), True

    def check() -> None:
        if not leads:
            raise NotLeader("another one leads")

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        await may_go_on.wait()
        back, forth = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        await asyncio.gather(pump(reader, forth), pump(back, writer))

    pair = authority.issue("node")
    async with server.serving(authority.server_context(tmp_path)) as url:
        listening = await asyncio.start_server(relay, "127.0.0.1", 0)
        relayed = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        async with listening, client(relayed, ca=authority.pem, certificate=pair, key=pair) as api:
            writing = asyncio.create_task(api.guarded(check).bind(WEB, "u", "n2"))
            await asyncio.wait_for(came.wait(), HANG_S)
            leads = False
            may_go_on.set()
            with pytest.raises(NotLeader):
                await writing
            assert (await api.get(POD, WEB)).spec.node_name == "n1"
    assert server.count("bind") == 0


OVERLOAD = Fault("any", status=503, reason="ServiceUnavailable")
LIMITED = Fault("any", status=429, reason="TooManyRequests", headers={"Retry-After": "1"})
DROPPED = Fault("any", drop=True)
CUT = Fault("get", cut=10)
FORBIDDEN = Fault("any", status=403, reason="Forbidden")


@pytest.mark.parametrize(
    ("faults", "error", "requests"),
    [
        ([], None, 1),
        ([LIMITED], None, 2),
        ([OVERLOAD, LIMITED, CUT], None, 4),
        ([OVERLOAD] * 4, "503 ServiceUnavailable", 4),
        ([LIMITED] * 4, "429 TooManyRequests", 4),
        ([CUT] * 4, "the connection broke", 4),
        ([FORBIDDEN], "403 Forbidden", 1),
        ([OVERLOAD, FORBIDDEN], "403 Forbidden", 2),
        ([Fault("get", body=b"<html>")], "no Pod: ", 1),
        ([Fault("get", status=302, headers={"Location": "http://127.0.0.1:1/"}, body=b"moved")], "302 Unknown", 1),
    ],
    ids=range(10),
)
async def test_tries_of_a_get(server: Server, faults: list[Fault], error: str | None, requests: int) -> None:
    server.faults = list(faults)
    async with client(server.url) as api:
        if error is None:
            assert (await api.get(POD, WEB)).spec.node_name == "n1"
        else:
            with pytest.raises(KubeError, match=error):
                await api.get(POD, WEB)
    assert server.count("get") == requests


async def test_a_dropped_get_is_tried_again(server: Server) -> None:
    server.faults = [DROPPED]
    async with client(server.url) as api:
        assert (await api.get(POD, WEB)).metadata.name == "web"


@pytest.mark.parametrize(
    ("fault", "error", "status", "created"),
    [
        (LIMITED, None, 0, True),
        (OVERLOAD, APIError, 503, False),
        (Fault("create", drop=True, done=True), Unreachable, 0, True),
        (Fault("create", drop=True), Unreachable, 0, False),
    ],
    ids=["limited", "overload", "answer lost", "request lost"],
)
async def test_a_create_is_not_sent_twice(
    server: Server, fault: Fault, error: type[KubeError] | None, status: int, created: bool
) -> None:
    server.faults = [fault]
    async with client(server.url) as api:
        if error is None:
            await api.create(NODE, {"metadata": {"name": "n1"}})
        else:
            with pytest.raises(error):
                await api.create(NODE, {"metadata": {"name": "n1"}})
        assert len((await api.list(NODE)).entries) == created
    assert server.count("create") <= 2 - (error is not None)


async def test_a_delete_whose_answer_was_lost_finds_nothing(server: Server) -> None:
    server.faults = [Fault("delete", drop=True, done=True)]
    async with client(server.url) as api:
        with pytest.raises(APIError) as caught:
            await api.delete(POD, WEB)
    assert caught.value.is_not_found


async def test_nobody_listens() -> None:
    async with client("http://127.0.0.1:1") as api:
        with pytest.raises(Unreachable) as caught:
            await api.create(NODE, {"metadata": {"name": "n1"}})
        assert not caught.value.may_have_arrived
        assert api.retries == 3


@pytest.mark.parametrize("verb", ["get", "list", "watch"])
async def test_a_server_that_hangs(server: Server, verb: str) -> None:
    server.faults = [Fault(verb, hang=True)]
    async with client(server.url, tries=1, timeout_s=0.05) as api:
        with pytest.raises(Unreachable, match="no answer in time"):
            if verb == "get":
                await api.get(POD, WEB)
            elif verb == "list":
                await api.list(POD)
            else:
                await anext(api.watch(POD, "100"))


@pytest.mark.parametrize("verb", ["get", "watch"])
async def test_an_error_whose_body_stalls(verb: str) -> None:
    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 100\r\n\r\n<html>")
        await reader.read()  # until the client gives up
        writer.close()

    balancer = await asyncio.start_server(stall, "127.0.0.1", 0)
    host, port = balancer.sockets[0].getsockname()
    async with balancer, client(f"http://{host}:{port}", tries=1, timeout_s=0.05) as api, asyncio.timeout(HANG_S):
        with pytest.raises(Unreachable, match="no answer in time"):
            await (api.get(POD, WEB) if verb == "get" else anext(api.watch(POD, "100")))


async def test_the_server_says_how_long_to_wait(server: Server) -> None:
    server.faults = [LIMITED, Fault("any", status=429, headers={"Retry-After": "99999"}), OVERLOAD]
    pauses = Pauses()

    async with Transport(credentials(RESTConfig(server.url)), "test/1") as transport:
        await Client(transport, CallLimits(), pauses, random=lambda: 1.0).get(POD, WEB)
    assert pauses == [1.2, 30.4, 0.8]


async def test_headers(server: Server) -> None:
    async with client(server.url, token="secret") as api:
        await api.get(POD, WEB)
    *_, headers = server.requests[-1]
    assert headers["Authorization"] == "Bearer secret"
    assert (headers["User-Agent"], headers["Accept-Encoding"]) == ("test/1", "identity")


async def test_a_proxy(server: Server) -> None:
    """It is asked in place of a server that only it can find."""
    server.faults = [LIMITED]
    async with client("http://server.invalid", proxy=server.url) as api:
        assert (await api.get(POD, WEB)).metadata.name == "web"
        assert len((await api.list(POD)).entries) == 1
    assert server.requests[-1][3]["Host"] == "server.invalid"


async def test_a_server_below_a_path(server: Server) -> None:
    async with client(f"{server.url}/clusters/c1") as api:
        assert await api.get_path("/version") == b'{"path": "/clusters/c1/version"}'


async def test_a_token_cannot_add_a_header(server: Server) -> None:
    async with client(server.url, token="a\r\nX: y") as api:
        with pytest.raises(KubeError, match="line break in the token"):
            await api.get(POD, WEB)
    assert server.requests == []


async def test_a_port_that_is_none() -> None:
    async with client("https://127.0.0.1:99999") as api:
        with pytest.raises(KubeError, match=r"server 'https://127\.0\.0\.1:99999': "):
            await api.get(POD, WEB)


def test_a_dead_peer_is_noticed() -> None:
    with connections.keepalive_socket(socket.AF_INET) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle, interval, count, user_timeout = (
            made.getsockopt(socket.IPPROTO_TCP, each) for each, _ in connections._KEEPALIVE
        )
        assert idle + interval * count == user_timeout / 1000 == 30


# lists


async def fill(server: Server, count: int) -> None:
    for number in range(count):
        server.put(NODES, "", f"n{number:03}")


@pytest.mark.parametrize("page_size", [0, 1, 3, 10, 11])
async def test_pages(server: Server, page_size: int) -> None:
    await fill(server, 10)
    async with client(server.url) as api:
        page = await api.list(NODE, page_size=page_size)
    assert [entry.key.name for entry in page.entries] == [f"n{number:03}" for number in range(10)]
    assert page.resource_version == str(server.version)
    assert server.count("list") == (1 if page_size in (0, 10, 11) else -(-10 // page_size))


async def test_a_page_is_taken_before_the_next_one_is_read(server: Server) -> None:
    await fill(server, 5)
    kept: list[tuple[str, int]] = []

    def keep(entry: ObjectEntry[Node]) -> ObjectEntry[Node]:
        kept.append((entry.key.name, server.count("list")))
        return replace(entry, object=None)

    async with client(server.url) as api:
        page = await api.list(NODE, page_size=2, transform=keep)
    assert kept == [("n000", 1), ("n001", 1), ("n002", 2), ("n003", 2), ("n004", 3)]
    assert [(entry.key.name, entry.object) for entry in page.entries] == [(name, None) for name, _ in kept]


async def test_a_list_that_expires_between_two_pages_begins_anew(server: Server) -> None:
    await fill(server, 10)

    async def compact() -> None:
        await until(lambda: server.count("list") >= 2)
        server.compact()
        server.put(NODES, "", "late")

    compaction = asyncio.create_task(compact())
    async with client(server.url, rate=RateLimit(100, 1, time.monotonic)) as api:
        page = await api.list(NODE, page_size=2)
    await compaction
    assert len({entry.key for entry in page.entries}) == len(page.entries) == 11
    assert "limit" not in server.requests[-1][2]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault("list", body=b"[]"), BadAnswer),
        (Fault("list", body=b'{"items": [{}'), BadAnswer),
        (FORBIDDEN, APIError),
        (Fault("list", status=410, reason="Expired"), None),
    ],
    ids=["no list", "half a list", "forbidden", "expired at once"],
)
async def test_lists_that_fail(server: Server, fault: Fault, error: type[KubeError] | None) -> None:
    server.faults = [fault]
    async with client(server.url) as api:
        if error is None:
            assert len((await api.list(POD)).entries) == 1
        else:
            with pytest.raises(error):
                await api.list(POD)


@pytest.mark.parametrize("after", [0, 1, 50, 150])
async def test_a_list_that_is_cut(server: Server, after: int) -> None:
    server.faults = [Fault("list", cut=after)]
    async with client(server.url) as api:
        assert len((await api.list(POD)).entries) == 1
    assert server.count("list") == 2


async def test_selections(server: Server) -> None:
    server.put(PODS, "other", "db", metadata={"labels": {"app": "db"}}, spec={"nodeName": "n2"})
    async with client(server.url) as api:
        for selection, names in [
            (Selection(), ["web", "db"]),
            (Selection(namespace="other"), ["db"]),
            (Selection(labels="app=db"), ["db"]),
            (Selection(fields="spec.nodeName=n1"), ["web"]),
            (Selection(namespace="default", labels="app=db"), []),
        ]:
            page = await api.list(POD, selection)
            assert [entry.key.name for entry in page.entries] == names


# writes


async def test_the_other_verbs(server: Server) -> None:
    key = Key("", "n1")
    async with client(server.url) as api:
        made = await api.create(NODE, {"metadata": {"name": "n1"}}, field_manager="koord")
        version = made.metadata.resource_version
        patched = await api.patch(NODE, key, {"metadata": {"labels": {"a": "b"}}}, subresource="status")
        assert patched.metadata.labels == {"a": "b"}
        stale = {"metadata": {"name": "n1", "resourceVersion": version}}
        with pytest.raises(APIError) as caught:
            await api.patch(NODE, key, stale)
        assert caught.value.is_conflict
        with pytest.raises(APIError):
            await api.replace(NODE, key, stale)
        with pytest.raises(APIError):
            await api.delete(NODE, key, Preconditions(uid="other"))
        with pytest.raises(APIError) as caught:
            await api.create(NODE, {"metadata": {"name": "n1"}})
        assert caught.value.is_already_exists
        await api.replace(NODE, key, {"metadata": {"name": "n1"}})
        await api.delete(NODE, key, Preconditions(uid=made.metadata.uid), Propagation.FOREGROUND, grace_period_s=0)
        with pytest.raises(APIError):
            await api.get(NODE, key)
    queries = [query for verb, _, query, _ in server.requests if verb == "create"]
    assert queries == [{"fieldManager": "koord"}, {}]


@pytest.mark.parametrize(
    ("type_", "content_type", "query"),
    [
        (PatchType.MERGE, "application/merge-patch+json", {"dryRun": "All"}),
        (PatchType.STRATEGIC, "application/strategic-merge-patch+json", {"dryRun": "All"}),
        (PatchType.APPLY, "application/apply-patch+yaml", {"dryRun": "All", "fieldManager": "k", "force": "true"}),
    ],
)
async def test_patches(server: Server, type_: PatchType, content_type: str, query: dict[str, str]) -> None:
    apply = {"field_manager": "k", "force": True} if type_ is PatchType.APPLY else {}
    async with client(server.url) as api:
        await api.patch(POD, WEB, {"metadata": {}}, type_, dry_run=True, **apply)  # type: ignore[arg-type]
    _, _, asked, headers = server.requests[-1]
    assert (headers["Content-Type"], asked) == (content_type, query)


@pytest.mark.parametrize(("type_", "requests"), [(PatchType.MERGE, 2), (PatchType.APPLY, 2), (PatchType.JSON, 1)])
async def test_only_a_json_patch_is_not_sent_again(server: Server, type_: PatchType, requests: int) -> None:
    server.faults = [OVERLOAD]
    body: Any = {} if requests == 2 else [{"op": "remove", "path": "/metadata/labels/a"}]
    async with client(server.url) as api:
        if requests == 2:
            await api.patch(POD, WEB, body, type_)
        else:
            with pytest.raises(APIError):
                await api.patch(POD, WEB, body, type_)
    assert server.count("patch") == requests


async def test_evictions(server: Server) -> None:
    server.protected = {"web"}
    async with client(server.url) as api:
        with pytest.raises(APIError) as caught:
            await api.evict(WEB)
        assert caught.value.blocked_by_pdb
        assert server.count("evict") == 1
        server.protected = set()
        with pytest.raises(APIError) as caught:
            await api.evict(WEB, uid="of another")
        assert caught.value.is_conflict
        server.faults = [LIMITED]
        await api.evict(WEB, grace_period_s=30)
    assert server.objects["/api/v1", "pods"] == {}


@pytest.mark.parametrize(
    ("key", "uid", "node", "error", "words"),
    [
        (Key("default", "free"), "", "n2", None, ""),
        (Key("default", "free"), "other", "n2", APIError, "Precondition failed: UID"),
        (Key("default", "gone"), "", "n2", APIError, "not found"),
        (WEB, "", "n2", APIError, 'already assigned to node "n1"'),
        (WEB, "", "n1", APIError, 'already assigned to node "n1"'),
    ],
    ids=["free", "another pod", "gone", "on another node", "on that node"],
)
async def test_bindings(
    server: Server, key: Key, uid: str, node: str, error: type[APIError] | None, words: str
) -> None:
    server.put(PODS, "default", "free")
    stored = server.objects["/api/v1", "pods"].get((key.namespace, key.name), {"metadata": {"uid": "u"}})
    uid = uid or stored["metadata"]["uid"]
    async with client(server.url) as api:
        if error is None:
            await api.bind(key, uid, node)
            assert (await api.get(POD, key)).spec.node_name == node
        else:
            with pytest.raises(error, match=words) as caught:
                await api.bind(key, uid, node)
            assert caught.value.is_conflict is (key.name != "gone")
            assert caught.value.is_not_found is (key.name == "gone")
    assert server.count("bind") == 1


@pytest.mark.parametrize("fault", [Fault("bind", drop=True, done=True), Fault("bind", status=503)], ids=["lost", "503"])
async def test_a_binding_of_which_nothing_is_known_is_not_sent_again(server: Server, fault: Fault) -> None:
    uid = server.put(PODS, "default", "free")["metadata"]["uid"]
    server.faults = [LIMITED, fault]
    async with client(server.url) as api:
        with pytest.raises(KubeError):
            await api.bind(Key("default", "free"), uid, "n2")
    assert server.count("bind") == 2


async def test_a_config_map_comes_whole(server: Server) -> None:
    body = {"metadata": {"name": "a"}, "data": {"k": "v"}}
    async with client(server.url) as api:
        made = await api.create(CONFIG_MAP, body, "default")
    assert made.content["data"] == {"k": "v"}


# watches


async def test_a_watch(server: Server) -> None:
    begin = str(server.version)
    server.put(PODS, "default", "db")
    server.put(PODS, "default", "db", spec={"nodeName": "n1"})
    server.delete(PODS, "default", "db")
    said = []
    async with client(server.url) as api, aclosing(api.watch(POD, begin)) as changes:
        async for change in changes:
            said.append((change.type, change.entry.key.name))
            if change.type is WatchEventType.BOOKMARK:
                assert change.entry.resource_version == str(server.version)
                break
    words = [WatchEventType.ADDED, WatchEventType.MODIFIED, WatchEventType.DELETED]
    assert said == [*((word, "db") for word in words), (WatchEventType.BOOKMARK, "")]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault("watch", silent=True), Stalled),
        (Fault("watch", status=410, reason="Expired"), APIError),
        (Fault("watch", line=b'{"type": "ERROR", "object": {"code": 410}}\n'), APIError),
        (Fault("watch", line=b"what?\n"), BadAnswer),
        (Fault("watch", cut=0), Unreachable),
        (Fault("watch", cut=37), Unreachable),
        (Fault("watch", drop=True), Unreachable),
    ],
    ids=["silent", "expired", "expires", "nonsense", "cut at once", "cut in a line", "dropped"],
)
async def test_watches_that_end(server: Server, fault: Fault, error: type[KubeError]) -> None:
    server.faults = [fault] * 2  # aiohttp itself sends again what was dropped
    async with client(server.url) as api:
        with pytest.raises(error):
            async for _ in api.watch(POD, "100", stall_s=0.2):
                pass


@pytest.mark.parametrize(("dice", "timeout_s"), [(0.0, 540), (0.5, 472), (1.0, 405)])
async def test_watches_do_not_end_in_step(server: Server, dice: float, timeout_s: int) -> None:
    async with Transport(credentials(RESTConfig(server.url)), "test/1") as transport:
        api = Client(transport, CallLimits(), random=lambda: dice)
        async with aclosing(api.watch(POD, str(server.version))) as changes:
            await anext(changes)
    assert server.requests[-1][2]["timeoutSeconds"] == str(timeout_s)


async def test_the_server_ends_a_watch(server: Server) -> None:
    async with client(server.url) as api:
        async for _ in api.watch(POD, str(server.version), timeout_s=1):
            pass
    assert int(server.requests[-1][2]["timeoutSeconds"]) >= 1


class Chunks:
    def __init__(self, *chunks: bytes) -> None:
        self._chunks = list(chunks)

    async def readany(self) -> bytes:
        return self._chunks.pop(0) if self._chunks else b""


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
async def test_lines_cut_anywhere(size: int) -> None:
    data = b"first\n\nsecond\nthi"
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    assert [line async for line in watch.lines(Chunks(*chunks).readany, 1)] == [b"first", b"second"]


async def test_a_line_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MAX_LINE_BYTES", 10)
    assert [line async for line in watch.lines(Chunks(b"1234567890\n").readany, 1)] == [b"1234567890"]
    with pytest.raises(BadAnswer):
        async for _ in watch.lines(Chunks(b"12345", b"678901", b"\n").readany, 1):
            pass


# the rate


async def test_each_try_takes_its_turn(server: Server) -> None:
    pauses = Pauses()

    server.faults = [OVERLOAD] * 4
    async with client(server.url, rate=RateLimit(1, 4, lambda: 0.0, pauses)) as api:
        with pytest.raises(APIError):
            await api.get(POD, WEB)
        assert pauses == []
        await api.get(POD, WEB)
    assert pauses == [1.0]


async def test_each_request_takes_its_turn(server: Server) -> None:
    pauses = Pauses()

    await fill(server, 4)
    async with client(server.url, rate=RateLimit(1, 1, lambda: 0.0, pauses)) as api:
        await api.list(NODE, page_size=1)
    assert pauses == [1.0, 2.0, 3.0]
