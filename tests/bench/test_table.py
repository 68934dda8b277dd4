"""Rows and last lines of the measurements, from figures as the clients report them."""

from __future__ import annotations

import pytest

from bench import calls, creates
from bench.calls import VERSION, Calls
from bench.creates import Times
from bench.proxy import saturated_lines
from bench.stats import Estimate
from bench.table import Line, meets, summary


@pytest.mark.parametrize(
    ("value", "half_width", "met"), [(1.9, 1, True), (2.0, 1, True), (2.1, 1, False), (1.0, 1.1, None), (9, 1.1, None)]
)
def test_a_figure_that_is_too_uncertain_meets_and_misses_nothing(
    value: float, half_width: float, met: bool | None
) -> None:
    assert meets(Estimate(value, value - half_width, value + half_width), at_most=2, resolution=1.05) is met


@pytest.mark.parametrize(
    ("met", "end"),
    [((True, True), "all targets met"), ((True, False), "MISSED: b"), ((None, False), "MISSED: b, not resolved: a")],
)
def test_last_line(met: tuple[bool | None, bool | None], end: str) -> None:
    lines = [Line("a", "1 µs; of many", "<= 2", met[0]), Line("no target", "5"), Line("b", "3 %", "<= 4", met[1])]
    assert summary("bench-x", lines) == f"bench-x: a: 1 µs; b: 3 % | {end}"


def test_rows_of_a_closed_loop() -> None:
    direct = [[100.0] * 99 + [900.0]] * 30
    proxied = [[170.0] * 99 + [1_900.0]] * 30
    report = {
        "latency_us": {"direct": direct, "proxied": proxied},
        "throughput": [{"connections": 1, "per_s": {"direct": [1000.0, 900.0], "proxied": [700.0, 630.0]}}],
    }
    rows = calls.closed_lines("Go", Calls.of(report))
    assert [(row.label, row.figure.partition(";")[0], row.verdict) for row in rows] == [
        ("Go client: added p50 of Version", "+70 µs [+70, +70] = 0.70 of direct", "met"),
        ("Go client: added p99 of Version", "+70 µs [+70, +70]", ""),
        ("Go client: added p99.9 of Version", "+1,000 µs [+1,000, +1,000]", ""),
        ("Go client: 8 callers on 1 connection", "0.70 of direct", "met"),
    ]
    assert "3,000 calls" in rows[1].figure


@pytest.mark.parametrize(("new_us", "figure"), [(150.0, "0.50 [0.50, 0.50]"), (250.0, "1.50 [1.50, 1.50]")])
def test_old_and_new_version(new_us: float, figure: str) -> None:
    turns = {"direct": [[100.0]] * 20, "old": [[200.0]] * 20, "new": [[new_us]] * 20}
    ratio, tail = calls.compared_lines("Go", Calls(turns, {}, []))
    assert (ratio.figure, ratio.verdict) == (figure, "met" if new_us < 200 else "MISSED")
    assert tail.figure == f"{new_us - 200:+.0f} µs [{new_us - 200:+.0f}, {new_us - 200:+.0f}]"


@pytest.mark.parametrize(
    ("added_ms", "verdict"), [([1.0] * 40, "met"), ([1.5] * 40, "MISSED"), ([-8.0, 9.0] * 20, "not resolved")]
)
def test_creation(added_ms: list[float], verdict: str) -> None:
    direct = Times([40.0] * 40, [10.0] * 40)
    total, sandbox, container = creates.lines(direct, Times([40.0] * 40, [10 + more for more in added_ms]))
    assert (total.label, total.verdict) == ("pod + container with hooks, 40 pairs", verdict)
    assert sandbox.figure == "+0.00 ms [+0.00, +0.00]; direct 40.0 ms"
    assert container.figure.endswith("direct 10.0 ms")


def test_creation_of_old_and_new_version() -> None:
    times = {name: Times([40.0] * 20, [ms] * 20) for name, ms in (("direct", 10.0), ("old", 12.0), ("new", 11.0))}
    assert creates.compared_line(times).figure == "-2.0 % [-2.0, -2.0]"


def test_saturated_node_names_both_slices_and_the_target_is_koord_slice_s() -> None:
    turns = {"direct": [[100.0] * 100] * 20, "without": [[5_100.0] * 100] * 20, "with": [[600.0] * 100] * 20}
    median, tail = saturated_lines(Calls(turns, {}, []), VERSION, (50.0, 99.0), at_most_p99_us=1_000)
    assert (median.label, median.target) == ("saturated, koord.slice: added p50 of Version", "")
    assert tail.figure.startswith("+500 µs [+500, +500] (system.slice: +5,000 µs [+5,000, +5,000]); direct 100 µs")
    assert (tail.target, tail.verdict) == ("<= 1 ms", "met")


def test_held_calls() -> None:
    turns = {"direct": [[800.0] * 5] * 20, "old": [[900.0] * 5] * 20, "new": [[950.0] * 5] * 20}
    held = Calls(turns, {}, [])
    added, compared = calls.held_line(held, "new"), calls.held_line(held, "new", "old")
    assert (added.figure, added.verdict) == ("+150 µs [+150, +150]; direct 800 µs", "")
    assert (compared.figure, compared.verdict) == ("+50 µs [+50, +50]; old 900 µs", "MISSED")
