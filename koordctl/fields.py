"""Describes a listing by its fields: its table, its columns by name, its order and its JSON objects follow.

A field's name is the key of the JSON document. Invariant: what people read in a cell, what programs get and what rows
are sorted by comes from one plain value. A value that is absent is left out of an object and is last in any order. An
unknown name fails as UnknownField, which lists the names that there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Generic, TypeVar

from koordctl.plain import member
from koordctl.table import align
from koordctl.values import NONE

Row = TypeVar("Row")
Other = TypeVar("Other")
_NUMBER = re.compile(r"-?\d{1,40}(\.\d{1,40})?", re.ASCII)
_TABLES = ("table", "wide")


class UnknownField(ValueError):
    """The listing has no field of that name."""


class Visibility(Enum):
    """When a table shows a field that ``--fields`` does not name."""

    ALWAYS = auto()
    FILLED = auto()  # if a row has a value
    WIDE = auto()  # with -o wide
    NAMED = auto()  # never


@dataclass(frozen=True, slots=True)
class ListingField(Generic[Row]):
    """``value``: makes a row's value, for programs and for sorting, or is its path (``pod.namespace``), by default
    ``name``. ``text``: makes a row's cell, for people; the value's own text if absent.
    """

    name: str
    header: str
    text: Callable[[Row], str] | None = None
    visibility: Visibility = Visibility.ALWAYS
    value: Callable[[Row], Any] | str = ""

    def plain(self, row: Row) -> Any:
        """Returns str, int, float, bool, list or mapping; None for an absent value."""
        return member(row, self.value or self.name) if isinstance(self.value, str) else self.value(row)

    def cell(self, row: Row) -> str:
        return _text(self.plain(row)) if self.text is None else self.text(row)


@dataclass(frozen=True, slots=True)
class Listing(Generic[Row]):
    """``key``: the list's name in an answer and in the JSON document; ``empty``: what is printed instead of no rows.

    ``rows_of``: finds an answer's rows, where they are not simply its member ``key``.
    """

    key: str
    fields: tuple[ListingField[Row], ...]
    empty: str = ""
    rows_of: Callable[[Any], Sequence[Row]] | None = None

    def rows(self, answer: Any) -> Sequence[Row]:
        rows: Sequence[Row] = getattr(answer, self.key) if self.rows_of is None else self.rows_of(answer)
        return rows

    def field(self, name: str) -> ListingField[Row]:
        """Raises UnknownField."""
        for field in self.fields:
            if field.name == name:
                return field
        raise UnknownField(f"there is no field {name!r}; there are {', '.join(each.name for each in self.fields)}")


@dataclass(frozen=True, slots=True)
class ListingLayout(Generic[Row]):
    """A way to show a listing: by default a table with the columns that it always has, in the order of its rows."""

    listing: Listing[Row]
    output: str = "table"
    fields: tuple[ListingField[Row], ...] = ()
    sort_by: ListingField[Row] | None = None
    is_descending: bool = False
    width: int | None = None
    """The columns of the terminal; None for a pipe, a file, or a table that is to be whole."""

    def on(self, listing: Listing[Other]) -> ListingLayout[Other]:
        """Returns the layout of another listing, in the same output and width."""
        return ListingLayout(listing, self.output, width=self.width)

    @property
    def is_table(self) -> bool:
        """Returns whether it is for people."""
        return self.output in _TABLES

    def columns(self, rows: Sequence[Row]) -> tuple[ListingField[Row], ...]:
        """Returns the fields that were named, in that order; else those that a table of ``rows`` shows."""
        return self.fields or tuple(field for field in self.listing.fields if self._has_column(field, rows))

    def _has_column(self, field: ListingField[Row], rows: Sequence[Row]) -> bool:
        match field.visibility:
            case Visibility.FILLED:
                return any(field.plain(row) for row in rows)
            case Visibility.WIDE:
                return self.output == "wide"
            case _:
                return field.visibility is Visibility.ALWAYS

    def sorted(self, rows: Sequence[Row]) -> list[Row]:
        """Sorts rows: equal ones keep their order, those without a value come last in either direction."""
        if self.sort_by is None:
            return list(rows)
        ranked = [(_rank(self.sort_by.plain(row)), row) for row in rows]
        present = [(rank, row) for rank, row in ranked if rank is not None]
        present.sort(key=lambda each: each[0], reverse=self.is_descending)
        return [row for _, row in present] + [row for rank, row in ranked if rank is None]

    def table(self, rows: Sequence[Row]) -> str:
        """Returns header and rows as text, without a final line break."""
        if not rows:
            return self.listing.empty
        return align([field.header for field in self.columns(rows)], self.cells(rows), self.width)

    def cells(self, rows: Sequence[Row]) -> list[list[str]]:
        """Returns one line per row, in order."""
        columns = self.columns(rows)
        return [[field.cell(row) for field in columns] for row in self.sorted(rows)]

    def objects(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """Returns, for programs, each row's fields that were named, or all; absent values are absent."""
        fields = self.fields or self.listing.fields
        return [
            {field.name: value for field in fields if (value := field.plain(row)) is not None}
            for row in self.sorted(rows)
        ]

    def document(self, document: dict[str, Any], answer: Any) -> dict[str, Any]:
        """Returns ``document``, the whole answer; with one object per row if fields or an order were asked for."""
        if not self.fields and self.sort_by is None:
            return document
        return {**document, self.listing.key: self.objects(self.listing.rows(answer))}


def _rank(value: Any) -> tuple[bool, int | float, str] | None:
    """Ranks by number, then by text. Returns None for an absent value: None, NaN, an empty text or collection."""
    if isinstance(value, int | float):
        return None if value != value else (False, value, "")  # noqa: PLR0124 - NaN alone
    text = _text(value) if value else ""
    if _NUMBER.fullmatch(text):
        return False, float(text) if "." in text else int(text), ""
    return (True, 0, text) if text else None


def _text(value: Any) -> str:
    match value:
        case None:
            return NONE
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case Mapping():
            return ", ".join(f"{key}={each}" for key, each in value.items()) or NONE
        case list() | tuple():
            return ", ".join(map(str, value)) or NONE
        case _:
            return str(value)
