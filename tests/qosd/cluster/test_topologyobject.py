"""The stored NodeResourceTopology: what makes a patch and what does not, and what is left of others' members."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from msgspec import structs

from koord.model import core
from koord.model.kubeletconfig import KubeletConfig
from koord.model.noderesourcetopology import NodeResourceTopology
from qosd.cluster.nodetopology import DesiredTopology, desired
from qosd.cluster.topologyobject import document, patch
from tests.kube.server import merged
from tests.qosd.cluster.topologies import GIB, NODE, TWO_SOCKETS, inputs, memory

POLICY = "kubelet.koordinator.sh/cpu-manager-policy"
NUMA_RESERVATION = "node.koordinator.sh/enable-numa-reservation"
BATCH = {"name": "kubernetes.io/batch-cpu", "capacity": "5k", "allocatable": "5k", "available": "5k"}
WANTED = desired(inputs(topology=TWO_SOCKETS, memory=memory(16 * GIB, 16 * GIB)))
UNTOLD = desired(inputs(topology=TWO_SOCKETS, memory=memory(16 * GIB, 16 * GIB), kubelet=None))
"""kubelet has not told its configuration."""


def stored(wanted: DesiredTopology = WANTED) -> dict[str, Any]:
    """The object as the API server has it."""
    made = deepcopy(document("n1", wanted))
    made["metadata"]["resourceVersion"] = "7"
    return made


def read(content: Any) -> NodeResourceTopology:
    return core.read(NodeResourceTopology, json.dumps(content).encode())


def mended(content: Any, wanted: DesiredTopology = WANTED) -> Any:
    """The object once it has been patched, which it takes once."""
    after = merged(content, patch(read(content), wanted))
    assert patch(read(after), wanted) == {}
    return after


def test_the_whole_object() -> None:
    made = document("n1", WANTED)
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-1", "controller": True}
    assert made["metadata"]["ownerReferences"] == [owner]
    assert made["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "Koordinator"}
    assert made["topologyPolicies"] == ["None"]
    assert made["metadata"]["annotations"].keys() == {
        "node.koordinator.sh/cpu-topology",
        "node.koordinator.sh/cpu-basic-info",
        "node.koordinator.sh/pod-cpu-allocs",
        "node.koordinator.sh/cpu-shared-pools",
        "node.koordinator.sh/be-cpu-shared-pools",
        "kubelet.koordinator.sh/cpu-manager-policy",
        "node.koordinator.sh/reservation",
        "node.koordinator.sh/system-qos-resource",
    }
    read_back = read(made)
    assert read_back.zones == WANTED.zones
    assert [zone.numa_node for zone in read_back.zones] == [0, 1]


def test_of_an_unknown_kubelet_the_object_says_what_its_state_file_does() -> None:
    made = document("n1", UNTOLD)
    assert made["metadata"]["annotations"][POLICY] == '{"policy":"none"}'
    assert made["topologyPolicies"] == ["None"]


def _other_spelling(content: Any) -> None:
    annotations = content["metadata"]["annotations"]
    key = "node.koordinator.sh/cpu-topology"
    annotations[key] = json.dumps(json.loads(annotations[key]), indent=1, sort_keys=True)
    cpu, *_, of_memory = content["zones"][0]["resources"]
    cpu.update(capacity="8000m", allocatable=8, available="8e0")
    of_memory.update(capacity=str(16 * GIB))


def _more_of_others(content: Any) -> None:
    content["metadata"]["annotations"]["example.com/a"] = "b"
    content["metadata"]["labels"]["example.com/c"] = "d"
    content["zones"][0]["resources"].append(BATCH)
    content["zones"][0]["costs"] = [{"name": "node-1", "value": 21}]


def _another_owner(content: Any) -> None:
    content["metadata"]["ownerReferences"] = [{"kind": "Cluster", "name": "c", "uid": "x", "apiVersion": "a/v1"}]


@pytest.mark.parametrize("change", [_other_spelling, _more_of_others, _another_owner])
def test_what_is_no_reason_to_write(change: Callable[[Any], None]) -> None:
    content = stored()
    change(content)
    assert patch(read(content), WANTED) == {}


def _without(*path: str | int) -> Callable[[Any], None]:
    def change(content: Any) -> None:
        *above, last = path
        for step in above:
            content = content[step]
        del content[last]

    return change


def _with(value: Any, *path: str | int) -> Callable[[Any], None]:
    def change(content: Any) -> None:
        *above, last = path
        for step in above:
            content = content[step]
        content[last] = value

    return change


ANNOTATIONS = ("metadata", "annotations")


@pytest.mark.parametrize(
    "change",
    [
        *(_without(*ANNOTATIONS, key) for key in WANTED.annotations),
        _with("nonsense", *ANNOTATIONS, "node.koordinator.sh/cpu-topology"),
        _with("{}", *ANNOTATIONS, "node.koordinator.sh/cpu-topology"),
        _without("metadata", "labels"),
        _with("true", "metadata", "labels", NUMA_RESERVATION),
        _without("metadata", "ownerReferences"),
        _with("the node before", "metadata", "ownerReferences", 0, "uid"),
        _with(["SingleNUMANodePodLevel"], "topologyPolicies"),
        _with([], "topologyPolicies"),
        _with([], "zones"),
        _without("zones", 1),
        _with("Socket", "zones", 0, "type"),
        _without("zones", 0, "resources", 0),
        _with("7", "zones", 0, "resources", 0, "capacity"),
        _with("7", "zones", 0, "resources", 0, "allocatable"),
        _with("7", "zones", 0, "resources", 0, "available"),
        _with("lots", "zones", 0, "resources", 0, "available"),
    ],
)
def test_what_is_put_right(change: Callable[[Any], None]) -> None:
    content = stored()
    change(content)
    wanted_patch = patch(read(content), WANTED)
    assert wanted_patch["metadata"]["resourceVersion"] == "7"
    assert mended(content) == stored()


def test_others_resources_and_costs_stay_where_zones_are_put_right() -> None:
    content = stored()
    _more_of_others(content)
    content["zones"].append({"name": "node-9", "type": "Node"})
    content["zones"].reverse()
    content["zones"][2]["resources"][0]["capacity"] = "7"
    after = mended(content)
    assert [zone["name"] for zone in after["zones"]] == ["node-0", "node-1"]
    resources = after["zones"][0]["resources"]
    assert [one["name"] for one in resources] == ["cpu", "hugepages-1Gi", "hugepages-2Mi", BATCH["name"], "memory"]
    assert resources[3] == BATCH
    assert after["zones"][0]["costs"] == [{"name": "node-1", "value": 21}]
    assert after["metadata"]["annotations"]["example.com/a"] == "b"
    assert after["metadata"]["labels"]["example.com/c"] == "d"


def test_what_kubelet_said_stays_while_it_says_nothing() -> None:
    static = desired(inputs(kubelet=KubeletConfig(cpu_manager_policy="static", topology_manager_policy="restricted")))
    untold = desired(inputs(kubelet=None))
    content = stored(static)
    assert patch(read(content), untold) == {}
    del content["metadata"]["annotations"][POLICY]
    assert mended(content, untold)["metadata"]["annotations"][POLICY] == '{"policy":"none"}'


def test_the_label_comes_and_goes_with_the_node_s() -> None:
    labelled = desired(inputs(node=structs.replace(NODE, labels={NUMA_RESERVATION: "true"})))
    plain = desired(inputs())
    with_label = mended(stored(plain), labelled)
    assert with_label["metadata"]["labels"][NUMA_RESERVATION] == "true"
    assert NUMA_RESERVATION not in mended(with_label, plain)["metadata"]["labels"]


def test_zones_are_as_the_api_spells_them() -> None:
    assert document("n1", WANTED)["zones"][0] == {
        "name": "node-0",
        "type": "Node",
        "resources": [
            {"name": "cpu", "capacity": "8", "allocatable": "8", "available": "8"},
            {"name": "hugepages-1Gi", "capacity": "0", "allocatable": "0", "available": "0"},
            {"name": "hugepages-2Mi", "capacity": "0", "allocatable": "0", "available": "0"},
            {"name": "memory", "capacity": "16Gi", "allocatable": "16Gi", "available": "16Gi"},
        ],
    }
