"""What of a NodeMetric's spec a node follows, and what it says of the rest."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from koord.model.nodemetric import CollectPolicy, MemoryCollectPolicy
from qosd.cluster.collectpolicy import EffectiveCollectPolicy, effective

PATH = "NodeMetric spec.metricCollectPolicy"
PLAIN, CACHE = MemoryCollectPolicy.NO_PAGE_CACHE, MemoryCollectPolicy.PAGE_CACHE
DEFAULT_WINDOWS = [("5m0s", 300.0), ("10m0s", 600.0), ("30m0s", 1800.0)]


def read(**stated: Any) -> EffectiveCollectPolicy:
    return effective(msgspec.convert(stated, CollectPolicy))


def windows(policy: EffectiveCollectPolicy) -> list[tuple[str, float]]:
    return [(each.duration, each.length_s) for each in policy.windows]


@pytest.mark.parametrize("policy", [effective(None), read()], ids=["no policy", "an empty one"])
def test_upstreams_defaults(policy: EffectiveCollectPolicy) -> None:
    assert (policy.aggregate_s, policy.report_interval_s, policy.memory, policy.problems) == (300, 60, PLAIN, ())
    assert windows(policy) == DEFAULT_WINDOWS


@pytest.mark.parametrize(
    ("stated", "aggregate_s", "report_interval_s", "problems"),
    [
        ({"aggregateDurationSeconds": 60, "reportIntervalSeconds": 30}, 60, 30, []),
        (
            {"aggregateDurationSeconds": 59},
            60, 60, [f"{PATH}.aggregateDurationSeconds: 59 is less than 60, which counts instead"],
        ),
        (
            {"reportIntervalSeconds": 29},
            300, 30, [f"{PATH}.reportIntervalSeconds: 29 is less than 30, which counts instead"],
        ),
        (
            {"aggregateDurationSeconds": 0},
            60, 60, [f"{PATH}.aggregateDurationSeconds: 0 is less than 60, which counts instead"],
        ),
        ({"aggregateDurationSeconds": 300, "reportIntervalSeconds": 3600}, 300, 3600, []),
        (
            {"aggregateDurationSeconds": 301},
            300, 60,
            [f"{PATH}.aggregateDurationSeconds: 301 is more than the 300 s that are kept of pods, so means are of the"
             " last 300 s"],
        ),
    ],
    ids=str,
)  # fmt: skip
def test_bounds(stated: dict[str, int], aggregate_s: float, report_interval_s: float, problems: list[str]) -> None:
    policy = read(**stated)
    assert (policy.aggregate_s, policy.report_interval_s) == (aggregate_s, report_interval_s)
    assert list(policy.problems) == problems


@pytest.mark.parametrize(
    ("durations", "expected", "problems"),
    [
        (["5m"], [("5m0s", 300.0, True)], []),
        (["90s", "1h"], [("1m30s", 90.0, True), ("1h0m0s", 3600.0, False)],
         ["durations[1]: '1h' is longer than the 1800 s that are kept of the node, so its usage stays empty"]),
        (["30m", "30m0.001s"], [("30m0s", 1800.0, True), ("30m0.001s", 1800.001, False)],
         ["durations[1]: '30m0.001s' is longer than the 1800 s that are kept of the node, so its usage stays empty"]),
        (["5 minutes", "10m"], [("10m0s", 600.0, True)],
         ["durations[0]: '5 minutes' is not a duration such as 5m or 1h30m, and is left out"]),
        (["0s"], [], ["durations[0]: '0s' is not a duration such as 5m or 1h30m, and is left out"]),
    ],
    ids=str,
)  # fmt: skip
def test_durations(durations: list[str], expected: list[tuple[str, float, bool]], problems: list[str]) -> None:
    policy = read(nodeAggregatePolicy={"durations": durations})
    assert [(each.duration, each.length_s, each.is_kept) for each in policy.windows] == expected
    assert list(policy.problems) == [f"{PATH}.nodeAggregatePolicy.{each}" for each in problems]


@pytest.mark.parametrize(
    ("stated", "memory", "problem"),
    [
        ("", PLAIN, ""),
        ("usageWithoutPageCache", PLAIN, ""),
        ("usageWithPageCache", CACHE, ""),
        ("usageWithHotPageCache", PLAIN,
         "usageWithHotPageCache needs a kernel that tells hot pages from cold ones, so it counts as"
         " usageWithoutPageCache"),
        ("usageWithMagic", PLAIN, "'usageWithMagic' is no such policy and counts as usageWithoutPageCache"),
    ],
)  # fmt: skip
def test_memory_policies(stated: str, memory: MemoryCollectPolicy, problem: str) -> None:
    policy = read(nodeMemoryCollectPolicy=stated)
    assert policy.memory is memory
    assert policy.problems == ((f"{PATH}.nodeMemoryCollectPolicy: {problem}",) if problem else ())
