"""Columns of one length that grow together, a row for each node, and which row a node has.

A row that is given back is used again by the next node; ``exists`` tells rows in use from free ones. Columns are longer
than there are rows, so that one more node seldom copies them: ``Column.values[: table.length]`` is what counts.

Invariant: a free row holds each column's fill value.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

Scalar = TypeVar("Scalar", bound=np.generic)
Bools = npt.NDArray[np.bool_]
Int16s = npt.NDArray[np.int16]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_FIRST_CAPACITY = 64


class Column(Generic[Scalar]):
    """One figure of every node."""

    __slots__ = ("fill", "values")

    def __init__(self, capacity: int, dtype: type[Scalar], fill: Any) -> None:
        self.fill = fill
        self.values: npt.NDArray[Scalar] = np.full(capacity, fill, dtype)

    def grow(self, capacity: int) -> None:
        grown = np.full(capacity, self.fill, self.values.dtype)
        grown[: len(self.values)] = self.values
        self.values = grown


class Table:
    """The rows and their columns. ``length``: rows that there are, free ones among them."""

    def __init__(self) -> None:
        self.length = 0
        self._rows: dict[str, int] = {}
        self._names: list[str] = []
        self._free: list[int] = []
        self._capacity = _FIRST_CAPACITY
        self._columns: set[Column[Any]] = set()
        self._exists = self.column(np.bool_, False)

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def __len__(self) -> int:
        """The number of nodes."""
        return len(self._rows)

    @property
    def exists(self) -> Bools:
        """bool[length]: whether the row is a node's."""
        return self._exists.values[: self.length]

    def row(self, name: str) -> int | None:
        return self._rows.get(name)

    def name(self, row: int) -> str:
        """The node's name; "" of a free row."""
        return self._names[row]

    def column(self, dtype: type[Scalar], fill: Any = 0) -> Column[Scalar]:
        """Makes a column that grows with the table until it is dropped."""
        made = Column(self._capacity, dtype, fill)
        self._columns.add(made)
        return made

    def drop(self, column: Column[Any]) -> None:
        self._columns.discard(column)

    def add(self, name: str) -> int:
        """Returns the row of a node, which it gets if it has none."""
        row = self._rows.get(name)
        if row is not None:
            return row
        row = self._free.pop() if self._free else self._append()
        self._rows[name] = row
        self._names[row] = name
        self._exists.values[row] = True
        return row

    def remove(self, name: str) -> int:
        """Gives the row of a node back, and returns it. Raises KeyError for a node that has none."""
        row = self._rows.pop(name)
        self._names[row] = ""
        for column in self._columns:
            column.values[row] = column.fill
        self._free.append(row)
        return row

    def _append(self) -> int:
        if self.length == self._capacity:
            self._capacity *= 2
            for column in self._columns:
                column.grow(self._capacity)
        self._names.append("")
        self.length += 1
        return self.length - 1
