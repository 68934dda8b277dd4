"""What is read of a runtime's verbose status, whatever its JSON holds."""

from __future__ import annotations

from typing import Any

import pytest

from koord.model import runtimestatus as status
from koord.model.documents import at, mapping

LIMIT = ("linux", "resources", "limit")


def spec(value: Any) -> dict[str, Any]:
    return {"linux": {"resources": {"limit": value}}}


@pytest.mark.parametrize("info", ["", "{", "\x00", "[" * 100_000])
def test_what_is_no_json(info: str) -> None:
    with pytest.raises(ValueError):
        status.parse({"info": info})
    assert status.parse_or_empty({"info": info}) == {}


@pytest.mark.parametrize("info", [{}, {"info": "[]"}, {"info": "3"}, {"info": "null"}, {"other": "{}"}])
def test_what_is_no_object(info: dict[str, str]) -> None:
    assert status.parse(info) == {}


@pytest.mark.parametrize(
    ("value", "number", "text"),
    [
        (1, 1, ""),
        (-1, -1, ""),
        (1 << 63, None, ""),
        (True, None, ""),
        (1.0, None, ""),
        ("1", None, "1"),
        ("\ud800", None, ""),
        (None, None, ""),
        ({}, None, ""),
    ],
)
def test_a_piece_of_another_type_is_not_set(value: Any, number: int | None, text: str) -> None:
    assert (status.number(spec(value), *LIMIT), status.text(spec(value), *LIMIT)) == (number, text)


@pytest.mark.parametrize("document", [None, [], {"linux": 3}, {"linux": {"resources": []}}])
def test_a_way_that_ends(document: Any) -> None:
    assert (at(document, *LIMIT), mapping(document, *LIMIT)) == (None, {})


@pytest.mark.parametrize(
    ("document", "resources"),
    [({}, None), ({"runtimeSpec": {"linux": {}}}, None), ({"runtimeSpec": {"linux": {"resources": {}}}}, {})],
)
def test_a_runtime_that_does_not_tell_is_not_one_that_sets_nothing(document: Any, resources: Any) -> None:
    assert status.spec_resources(document) == resources
