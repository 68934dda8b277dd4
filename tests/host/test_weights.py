"""Shares against weights: vectors of both mappings, and how a node's own is recognised."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.host.weights import Weights, mapping_of, weight_quadratic


@pytest.mark.parametrize(
    ("shares", "weight"),
    [(2, 1), (102, 4), (256, 10), (512, 20), (1024, 39), (1536, 59), (2048, 79), (4096, 157), (8192, 313),
     (262144, 10000)],
)  # fmt: skip
def test_linear(shares: int, weight: int) -> None:
    assert Weights.LINEAR.weight(shares) == weight


@pytest.mark.parametrize(("shares", "weight"), [(0, 1), (2, 1), (1024, 100), (262144, 10000), (10**9, 10000)])
def test_quadratic(shares: int, weight: int) -> None:
    assert Weights.QUADRATIC.weight(shares) == weight_quadratic(shares) == weight


@given(st.integers(2, 262143), st.sampled_from(Weights))
def test_weights_never_fall_as_shares_grow(shares: int, weights: Weights) -> None:
    assert weights.weight(shares) <= weights.weight(shares + 1)


@given(st.integers(1, 10000), st.sampled_from(Weights))
def test_shares_of_a_weight_are_the_fewest(weight: int, weights: Weights) -> None:
    shares = weights.shares(weight)
    assert weights.weight(shares) == weight
    assert shares == 2 or weights.weight(shares - 1) < weight


@pytest.mark.parametrize(
    ("seen", "mapping"),
    [
        ([], None),
        ([(2, 1), (262144, 10000)], None),
        ([(1024, 55)], None),
        ([(1024, 39), (1024, 100)], None),
        ([(2, 1), (1024, 39)], Weights.LINEAR),
        ([(1024, 100), (2048, 7)], Weights.QUADRATIC),
    ],
)
def test_a_nodes_mapping_is_told_by_what_it_made(seen: list[tuple[int, int]], mapping: Weights | None) -> None:
    assert mapping_of(seen) is mapping
