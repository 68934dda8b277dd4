"""Which CPUs best-effort pods get: Koordinator's choice from scratch, and then as few moves as may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.host.topology import CPU, Topology
from koord.model import cpuset
from koord.model.cpuset import EMPTY, CPUSet
from qosd.strategies.suppression.cpuchoice import choose, picked
from tests.qosd.podviews import machine

SIXTEEN = machine(16, nodes=2, smt=True)
"""Two sockets of four cores; CPU c + 8 is the sibling of c."""
ALL = CPUSet.of(range(16))


@pytest.mark.parametrize(
    ("count", "cpus"),
    [(1, [0]), (2, [0, 8]), (3, [0, 8, 4]), (6, [0, 8, 4, 12, 1, 9]), (7, [0, 8, 4, 12, 1, 9, 5]), (0, [])],
)
def test_from_scratch_it_is_koordinators(count: int, cpus: list[int]) -> None:
    assert picked(SIXTEEN, ALL, count) == cpus


@pytest.mark.parametrize(
    ("bucket", "count", "cpus"),
    [
        ("0-3,8", 3, [0, 8, 1]),
        ("1-3,9-11,4", 3, [1, 9, 4]),
        ("4-7,0-1", 3, [4, 0, 5]),
        ("0", 4, [0]),
    ],
    ids=["one whole core", "the larger node first", "no whole core", "fewer than wanted"],
)
def test_uneven_parts(bucket: str, count: int, cpus: list[int]) -> None:
    assert picked(SIXTEEN, cpuset.parse(bucket), count) == cpus


@pytest.mark.parametrize(
    ("lsr", "count", "of_lsr"),
    [("0-7", 8, 4), ("0-7", 1, 0), ("0-1", 8, 1), ("", 8, 0), ("0-15", 8, 8), ("0-13", 3, 2)],
)
def test_cpus_of_lsr_pods_are_taken_in_proportion(lsr: str, count: int, of_lsr: int) -> None:
    owned = cpuset.parse(lsr)
    chosen = choose(SIXTEEN, owned, ALL - owned, count)
    assert (len(chosen), len(chosen & owned)) == (count, of_lsr)


def test_a_part_that_is_short_takes_from_the_other() -> None:
    """Upstream then chooses no CPU at all."""
    assert choose(SIXTEEN, cpuset.parse("0-2"), cpuset.parse("3"), 3) <= cpuset.parse("0-3")
    assert len(choose(SIXTEEN, cpuset.parse("0-2"), cpuset.parse("3"), 3)) == 3


@pytest.mark.parametrize("count", [4, 5, 400])
def test_where_there_are_no_more_all_are_chosen(count: int) -> None:
    assert choose(SIXTEEN, cpuset.parse("0-1"), cpuset.parse("4-5"), count) == cpuset.parse("0-1,4-5")


@pytest.mark.parametrize(
    ("before", "count", "after"),
    [
        ("0-1,4,8-9,12", 6, "0-1,4,8-9,12"),
        ("0-1,4,8-9,12", 4, "0,4,8,12"),
        ("0-1,4,8-9,12", 5, "0-1,4,8,12"),
        ("0-1,4,8,12", 6, "0-1,4,8-9,12"),
        ("0-1,4,8,12", 4, "0,4,8,12"),
        ("2,10", 4, "0,2,8,10"),
        ("3", 2, "3,11"),
        ("", 2, "0,8"),
    ],
    ids=["no change", "a core leaves", "one CPU leaves", "its sibling comes", "the single one leaves", "a core comes",
         "a sibling first", "from scratch"],
)  # fmt: skip
def test_a_choice_is_only_added_to_or_taken_from(before: str, count: int, after: str) -> None:
    assert str(choose(SIXTEEN, EMPTY, ALL, count, cpuset.parse(before))) == after


def topologies() -> st.SearchStrategy[Topology]:
    """Some CPUs of a machine whose cores have one or two of them, in up to three memory nodes."""
    cpu = st.tuples(st.integers(0, 2), st.booleans())
    return st.lists(cpu, min_size=1, max_size=12).map(_topology)


def _topology(cores: list[tuple[int, bool]]) -> Topology:
    cpus, number = list[CPU](), 0
    for core, (node, is_whole) in enumerate(cores):
        for _ in range(1 + is_whole):
            cpus.append(CPU(id=number, core=core, socket=node, node=node, l3=node))
            number += 1
    return Topology(tuple(cpus))


@given(topologies(), st.data())
def test_as_many_as_wanted_and_no_move_without_need(topology: Topology, data: st.DataObject) -> None:
    cpus = sorted(topology.online)
    owned = CPUSet.of(data.draw(st.sets(st.sampled_from(cpus))))
    before = CPUSet.of(data.draw(st.sets(st.sampled_from(cpus))))
    count = data.draw(st.integers(1, len(cpus) + 2))
    chosen = choose(topology, owned, topology.online - owned, count, before)
    assert len(chosen) == min(count, len(cpus))
    assert chosen <= topology.online
    for part in (owned, topology.online - owned):
        wanted, kept = len(chosen & part), before & part
        assert (kept <= chosen) if wanted >= len(kept) else (chosen & part) <= kept
    assert choose(topology, owned, topology.online - owned, count, chosen) == chosen
