"""Which resource no node has enough of."""

from __future__ import annotations

import pytest

from koord.overcommit.amounts import CPUMemory
from koordctl.cluster.cause import shortage

_GI = 1 << 30
CPU, MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"


@pytest.mark.parametrize(
    ("wanted", "nodes", "says"),
    [
        (CPUMemory(1001, 0), [(1000, 8), (900, 9)], f"no node has as much {CPU} free, the most is 1000m on n0"),
        (CPUMemory(0, 9 * _GI), [(1000, 4), (900, 8)], f"no node has as much {MEMORY} free, the most is 8Gi on n1"),
        (CPUMemory(500, 9 * _GI), [(1000, 4), (900, 8)], f"no node has as much {MEMORY} free, the most is 8Gi on n1"),
        (
            CPUMemory(1001, 9 * _GI),
            [(1000, 4), (900, 8)],
            f"no node has as much {CPU} free, the most is 1000m on n0; "
            f"no node has as much {MEMORY} free, the most is 8Gi on n1",
        ),
        (
            CPUMemory(1000, 8 * _GI),
            [(1000, 4), (900, 8)],
            f"no single node has both free: the most {CPU} is 1000m on n0, the most {MEMORY} is 8Gi on n1",
        ),
        (CPUMemory(900, 8 * _GI), [(1000, 4), (900, 8)], ""),
        (CPUMemory(), [(0, 0)], ""),
    ],
)
def test_shortage(wanted: CPUMemory, nodes: list[tuple[int, int]], says: str) -> None:
    amounts = {f"n{number}": CPUMemory(cpu, memory * _GI) for number, (cpu, memory) in enumerate(nodes)}
    assert shortage(wanted, amounts, "has", "free") == says


def test_without_a_suffix() -> None:
    assert shortage(CPUMemory(2), {"n": CPUMemory(1)}, "offers").startswith(f"no node offers as much {CPU}, the most")
