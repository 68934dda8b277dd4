"""Batch pods that hold more than the node offers."""

from __future__ import annotations

from typing import Any

import pytest

from koord.overcommit.amounts import ZERO, CPUMemory
from koord.overcommit.demand import allocated, overallocation
from tests.overcommit.nodes import GIB, amounts, pod


def held(cpu_milli: Any, memory: Any, domain: str = "kubernetes.io", **more: Any) -> Any:
    return pod("p", amounts((cpu_milli, memory), f"{domain}/batch-cpu", f"{domain}/batch-memory"), qos="BE", **more)


@pytest.mark.parametrize(
    ("pods", "total"),
    [
        pytest.param([], ZERO, id="no pods"),
        pytest.param([held("2k", "1Gi"), held(500, None)], CPUMemory(2500, GIB), id="they add up"),
        pytest.param([held(1, "1", "koordinator.sh")], CPUMemory(1, 1), id="deprecated names"),
        pytest.param([held(1, "1", phase="Succeeded"), held(2, "2", phase="Pending")], CPUMemory(2, 2), id="phases"),
        pytest.param([held("x", "1"), held(2, "2")], CPUMemory(2, 3), id="an amount that cannot be read"),
        pytest.param([pod("p", (1, 1))], ZERO, id="native resources"),
    ],
)
def test_what_pods_hold(pods: list[Any], total: CPUMemory) -> None:
    assert allocated(pods) == total


@pytest.mark.parametrize(
    ("offered", "excess", "sentence"),
    [
        pytest.param(CPUMemory(3000, 2 * GIB), None, "", id="all of it"),
        pytest.param(
            CPUMemory(1000, 2 * GIB),
            CPUMemory(2000, 0),
            "batch over-allocated: 2000m of the 3000m batch-cpu that pods hold is not offered"
            ": a kubelet that restarts ends some",
            id="CPU",
        ),
        pytest.param(
            CPUMemory(5000, GIB),
            CPUMemory(0, GIB),
            "batch over-allocated: 1Gi of the 2Gi batch-memory that pods hold is not offered"
            ": a kubelet that restarts ends some",
            id="memory, with CPU to spare",
        ),
        pytest.param(
            None,
            CPUMemory(3000, 2 * GIB),
            "batch over-allocated: 3000m of the 3000m batch-cpu and 2Gi of the 2Gi batch-memory that pods hold "
            "is not offered: a kubelet that restarts ends some",
            id="nothing is offered",
        ),
    ],
)
def test_what_is_not_offered(offered: CPUMemory | None, excess: CPUMemory | None, sentence: str) -> None:
    found = overallocation(CPUMemory(3000, 2 * GIB), offered)
    assert (found.excess if found else None) == excess
    assert (found.sentence if found else "") == sentence
