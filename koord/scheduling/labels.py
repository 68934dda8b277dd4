"""Labels of nodes as columns of numbers: which value of a key each node has.

A key has a column from the first time that somebody asks for it. Values are numbered by key, in the order in which
they are seen; numbers of values that no node has any more are given back once they outnumber the nodes by far.
Topology domains are these numbers: two nodes of one number are in one domain of the key.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from koord.scheduling.table import Bools, Column, Int32s, Int64s, Table

HOSTNAME, ZONE, REGION = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE, OLD_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
ABSENT = -1
_SPARE = 1024
NO_NUMBER = -(2**63)


class LabelColumn:
    """The values of one key. ``column``: int32, the value's number; ``ABSENT`` where the node has no such label."""

    def __init__(self, column: Column[np.int32]) -> None:
        self.column = column
        self.numbers: dict[str, int] = {}
        self._values: list[str] = []

    def put(self, row: int, value: str | None) -> None:
        self.column.values[row] = ABSENT if value is None else self._number(value)

    def value(self, number: int) -> str:
        return self._values[number]

    @property
    def domain_count(self) -> int:
        """One more than the largest number."""
        return len(self._values)

    def integers(self) -> Int64s:
        """int64[domain_count]: the values as integers; ``NO_NUMBER`` of one that is none."""
        return np.array([integer(value) for value in self._values], np.int64)

    def _number(self, value: str) -> int:
        number = self.numbers.get(value)
        if number is None:
            number = self.numbers[value] = len(self._values)
            self._values.append(value)
        return number


class Labels:
    """The labels of all nodes."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._by_row: dict[int, Mapping[str, str]] = {}
        self._columns: dict[str, LabelColumn] = {}
        self._orders: dict[str, tuple[npt.NDArray[np.intp], Int32s]] = {}

    def put(self, row: int, labels: Mapping[str, str]) -> None:
        self._by_row[row] = labels
        self._orders.clear()
        for key, column in self._columns.items():
            column.put(row, labels.get(key))
            if column.domain_count > 2 * len(self._table) + _SPARE:
                self._renumber(key, column)

    def remove(self, row: int) -> None:
        del self._by_row[row]
        self._orders.clear()

    def of(self, row: int) -> Mapping[str, str]:
        return self._by_row.get(row, {})

    def key(self, key: str) -> LabelColumn:
        """Returns the column of ``key``."""
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = LabelColumn(self._table.column(np.int32, ABSENT))
            self._fill(key, column)
        return column

    def domains(self, key: str) -> Int32s:
        """int32[N]: the number of each node's value of ``key``."""
        return self.key(key).column.values[: self._table.length]

    def has(self, key: str) -> Bools:
        """bool[N]: whether a node has the label ``key``."""
        return np.not_equal(self.domains(key), ABSENT)

    def rows(self, key: str, value: str) -> npt.NDArray[np.intp]:
        """Returns the rows of the nodes that have this value, in ascending order, without looking at all nodes."""
        column = self.key(key)
        number = column.numbers.get(value)
        if number is None:
            return np.zeros(0, np.intp)
        found = self._orders.get(key)
        if found is None:
            order = np.argsort(self.domains(key), kind="stable")
            found = self._orders[key] = order, self.domains(key)[order]
        order, ordered = found
        first, end = np.searchsorted(ordered, (number, number + 1))
        return order[first:end]

    def _fill(self, key: str, column: LabelColumn) -> None:
        for row, labels in self._by_row.items():
            column.put(row, labels.get(key))

    def _renumber(self, key: str, column: LabelColumn) -> None:
        fresh = LabelColumn(column.column)
        self._columns[key] = fresh
        self._fill(key, fresh)


def integer(value: str) -> int:
    """Returns the label's value as Go's ParseInt reads it; ``NO_NUMBER`` if it is no integer of 64 bits."""
    digits = value[1:] if value[:1] in ("+", "-") else value
    if not (digits.isascii() and digits.isdigit()):
        return NO_NUMBER
    number = int(value) if len(digits) < 20 else 2**63
    return number if -(2**63) < number < 2**63 else NO_NUMBER
