"""A Node shows at least what pods hold that run on it, since a kubelet that restarts admits them again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from koord.model.core import Container, Node, NodeStatus, Pod, ResourceRequirements
from koord.model.quantity import MAX_INT64
from koord.overcommit import demand, publish
from koord.overcommit.amounts import ZERO, CPUMemory
from koord.overcommit.demand import Held
from koord.overcommit.explain import lines
from koord.overcommit.offer import Offered, Overcommit
from koord.overcommit.publish import DesiredResources
from koord.overcommit.strategy import DEFAULTS, KoordColocation
from tests.overcommit.nodes import GIB, Size, amounts, metric, mid, node, offered, pod, strategy

BATCH_CPU, BATCH_MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
MID_CPU = "kubernetes.io/mid-cpu"
STARTED = "2026-11-23T09:00:00Z"
UNCOVERED = strategy(extensions={"koord": KoordColocation(cover_running_pods=False)})


def batch(cpu_milli: Any, memory: Any = None) -> dict[str, Any]:
    return amounts((cpu_milli, memory), BATCH_CPU, BATCH_MEMORY)


def init(resources: Mapping[str, Any], restart_policy: str = "") -> Container:
    return Container("init", ResourceRequirements(resources), restart_policy=restart_policy)


def limited(resources: Mapping[str, Any]) -> Pod:
    return pod("p", containers=(Container("c", ResourceRequirements(limits=resources)),))


@pytest.mark.parametrize(
    ("pods", "held"),
    [
        pytest.param([], Held(), id="no pods"),
        pytest.param([pod("p", (1, 1))], Held(), id="native resources"),
        pytest.param(
            [pod("p", batch(500, "1Gi"), batch(250)), pod("q", batch(1))], Held(CPUMemory(751, GIB)), id="sum"
        ),
        pytest.param([pod("p", mid(300, "2Gi"))], Held(mid=CPUMemory(300, 2 * GIB)), id="mid"),
        *(
            pytest.param(
                [pod("p", batch(5), phase=phase, start_time=start_time)],
                Held(CPUMemory(cpu_milli)),
                id=f"phase {phase!r}, started {start_time}",
            )
            for phase, start_time, cpu_milli in (
                ("Running", None, 5),
                ("Running", STARTED, 5),
                ("Pending", None, 0),
                ("Pending", STARTED, 5),
                ("Unknown", STARTED, 5),
                ("", None, 0),
                ("Succeeded", STARTED, 0),
                ("Failed", STARTED, 0),
            )
        ),
        pytest.param(
            [pod("p", batch(5), qos="LS", priority="koord-prod")], Held(CPUMemory(5)), id="whatever its class"
        ),
        pytest.param(
            [pod("p", batch(5), init_containers=(init(batch(9)),))], Held(CPUMemory(9)), id="an init container"
        ),
        pytest.param(
            [pod("p", batch(5), init_containers=(init(batch(9), "Always"),))], Held(CPUMemory(14)), id="sidecar"
        ),
        pytest.param([pod("p", batch(5), overhead=batch(3))], Held(CPUMemory(8)), id="with overhead"),
        pytest.param([pod("p", {"koordinator.sh/batch-cpu": 5})], Held(), id="a name that kubelet does not know"),
        pytest.param([pod("p", batch("5", "x"))], Held(CPUMemory(5)), id="what cannot be read costs itself"),
        pytest.param(
            [pod("p", batch(MAX_INT64)), pod("q", batch(1))], Held(CPUMemory(MAX_INT64)), id="as much as can be written"
        ),
    ],
)
def test_what_kubelet_counts_again(pods: list[Pod], held: Held) -> None:
    assert demand.held(map(demand.of_pod, pods), lambda _: None) == held


def test_a_mid_pod_that_kubelet_has_not_admitted_makes_batch_pods_room_all_the_same() -> None:
    counted = demand.of_pod(pod("p", mid(300, "2Gi"), priority="koord-mid", phase="Pending"))
    assert (counted.mid_request.cpu_milli, counted.mid_held.cpu_milli) == (300, 0)


@pytest.mark.parametrize(
    ("offer", "held", "taken", "result"),
    [
        pytest.param(None, ZERO, ZERO, None, id="neither"),
        pytest.param(None, CPUMemory(5, 0), ZERO, CPUMemory(5, 0), id="held alone"),
        pytest.param(CPUMemory(9, 9), CPUMemory(5, 10), ZERO, CPUMemory(9, 10), id="each resource by itself"),
        pytest.param(CPUMemory(9, 9), ZERO, CPUMemory(10, 1), CPUMemory(0, 8), id="others have taken all"),
        pytest.param(CPUMemory(9, 9), CPUMemory(5, 5), CPUMemory(6, 1), CPUMemory(5, 8), id="others have taken much"),
    ],
)
def test_what_is_shown(offer: CPUMemory | None, held: CPUMemory, taken: CPUMemory, result: CPUMemory | None) -> None:
    assert Offered(batch=offer, held=Held(batch=held), third_party=taken).published_batch == result


PODS = [pod("be", batch(4000, "2Gi"), qos="BE"), pod("mid", mid(1000, "1Gi"), priority="koord-mid")]
BUSY = metric((4, "4Gi"))
SMALL = node((8, "16Gi"))


def of(found: Overcommit) -> tuple[Size | None, Size | None]:
    pairs = (found.published_batch, found.published_mid)
    batch_shown, mid_shown = (None if each is None else (each.cpu_milli, each.memory_bytes) for each in pairs)
    return batch_shown, mid_shown


def test_a_node_that_is_busy_shows_what_runs_on_it() -> None:
    found = offered(SMALL, PODS, BUSY)
    assert found.batch is not None and found.batch.cpu_milli == 0, "by the formula: 8000 - 3200 - 4000 - 1000"
    assert of(found)[0] == (4000, found.batch.memory_bytes), "of memory there is more"
    assert of(found)[1] == (1000, GIB)
    assert "  at least 4000m, which running pods request: more than that" in lines(found)
    assert "  at least 2Gi, which running pods request" in lines(found)
    assert f"{BATCH_CPU} 4000m" in lines(found) and f"{MID_CPU} 1000m" in lines(found)


def test_a_node_without_a_report_shows_what_runs_on_it_and_nothing_else() -> None:
    found = offered(SMALL, PODS, None)
    assert of(found) == ((4000, 2 * GIB), (1000, GIB))
    assert lines(found) == [
        "no batch and no mid resources beyond what running pods request: the node has no NodeMetric",
        "kubernetes.io/batch-cpu 4000m, kubernetes.io/batch-memory 2Gi",
        "kubernetes.io/mid-cpu 1000m, kubernetes.io/mid-memory 1Gi",
    ]
    assert of(offered(SMALL, PODS[:1], None)) == ((4000, 2 * GIB), None)
    assert of(offered(SMALL, [], None)) == (None, None)


def test_a_strategy_that_does_not_cover_them() -> None:
    assert of(offered(SMALL, PODS, None, UNCOVERED)) == (None, None)
    busy = of(offered(SMALL, PODS, BUSY, UNCOVERED))
    assert busy[0] is not None and busy[0][0] == 0


def on_node(cpu_milli: int | None) -> Node:
    stated = {} if cpu_milli is None else {BATCH_CPU: str(cpu_milli), BATCH_MEMORY: "0"}
    return Node(status=NodeStatus(stated, stated))


@pytest.mark.parametrize(
    ("before", "offer", "held", "after"),
    [
        pytest.param(1000, 950, 0, None, id="a small difference waits"),
        pytest.param(1000, 950, 940, None, id="also where less is held"),
        pytest.param(1000, 900, 950, 950, id="but not one to what is held: nothing new may fit"),
        pytest.param(950, 1010, 1000, 1010, id="nor one that shows less than is held"),
        pytest.param(1000, None, 999, 999, id="without an offer"),
        pytest.param(1000, None, 1000, None, id="which is what is shown"),
        pytest.param(None, None, 5, 5, id="held by pods that an earlier manager had placed"),
    ],
)
def test_what_is_held_is_written_exactly(before: int | None, offer: int | None, held: int, after: int | None) -> None:
    desired = DesiredResources(batch=None if offer is None else CPUMemory(offer), mid=None, held=Held(CPUMemory(held)))
    status = publish.decide(on_node(before), desired, DEFAULTS, is_due=False).status
    written = None if status is None else status["status"]
    assert (written and {place: of_place[BATCH_CPU] for place, of_place in written.items()}) == (
        None if after is None else {"capacity": str(after), "allocatable": str(after)}
    )
