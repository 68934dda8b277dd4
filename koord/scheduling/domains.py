"""Sums over topology domains: the nodes that have one value of a label."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from koord.scheduling.labels import ABSENT
from koord.scheduling.state import ClusterState
from koord.scheduling.table import Bools, Int32s, Int64s


class Domains(NamedTuple):
    """``domain``: int32[N], each node's domain; ``ABSENT`` where it has none.

    ``totals``, ``exists``: by domain, the sum over its counted nodes, and whether it has one.
    """

    domain: Int32s
    totals: Int64s
    exists: Bools

    @property
    def size(self) -> int:
        """How many domains have a counted node."""
        return int(np.count_nonzero(self.exists))

    @property
    def at_nodes(self) -> Int64s:
        """int64[N]: the total of each node's domain, 0 where it has none."""
        return _at_nodes(self.domain, self.totals)

    @property
    def has_domain(self) -> Bools:
        """bool[N]"""
        return np.not_equal(self.domain, ABSENT)


def summed(state: ClusterState, key: str, counts: Int32s | Int64s, counted: Bools | None = None) -> Domains:
    """Sums ``counts`` of the ``counted`` nodes over the domains of the label ``key``."""
    domain = state.nodes.labels.domains(key)
    rows = np.not_equal(domain, ABSENT) & state.table.exists
    if counted is not None:
        rows &= counted
    numbers, length = domain[rows], state.nodes.labels.key(key).domain_count
    totals = np.bincount(numbers, weights=counts[rows], minlength=length).astype(np.int64)
    return Domains(domain, totals, np.greater(np.bincount(numbers, minlength=length), 0))


def summed_rows(state: ClusterState, key: str, rows: dict[int, int]) -> Int64s:
    """int64[N]: the sum over each node's domain of what ``rows`` says of single nodes."""
    domain = state.nodes.labels.domains(key)
    numbers = domain[np.fromiter(rows, np.int64, len(rows))]
    counts = np.fromiter(rows.values(), np.int64, len(rows))
    has_domain = numbers != ABSENT
    length = state.nodes.labels.key(key).domain_count
    totals = np.bincount(numbers[has_domain], weights=counts[has_domain], minlength=length).astype(np.int64)
    return _at_nodes(domain, totals)


def _at_nodes(domain: Int32s, totals: Int64s) -> Int64s:
    """int64[N]: the total of each node's domain, 0 where it has none."""
    if not len(totals):
        return np.zeros(len(domain), np.int64)
    return np.where(np.not_equal(domain, ABSENT), totals[domain], 0)
