"""Events: the same is one with a count, what waits is bounded, and nothing that goes wrong is the caller's trouble."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from koord.kube.errors import APIError, KubeError, Unreachable
from koord.kube.kind import NODE, POD, Key, Kind, T
from koord.kube.reading import read_object
from koord.kube.recorder import (
    BURST,
    COMBINED,
    MAX_KEPT,
    MAX_SIMILAR,
    PACE_S,
    REFILL_S,
    WINDOW_S,
    WRITERS,
    EventRecorder,
    EventType,
    Subject,
)
from tests.kube import virtualtime

WEB = Subject(POD, Key("default", "web"), "u1", "7")
N1 = Subject(NODE, Key("", "n1"), "u2")


class Server:
    def __init__(self) -> None:
        self.events: dict[tuple[str, str], dict[str, Any]] = {}
        self.calls: list[str] = []
        self.errors: list[KubeError] = []
        self.under_way = self.most_under_way = 0

    async def create(self, kind: Kind[T], body: Mapping[str, Any], namespace: str) -> T:
        await self._fail("create")
        assert namespace == body["metadata"]["namespace"]
        self.events[namespace, body["metadata"]["name"]] = dict(body)
        return read_object(kind, msgspec.json.encode(body))

    async def patch(self, kind: Kind[T], key: Key, body: Mapping[str, Any]) -> T:
        await self._fail("patch")
        if (key.namespace, key.name) not in self.events:
            raise APIError(404, "NotFound", "")
        self.events[key.namespace, key.name] |= body
        return read_object(kind, msgspec.json.encode(self.events[key.namespace, key.name]))

    async def _fail(self, verb: str) -> None:
        self.calls.append(verb)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(0.01)
        self.under_way -= 1
        if self.errors:
            raise self.errors.pop(0)

    @property
    def counts(self) -> list[tuple[str, int]]:
        return [(event["message"], event["count"]) for event in self.events.values()]


class Bench:
    def __init__(self, **options: int) -> None:
        self.server = Server()
        self.recorder = EventRecorder(self.server, "koord-manager", "manager-0", lambda: 1e9 + _now_s(), **options)
        self.task = asyncio.create_task(self.recorder.run())

    def say(self, message: str, subject: Subject = WEB, reason: str = "Evicted") -> None:
        self.recorder.record(subject, EventType.WARNING, reason, message)

    async def end(self) -> None:
        self.recorder.close()
        await self.task


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def virtual(main: Coroutine[Any, Any, None]) -> None:
    virtualtime.run(main)


def test_an_event_is_whole() -> None:
    async def main() -> None:
        bench = Bench()
        bench.say("too little memory")
        await bench.end()
        ((namespace, name), event), *others = bench.server.events.items()
        assert not others
        assert namespace == "default"
        assert name.startswith("web.")
        del event["metadata"]
        assert event == {
            "apiVersion": "v1",
            "kind": "Event",
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": "default",
                "name": "web",
                "uid": "u1",
                "resourceVersion": "7",
            },
            "type": "Warning",
            "reason": "Evicted",
            "message": "too little memory",
            "count": 1,
            "firstTimestamp": "2001-09-09T01:46:40Z",
            "lastTimestamp": "2001-09-09T01:46:40Z",
            "source": {"component": "koord-manager", "host": "manager-0"},
            "reportingComponent": "koord-manager",
            "reportingInstance": "manager-0",
        }

    virtual(main())


def test_the_same_is_one_event_with_a_count() -> None:
    async def main() -> None:
        bench = Bench()
        for _ in range(50):
            bench.say("again")
            await asyncio.sleep(1)
        bench.say("other")
        bench.say("again", reason="Throttled")
        bench.say("again", subject=N1)
        await asyncio.sleep(20)
        await bench.end()
        assert sorted(bench.server.counts) == [("again", 1), ("again", 1), ("again", 50), ("other", 1)]
        assert bench.server.calls.count("patch") <= 50 / PACE_S + 1
        assert {namespace for namespace, _ in bench.server.events} == {"default"}
        event = next(event for event in bench.server.events.values() if event["count"] == 50)
        assert (event["firstTimestamp"][-3:], event["lastTimestamp"][-3:]) == ("40Z", "29Z")

    virtual(main())


def test_another_state_of_the_object_makes_no_other_event() -> None:
    """And another object of the same name does."""

    async def main() -> None:
        bench = Bench()
        bench.say("again")
        bench.say("again", replace(WEB, resource_version="8"))
        bench.say("again", replace(WEB, uid="u3"))
        await asyncio.sleep(20)
        await bench.end()
        assert sorted(bench.server.counts) == [("again", 1), ("again", 2)]

    virtual(main())


def test_after_the_window_it_is_another() -> None:
    async def main() -> None:
        bench = Bench()
        bench.say("again")
        await asyncio.sleep(WINDOW_S - 1)
        bench.say("again")
        await asyncio.sleep(WINDOW_S + 1)
        bench.say("again")
        await bench.end()
        assert [count for _, count in bench.server.counts] == [2, 1]

    virtual(main())


@pytest.mark.parametrize(
    ("errors", "counts", "failed"),
    [
        ([APIError(403, "Forbidden", "")], [2], 1),
        ([Unreachable("", True)], [2], 1),
        ([APIError(403, "Forbidden", "")] * 2, [], 2),
    ],
    ids=["refused", "unreachable", "always refused"],
)
def test_what_is_refused_is_counted_and_no_more(errors: list[KubeError], counts: list[int], failed: int) -> None:
    async def main() -> None:
        bench = Bench()
        bench.server.errors = list(errors)
        bench.say("a")
        await asyncio.sleep(1)
        assert not bench.server.events
        bench.say("a")
        await asyncio.sleep(20)
        await bench.end()
        assert [count for _, count in bench.server.counts] == counts
        assert bench.recorder.failed == failed

    virtual(main())


def test_an_event_that_the_server_forgot_is_made_again() -> None:
    async def main() -> None:
        bench = Bench()
        bench.say("a")
        await asyncio.sleep(1)
        bench.server.events.clear()
        bench.say("a")
        await asyncio.sleep(20)
        await bench.end()
        assert bench.server.counts == [("a", 2)]
        assert bench.server.calls == ["create", "patch", "create"]

    virtual(main())


def test_what_comes_during_the_writing_is_written_too() -> None:
    async def main() -> None:
        bench = Bench()
        bench.say("a")
        await asyncio.sleep(0.005)
        bench.say("a")
        await asyncio.sleep(1)
        assert bench.server.counts == [("a", 1)]
        await asyncio.sleep(PACE_S)
        assert bench.server.counts == [("a", 2)]
        await bench.end()

    virtual(main())


def test_what_waits_is_bounded() -> None:
    async def main() -> None:
        bench = Bench(max_kept=10)
        for number in range(25):
            bench.say(f"{number}")
        assert bench.recorder.dropped == 15
        await asyncio.sleep(1)
        assert len(bench.server.events) == 10
        for number in range(25, 30):
            bench.say(f"{number}")
        await asyncio.sleep(1)
        assert bench.recorder.dropped == 15
        assert bench.recorder.written == len(bench.server.events) == 15
        assert len(bench.recorder._records) == 10
        await bench.end()

    virtual(main())


def test_long_texts_are_cut() -> None:
    async def main() -> None:
        bench = Bench()
        bench.say("é" * 1000, Subject(POD, Key("default", "x" * 240 + ".y"), "u4"), "R" * 200)
        await bench.end()
        ((_, name), event), *_ = bench.server.events.items()
        assert len(event["message"].encode()) <= 1024
        assert len(event["reason"]) == 128
        assert len(name) <= 253

    virtual(main())


def pod(number: int) -> Subject:
    return Subject(POD, Key("default", f"web-{number}"), f"u{number}")


def test_events_of_many_objects_do_not_wait_for_each_other() -> None:
    """An answer takes 10 ms."""

    async def main() -> None:
        bench = Bench()
        for number in range(10 * WRITERS):
            bench.say("a", pod(number))
        begun_s = _now_s()
        await bench.end()
        assert len(bench.server.events) == 10 * WRITERS
        assert _now_s() - begun_s == pytest.approx(0.1)

    virtual(main())


def test_events_of_one_object_come_in_order() -> None:
    async def main() -> None:
        bench = Bench()
        for number in range(3):
            for message in "abc":
                bench.say(message, pod(number))
        await asyncio.sleep(0.005)
        for number in range(3):
            bench.say("d", pod(number))
        await bench.end()
        names = [(event["involvedObject"]["name"], event["message"]) for event in bench.server.events.values()]
        for number in range(3):
            assert [message for name, message in names if name == f"web-{number}"] == ["a", "b", "c", "d"]

    virtual(main())


def test_many_that_differ_by_their_message_are_one_with_the_last() -> None:
    async def main() -> None:
        bench = Bench()
        for number in range(MAX_SIMILAR + 3):
            bench.say(f"step {number}")
        bench.say("step 0")
        bench.say("else", reason="Throttled")
        await asyncio.sleep(3 * PACE_S)
        bench.say("step last")
        await asyncio.sleep(3 * PACE_S)
        await bench.end()
        counts = bench.server.counts
        assert len(counts) == MAX_SIMILAR + 2
        assert (COMBINED + "step last", 4) in counts
        assert ("step 0", 2) in counts
        assert ("else", 1) in counts

    virtual(main())


def test_those_that_differ_are_apart_again_after_the_window() -> None:
    async def main() -> None:
        bench = Bench()
        for number in range(MAX_SIMILAR):
            bench.say(f"{number}")
        await asyncio.sleep(WINDOW_S)
        bench.say("a")
        await bench.end()
        assert ("a", 1) in bench.server.counts

    virtual(main())


def test_an_object_gets_so_many_events_at_once() -> None:
    async def main() -> None:
        bench = Bench()
        for number in range(BURST + 5):
            bench.say("a", reason=f"Reason{number}")
        bench.say("a", pod(1))
        assert bench.recorder.dropped == 5
        await asyncio.sleep(2 * REFILL_S)
        for number in range(5):
            bench.say("b", reason=f"Reason{number}")
        assert bench.recorder.dropped == 5 + 3
        await bench.end()
        assert len(bench.server.events) == BURST + 1 + 2

    virtual(main())


@pytest.mark.parametrize(
    ("is_busy", "max_kept", "most"),
    [(False, MAX_KEPT, WRITERS), (True, MAX_KEPT, 1), (True, 25, WRITERS), (True, 40, 1)],
    ids=["nothing else to do", "other work", "more than half of what may wait", "half of it"],
)
def test_events_wait_for_other_work(is_busy: bool, max_kept: int, most: int) -> None:
    async def main() -> None:
        bench = Bench(max_kept=max_kept)
        bench.recorder.is_busy = lambda: is_busy
        for index in range(20):
            bench.say("too little memory", replace(WEB, uid=f"u{index}"))
        await bench.end()
        assert (bench.server.most_under_way, bench.recorder.written) == (most, 20)

    virtual(main())


def test_events_go_on_once_other_work_is_done() -> None:
    async def main() -> None:
        bench = Bench()
        until_s = _now_s() + 0.055
        bench.recorder.is_busy = lambda: _now_s() < until_s
        for index in range(20):
            bench.say("too little memory", replace(WEB, uid=f"u{index}"))
        await asyncio.sleep(0.05)
        assert (bench.server.most_under_way, bench.recorder.written) == (1, 4)
        await bench.end()
        assert (bench.server.most_under_way, bench.recorder.written) == (WRITERS, 20)

    virtual(main())
