"""What the protection bench makes of what its clients and koord-qosd's journal say."""

from __future__ import annotations

import pytest

from bench.protection.policies import reversals
from bench.protection.workloads import latencies_us
from integration.harness.processes import HarnessError
from integration.node.daemon import Row

REDIS = """
Latency by percentile distribution:
0.000% <= 0.039 milliseconds (cumulative count 16)
50.000% <= 0.159 milliseconds (cumulative count 160)
100.000% <= 8.751 milliseconds (cumulative count 320)

Cumulative distribution of latencies:
2.020% <= 0.103 milliseconds (cumulative count 100)
"""


def test_one_of_sixteen_latencies_of_redis_benchmark() -> None:
    assert latencies_us(REDIS) == [39.0] + 9 * [159.0] + 10 * [8751.0]


def test_a_run_that_says_no_latencies_is_no_figure() -> None:
    with pytest.raises(HarnessError, match="said no latencies: Could not connect"):
        latencies_us("Could not connect")


def _row(tick: int, after: int, path: str = "/q", owner: str = "bestEffort", result: str = "done") -> Row:
    return Row(tick, owner, "", "/be", "cpu_quota", path, 0, after, result, "")


@pytest.mark.parametrize(
    ("rows", "turns"),
    [
        ([], 0),
        ([_row(1, 10), _row(2, 20), _row(3, 30)], 0),
        ([_row(1, 10), _row(2, 20), _row(3, 20), _row(4, 5), _row(5, 9)], 2),
        ([_row(1, 10), _row(2, 20, path="/p"), _row(3, 5), _row(4, 30, path="/p")], 0),
        ([_row(1, 10), _row(2, 20), _row(3, 5, owner="cpuBurst"), _row(4, 6, result="refused")], 0),
        ([_row(-1, 30), _row(1, 10), _row(2, 20)], 0),
    ],
    ids=["nothing", "one way", "there and back", "two files", "not a limit that was set", "before the turns"],
)
def test_reversals_are_those_of_the_file_with_most(rows: list[Row], turns: int) -> None:
    assert reversals(rows, 0) == turns
