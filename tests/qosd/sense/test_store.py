"""Rings, percentiles, and what must not be left of objects that are gone."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qosd.model.metric import Kind, Scope
from qosd.sense.node import NodeRow
from qosd.sense.ring import Rings, nearest_rank
from qosd.sense.row import NO_SAMPLE, Column, Row
from qosd.sense.store import SampleStore
from qosd.sense.table import METRICS, PANELS
from tests.fakes.clock import S


class PodRow(Row, source="test", scope=Scope.POD, period_s=1.0, retention_s=5.0):
    a: Column = Column("", "")
    b: Column = Column("", "")
    c: Column = Column("", "", history=False)


POD, A, B, C = PodRow.panel, PodRow.a, PodRow.b, PodRow.c


@pytest.mark.parametrize(
    ("count", "quantile", "index"),
    [
        (1, 0.5, 0),
        (1, 0.99, 0),
        (10, 0.95, 9),  # upstream: 8
        (20, 0.90, 17),
        (60, 0.90, 53),
        (100, 0.99, 98),
        (300, 0.95, 284),
        (3, 0.5, 1),
        (100, 0.07, 6),  # 100 * 0.07 is 7.000000000000001
        (4, 0.0, 0),
        (4, 1.0, 3),
    ],
)
def test_nearest_rank(count: int, quantile: float, index: int) -> None:
    assert nearest_rank(reversed(range(count)), quantile) == index


def row(*figures: float) -> Any:
    return figures


def test_nothing_has_no_percentile() -> None:
    assert nearest_rank([], 0.9) is None


@given(st.lists(st.integers(0, 1000), min_size=1), st.integers(1, 100))
def test_nearest_rank_is_the_least_value_that_enough_do_not_exceed(values: list[int], percent: int) -> None:
    found = nearest_rank(values, percent / 100)

    def enough(value: float) -> bool:
        return sum(one <= value for one in values) * 100 >= percent * len(values)

    assert found is not None and enough(found)
    assert not any(enough(value) for value in values if value < found)


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), max_size=30))
def test_a_ring_holds_the_last_instants_and_their_gaps(written: list[list[bool]]) -> None:
    rings = Rings(capacity=5, width=1)
    model: dict[str, list[tuple[int, float]]] = {"x": [], "y": [], "z": []}
    for instant, present in enumerate(written):
        subjects = [name for name, here in zip("xyz", present, strict=True) if here]
        rings.write(instant, subjects, [(float(instant),) for _ in subjects])
        for name in subjects:
            model[name].append((instant, float(instant)))
    for name, samples in model.items():
        assert rings.read(name, 0, 0) == [sample for sample in samples if sample[0] > len(written) - 6]


def test_series_and_percentile_of_a_window() -> None:
    store = SampleStore([POD])
    for second in range(8):
        store.put(POD, second * S, {"/p": row(float(second), NO_SAMPLE, 7.0)})
    assert store.series(A, "/p") == [(second * S, float(second)) for second in range(3, 8)]
    assert store.series(B, "/p") == [] and store.series(C, "/p") == [] and store.series(A, "/q") == []
    assert store.percentile(A, "/p", 0.5, window_s=2.5, now_ns=7 * S) == 6.0
    assert store.percentile(A, "/p", 0.5, window_s=1.0, now_ns=60 * S) is None
    assert store.newest() == {A: {"/p": 7.0}, B: {}, C: {"/p": 7.0}}
    for read in (store.series, lambda metric: store.values(metric, 7 * S)):
        with pytest.raises(KeyError):
            read(NodeRow.cpu_usage_cores)


def test_samples_of_another_batch_are_none() -> None:
    store = SampleStore([POD])
    store.put(POD, 1 * S, {"/p": row(1.0, NO_SAMPLE, 7.0)})
    assert store.values(A, 1 * S) == {"/p": 1.0}
    assert store.values(B, 1 * S) == store.values(A, 2 * S) == {}


def test_what_newest_returned_never_changes() -> None:
    store = SampleStore([POD])
    store.put(POD, 1, {"/p": row(1.0, 1.0, 1.0)})
    first = store.newest()
    store.put(POD, 2, {"/p": row(2.0, 2.0, 2.0)})
    store.drop(Scope.POD, {"/p"})
    assert first[A] == {"/p": 1.0}
    assert store.newest()[A] == {}


def test_history_keeps_bytes_to_a_part_in_ten_million() -> None:
    store = SampleStore([POD])
    store.put(POD, 1, {"/p": row(16.0 * 2**30 + 1, 0.0, 0.0)})
    assert store.value(A, "/p") == 16 * 2**30 + 1
    assert math.isclose(store.series(A, "/p")[0][1], 16 * 2**30, rel_tol=1e-7)


def test_a_thousand_objects_leave_nothing() -> None:
    store = SampleStore([POD])
    for number in range(1000):
        store.put(POD, number * S, {f"/p{number}": row(1.0, 1.0, 1.0)})
        if number % 2:
            store.drop(Scope.POD, {f"/p{number}"})
    assert store.series_count <= 3 + 5  # newest samples of one, and rings within the axis
    store.put(POD, 2000 * S, {})
    for _ in range(5):
        store.put(POD, 2001 * S, {})
    assert (store.series_count, store.history_bytes) == (0, 0)


def test_a_withdrawn_panel_has_history_only() -> None:
    store = SampleStore([POD])
    store.put(POD, 1, {"/p": row(1.0, 2.0, 3.0)})
    store.withdraw(POD)
    assert store.newest() == {} and store.values(A, 1) == {}
    assert store.series(A, "/p") == [(1, 1.0)]


def test_the_table_is_one() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert len({(each.source, each.scope) for each in PANELS}) == len(PANELS)
    for metric in METRICS:
        assert metric.help.endswith((".", "`.")), metric.name
        assert metric.unit or metric.name == "collector_disabled"
        unit = {"bytes": "bytes", "cores": "cores", "bytes/s": "bytes_per_s", "us/s": "us_per_s"}.get(metric.unit, "")
        assert metric.name.endswith(unit), metric.name
        assert (metric.kind is Kind.COUNTER) <= (metric.retention_s == 0)
