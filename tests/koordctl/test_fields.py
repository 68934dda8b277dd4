"""The field table: columns by name and order, sorting, absent values; then every listing of koordctl."""

from __future__ import annotations

import math
import pkgutil
import re
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from koord.admission import ObjectProblem
from koord.model.problem import Problem
from koord.pb.koord import inspect_pb2 as inspect
from koordctl import views
from koordctl.cluster.nodes import ClusterNodeRow, Protection
from koordctl.doctor import CheckResult, CheckStatus
from koordctl.fields import Listing, ListingField, ListingLayout, UnknownField, Visibility
from koordctl.plain import plain
from koordctl.views import metrics, pods, top


@dataclass(frozen=True)
class Row:
    key: int
    value: Any = None
    note: str = ""


ROWS: Listing[Row] = Listing(
    "rows",
    (
        ListingField("key", "KEY"),
        ListingField("value", "VALUE"),
        ListingField("note", "NOTE", lambda row: f"<{row.note}>", Visibility.FILLED),
        ListingField("extra", "EXTRA", visibility=Visibility.WIDE, value=lambda row: row.key * 2),
        ListingField("hidden", "HIDDEN", visibility=Visibility.NAMED, value=lambda row: row.key * 3),
    ),
    "No rows.",
)
NAMES = [field.name for field in ROWS.fields]


def layout(*names: str, output: str = "table", sort_by: str = "", is_descending: bool = False) -> ListingLayout[Row]:
    order = ROWS.field(sort_by) if sort_by else None
    return ListingLayout(ROWS, output, tuple(map(ROWS.field, names)), order, is_descending)


def header(table: str) -> list[str]:
    return table.splitlines()[0].split()


# --- the rules -------------------------------------------------------------------------------------------------------


def test_an_unknown_name_says_what_there_is() -> None:
    with pytest.raises(UnknownField, match="no field 'Key'; there are key, value, note, extra, hidden"):
        ROWS.field("Key")


def test_nothing_to_show() -> None:
    assert (layout().table([]), layout("hidden", output="wide").table([])) == ("No rows.", "No rows.")
    assert layout().objects([]) == []


@pytest.mark.parametrize(
    ("output", "note", "columns"),
    [
        ("table", "", ["KEY", "VALUE"]),
        ("table", "n", ["KEY", "VALUE", "NOTE"]),
        ("wide", "", ["KEY", "VALUE", "EXTRA"]),
        ("wide", "n", ["KEY", "VALUE", "NOTE", "EXTRA"]),
    ],
)
def test_columns_of_a_table(output: str, note: str, columns: list[str]) -> None:
    assert header(layout(output=output).table([Row(1), Row(2, note=note)])) == columns


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (None, "-"), (True, "yes"), (False, "no"), (0, "0"), (-1, "-1"), (0.5, "0.5"), ("", ""), ("a", "a"), ([], "-"),
        ([1, "b"], "1, b"), ({}, "-"), ({"a": 1, "b": None}, "a=1, b=None"),
    ],
)  # fmt: skip
def test_cells(value: Any, cell: str) -> None:
    assert ROWS.field("value").cell(Row(1, value)) == cell


@pytest.mark.parametrize(
    ("values", "ascending"),
    [
        (["b", "a", "C"], ["C", "a", "b"]),
        (["10", "9", "-1", "max"], ["-1", "9", "10", "max"]),
        ([3, 0.5, None, -1], [-1, 0.5, 3, None]),
        ([True, None, False], [False, True, None]),
        ([None, "", [], {}, 1], [1, None, "", [], {}]),
        ([["b"], ["a"], "9" * 5000], ["9" * 5000, ["a"], ["b"]]),
        (["1.50", "1.5", "1"], ["1", "1.50", "1.5"]),
    ],
)
def test_order(values: list[Any], ascending: list[Any]) -> None:
    rows = [Row(key, value) for key, value in enumerate(values)]
    assert [row.value for row in layout(sort_by="value").sorted(rows)] == ascending


def test_objects_leave_absent_values_out() -> None:
    rows = [Row(1, "v"), Row(2)]
    assert layout("value", "key").objects(rows) == [{"value": "v", "key": 1}, {"key": 2}]
    assert layout().objects(rows)[1] == {"key": 2, "note": "", "extra": 4, "hidden": 6}


def test_a_document_is_whole_unless_fields_or_an_order_are_asked_for() -> None:
    @dataclass(frozen=True)
    class Answer:
        rows: tuple[Row, ...]

    answer, document = Answer((Row(2), Row(1))), {"time": 5, "rows": "as it is"}
    assert layout().document(document, answer) is document
    assert layout("key").document(document, answer) == {"time": 5, "rows": [{"key": 2}, {"key": 1}]}
    assert [row["key"] for row in layout(sort_by="key").document(document, answer)["rows"]] == [1, 2]


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.lists(st.integers())
LISTS = st.lists(VALUES).map(lambda values: [Row(key, value) for key, value in enumerate(values)])


@given(st.lists(st.sampled_from(NAMES), min_size=1), LISTS.filter(bool), st.sampled_from(["table", "wide"]))
def test_any_fields_are_shown_in_any_order(names: list[str], rows: list[Row], output: str) -> None:
    shown = layout(*names, output=output)
    assert header(shown.table(rows)) == [name.upper() for name in names]
    for cells, row in zip(shown.cells(rows), rows, strict=True):
        assert cells == [ROWS.field(name).cell(row) for name in names]
    for entry in shown.objects(rows):
        assert list(entry) == [name for name in dict.fromkeys(names) if name in entry]


def is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value)) or value in ("", [])


@given(LISTS, st.booleans())
def test_sorting_is_stable_and_total(rows: list[Row], is_descending: bool) -> None:
    """Every row is there once, equal ones in their order, those without a value last; sorted is sorted."""
    order = layout(sort_by="value", is_descending=is_descending)
    done = order.sorted(rows)
    assert sorted(row.key for row in done) == [row.key for row in rows]
    missing = [is_missing(row.value) for row in done]
    assert missing == sorted(missing)
    for left, right in pairwise(done):
        if left.value == right.value or (is_missing(left.value) and is_missing(right.value)):
            assert left.key < right.key
    assert order.sorted(done) == done
    numbers = [row.value for row in done if isinstance(row.value, int | float) and not is_missing(row.value)]
    assert numbers == sorted(numbers, reverse=is_descending)


# --- every listing of koordctl ---------------------------------------------------------------------------------------

ABSENT: dict[str, object] = {
    "cluster.nodes.NODES": ClusterNodeRow(
        "", False, None, None, None, None, None, 0, None, 0, None, Protection.NONE, ""
    ),
    "views.doctor.FINDINGS": CheckResult("", CheckStatus.OK, ""),
    "views.explain.LEFT": inspect.ExplainedFile(),
    "views.lint.FINDINGS": ObjectProblem("", Problem("", "")),
    "views.metrics.METRICS": metrics.MetricLine(inspect.Metric(), inspect.Sample()),
    "views.node.CLUSTER": inspect.ClusterPart(),
    "views.node.CONTESTED": inspect.Contested(),
    "views.node.FEATURES": inspect.Feature(),
    "views.node.FRONT_ENDS": inspect.FrontEnd(),
    "views.node.LOOPS": inspect.Loop(),
    "views.node.POOLS": inspect.Pool(),
    "views.node.STRATEGIES": inspect.Strategy(),
    "views.node.USAGE": inspect.Usage(),
    "views.pods.CONTAINERS": pods.ContainerLine(inspect.Pod(), None),
    "views.pods.VALUES": pods.ContainerLine(inspect.Pod(), None),
    "views.top.PODS": top.PodLine("", {}),
    "views.writes.ENTRIES": inspect.JournalEntry(),
    "views.writes.EVICTIONS": inspect.Eviction(),
    "views.writes.WRITES": inspect.PlannedWrite(),
}
"""Every listing's row of which nothing is known."""

LISTINGS: dict[str, Listing[Any]] = {
    f"{module}.{name}": listing
    for module in ("cluster.nodes", *(f"views.{each.name}" for each in pkgutil.iter_modules(views.__path__)))
    for name, listing in vars(import_module(f"koordctl.{module}")).items()
    if isinstance(listing, Listing)
}


def test_every_listing_has_an_absent_row() -> None:
    assert LISTINGS.keys() == ABSENT.keys()


@pytest.mark.parametrize("name", LISTINGS)
@pytest.mark.parametrize("output", ["table", "wide"])
def test_a_row_of_which_nothing_is_known(name: str, output: str) -> None:
    listing, row = LISTINGS[name], ABSENT[name]
    assert ListingLayout(listing, output).table([row, row]).count("\n") == 2
    for field in listing.fields:
        assert isinstance(field.cell(row), str)
        assert ListingLayout(listing, output, (field,), field).table([row, row]).count("\n") == 2
        assert all(entry.keys() <= {field.name} for entry in ListingLayout(listing, fields=(field,)).objects([row]))


@pytest.mark.parametrize("name", LISTINGS)
def test_names_and_headers(name: str) -> None:
    fields = LISTINGS[name].fields
    assert all(re.fullmatch("[a-z]+(_[a-z0-9]+)*", field.name) for field in fields)
    assert len({field.name for field in fields}) == len({field.header for field in fields}) == len(fields)


MESSAGES = {name: row for name, row in ABSENT.items() if isinstance(row, Message) and name != "views.explain.LEFT"}
"""Rows that are objects of the document as they are; explain's table is a part of its blocks."""


@pytest.mark.parametrize("name", MESSAGES)
def test_objects_have_every_key_of_the_document(name: str) -> None:
    row, (entry,) = MESSAGES[name], ListingLayout(LISTINGS[name]).objects([MESSAGES[name]])
    assert {field.name for field in row.DESCRIPTOR.fields} <= {field.name for field in LISTINGS[name].fields}
    assert entry | plain(row) == entry
