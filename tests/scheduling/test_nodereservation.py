"""What is left of a node for pods, by Koordinator's annotation."""

from __future__ import annotations

import pytest

from koord.model.problem import Problem
from koord.model.topologyannotations import RESERVATION
from koord.scheduling.nodereservation import without_reserved
from koord.scheduling.state import ClusterState
from tests.scheduling.clusters import node

GI = 1 << 30
OFFER = {"cpu": 8000, "memory": 16 * GI, "pods": 10, "kubernetes.io/batch-cpu": 4000, "kubernetes.io/batch-memory": GI}


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        pytest.param('{"resources":{"cpu":"2"}}', {"cpu": 6000}, id="an amount"),
        pytest.param('{"resources":{"cpu":"500m","memory":"4Gi"}}', {"cpu": 7500, "memory": 12 * GI}, id="two"),
        pytest.param('{"reservedCPUs":"0-1"}', {"cpu": 6000}, id="CPUs by number"),
        pytest.param('{"resources":{"cpu":"3"},"reservedCPUs":"0-1"}', {"cpu": 6000}, id="the list wins"),
        pytest.param(
            '{"resources":{"memory":"1Gi"},"reservedCPUs":"0","applyPolicy":"Default"}',
            {"cpu": 7000, "memory": 15 * GI},
            id="by the default policy",
        ),
        pytest.param('{"reservedCPUs":"0-1","applyPolicy":"ReservedCPUsOnly"}', {}, id="from pinning alone"),
        pytest.param('{"resources":{"cpu":"2"},"applyPolicy":"Later"}', {}, id="an unknown policy, as upstream"),
        pytest.param('{"resources":{"cpu":"9"}}', {"cpu": 0}, id="more than there is"),
        pytest.param('{"resources":{"kubernetes.io/batch-cpu":"1000"}}', {}, id="what is net of it already"),
        pytest.param('{"resources":{"example.com/gpu":"1"}}', {}, id="what there is not"),
        pytest.param("{}", {}, id="nothing"),
    ],
)
def test_what_is_left(text: str, changed: dict[str, int]) -> None:
    problems: list[Problem] = []
    assert without_reserved(OFFER, {RESERVATION: text}, problems.append) == {**OFFER, **changed}
    assert problems == []


@pytest.mark.parametrize(
    ("text", "changed", "path"),
    [
        ("{", {}, ""),
        ('{"resources":{"cpu":"many","memory":"1Gi"}}', {"memory": 15 * GI}, ": resources.cpu"),
        ('{"resources":{"cpu":{}}}', {}, ": resources.cpu"),
        ('{"reservedCPUs":"x"}', {}, ""),
    ],
)
def test_what_cannot_be_read_keeps_nothing(text: str, changed: dict[str, int], path: str) -> None:
    problems: list[Problem] = []
    assert without_reserved(OFFER, {RESERVATION: text}, problems.append) == {**OFFER, **changed}
    assert [each.path.startswith(f"annotation {RESERVATION}{path}") for each in problems] == [True]


def test_a_state_follows_the_annotation() -> None:
    state = ClusterState()
    for said, cpu_milli, problems in (
        ({RESERVATION: '{"resources":{"cpu":"1"}}'}, 3000, 0),
        ({}, 4000, 0),
        ({RESERVATION: '{"resources":{"cpu":"none"}}'}, 4000, 1),
    ):
        made = node("n1", cpu="4")
        metadata = type(made.metadata)(name="n1", labels=made.metadata.labels, annotations=said)
        assert len(state.put_node(type(made)(metadata=metadata, spec=made.spec, status=made.status))) == problems
        assert state.nodes.allocatable.at(0, "cpu") == cpu_milli
