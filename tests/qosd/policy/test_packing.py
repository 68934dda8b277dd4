"""Which CPUs kubelet's packing takes, on machines of every shape."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.host.topology import CPU, NO_L3, Topology
from qosd.policy import packing
from tests.qosd.podviews import machine


def made(*cpus: tuple[int, int, int]) -> Topology:
    """CPUs from 0 on, each by its core, socket and NUMA node."""
    return Topology(tuple(CPU(number, *place, NO_L3) for number, place in enumerate(cpus)))


TWO_SOCKETS = machine(16, nodes=2, smt=True)
INTERLEAVED = made(*[(n % 6, n % 2, n % 2) for n in range(12)])
"""Two sockets whose CPUs alternate, the threads of a core being n and n + 6."""
FOUR_NODES = made(*[(n, n // 8, n // 4) for n in range(16)])
"""Two sockets of two NUMA nodes each, without SMT."""
HYBRID = made((0, 0, 0), (0, 0, 0), (2, 0, 0), (2, 0, 0), (4, 0, 0), (5, 0, 0), (6, 0, 0), (7, 0, 0))
"""Two cores with two threads and four with one."""
UNEVEN = made(*[(n, int(n >= 4), int(n >= 4)) for n in range(6)])
"""Four CPUs in one socket, two in the other."""


@pytest.mark.parametrize(
    ("topology", "count", "cpus"),
    [
        (machine(1), 0, ""),
        (machine(1), 1, "0"),
        (machine(4), 5, "0-3"),
        (TWO_SOCKETS, 1, "0"),
        (TWO_SOCKETS, 2, "0,8"),
        (TWO_SOCKETS, 3, "0-1,8"),
        (TWO_SOCKETS, 8, "0-3,8-11"),
        (TWO_SOCKETS, 9, "0-4,8-11"),
        (TWO_SOCKETS, 10, "0-4,8-12"),
        (INTERLEAVED, 1, "0"),
        (INTERLEAVED, 2, "0,6"),
        (INTERLEAVED, 5, "0,2,4,6,8"),
        (INTERLEAVED, 7, "0-2,4,6,8,10"),
        (FOUR_NODES, 4, "0-3"),
        (FOUR_NODES, 5, "0-4"),
        (FOUR_NODES, 12, "0-11"),
        (HYBRID, 1, "4"),
        (UNEVEN, 1, "4"),
        (UNEVEN, 2, "4-5"),
        (UNEVEN, 4, "0-1,4-5"),
    ],
)
def test_packed(topology: Topology, count: int, cpus: str) -> None:
    assert str(packing.take(topology, count)) == cpus


@pytest.mark.parametrize(
    ("topology", "count", "cpus"),
    [(TWO_SOCKETS, 2, "0-1"), (TWO_SOCKETS, 5, "0-3,8"), (TWO_SOCKETS, 9, "0-4,8-11"), (INTERLEAVED, 2, "0,2")],
)
def test_across_cores(topology: Topology, count: int, cpus: str) -> None:
    assert str(packing.take(topology, count, across_cores=True)) == cpus


def _machines() -> st.SearchStrategy[Sequence[tuple[int, int, int]]]:
    """Any number of cores on sockets, with one NUMA node per socket or two."""
    core = st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(1, 2))

    def cpus(cores: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        found: list[tuple[int, int, int]] = []
        for socket, half, threads in cores:
            found += [(len(found), socket, 2 * socket + half)] * threads
        return found

    return st.lists(core, min_size=1, max_size=12).map(cpus)


@given(_machines(), st.integers(0, 30), st.booleans())
def test_always_so_many_or_all(cpus: Sequence[tuple[int, int, int]], count: int, across_cores: bool) -> None:
    topology = made(*cpus)
    taken = packing.take(topology, count, across_cores)
    assert len(taken) == min(count, len(cpus))
    assert taken <= topology.online
