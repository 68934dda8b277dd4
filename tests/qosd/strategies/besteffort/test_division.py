"""CPU time divided among containers: max-min fair, and standing still while nobody could have much more."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from qosd.model.metric import Scope
from qosd.model.pod import Resources
from qosd.model.snapshot import NodeSnapshot
from qosd.sense.usage import USAGE
from qosd.strategies.besteffort.division import FLOOR_MILLI, STANDS_NS, Division, divide, fair, least_milli
from tests.qosd.contexts import policy
from tests.qosd.podviews import snapshot, view

PODS = {name: view(name, "BE", "BestEffort") for name in ("a", "b", "c")}
CONTAINERS = [(pod, pod.containers[1]) for pod in PODS.values()]
NONE = Division()


@pytest.mark.parametrize(
    ("total", "needs", "parts"),
    [
        (900, {"a": 900, "b": 900, "c": 900}, {"a": 300, "b": 300, "c": 300}),
        (900, {"a": 100, "b": 900, "c": 900}, {"a": 100, "b": 400, "c": 400}),
        (900, {"a": 100, "b": 200, "c": 900}, {"a": 100, "b": 200, "c": 600}),
        (900, {"a": 100, "b": 200, "c": 300}, {"a": 200, "b": 300, "c": 400}),
        (6, {"a": 900, "b": 900}, {"a": 10, "b": 10}),
        (900, {}, {}),
    ],
    ids=["alike", "one needs less", "two do", "all do", "less than the floors", "nobody"],
)
def test_fair(total: int, needs: Mapping[str, int], parts: Mapping[str, int]) -> None:
    assert fair(total, needs) == parts


@pytest.mark.parametrize(
    ("period_us", "least"), [(1_000, 1000), (10_000, 100), (30_000, 34), (100_000, 10), (1_000_000, 10)]
)
def test_the_least_is_what_the_kernel_takes_for_a_quota_of_the_period(period_us: int, least: int) -> None:
    assert least_milli(period_us) == least


@pytest.mark.parametrize(
    ("count", "period_us", "together"),
    [(10, 100_000, 1000), (100, 100_000, 1000), (500, 100_000, 5000), (10, 10_000, 1000), (11, 10_000, 1100)],
)
def test_parts_come_to_the_total_unless_that_is_less_than_the_least_of_each(
    count: int, period_us: int, together: int
) -> None:
    """One needs all, and the others next to nothing."""
    pods = [view(f"p{n}", "BE", "BestEffort", container_requested=Resources(period_us)) for n in range(count)]
    used = {f"{pod.cgroup}/main": 0.001 if place else 2.0 for place, pod in enumerate(pods)}
    there = structs.replace(snapshot(policy(), *pods), values={USAGE[Scope.CONTAINER].cpu_usage_cores: used})
    division = divide(there, 1000, [(pod, pod.containers[1]) for pod in pods], NONE)
    assert sum(division.parts.values()) == together


@given(st.integers(0, 10_000), st.dictionaries(st.text(max_size=3), st.integers(0, 10_000)))
def test_nobody_is_short_while_another_has_more_than_both_need(total: int, needs: dict[str, int]) -> None:
    parts = fair(total, needs)
    assert parts.keys() == needs.keys()
    assert all(part >= FLOOR_MILLI for part in parts.values())
    if sum(parts.values()) > FLOOR_MILLI * len(parts):
        assert sum(part for part in parts.values() if part > FLOOR_MILLI) <= total
    short = [name for name in parts if parts[name] < needs[name]]
    for name in short:
        assert max(parts.values()) <= max(parts[name] + len(parts), FLOOR_MILLI), "the rest of a division aside"


def node(
    cores: Mapping[str, float] | None = None, throttled: Mapping[str, float] | None = None, at_ns: int = 0
) -> NodeSnapshot:
    row = USAGE[Scope.CONTAINER]
    values = {
        row.cpu_usage_cores: {f"{PODS[name].cgroup}/main": used for name, used in (cores or {}).items()},
        row.cpu_throttled_ratio: {f"{PODS[name].cgroup}/main": ratio for name, ratio in (throttled or {}).items()},
    }
    return structs.replace(snapshot(policy(), *PODS.values()), values=values, monotonic_ns=at_ns)


def parts(division: Division) -> dict[str, int]:
    return {
        pod.name: division.parts[container.cgroup]
        for pod, container in CONTAINERS
        if division.parts.get(container.cgroup)
    }


@pytest.mark.parametrize(
    ("cores", "throttled", "expected"),
    [
        ({}, {}, {"a": 500, "b": 500, "c": 500}),
        ({"a": 0.1, "b": 0.2, "c": 1.2}, {}, {"a": 125, "b": 250, "c": 1125}),
        ({"a": 0.1, "b": 0.2, "c": 0.4}, {"b": 0.5}, {"a": 125, "b": 875, "c": 500}),
        ({"a": float("nan"), "b": 0.0, "c": 0.0}, {}, {"a": 1480, "b": 10, "c": 10}),
    ],
    ids=["not measured", "by what they use", "one is stopped by its quota", "no number"],
)
def test_needs(cores: dict[str, float], throttled: dict[str, float], expected: dict[str, int]) -> None:
    assert parts(divide(node(cores, throttled), 1500, CONTAINERS, NONE)) == expected


def test_it_stands_until_somebody_could_have_a_good_deal_more() -> None:
    first = divide(node({"a": 0.4, "b": 0.4, "c": 0.4}), 1500, CONTAINERS, NONE)
    busy = {"a": 0.1, "b": 0.1, "c": 1.2}
    assert divide(node(busy, at_ns=STANDS_NS - 1), 1500, CONTAINERS, first) is first, "not before its time"
    assert divide(node({"a": 0.38, "b": 0.4, "c": 0.42}, at_ns=STANDS_NS), 1500, CONTAINERS, first) is first
    second = divide(node(busy, at_ns=STANDS_NS), 1500, CONTAINERS, first)
    assert parts(second) == {"a": 125, "b": 125, "c": 1250}
    assert divide(node(busy, at_ns=STANDS_NS + 1), 1500, CONTAINERS, second) is second


def test_another_sum_and_another_container_count_at_once() -> None:
    first = divide(node(), 1500, CONTAINERS, NONE)
    assert parts(divide(node(), 900, CONTAINERS, first)) == {"a": 300, "b": 300, "c": 300}
    assert parts(divide(node(), 1500, CONTAINERS[:1], first)) == {"a": 1500}
