"""How many pods on each node match a selector, kept up to date as pods come and go.

Pods of equal namespace and labels are one group. A query is answered from the groups that match it, and from then on
each pod that comes or goes is counted for the queries that its group matches. So an answer costs nothing but the sum
over a domain, however many pods there are.

Invariant: an answer equals what counting all pods anew would give.
The queries that were used longest ago are forgotten beyond ``MOST_QUERIES``; a forgotten one is counted anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from koord.scheduling.podinfo import PodLabels, selector_of
from koord.scheduling.table import Column, Int32s, Table

MOST_QUERIES = 256


class PodSelection(NamedTuple):
    """Pods of ``namespaces``, or of one that the namespace selector matches, whose labels the selector matches."""

    namespaces: frozenset[str]
    selector_json: bytes
    namespace_selector_json: bytes = b""


class PodQuery(NamedTuple):
    """Pods that each of ``selections`` takes, and, if not ``with_terminating``, that are not being deleted."""

    selections: tuple[PodSelection, ...]
    with_terminating: bool = True


class Namespaces:
    """The labels of the cluster's namespaces. One that is not known has none."""

    def __init__(self) -> None:
        self._labels: dict[str, Mapping[str, str]] = {}

    def put(self, name: str, labels: Mapping[str, str]) -> bool:
        """Returns whether that changes anything."""
        if self._labels.get(name) == labels:
            return False
        self._labels[name] = labels
        return True

    def remove(self, name: str) -> bool:
        return self._labels.pop(name, None) is not None

    def takes(self, selection: PodSelection, namespace: str) -> bool:
        """Returns whether pods of ``namespace`` are among those of ``selection``."""
        if namespace in selection.namespaces:
            return True
        selector = selector_of(selection.namespace_selector_json)
        return selector is not None and selector.matches(self._labels.get(namespace, {}))

    def matches(self, selection: PodSelection, labels: PodLabels) -> bool:
        selector = selector_of(selection.selector_json)
        return (
            selector is not None and self.takes(selection, labels.namespace) and selector.matches(dict(labels.labels))
        )


class _Answer:
    __slots__ = ("column", "query")

    def __init__(self, query: PodQuery, column: Column[np.int32]) -> None:
        self.query, self.column = query, column


class _Group:
    """``rows``: how many of its pods are on each node."""

    __slots__ = ("answers", "rows")

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        self.answers: list[_Answer] = []


class PodCounts:
    def __init__(self, table: Table, namespaces: Namespaces) -> None:
        self._table, self._namespaces = table, namespaces
        self._groups: dict[PodLabels, _Group] = {}
        self._answers: OrderedDict[PodQuery, _Answer] = OrderedDict()

    def add(self, row: int, labels: PodLabels) -> None:
        group = self._groups.get(labels)
        if group is None:
            group = self._groups[labels] = _Group()
            group.answers = [each for each in self._answers.values() if self._matches(each.query, labels)]
        group.rows[row] = group.rows.get(row, 0) + 1
        for answer in group.answers:
            answer.column.values[row] += 1

    def remove(self, row: int, labels: PodLabels) -> None:
        group = self._groups[labels]
        group.rows[row] -= 1
        if not group.rows[row]:
            del group.rows[row]
            if not group.rows:
                del self._groups[labels]
        for answer in group.answers:
            answer.column.values[row] -= 1

    def matching(self, query: PodQuery) -> Int32s:
        """int32[N]: how many pods on each node match."""
        answer = self._answers.get(query)
        if answer is None:
            answer = self._count(query)
        self._answers.move_to_end(query)
        return answer.column.values[: self._table.length]

    def forget_namespaces(self) -> None:
        """Forgets the answers that go by labels of namespaces, which have changed."""
        stale = [query for query in self._answers if any(each.namespace_selector_json for each in query.selections)]
        for query in stale:
            self._forget(query)

    def _count(self, query: PodQuery) -> _Answer:
        if len(self._answers) >= MOST_QUERIES:
            self._forget(next(iter(self._answers)))
        answer = self._answers[query] = _Answer(query, self._table.column(np.int32))
        for labels, group in self._groups.items():
            if self._matches(query, labels):
                group.answers.append(answer)
                for row, count in group.rows.items():
                    answer.column.values[row] += count
        return answer

    def _forget(self, query: PodQuery) -> None:
        answer = self._answers.pop(query)
        self._table.drop(answer.column)
        for group in self._groups.values():
            if answer in group.answers:
                group.answers.remove(answer)

    def _matches(self, query: PodQuery, labels: PodLabels) -> bool:
        if labels.is_terminating and not query.with_terminating:
            return False
        return all(self._namespaces.matches(selection, labels) for selection in query.selections)
