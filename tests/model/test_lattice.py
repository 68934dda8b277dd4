"""The laws that make the order of bounds of one kind irrelevant, and what has no order."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model import cpuset
from koord.model.cpuset import CPUSet
from koord.model.lattice import CPUSets, Lattice, Numbers, Value

MINIMUM = 1000
NUMBERS = st.just(-1) | st.integers(MINIMUM, 1 << 40)
CPUS = st.sets(st.integers(0, 12), max_size=8).map(lambda cpus: str(CPUSet.of(cpus | {0})) if cpus else "")
KINDS = st.sampled_from([(Numbers(MINIMUM), NUMBERS), (CPUSets(), CPUS)])
THREE = KINDS.flatmap(lambda kind: st.tuples(st.just(kind[0]), kind[1], kind[1], kind[1]))


@given(THREE)
def test_laws(kind: tuple[Lattice, Value, Value, Value]) -> None:
    """All sets of CPUs here have CPU 0 in common: without any, nothing is left, which is refused."""
    lattice, a, b, c = kind
    meet, join = lattice.meet, lattice.join
    assert meet(a, b) == meet(b, a)
    assert join(a, b) == join(b, a)
    assert meet(a, meet(b, c)) == meet(meet(a, b), c)
    assert join(a, join(b, c)) == join(join(a, b), c)
    assert meet(a, a) == join(a, a) == a
    assert meet(a, join(a, b)) == join(a, meet(a, b)) == a


@given(st.sets(st.integers(0, 12), min_size=1), st.sets(st.integers(0, 12), min_size=1))
def test_sets_of_cpus(a: set[int], b: set[int]) -> None:
    first, second = CPUSet.of(a), CPUSet.of(b)
    assert cpuset.parse(str(CPUSets().join(str(first), str(second)))) == first | second
    if a & b:
        assert cpuset.parse(str(CPUSets().meet(str(first), str(second)))) == first & second
    else:
        with pytest.raises(ValueError, match="have no CPU in common"):
            CPUSets().meet(str(first), str(second))


@pytest.mark.parametrize("value", ["", "max", True, 1.5, None])
def test_what_is_no_number(value: Value) -> None:
    with pytest.raises(ValueError, match="is not a whole number"):
        Numbers().meet(value, 1)


@pytest.mark.parametrize(
    ("value", "factor", "scaled"),
    [
        (100_000, Fraction(1, 3), 33_334),
        (100_000, Fraction(4, 3), 133_333),
        (100_000, Fraction(1), 100_000),
        (1001, Fraction(1, 2), MINIMUM),
        (-1, Fraction(1, 2), -1),
        (10**18 + 1, Fraction(3, 1), 3 * 10**18 + 3),
    ],
)
def test_scaling_is_exact(value: int, factor: Fraction, scaled: int) -> None:
    assert Numbers(MINIMUM).scale(value, factor) == scaled


@pytest.mark.parametrize(
    ("value", "amount", "total"),
    [(100_000, 20_000, 120_000), (100_000, -20_000, 80_000), (5000, -5000, MINIMUM), (-1, 20_000, -1)],
)
def test_an_amount_more(value: int, amount: int, total: int) -> None:
    assert Numbers(MINIMUM).add(value, amount) == total


def test_a_set_of_cpus_has_no_amount() -> None:
    with pytest.raises(ValueError, match="a set of CPUs has no amount to add to"):
        CPUSets().add("0-3", 1)


@pytest.mark.parametrize("factor", [Fraction(0), Fraction(-1, 2)])
def test_a_factor_is_positive(factor: Fraction) -> None:
    with pytest.raises(ValueError, match=f"factor {factor} is not positive"):
        Numbers().scale(5, factor)
