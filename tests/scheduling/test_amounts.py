"""What a pod requests, as Kubernetes' scheduler counts it."""

from __future__ import annotations

from typing import Any

import pytest

from koord.model.quantity import QuantityError
from tests.scheduling.clusters import pod

MI = 1 << 20


def container(name: str, cpu: str = "", memory: str = "", **members: Any) -> dict[str, Any]:
    requests = {key: text for key, text in (("cpu", cpu), ("memory", memory)) if text}
    return {"name": name, "resources": {"requests": requests}, **members}


def sidecar(name: str, cpu: str) -> dict[str, Any]:
    return container(name, cpu, restartPolicy="Always")


def resized(name: str, allocated: str, in_force: str) -> dict[str, Any]:
    return {
        "name": name,
        "allocatedResources": {"cpu": allocated},
        "resources": {"requests": {"cpu": in_force}},
    }


INFEASIBLE = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]


@pytest.mark.parametrize(
    ("members", "cpu_milli"),
    [
        pytest.param({"containers": [container("a", "1"), container("b", "500m")]}, 1500, id="a sum"),
        pytest.param({"containers": [container("a", "1")], "initContainers": [container("i", "3")]}, 3000, id="a peak"),
        pytest.param(
            {"containers": [container("a", "1")], "initContainers": [sidecar("s", "1"), container("i", "3")]},
            4000,
            id="an init container beside a sidecar",
        ),
        pytest.param(
            {"containers": [container("a", "3")], "initContainers": [container("i", "3"), sidecar("s", "1")]},
            4000,
            id="a sidecar that starts later",
        ),
        pytest.param({"containers": [container("a", "1")], "overhead": {"cpu": "250m"}}, 1250, id="overhead"),
        pytest.param(
            {"containers": [container("a", "1")], "resources": {"requests": {"cpu": "4"}}}, 4000, id="of the pod"
        ),
        pytest.param(
            {"containers": [{"name": "a", "resources": {"limits": {"cpu": "2"}}}]}, 2000, id="a limit is a request"
        ),
        pytest.param(
            {"containers": [container("a", "1")], "status": {"containerStatuses": [resized("a", "2", "1")]}},
            2000,
            id="set aside for a resize that was taken back",
        ),
        pytest.param(
            {"containers": [container("a", "3")], "status": {"containerStatuses": [resized("a", "1", "1")]}},
            3000,
            id="a resize that is yet to come",
        ),
        pytest.param(
            {
                "containers": [container("a", "3")],
                "status": {"containerStatuses": [resized("a", "1", "2")], "conditions": INFEASIBLE},
            },
            2000,
            id="a resize that cannot be",
        ),
        pytest.param(
            {"containers": [container("a", "3")], "status": {"containerStatuses": [{"name": "a"}]}},
            3000,
            id="a status without amounts",
        ),
    ],
)
def test_requests(members: dict[str, Any], cpu_milli: int) -> None:
    assert pod("p", **members).requests == {"cpu": cpu_milli}


@pytest.mark.parametrize(
    ("members", "assumed"),
    [
        pytest.param({"containers": [container("a")]}, (100, 200 * MI), id="nothing"),
        pytest.param({"containers": [container("a"), container("b", "1")]}, (1100, 400 * MI), id="one of two"),
        pytest.param({"containers": [container("a", "0")]}, (0, 200 * MI), id="zero is an amount"),
        pytest.param(
            {"containers": [container("a")], "resources": {"requests": {"cpu": "1"}}}, (1000, 200 * MI), id="of the pod"
        ),
        pytest.param(
            {"containers": [container("a")], "initContainers": [sidecar("s", "50m")]}, (150, 400 * MI), id="sidecars"
        ),
    ],
)
def test_assumed_requests(members: dict[str, Any], assumed: tuple[int, int]) -> None:
    made = pod("p", **members)
    assert (made.assumed_cpu_milli, made.assumed_memory_bytes) == assumed


def test_an_amount_beyond_all_nodes_is_bounded() -> None:
    assert pod("p", {"memory": "8Ei"}).requests == {"memory": 2**46}


def test_a_pod_that_cannot_be_read() -> None:
    with pytest.raises(QuantityError, match="many"):
        pod("p", {"cpu": "many"})
