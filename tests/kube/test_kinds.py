"""Where objects are, what they decode to, and that one which cannot be read costs itself only."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koord.kube.kind import CONFIG_MAP, EVENT, KINDS, LEASE, NODE, NODE_METRIC, POD, Key, Kind
from koord.kube.reading import (
    Status,
    WatchEvent,
    WatchEventType,
    as_it_is,
    read_change,
    read_entry,
    read_object,
    read_page,
)

DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../nodes", "a%2f"])
@pytest.mark.parametrize("kind", [POD, NODE], ids=str)
def test_names_that_lead_elsewhere(kind: Kind[Any], name: str) -> None:
    with pytest.raises(ValueError):
        kind.object_path(Key("default" if kind.namespaced else "", name))


@pytest.mark.parametrize(
    ("kind", "key"),
    [(POD, Key("", "a")), (POD, Key("..", "a")), (POD, Key("a/b", "a")), (NODE, Key("default", "a"))],
    ids=str,
)
def test_namespaces_that_cannot_be(kind: Kind[Any], key: Key) -> None:
    with pytest.raises(ValueError):
        kind.object_path(key)


@pytest.mark.parametrize(
    ("kind", "key", "subresource", "path"),
    [
        (POD, Key("default", "web"), "", "/api/v1/namespaces/default/pods/web"),
        (POD, Key("default", "web"), "eviction", "/api/v1/namespaces/default/pods/web/eviction"),
        (NODE, Key("", "node-1.example"), "status", "/api/v1/nodes/node-1.example/status"),
        (NODE, Key("", "a?b#c d"), "", "/api/v1/nodes/a%3Fb%23c%20d"),
        (LEASE, Key("a", "system:x"), "", "/apis/coordination.k8s.io/v1/namespaces/a/leases/system:x"),
        (NODE_METRIC, Key("", "n"), "", "/apis/slo.koordinator.sh/v1alpha1/nodemetrics/n"),
    ],
)
def test_paths_of_objects(kind: Kind[Any], key: Key, subresource: str, path: str) -> None:
    assert kind.object_path(key, subresource) == path


def test_paths_of_collections() -> None:
    assert POD.collection_path() == "/api/v1/pods"
    assert POD.collection_path("a") == "/api/v1/namespaces/a/pods"


def test_kinds_differ() -> None:
    assert len({(kind.group, kind.name) for kind in KINDS}) == len(KINDS)
    assert {EVENT.api_version, LEASE.api_version} == {"v1", "coordination.k8s.io/v1"}


def test_an_object_without_struct_is_whole() -> None:
    document = {"metadata": {"name": "a", "namespace": "b", "x": 1}, "data": {"k": "v"}, "binaryData": None}
    read = read_object(CONFIG_MAP, json.dumps(document).encode())
    assert read.content == document
    assert (read.metadata.name, read.metadata.namespace) == ("a", "b")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"items": 3}', b'{"items": [' + DEEP + b"]}"], ids=range(5))
def test_lists_that_are_none(body: bytes) -> None:
    with pytest.raises(ValueError):
        read_page(POD, body, as_it_is)


@pytest.mark.parametrize(
    ("item", "key", "problem"),
    [
        ("x", Key("", ""), "Pod cannot be read: Expected `object`, got `str`"),
        ({}, Key("", ""), "Pod cannot be read: it has no name"),
        (
            {"metadata": {"name": "b", "namespace": "a", "resourceVersion": "7"}, "spec": []},
            Key("a", "b"),
            "Pod a/b: cannot be read: Expected `object`, got `array` - at `$.spec`",
        ),
        (
            {"metadata": {"name": "b", "namespace": 3, "labels": []}},
            Key("", "b"),
            "Pod b: cannot be read: Expected `str`, got `int` - at `$.metadata.namespace`",
        ),
    ],
    ids=["text", "nameless", "bad spec", "bad metadata"],
)
def test_an_object_that_does_not_fit(item: Any, key: Key, problem: str) -> None:
    web = {"metadata": {"name": "web", "namespace": "a", "resourceVersion": "3"}}
    body = json.dumps({"metadata": {"resourceVersion": "9"}, "items": [web, item, web]}).encode()
    page = read_page(POD, body, as_it_is)
    assert [entry.key for entry in page.entries] == [Key("a", "web"), key, Key("a", "web")]
    bad = page.entries[1]
    assert (bad.object, bad.problem) == (None, problem)
    assert page.entries[0].object is not None
    assert page.resource_version == "9"


def test_an_object_that_does_not_fit_keeps_its_version() -> None:
    entry = read_entry(POD, b'{"metadata": {"name": "b", "resourceVersion": "7"}, "spec": []}')
    assert (entry.key, entry.resource_version) == (Key("", "b"), "7")


@pytest.mark.parametrize("token", ["null", '""'])
def test_the_last_page(token: str) -> None:
    body = f'{{"metadata": {{"resourceVersion": "9", "continue": {token}}}, "items": null}}'
    page = read_page(POD, body.encode(), as_it_is)
    assert (page.entries, page.continue_token) == ((), "")


@pytest.mark.parametrize(
    "line", [b"{", b"[]", b'{"type": "ADDED"}', b'{"type": "NEW", "object": {}}', DEEP], ids=range(5)
)
def test_lines_that_are_no_change(line: bytes) -> None:
    with pytest.raises(ValueError):
        read_change(POD, line)


def test_changes() -> None:
    bookmark = read_change(POD, b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "12"}}}')
    assert isinstance(bookmark, WatchEvent)
    assert (bookmark.type, bookmark.entry.resource_version) == (WatchEventType.BOOKMARK, "12")
    error = read_change(POD, b'{"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "old"}}')
    assert error == Status(410, "Expired", "old")
