"""Who leaves a quota that uses more than it may."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from koord.scheduling.overuse import leaving
from koord.scheduling.podinfo import PodInfo
from tests.scheduling.quotaobjects import member
from tests.scheduling.test_preemption import budget

GANG = "gang"


def running(name: str, cpu: int, memory: int = 0, gang: str = "", priority: int = 0, **more: Any) -> PodInfo:
    labels = {GANG: gang} if gang else {}
    requests = {"memory": str(memory)} if memory else {}
    return member(name, "a", str(cpu), "n1", requests=requests, labels=labels, priority=priority, **more)


@pytest.mark.parametrize(
    ("pods", "limit", "expected"),
    [
        pytest.param([running("x", 4), running("y", 4)], {"cpu": 8000}, "", id="within the limit"),
        pytest.param([running("x", 4, priority=1), running("y", 4)], {"cpu": 7000}, "y", id="the least important"),
        pytest.param(
            [running("x", 4, priority=2), running("y", 1, priority=1), running("z", 2)], {"cpu": 5000}, "z", id="one"
        ),
        pytest.param(
            [running("x", 4, priority=2), running("y", 3, priority=1), running("z", 1)], {"cpu": 6000}, "y",
            id="z has room again once y has left",
        ),
        pytest.param([running("x", 4), running("y", 4, fixed=True)], {"cpu": 3000}, "x", id="not one that has to stay"),
        pytest.param([running("y", 4, fixed=True)], {"cpu": 3000}, "", id="nobody may leave"),
        pytest.param(
            [running("x", 4, 10, priority=3), running("y", 1, 0, priority=1), running("z", 1, 5)],
            {"cpu": 9000, "memory": 12}, "z", id="memory alone",
        ),
        pytest.param(
            [running("big", 1, 10, priority=2), running("cpu", 2, priority=1), running("small", 1)],
            {"cpu": 2000, "memory": 5}, "small big",
            id="a resource that the pods removed first do not request is not forgotten",
        ),
        pytest.param(
            [running("x", 1), running("m", 1, 10, fixed=True)], {"cpu": 9000, "memory": 5}, "",
            id="nobody leaves who does not help",
        ),
        pytest.param(
            [running("a1", 2, gang="g", priority=5), running("a2", 2, gang="g"), running("x", 1, priority=1)],
            {"cpu": 4000}, "x", id="a gang is as important as its most important pod",
        ),
        pytest.param(
            [running("a1", 2, gang="g"), running("a2", 2, gang="g"), running("x", 3, priority=1)],
            {"cpu": 6000}, "a1 a2", id="a gang leaves whole",
        ),
        pytest.param(
            [running("a1", 2, gang="g"), running("a2", 2, gang="g", fixed=True), running("x", 3, priority=1)],
            {"cpu": 6000}, "x", id="a gang one of which has to stay stays",
        ),
    ],
)  # fmt: skip
def test_who_leaves(pods: Sequence[PodInfo], limit: Mapping[str, int], expected: str) -> None:
    used = {name: sum(each.requests.get(name, 0) for each in pods) for name in limit}
    assert (
        " ".join(each.name for each in leaving(pods, used, limit, lambda each: each.labels.get(GANG, ""))) == expected
    )


@pytest.mark.parametrize(
    ("pods", "limit", "allowed", "expected"),
    [
        pytest.param(["x", "y"], 3000, 0, "", id="nobody may leave"),
        pytest.param(["x", "y", "other"], 4000, 0, "other", id="one that no budget is about"),
        pytest.param(["x", "y", "z"], 2000, 1, "z", id="as many as the budget allows"),
    ],
)
def test_disruption_budgets_are_obeyed(pods: Sequence[str], limit: int, allowed: int, expected: str) -> None:
    made = [
        member(name, "a", "2", "n1", priority=9 - index, labels={} if name == "other" else {"app": "db"})
        for index, name in enumerate(pods)
    ]
    found = leaving(made, {"cpu": 2000 * len(made)}, {"cpu": limit}, budgets=[budget(allowed, app="db")])
    assert " ".join(each.name for each in found) == expected


def test_a_gang_that_would_break_a_budget_stays_whole() -> None:
    gang = [member(f"g{index}", "a", "2", "n1", labels={GANG: "g", "app": "db"}) for index in range(2)]
    one = member("x", "a", "2", "n1", priority=1)
    for allowed, expected in ((1, ["x"]), (2, ["g0", "g1"])):
        found = leaving(
            [*gang, one],
            {"cpu": 6000},
            {"cpu": 4000},
            lambda each: each.labels.get(GANG, ""),
            [budget(allowed, app="db")],
        )
        assert [each.name for each in found] == expected
