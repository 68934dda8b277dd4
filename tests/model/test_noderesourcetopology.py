"""NodeResourceTopology: what is refused, what upstream's node agent writes, and that nothing gets lost on the way."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model import core, noderesourcetopology
from koord.model.noderesourcetopology import NodeResourceTopology, Zone
from tests.support.structs import documents, substance

CPU = {"name": "cpu", "capacity": "32", "allocatable": "30", "available": "30"}
BATCH = {"name": "kubernetes.io/batch-cpu", "capacity": "15k", "allocatable": "15k", "available": "15k"}
ZONE = {
    "name": "node-0",
    "type": "Node",
    "parent": "socket-0",
    "costs": [{"name": "node-0", "value": 10}, {"name": "node-1", "value": 21}],
    "attributes": [{"name": "nodeID", "value": "0"}],
    "resources": [CPU, BATCH],
}
WHOLE = {
    "apiVersion": "topology.node.k8s.io/v1alpha1",
    "kind": "NodeResourceTopology",
    "metadata": {
        "name": "n1",
        "labels": {"app.kubernetes.io/managed-by": "Koordinator"},
        "annotations": {"node.koordinator.sh/cpu-topology": '{"detail":[]}'},
        "ownerReferences": [{"kind": "Node", "name": "n1", "uid": "u"}],
    },
    "topologyPolicies": ["SingleNUMANodePodLevel"],
    "zones": [ZONE, {"name": "node-1", "type": "Node"}],
}


def read(document: Any) -> NodeResourceTopology:
    return core.read(NodeResourceTopology, json.dumps(document).encode())


def written(value: object) -> Any:
    return json.loads(msgspec.json.encode(value))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"zones": {}}, "Expected `array`, got `object` - at `$.zones`"),
        ({"zones": [{"name": "node-0"}]}, "missing required field `type` - at `$.zones[0]`"),
        ({"zones": [{"type": "Node"}]}, "missing required field `name` - at `$.zones[0]`"),
        ({"zones": [{**ZONE, "costs": [{"name": "a", "value": "1"}]}]}, "Expected `int`, got `str`"),
        (
            {"zones": [{**ZONE, "resources": [{"name": "cpu", "capacity": "1"}]}]},
            "missing required field `allocatable`",
        ),
        ({"topologyPolicies": "None"}, "Expected `array`, got `str` - at `$.topologyPolicies`"),
    ],
)
def test_an_error_names_the_place(document: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        read(document)
    assert message in str(caught.value)


def test_a_node_s_topology() -> None:
    topology = read(WHOLE)
    assert topology.topology_policies == ("SingleNUMANodePodLevel",)
    assert topology.metadata.annotations == {"node.koordinator.sh/cpu-topology": '{"detail":[]}'}
    first, second = topology.zones
    batch = first.resource("kubernetes.io/batch-cpu")
    assert batch is not None and batch.allocatable == "15k"
    assert first.costs[1].value == 21
    assert second.resource("cpu") is None


@pytest.mark.parametrize(
    ("name", "kind", "numa_node"),
    [
        ("node-0", "Node", 0),
        ("node-12", "Node", 12),
        ("node-0", "Socket", None),
        ("node-", "Node", None),
        ("node--1", "Node", None),
        ("node-01", "Node", None),
        ("node-0x", "Node", None),
        ("xnode-0", "Node", None),
        ("node-٣", "Node", None),
    ],
)
def test_which_numa_node_a_zone_is(name: str, kind: str, numa_node: int | None) -> None:
    assert Zone(name, kind).numa_node == numa_node


@given(st.integers(0, 10**9 - 1))
def test_the_name_of_a_zone_is_that_of_its_numa_node(numa_node: int) -> None:
    zone = Zone(noderesourcetopology.zone_name(numa_node), noderesourcetopology.NUMA_ZONE)
    assert zone.numa_node == numa_node


@pytest.mark.parametrize(
    ("document", "same"),
    [
        ({"zones": None, "topologyPolicies": None}, {}),
        ({"zones": [{**ZONE, "parent": None, "costs": None}]}, {"zones": [{**ZONE, "parent": "", "costs": []}]}),
        ({"attributes": [{"name": "a", "value": "b"}]}, {}),
    ],
    ids=["no lists", "no members of a zone", "v1alpha2's attributes"],
)
def test_what_counts_as_absent(document: Any, same: Any) -> None:
    assert read(document) == read(same)


def test_what_is_absent_is_not_written_but_for_what_the_api_requires() -> None:
    assert written(read(WHOLE).zones) == WHOLE["zones"]
    empty = written(read({}))
    assert (empty["topologyPolicies"], empty["zones"]) == ([], [])


@given(documents(NodeResourceTopology))
def test_only_what_is_empty_gets_lost(document: dict[str, Any]) -> None:
    topology = read(document)
    assert substance(written(topology.zones)) == substance(document.get("zones", []))
    assert list(topology.topology_policies) == document.get("topologyPolicies", [])
    assert core.read(NodeResourceTopology, msgspec.json.encode(topology)) == topology
