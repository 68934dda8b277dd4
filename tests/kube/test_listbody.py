"""A list's body cut anywhere is the same list; what separates its items is never looked for in vain for long."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.kube import listbody
from koord.kube.kind import NODE_METRIC, NODE_SLO, POD, Key, Kind
from koord.kube.listbody import ListBody
from koord.kube.reading import ListPage, ObjectEntry, as_it_is, read_entry, read_page
from koord.model.core import Pod

META = {"resourceVersion": "9", "continue": "token"}


def compact(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def pods(*names: str, **members: Any) -> bytes:
    """As an API server writes those of its own kinds."""
    items = [{"metadata": {"name": name, "namespace": "a", "resourceVersion": "3"}, **members} for name in names]
    return compact({"kind": "PodList", "apiVersion": "v1", "metadata": META, "items": items})


def slos(*names: str) -> bytes:
    """As it writes custom resources: sorted, each with its kind, and the list's metadata behind them."""
    kind = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO"}
    items = [{**kind, "metadata": {"managedFields": [kind, kind], "name": name}, "spec": {}} for name in names]
    return compact({"apiVersion": kind["apiVersion"], "items": items, "kind": "NodeSLOList", "metadata": META})


NESTED = [{"metadata": {"name": "inner"}}, {"metadata": {"name": "inner"}}]


def fed(kind: Kind[Any], body: bytes, size: int, small_bytes: int = 120) -> ListPage[Any]:
    reading = ListBody(kind, as_it_is, small_bytes)
    for at in range(0, len(body), size):
        reading.feed(body[at : at + size])
    return reading.end()


@pytest.mark.parametrize("size", [1, 7, 64, 1000, 100_000])
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (POD, pods(*"abcdef")),
        (POD, pods("one")),
        (POD, pods()),
        (POD, pods(*"abcdef", spec={"volumes": NESTED})),
        (POD, pods(*"abcdef", spec={"nodeName": 7})),
        (POD, pods(*"abcdef", metadata=None)),
        (POD, json.dumps(json.loads(pods(*"abcdef")), indent=1).encode()),
        (NODE_SLO, slos(*"abcdef")),
        (NODE_METRIC, slos(*"abcdef")),
        (POD, compact({"metadata": META, "items": [1, "x", None, {}, {"metadata": {"name": "a"}}] * 5})),
    ],
    ids=["pods", "one", "none", "separators within", "unreadable", "nameless", "spaced", "custom", "typed", "others"],
)
def test_a_body_cut_anywhere_is_the_same_list(kind: Kind[Any], body: bytes, size: int) -> None:
    assert fed(kind, body, size) == read_page(kind, body, as_it_is)


@given(
    st.lists(st.sampled_from(['},{"metadata":{', "items", '":[', "\\", '"']), max_size=8).map("".join),
    st.integers(0, 8),
    st.integers(1, 300),
)
def test_texts_that_look_like_separators_are_none(text: str, count: int, size: int) -> None:
    body = pods(*(f"p{number}" for number in range(count)), spec={"schedulerName": text})
    assert fed(POD, body, size, 80) == read_page(POD, body, as_it_is)


def test_items_are_taken_as_they_come() -> None:
    reading = ListBody(POD, as_it_is, small_bytes=100)
    body = pods(*"abcdef")
    reading.feed(body[:-20])
    assert [entry.key for entry in reading._entries] == [Key("a", name) for name in "abcde"]
    assert len(reading._rest) < 100


def test_a_body_with_many_separators_within_an_item_is_read_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is tried again and again would be quadratic."""
    tried: list[int] = []

    def read_and_count(kind: Kind[Pod], item: bytes) -> ObjectEntry[Pod]:
        tried.append(len(item))
        return read_entry(kind, item)

    monkeypatch.setattr(listbody, "read_entry", read_and_count)
    body = pods(*"ab", spec={"volumes": NESTED * 1000})
    assert fed(POD, body, 1000) == read_page(POD, body, as_it_is)
    assert len(tried) <= listbody._MAX_FALSE_SEPARATORS + 1


def test_what_is_left_out() -> None:
    reading = ListBody(POD, lambda entry: None if entry.key.name in "ac" else entry, small_bytes=100)
    reading.feed(pods(*"abcd"))
    assert [entry.key.name for entry in reading.end().entries] == ["b", "d"]


@pytest.mark.parametrize("size", [10, 1000])
@pytest.mark.parametrize(
    "body", [b"", b"[]", pods(*"abcdef")[:-9], pods(*"abcdef")[:-1] + b"x", pods(*"abcdef").replace(b'"c"', b'"c', 1)],
    ids=["empty", "no list", "cut", "garbled end", "garbled item"],
)  # fmt: skip
def test_bodies_that_are_no_list(body: bytes, size: int) -> None:
    with pytest.raises(ValueError):
        fed(POD, body, size)
