"""What windows come to, against the plainest way to say it."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qosd.model.metric import Scope
from qosd.model.snapshot import Aggregate, Window
from qosd.sense.node import NodeRow, NumaRow
from qosd.sense.store import SampleStore
from qosd.sense.window import aggregates
from tests.fakes.clock import S

METRIC = NodeRow.cpu_usage_cores
WIDTH = len(NodeRow.panel.metrics)


def row_of(value: float) -> Any:
    return [value] * WIDTH


def store_of(*samples: tuple[float, float], subject: str = "") -> SampleStore:
    """(second, value) of the node's first metric."""
    store = SampleStore([NodeRow.panel])
    for second, value in samples:
        store.put(NodeRow.panel, int(second * S), {subject: row_of(value)})
    return store


def over(store: SampleStore, window: Window, now_s: float) -> Aggregate | None:
    return aggregates(store, [window], int(now_s * S))[window].get("")


@pytest.mark.parametrize(
    ("samples", "over_s", "now_s", "count", "mean", "slope_per_s"),
    [
        ([(1, 4.0)], 10, 1, 1, 4.0, 0.0),
        ([(1, 1.0), (2, 2.0), (3, 3.0)], 10, 3, 3, 2.0, 1.0),
        ([(1, 1.0), (2, 2.0), (3, 3.0)], 2, 3, 2, 2.5, 1.0),
        ([(1, 1.0), (2, 2.0), (3, 3.0)], 2.5, 3, 3, 2.0, 1.0),
        ([(1, 8.0), (3, 4.0)], 10, 3, 2, 6.0, -2.0),
        ([(1, 5.0), (1, 7.0)], 10, 1, 2, 6.0, 0.0),
        ([(1, 1.0), (2, float("nan")), (3, 3.0)], 10, 3, 2, 2.0, 1.0),
    ],
)
def test_one_window(
    samples: list[tuple[float, float]], over_s: float, now_s: float, count: int, mean: float, slope_per_s: float
) -> None:
    found = over(store_of(*samples), Window(METRIC, over_s), now_s)
    assert found is not None
    assert (found.count, found.mean, found.slope_per_s) == (count, mean, slope_per_s)


@pytest.mark.parametrize(("over_s", "span_s"), [(0.5, 0.0), (1, 0.5), (60, 4.0)])
def test_how_much_time_the_samples_cover(over_s: float, span_s: float) -> None:
    found = over(store_of((1, 1.0), (4.5, 2.0), (5, 3.0)), Window(METRIC, over_s), 5)
    assert found is not None and found.span_s == span_s


def test_a_window_without_samples_is_absent() -> None:
    assert over(store_of((1, 1.0)), Window(METRIC, 5), 6) is None
    assert over(SampleStore([NodeRow.panel]), Window(METRIC, 5), 6) is None


def test_an_object_that_is_gone_is_in_no_window() -> None:
    store = store_of((1, 1.0), subject="a")
    store.put(NodeRow.panel, 2 * S, {"b": row_of(2.0)})
    window = Window(METRIC, 60)
    assert set(aggregates(store, [window], 2 * S)[window]) == {"b"}


def test_what_is_sampled_later_is_in_no_earlier_window() -> None:
    store, window = store_of((1, 1.0)), Window(METRIC, 60)
    found = aggregates(store, [window], 1 * S)[window]
    store.put(NodeRow.panel, 2 * S, {"": row_of(3.0), "b": row_of(2.0)})
    assert set(found) == {""}
    assert (found[""].count, found[""].mean, found.get("b")) == (1, 1.0, None)


def test_one_that_was_read_stays_when_its_object_goes() -> None:
    store, window = store_of((1, 1.0)), Window(METRIC, 60)
    found = aggregates(store, [window], 1 * S)[window]
    assert found[""].count == 1
    store.drop(Scope.NODE, [""])
    assert (len(found), found[""].count) == (1, 1)


def test_a_metric_that_nobody_measures() -> None:
    with pytest.raises(KeyError):
        aggregates(SampleStore([NodeRow.panel]), [Window(NumaRow.cpu_usage_cores, 5)], 1)


@given(
    st.lists(st.floats(0, 1000, width=32), min_size=1, max_size=40),
    st.integers(1, 60),
    st.sampled_from([0.0, 0.5, 0.9, 1.0]),
)
def test_as_the_plainest_way_says_it(values: list[float], over_s: int, quantile: float) -> None:
    """One sample a second; the newest at ``now``."""
    now = len(values)
    found = over(store_of(*enumerate(values, 1)), Window(METRIC, over_s, quantile=quantile), now)
    inside = values[-over_s:]
    assert found is not None
    assert found.count == len(inside)
    assert found.mean == pytest.approx(statistics.fmean(inside))
    assert sum(value <= found.percentile for value in inside) >= quantile * len(inside)
    assert found.percentile in inside
    if len(inside) > 1:
        slope, _ = statistics.linear_regression(range(len(inside)), inside)
        assert found.slope_per_s == pytest.approx(slope, abs=1e-6)
