"""A cache that follows the server, whatever becomes of its watches: in the end it is what the server has."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from koord.kube.backoff import Backoff
from koord.kube.client import Selection
from koord.kube.informer import Informer, Pace, as_read, lacks_kind
from koord.kube.kind import POD, Key, Object
from koord.kube.stream import EventStream
from koord.model.core import Pod, PodSpec
from tests.kube.server import Fault, Server
from tests.kube.support import PODS, client
from tests.support.waiting import HANG_S, until

FAST = Pace(page_size=2, watch_timeout_s=60, stall_s=0.3, settled_s=0.2, backoff=Backoff(0.002, 0.01))
EXPIRED_LINE = b'{"type": "ERROR", "object": {"code": 410, "reason": "Expired"}}\n'
OLD_LINE = (
    b'{"type": "ADDED", "object": {"metadata": {"namespace": "default", "name": "x", "resourceVersion": "50"}}}\n'
)


class Follower:
    """A reader of the stream, with the copy that it makes of it. Checks the order as it goes."""

    def __init__(self, informer: Informer[Pod, Pod], stream: EventStream) -> None:
        self.informer, self.stream = informer, stream
        self.copy: dict[Key, Object] = {}
        self.events: list[tuple[str, str]] = []

    async def run(self) -> None:
        while True:
            for event in await self.stream.take(3):
                key, before, after = event.key, event.before, event.after
                assert self.copy.get(key) is before
                word = "deleted" if after is None else "added" if before is None else "changed"
                self.events.append((key.name, word))
                if after is None:
                    del self.copy[key]
                else:
                    self.copy[key] = after

    def agrees_with(self, server: Server) -> bool:
        truth = {
            Key(*key): value["metadata"]["resourceVersion"]
            for key, value in server.objects.get(("/api/v1", "pods"), {}).items()
        }
        cached = {key: value.metadata.resource_version for key, value in self.informer.objects.items()}
        copied = {key: value.metadata.resource_version for key, value in self.copy.items()}
        return cached == truth and copied == truth and not len(self.stream)


@asynccontextmanager
async def following(server: Server, pace: Pace = FAST, **options: Any) -> AsyncIterator[Follower]:
    stream = EventStream()
    async with client(server.url, tries=1) as api:
        options = {"transform": as_read} | options
        informer = Informer(api, POD, time.monotonic, stream=stream, pace=pace, **options)
        follower = Follower(informer, stream)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(informer.run()), group.create_task(follower.run())]
            yield follower
            for task in tasks:
                task.cancel()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    async with server.serving():
        for name in "abc":
            server.put(PODS, "default", name, spec={"nodeName": "n1"})
        yield server


async def test_it_follows(server: Server) -> None:
    async with following(server) as follower:
        await follower.informer.synced.wait()
        assert len(follower.informer.objects) == 3
        await until(lambda: len(follower.copy) == 3)
        server.put(PODS, "default", "a", spec={"nodeName": "n2"})
        server.delete(PODS, "default", "b")
        server.put(PODS, "default", "d")
        await until(lambda: follower.agrees_with(server))
        assert follower.events[3:] == [("a", "changed"), ("b", "deleted"), ("d", "added")]
        assert follower.informer.counts.lists == follower.informer.counts.watches == 1


Meanwhile = Callable[[Server], None]


def _changes(server: Server) -> None:
    """While nobody watches."""
    server.put(PODS, "default", "a", spec={"nodeName": "n9"})
    server.delete(PODS, "default", "b")
    server.put(PODS, "default", "d")


def _changes_and_compacts(server: Server) -> None:
    _changes(server)
    server.compact()


@pytest.mark.parametrize(
    ("fault", "meanwhile", "lists"),
    [
        (Fault("watch", cut=0), _changes, 1),
        (Fault("watch", cut=40), _changes, 1),
        (Fault("watch", status=503, reason="ServiceUnavailable"), _changes, 1),
        (Fault("watch", status=429, reason="TooManyRequests"), _changes, 1),
        (Fault("watch", status=403, reason="Forbidden"), _changes, 1),
        (Fault("watch", status=410, reason="Expired"), _changes_and_compacts, 2),
        (Fault("watch", line=EXPIRED_LINE), _changes_and_compacts, 2),
        (Fault("watch", line=b"nonsense\n"), _changes, 2),
        (Fault("watch", line=OLD_LINE), _changes, 2),
        (Fault("watch", status=504, reason="Timeout"), _changes, 2),
        (Fault("watch", status=404, reason="NotFound"), _changes, 2),
    ],
    ids=lambda value: None if callable(value) else str(value.verb) if isinstance(value, Fault) else None,
)
async def test_a_watch_that_ends(server: Server, fault: Fault, meanwhile: Meanwhile, lists: int) -> None:
    server.faults = [fault]
    async with following(server) as follower:
        await until(lambda: server.count("watch") >= 1)
        meanwhile(server)
        await until(lambda: follower.agrees_with(server))
        counts = follower.informer.counts
        assert (counts.lists, counts.failures) == (lists, 1)
        assert follower.events[-3:] in (
            [("a", "changed"), ("b", "deleted"), ("d", "added")],
            [("b", "deleted"), ("a", "changed"), ("d", "added")],
        )
        await until(lambda: not follower.informer.error)


@pytest.mark.parametrize(
    "fault",
    [
        Fault("list", status=403, reason="Forbidden"),
        Fault("list", status=404, reason="NotFound"),
        Fault("list", body=b"[]"),
        Fault("list", body=b'{"items": []}'),
        Fault("list", cut=20),
    ],
    ids=["forbidden", "no such kind", "no list", "no version", "cut"],
)
async def test_a_list_that_fails_is_tried_again(server: Server, fault: Fault) -> None:
    server.faults = [fault]
    async with following(server) as follower:
        await until(lambda: bool(follower.informer.error) or follower.informer.synced.is_set())
        if not follower.informer.synced.is_set():
            assert follower.informer.error
            assert follower.informer.last_contact_s is None
        await until(lambda: follower.agrees_with(server))
        assert follower.informer.error == ""
        assert follower.informer.counts.failures == 1


async def test_the_cache_stays_while_the_server_is_away() -> None:
    server = Server()
    async with AsyncExitStack() as stack:
        first = AsyncExitStack()
        url = await first.enter_async_context(server.serving())
        server.put(PODS, "default", "a")
        follower = await stack.enter_async_context(following(server))
        await until(lambda: follower.agrees_with(server) and follower.informer.counts.watches > 0)
        await first.aclose()
        await until(lambda: "Cannot connect" in follower.informer.error)
        assert "ssl" not in follower.informer.error
        last_contact_s = follower.informer.last_contact_s
        assert len(follower.informer.objects) == 1
        server.put(PODS, "default", "b")
        await stack.enter_async_context(server.serving(port=int(url.rpartition(":")[2])))
        await until(lambda: follower.agrees_with(server))
        assert follower.informer.counts.lists == 1
        assert last_contact_s is not None
        assert last_contact_s < (follower.informer.last_contact_s or 0)


async def test_an_error_is_over_when_the_server_agrees_again(server: Server) -> None:
    """It may have nothing to say for long."""
    server.bookmark_s = 60
    server.faults = [Fault("watch", status=503, reason="ServiceUnavailable")]
    async with following(server, Pace(backoff=Backoff(0.05, 0.05))) as follower:
        await until(lambda: "503" in follower.informer.error)
        await until(lambda: not follower.informer.error)
        assert follower.informer.counts.messages == 0


async def test_an_observer_hears_each_word_when_it_is_taken_and_why_there_is_none(server: Server) -> None:
    heard: list[tuple[str, int]] = []
    server.faults = [Fault("list", status=503, reason="ServiceUnavailable")]
    holder: list[Follower] = []

    def observe(problem: str) -> None:
        heard.append((problem[:3], len(holder[0].informer.objects) if holder else -1))

    async with following(server, observe=observe) as follower:
        holder.append(follower)
        await until(lambda: follower.agrees_with(server) and follower.informer.counts.bookmarks > 0)
        assert [problem for problem, _ in heard[:2]] == ["503", ""]
        assert heard[1] == ("", 3)
        server.delete(PODS, "default", "a")
        await until(lambda: ("", 2) in heard)
        assert all(problem == "" for problem, _ in heard[1:])


async def test_a_watch_goes_on_from_the_last_word(server: Server) -> None:
    async with following(server) as follower:
        await until(lambda: server.count("watch") == 1)
        server.put(PODS, "default", "a")
        await until(lambda: follower.agrees_with(server) and follower.informer.counts.bookmarks > 0)
        events = list(follower.events)
        server.cut_watches()
        await until(lambda: server.count("watch") == 2)
        assert server.requests[-1][2]["resourceVersion"] == str(server.version)
        server.put(PODS, "default", "b")
        await until(lambda: follower.agrees_with(server))
        assert follower.events == [*events, ("b", "changed")]


@pytest.mark.parametrize("pace", [FAST, Pace(watch_timeout_s=1, settled_s=0.2)], ids=["stalled", "ended"])
async def test_silence_is_no_failure_but_ends_the_watch(server: Server, pace: Pace) -> None:
    server.faults = [Fault("watch", silent=True)]
    async with following(server, pace) as follower:
        await until(lambda: server.count("watch") == 1)
        _changes(server)
        await until(lambda: follower.agrees_with(server))
        counts = follower.informer.counts
        assert (counts.lists, counts.watches, counts.failures) == (1, 2, 0)
        assert counts.stalls == (pace is FAST)
        assert follower.informer.error == ""


async def test_silence_again_and_again_means_to_list(server: Server) -> None:
    """A server whose database went back in time waits for ever for the version that we know."""
    server.bookmark_s = 0.01
    pace = Pace(stall_s=0.15, settled_s=0.01)
    server.faults = [Fault("watch", silent=True)] * (pace.most_silent_watches - 1)
    async with following(server, pace) as follower:
        await until(lambda: follower.informer.counts.bookmarks > 0)
        assert follower.informer.counts.lists == 1
        server.faults = [Fault("watch", silent=True)] * pace.most_silent_watches
        server.cut_watches()
        await until(lambda: follower.informer.counts.lists == 2)
        assert not server.faults
        await until(lambda: follower.agrees_with(server))


async def test_a_server_that_ends_each_watch_at_once_is_not_stormed(server: Server) -> None:
    server.faults = [Fault("watch", status=410, reason="Expired")] * 5
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async with following(server, Pace(backoff=Backoff(1.0, 4.0)), sleep=sleep, random=lambda: 1.0) as follower:
        await until(lambda: follower.informer.counts.bookmarks > 0)
        assert pauses == [1.0, 2.0, 4.0, 4.0, 4.0]
        assert follower.informer.counts.expired == 5
        assert follower.informer.error == ""


async def test_a_kind_that_is_refused_is_listed_at_a_pace_of_its_own(server: Server) -> None:
    answers = [(404, "NotFound"), (403, "Forbidden"), (503, "ServiceUnavailable"), (404, "NotFound")]
    server.faults = [Fault("list", status=status, reason=reason) for status, reason in answers]
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    pace = Pace(backoff=Backoff(1.0, 4.0), refused=Backoff(100.0, 600.0))
    async with following(server, pace, sleep=sleep, random=lambda: 1.0) as follower:
        await until(lambda: follower.informer.counts.bookmarks > 0)
        assert pauses == [100.0, 200.0, 4.0, 600.0]
        assert follower.informer.failure is None


@pytest.mark.parametrize(("status", "is_waited_for"), [(404, False), (403, True), (503, True)])
async def test_a_kind_that_is_done_without_is_followed_once_it_is_there(
    server: Server, status: int, is_waited_for: bool
) -> None:
    server.faults = [Fault("any", status=status) for _ in range(6)]
    went_on = asyncio.Event()

    async def sleep(_: float) -> None:
        await went_on.wait()

    async with following(server, sleep=sleep, does_without=lacks_kind) as follower:
        await until(lambda: follower.informer.failure is not None)
        assert follower.informer.synced.is_set() is not is_waited_for
        went_on.set()
        await until(lambda: follower.agrees_with(server))
        assert follower.informer.failure is None


async def test_an_object_that_cannot_be_read(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    a = Key("default", "a")
    with caplog.at_level(logging.WARNING, "koord.kube"):
        async with following(server) as follower:
            await until(lambda: follower.agrees_with(server))
            server.put(PODS, "default", "a", spec={"nodeName": 7})
            server.put(PODS, "default", "b", spec={"nodeName": "n2"})
            b = Key("default", "b")
            await until(lambda: (pod := follower.informer.get(b)) is not None and pod.spec.node_name == "n2")
            kept = follower.informer.get(a)
            assert kept is not None
            assert kept.spec.node_name == "n1"
            assert list(follower.informer.unreadable) == [a]
            assert ("a", "changed") in follower.events, "it is time to look again"
            server.faults = [Fault("watch", status=410, reason="Expired")]
            server.compact()
            async with asyncio.timeout(HANG_S):
                await _restarted(server, follower)
            assert follower.informer.get(a) is kept
            server.put(PODS, "default", "a", spec={"nodeName": "n3"})
            await until(lambda: follower.agrees_with(server))
            assert not follower.informer.unreadable
            server.put(PODS, "default", "a", spec={"nodeName": []})
            await until(lambda: bool(follower.informer.unreadable))
            server.delete(PODS, "default", "a")
            await until(lambda: follower.agrees_with(server))
            assert not follower.informer.unreadable
            server.put(PODS, "default", "a", spec={"nodeName": 8})
            await until(lambda: bool(follower.informer.unreadable))
            server.cut_watches()
            server.delete(PODS, "default", "a")
            server.compact()
            await until(lambda: not follower.informer.unreadable)
    told = [record.getMessage() for record in caplog.records if "cannot be read" in record.getMessage()]
    assert told[0] == "Pod default/a: cannot be read: Expected `str`, got `int` - at `$.spec.nodeName`"
    assert len(told) == 3


async def _restarted(server: Server, follower: Follower) -> None:
    """The watch is cut and the next one expires."""
    lists = follower.informer.counts.lists
    server.cut_watches()
    await until(lambda: follower.informer.counts.lists > lists)


async def test_what_the_cache_keeps_is_made_once_of_each_version(server: Server) -> None:
    made: list[str] = []

    def transform(pod: Pod) -> Pod:
        made.append(f"{pod.metadata.name} {pod.metadata.resource_version}")
        return replace(pod, spec=PodSpec(node_name="kept"))

    server.faults = [Fault("watch", line=b"nonsense\n")] * 2
    async with following(server, transform=transform) as follower:
        await until(lambda: follower.informer.counts.lists == 3)
        server.put(PODS, "default", "b", spec={"nodeName": "n2"})
        await until(lambda: follower.agrees_with(server))
        assert {pod.spec.node_name for pod in follower.informer.objects.values()} == {"kept"}
    assert made == ["a 101", "b 102", "c 103", "b 104"]


async def test_what_the_cache_has_no_use_for_is_as_if_it_was_not_there(server: Server) -> None:
    def transform(pod: Pod) -> Pod | None:
        return None if pod.spec.node_name == "gone" else pod

    server.put(PODS, "default", "a", spec={"nodeName": "gone"})
    async with following(server, transform=transform) as follower:
        await until(lambda: len(follower.copy) == 2)
        server.put(PODS, "default", "b", spec={"nodeName": "gone"})
        server.put(PODS, "default", "a", spec={"nodeName": "n1"})
        await until(lambda: {key.name for key in follower.copy} == {"a", "c"})
        server.put(PODS, "default", "c", spec={"nodeName": "gone"})
        server.cut_watches()
        server.compact()
        await until(lambda: {key.name for key in follower.copy} == {"a"})
        assert {key.name for key in follower.informer.objects} == {"a"}


async def test_a_resync_says_everything_again(server: Server) -> None:
    async with following(server, Pace(resync_s=0.05)) as follower:
        await until(lambda: follower.events.count(("a", "changed")) == 2)
        assert [event for event in follower.events if event[1] == "added"] == [(name, "added") for name in "abc"]


async def test_selections_and_indexes(server: Server) -> None:
    selection = Selection(fields="spec.nodeName=n1")
    async with following(server, selection=selection, indexes={"node": lambda pod: (pod.spec.node_name,)}) as follower:
        await follower.informer.synced.wait()
        assert len(follower.informer.indexed("node", "n1")) == 3
        server.put(PODS, "default", "a", spec={"nodeName": "n2"})
        await until(lambda: len(follower.informer.objects) == 2)
        assert {pod.metadata.name for pod in follower.informer.indexed("node", "n1")} == {"b", "c"}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abcdef")),
        st.tuples(st.just("delete"), st.sampled_from("abcdef")),
        st.tuples(st.just("cut"), st.integers(0, 600)),
        st.tuples(st.sampled_from(["compact", "expire", "stop", "wait", "bad", "refuse"]), st.none()),
    ),
    max_size=25,
)


@pytest.mark.parametrize("streams_lists", [False, True], ids=["lists", "streams lists"])
@given(STEPS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_in_the_end_the_cache_is_what_the_server_has(streams_lists: bool, steps: list[tuple[str, Any]]) -> None:
    async def follow() -> None:
        server = Server(bookmark_s=0.01, streams_lists=streams_lists)
        async with server.serving(), following(server) as follower:
            for step, value in steps:
                await _step(server, step, value)
            await until(lambda: follower.agrees_with(server))

    asyncio.run(follow())


async def _step(server: Server, step: str, value: Any) -> None:
    pods = server.objects.get(("/api/v1", "pods"), {})
    if step == "put":
        server.put(PODS, "default", value, spec={"nodeName": str(server.version)})
    elif step == "delete" and ("default", value) in pods:
        server.delete(PODS, "default", value)
    elif step == "cut":
        server.faults += [Fault("watch", cut=value), Fault("stream", cut=value)]
        server.cut_watches()
    elif step == "compact":
        server.compact()
        server.cut_watches()
    elif step == "expire":
        server.faults.append(Fault("watch", line=EXPIRED_LINE))
    elif step == "refuse":
        server.faults += [Fault(verb, status=429, reason="TooManyRequests") for verb in ("list", "stream")]
        server.faults.append(Fault("watch", status=503))
    elif step == "stop":
        server.cut_watches()
    elif step == "bad":
        server.faults.append(Fault("watch", line=json.dumps({"type": "MODIFIED", "object": 3}).encode() + b"\n"))
    elif step == "wait":
        await asyncio.sleep(0.003)


# where lists come from


def asked(server: Server) -> list[str]:
    """The lists, and the watches that begin with one: what each was to be like."""
    members = ("resourceVersion", "resourceVersionMatch", "limit")
    return [
        " ".join([verb, *(f"{name}={query[name]}" for name in members if query.get(name))])
        for verb, _, query, _ in server.requests
        if verb in ("list", "stream")
    ]


OLD = Pace(page_size=500, watch_timeout_s=60, stall_s=0.3, settled_s=0.2, backoff=Backoff(0.002, 0.01))
PAGED = Pace(page_size=2, is_whole_allowed=False, backoff=Backoff(0.002, 0.01))


def _expires(server: Server) -> None:
    server.compact()
    server.faults = [Fault("watch", line=EXPIRED_LINE)]
    server.cut_watches()


def _stops(server: Server) -> None:
    """What the caches have is of before the first change."""
    server.stop_cache(PODS)
    server.put(PODS, "default", "a", spec={"nodeName": "n9"})


def _says_nonsense(server: Server) -> None:
    server.faults = [Fault("watch", line=b"nonsense\n")]
    server.cut_watches()


@pytest.mark.parametrize(
    ("pace", "before", "after", "lists"),
    [
        (OLD, None, None, ["stream resourceVersionMatch=NotOlderThan", "list resourceVersion=0 limit=500"]),
        (OLD, None, _expires, [..., "list resourceVersion=NEWEST resourceVersionMatch=NotOlderThan"]),
        (
            OLD,
            _stops,
            _expires,
            [..., "list resourceVersion=NEWEST resourceVersionMatch=NotOlderThan", "list limit=500"],
        ),
        (OLD, _stops, _says_nonsense, [..., "list limit=500"]),
        (PAGED, None, None, ["list limit=2", "list limit=2"]),
        (PAGED, None, _expires, ["list limit=2"] * 4),
    ],
    ids=["first", "expired", "expired, and caches are behind", "nonsense", "in pages", "in pages, expired"],
)
async def test_lists_come_from_caches_that_are_not_behind(
    server: Server, pace: Pace, before: Any, after: Any, lists: list[Any]
) -> None:
    async with following(server, pace) as follower:
        await until(lambda: follower.agrees_with(server) and follower.informer.counts.watches > 0)
        if before is not None:
            before(server)
            await until(lambda: follower.agrees_with(server))
        newest = follower.informer._version
        if after is not None:
            after(server)
            await until(lambda: follower.informer.counts.lists == 2)
        await until(lambda: follower.agrees_with(server))
        assert all(event not in (("a", "deleted"), ("x", "added")) for event in follower.events)
    expected = [text.replace("NEWEST", newest) for text in lists if text is not ...]
    assert asked(server)[-len(expected) :] == expected


async def test_a_list_that_goes_back_in_time_is_not_taken(server: Server) -> None:
    """Another server's cache may be behind, and need not know ``resourceVersionMatch``."""
    old = {"kind": "PodList", "metadata": {"resourceVersion": "50"}, "items": []}
    async with following(server, OLD) as follower:
        await until(lambda: follower.agrees_with(server) and follower.informer.counts.watches > 0)
        _expires(server)
        server.faults.append(Fault("list", body=json.dumps(old).encode()))
        await until(lambda: follower.informer.counts.lists == 2)
        await until(lambda: follower.agrees_with(server))
        assert [event for event in follower.events if event[1] == "deleted"] == []
    assert asked(server)[-1] == "list limit=500"


async def test_a_database_that_was_put_back_is_believed(server: Server) -> None:
    async with following(server, OLD) as follower:
        await until(lambda: follower.agrees_with(server) and follower.informer.counts.watches > 0)
        server.compacted, server.version = 0, 50
        server.history.clear()
        server.delete(PODS, "default", "c")
        server.faults = [Fault("watch", status=410, reason="Expired")]
        server.cut_watches()
        await until(lambda: follower.agrees_with(server))
        assert int(follower.informer._version) < 100


# a watch that begins with the list


@pytest.fixture
async def streaming(server: Server) -> Server:
    server.streams_lists = True
    return server


async def test_a_watch_that_begins_with_the_list(streaming: Server) -> None:
    async with following(streaming) as follower:
        await follower.informer.synced.wait()
        assert len(follower.informer.objects) == 3
        streaming.put(PODS, "default", "d")
        streaming.delete(PODS, "default", "a")
        await until(lambda: follower.agrees_with(streaming))
        assert (follower.informer.counts.lists, follower.informer.counts.watches) == (1, 1)
        assert [streaming.count(verb) for verb in ("list", "watch", "stream")] == [0, 0, 1]
        streaming.cut_watches()
        await until(lambda: streaming.count("watch") == 1)
        _expires(streaming)
        streaming.put(PODS, "default", "e")
        await until(lambda: follower.agrees_with(streaming))
    assert asked(streaming)[1].startswith("stream resourceVersion=")


@pytest.mark.parametrize(
    ("fault", "streams"),
    [
        (Fault("stream", status=422, reason="Invalid"), 1),
        (Fault("stream", status=400, reason="BadRequest"), 1),
        (Fault("stream", status=403, reason="Forbidden"), 1),
        (Fault("stream", silent=True), 1),
        (Fault("stream", line=b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}\n'), 1),
        (Fault("stream", status=429, reason="TooManyRequests"), 3),
        (Fault("stream", status=500, reason="InternalError"), 3),
        (Fault("stream", status=410, reason="Expired"), 3),
        (Fault("stream", cut=150), 3),
        (Fault("stream", cut=0), 3),
        (Fault("stream", line=EXPIRED_LINE), 3),
        (Fault("stream", line=b"nonsense\n"), 3),
    ],
    ids=lambda value: str(value.status or value.line[:20].decode() or value.cut) if isinstance(value, Fault) else None,
)
async def test_a_watch_that_does_not_begin_with_the_list(streaming: Server, fault: Fault, streams: int) -> None:
    """Where the server cannot, objects are listed, and it is not asked again: 1. Other failures pass: 3."""
    streaming.faults = [fault]
    async with following(streaming) as follower:
        await until(lambda: follower.agrees_with(streaming) and follower.informer.counts.watches > 0)
        _expires(streaming)
        streaming.put(PODS, "default", "e")
        await until(lambda: follower.agrees_with(streaming))
    assert streaming.count("stream") == streams


async def test_a_list_that_is_sent_is_heard_when_it_is_taken(streaming: Server) -> None:
    """That the server has agreed to send it is no word of what there is."""
    heard: list[int] = []
    holder: list[Follower] = []
    streaming.faults = [Fault("stream", cut=150)]

    def observe(problem: str) -> None:
        if not problem:
            heard.append(len(holder[0].informer.objects))

    stream = EventStream()
    async with client(streaming.url, tries=1) as api:
        informer = Informer(
            api, POD, time.monotonic, stream=stream, pace=FAST, observe=observe, transform=as_read
        )  # fmt: skip
        holder.append(Follower(informer, stream))
        task = asyncio.create_task(informer.run())
        await informer.synced.wait()
        assert heard == [3]
        assert informer.counts.messages == 1
        task.cancel()


async def test_what_changes_while_a_watch_sends_the_list(streaming: Server) -> None:
    def pod(name: str, version: int) -> dict[str, Any]:
        return {"metadata": {"name": name, "namespace": "default", "resourceVersion": str(version)}}

    before = [("ADDED", pod("x", 90)), ("ADDED", pod("y", 91)), ("MODIFIED", pod("x", 92)), ("DELETED", pod("y", 93))]
    lines = b"".join(json.dumps({"type": word, "object": value}).encode() + b"\n" for word, value in before)
    streaming.faults = [Fault("stream", line=lines)]
    async with following(streaming) as follower:
        await follower.informer.synced.wait()
        assert {key.name for key in follower.informer.objects} == {"a", "b", "c", "x"}


@pytest.mark.parametrize("streams_lists", [False, True], ids=["list", "stream"])
async def test_other_work_has_its_turn_while_a_list_is_taken(server: Server, streams_lists: bool) -> None:
    server.streams_lists = streams_lists
    for number in range(3000):
        server.put(PODS, "default", f"p{number}")
    seen: set[int] = set()
    async with following(server, OLD) as follower:
        while not follower.informer.synced.is_set():
            seen.add(len(follower.informer.objects))
            await asyncio.sleep(0)
        await until(lambda: follower.agrees_with(server))
    assert len(seen) >= 3000 // 512
