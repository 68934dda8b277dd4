"""What the samples of a window come to, and how often that stops the sampler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qosd.cluster import usage
from qosd.model.metric import Scope
from qosd.sense.node import NodeRow
from qosd.sense.store import SampleStore
from qosd.sense.usage import USAGE
from tests.qosd.cluster.history import History, Use, pod

S = 1_000_000_000
CPU = USAGE[Scope.POD].cpu_usage_cores


def samples(values: Sequence[float], every_s: float = 1.0) -> list[tuple[int, float]]:
    return [(int(number * every_s * S), value) for number, value in enumerate(values, start=1)]


@pytest.mark.parametrize(
    ("values", "avg", "p50", "p90", "p95", "p99"),
    [
        ([3.0], 3.0, 3.0, 3.0, 3.0, 3.0),
        ([1.0, 2.0], 1.5, 1.0, 2.0, 2.0, 2.0),
        (list(range(10, 0, -1)), 5.5, 5.0, 9.0, 10.0, 10.0),  # upstream's p95 is one rank lower: 9
        (list(range(1, 101)), 50.5, 50.0, 90.0, 95.0, 99.0),
    ],
    ids=["one", "two", "ten, falling", "a hundred"],
)
def test_aggregations(values: list[float], avg: float, p50: float, p90: float, p95: float, p99: float) -> None:
    expected = {"avg": avg, "p50": p50, "p90": p90, "p95": p95, "p99": p99}
    assert usage.aggregations(samples(values)) == expected


def test_nothing_comes_to_nothing() -> None:
    assert usage.aggregations([]) == {}
    assert usage.mean([]) is None
    assert usage.span_s([]) == 0.0
    assert usage.since([], 5) == []


@given(st.lists(st.integers(0, 16_000).map(lambda number: number / 16), min_size=1, max_size=50))
def test_an_aggregation_is_within_what_was_measured_and_percentiles_rise(values: list[float]) -> None:
    found = usage.aggregations(samples(values))
    assert all(min(values) <= each <= max(values) for each in found.values())
    assert found["p50"] <= found["p90"] <= found["p95"] <= found["p99"]


@pytest.mark.parametrize(
    ("window_s", "count"),
    [(0.5, 1), (1.0, 1), (2.0, 2), (2.5, 3), (9.0, 9), (10.0, 10), (11.0, 10)],
)
def test_a_sample_just_as_old_as_the_window_has_left_it(window_s: float, count: int) -> None:
    ten = samples([1.0] * 10)
    assert len(usage.since(ten, usage.begin_ns(10 * S, window_s))) == count


@pytest.mark.parametrize(("count", "every_s", "span_s"), [(1, 1.0, 0.0), (2, 1.0, 1.0), (150, 2.0, 298.0)])
def test_the_span_is_from_the_oldest_to_the_newest(count: int, every_s: float, span_s: float) -> None:
    assert usage.span_s(samples([1.0] * count, every_s)) == span_s


def test_means_are_of_the_objects_that_are_measured_now() -> None:
    history = History(pod("a"), pod("b"))
    for _ in range(4):
        history.tick(a=Use(1, 1), b=Use(2, 1))
    history.tick(a=Use(6, 1))
    cgroup = history.pods[0].cgroup
    assert usage.means(history.store, CPU, 0) == {cgroup: pytest.approx(2.0)}
    assert usage.means(history.store, CPU, history.at_ns) == {cgroup: pytest.approx(6.0)}
    assert usage.means(history.store, CPU, history.at_ns + 1) == {}


class CountedLock:
    def __init__(self) -> None:
        self.taken = 0

    def __enter__(self) -> None:
        self.taken += 1

    def __exit__(self, *_: object) -> None:
        pass


def test_the_sampler_waits_once_for_a_metric_however_many_pods_there_are() -> None:
    names = [f"p{number}" for number in range(75)]
    history = History(*map(pod, names))
    pods: dict[str, Any] = dict.fromkeys(names, Use(1, 1))
    history.tick(**pods)
    lock = CountedLock()
    history.store._lock = lock  # type: ignore[assignment]
    assert len(usage.means(history.store, CPU, 0)) == 75
    assert lock.taken == 1


def test_an_empty_store_has_no_means() -> None:
    assert usage.means(SampleStore([NodeRow.panel]), NodeRow.cpu_usage_cores, 0) == {}
