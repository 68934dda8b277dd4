"""The event stream and the store: rules that hold for whatever happens, in whatever order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.kube.kind import NODE, POD, Key, Object
from koord.kube.store import ObjectStore
from koord.kube.stream import Channel, EventStream, ObjectEvent
from koord.model.core import Node, ObjectMeta, Pod, PodSpec


def pod(name: str, version: int = 0, node: str = "", uid: str = "") -> Pod:
    return Pod(ObjectMeta(name=name, uid=uid, resource_version=str(version)), PodSpec(node_name=node))


A, B = Key("", "a"), Key("", "b")
A1, A2, A3, B1 = pod("a", 1), pod("a", 2), pod("a", 3), pod("b", 1)


@pytest.mark.parametrize(
    ("puts", "events"),
    [
        ([(A, None, A1)], [(A, None, A1)]),
        ([(A, None, A1), (A, A1, A2)], [(A, None, A2)]),
        ([(A, A1, A2), (A, A2, A3)], [(A, A1, A3)]),
        ([(A, None, A1), (A, A1, None)], []),
        ([(A, A1, A2), (A, A2, None)], [(A, A1, None)]),
        ([(A, A1, None), (A, None, A2)], [(A, A1, A2)]),
        ([(A, A1, A1)], [(A, A1, A1)]),
        ([(A, A1, A2), (A, A2, A2)], [(A, A1, A2)]),
        ([(A, None, A1), (B, None, B1), (A, A1, A2)], [(A, None, A2), (B, None, B1)]),
        ([(A, None, A1), (B, None, B1), (A, A1, None), (A, None, A3)], [(B, None, B1), (A, None, A3)]),
    ],
    ids=range(10),
)
async def test_what_waits_is_one_event_for_each_object(
    puts: Sequence[tuple[Key, Pod | None, Pod | None]], events: list[tuple[Key, Pod | None, Pod | None]]
) -> None:
    stream = EventStream()
    pods: Channel[Pod] = stream.channel(POD)
    for key, before, after in puts:
        pods.put(key, before, after)
    assert len(stream) == len(events)
    taken = await stream.take(10) if events else []
    assert [(event.key, event.before, event.after) for event in taken] == events


async def test_kinds_are_apart() -> None:
    stream = EventStream()
    pods: Channel[Pod] = stream.channel(POD)
    nodes: Channel[Node] = stream.channel(NODE)
    pods.put(A, None, A1)
    nodes.put(A, None, Node(A1.metadata))
    assert [event.kind for event in await stream.take(10)] == [POD, NODE]


async def test_each_event_is_handed_to_the_handler_of_its_cache() -> None:
    handled: list[tuple[str, str]] = []
    stream = EventStream()
    pods: Channel[Pod] = stream.channel(POD, lambda event: handled.append(("pods", event.key.name)))
    nodes: Channel[Node] = stream.channel(NODE, lambda event: handled.append(("nodes", event.key.name)))
    pods.put(A, None, A1)
    nodes.put(A, None, Node(A1.metadata))
    pods.put(B, None, B1)
    pods.put(A, A1, A2)
    await stream.deliver(2)
    assert (handled, len(stream)) == ([("pods", "a"), ("nodes", "a")], 1)
    await stream.deliver(2)
    assert handled[2:] == [("pods", "b")]


async def test_an_empty_stream_is_waited_for() -> None:
    stream = EventStream()
    pods: Channel[Pod] = stream.channel(POD)
    pods.put(A, None, A1)
    pods.put(A, A1, None)
    taking = asyncio.create_task(stream.take(1))
    await asyncio.sleep(0.01)
    assert not taking.done()
    pods.put(B, None, B1)
    pods.put(A, None, A1)
    assert [event.key for event in await taking] == [B]
    assert [event.key for event in await stream.take(1)] == [A]


@pytest.mark.parametrize(
    ("before", "after", "is_replaced"),
    [
        (pod("a", uid="1"), pod("a", uid="2"), True),
        (pod("a", uid="1"), pod("a", uid="1"), False),
        (None, pod("a", uid="2"), False),
        (pod("a", uid="1"), None, False),
    ],
)
def test_replaced(before: Pod | None, after: Pod | None, is_replaced: bool) -> None:
    assert ObjectEvent(POD, A, before, after).is_replaced is is_replaced


STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["put", "remove", "take"])), max_size=40)


@given(STEPS)
def test_replayed_events_give_the_same_state(steps: list[tuple[str, str]]) -> None:
    async def replay() -> None:
        stream, truth, copy = EventStream(), dict[Key, Pod](), dict[Key, Object]()
        pods: Channel[Pod] = stream.channel(POD)
        for number, (name, step) in enumerate(steps):
            key = Key("", name)
            if step == "take" and len(stream):
                apply(copy, await stream.take(1 + number % 3))
            elif step == "put":
                before, truth[key] = truth.get(key), pod(name, number)
                pods.put(key, before, truth[key])
            elif step == "remove" and key in truth:
                pods.put(key, truth.pop(key), None)
            assert len(stream) <= len(truth.keys() | copy.keys())
        if len(stream):
            apply(copy, await stream.take(100))
        assert copy == truth

    asyncio.run(replay())


def apply(copy: dict[Key, Object], events: Sequence[ObjectEvent[Object]]) -> None:
    for event in events:
        assert copy.get(event.key) == event.before
        if event.after is None:
            del copy[event.key]
        else:
            copy[event.key] = event.after


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["", "n1", "n2", "gone"])), max_size=30))
def test_an_index_is_what_its_function_says(steps: list[tuple[str, str]]) -> None:
    store: ObjectStore[Pod] = ObjectStore(
        {"node": lambda pod: (pod.spec.node_name,), "both": lambda pod: ("x", pod.spec.node_name)}
    )
    truth: dict[Key, Pod] = {}
    for number, (name, node) in enumerate(steps):
        key = Key("", name)
        if node == "gone":
            assert store.remove(key) == truth.pop(key, None)
        else:
            assert store.put(key, pod(name, number, node)) == truth.get(key)
            truth[key] = pod(name, number, node)
    assert dict(store.objects) == truth
    for node in ("", "n1", "n2", "gone"):
        there = {key for key, value in truth.items() if value.spec.node_name == node}
        assert {Key("", value.metadata.name) for value in store.indexed("node", node)} == there
    assert len(store.indexed("both", "x")) == len(truth)
    assert not any(not keys for values in store._indexed.values() for keys in values.values())
