"""koord-manager with the parts that are off by default, and beside CRDs of another release, on a real API server."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import yaml

from integration.cluster import controlplane, manager, objects
from integration.cluster.api import Api, ApiError, Object
from integration.cluster.controlplane import ControlPlane
from integration.cluster.manager import MANIFESTS, Replica
from integration.harness.processes import wait_for

PROFILES = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NODE_SLO = "nodeslos.slo.koordinator.sh"
PODS = objects.pods_of("default")
GATES = "--feature-gates=NodeValidatingWebhook=true,NodeMutatingWebhook=true,ColocationProfileController=true"
RATIO = "node.koordinator.sh/resource-amplification-ratio"
BY_LABEL = [{"name": f"with-{key}", "nodeSelector": {"matchLabels": {key: "1"}}} for key in ("a", "b")]
AMPLIFIED = {
    "name": "amplified",
    "nodeSelector": {"matchLabels": {"amplified": "1"}},
    "enable": True,
    "resourceAmplificationRatio": {"cpu": 1.5},
}
CONFIG = {
    "colocation-config": json.dumps({"enable": True, "nodeConfigs": BY_LABEL}),
    "resource-amplification-config": json.dumps({"enable": False, "nodeConfigs": [AMPLIFIED]}),
}
SOON_S = 30.0


@dataclass
class Gated:
    plane: ControlPlane
    api: Api
    replica: Replica

    @property
    def log(self) -> str:
        return (self.plane.directory / f"{self.replica.name}.log").read_text()


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gated]:
    """One replica; NodeSLO's definition is one without two of our strategies."""
    with controlplane.private(tmp_path_factory.mktemp("gated") / "plane") as plane, plane.api() as api:
        manager.install(plane)
        plane.kubectl("apply", "-f", str(MANIFESTS / "optional"))
        api.replace(f"{CRDS}/{NODE_SLO}", _older(api))
        manager.configure(api, CONFIG)
        with manager.asked_replica(plane, api, "manager-gated", GATES) as replica:
            yield Gated(plane, api, replica)


def _older(api: Api) -> dict[str, object]:
    (file,) = (MANIFESTS / "crds").glob("*_nodeslos.yaml")
    definition = copy.deepcopy(yaml.safe_load(file.read_text()))
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del spec["systemStrategy"], spec["hostApplications"]
    definition["metadata"]["resourceVersion"] = api.get(f"{CRDS}/{NODE_SLO}")["metadata"]["resourceVersion"]
    return dict(definition)


def test_a_definition_of_another_release_is_used_and_what_it_lacks_is_said(gated: Gated) -> None:
    wait_for(lambda: f'koord_manager_crd_faults{{crd="{NODE_SLO}"}} 2.0' in gated.replica.page("metrics"), SOON_S, "it")
    sentence = f"The installed CustomResourceDefinition {NODE_SLO} drops spec.hostApplications, spec.systemStrategy."
    assert gated.log.count(sentence) == 1
    objects.create_nodes(gated.plane.api, [objects.node("n0")])
    slo = "/apis/slo.koordinator.sh/v1alpha1/nodeslos/n0"
    wait_for(lambda: gated.api.exists(slo) or None, SOON_S, "the NodeSLO of a node")
    assert "resourceUsedThresholdWithBE" in gated.api.get(slo)["spec"]
    assert "systemStrategy" not in gated.api.get(slo)["spec"]


def test_labels_of_a_node_that_two_entries_match_are_refused(gated: Gated) -> None:
    objects.create_nodes(gated.plane.api, [objects.node("n1", labels={"a": "1"})])
    path = f"{objects.NODES}/n1"
    with pytest.raises(ApiError, match="ExistNodeConfict") as caught:
        gated.api.merge(path, {"metadata": {"labels": {"b": "1"}}})
    assert '"strategies":["with-a","with-b"],"exampleNodes":["n1"]' in caught.value.message
    gated.api.merge(path, {"metadata": {"labels": {"a": None, "b": "1"}}})
    objects.create_nodes(gated.plane.api, [objects.node("n2", labels={"a": "1", "b": "1"})])


def test_what_is_no_change_of_labels_never_waits_for_the_manager(gated: Gated) -> None:
    """A refusal would come at once; the metric counts the reviews."""
    before = _reviews(gated)
    for number in range(5):
        gated.api.merge(f"{objects.NODES}/n1", {"metadata": {"annotations": {"n": str(number)}}})
        gated.api.merge(f"{objects.NODES}/n1/status", {"status": {"capacity": {"example.com/n": str(number)}}})
    assert _reviews(gated) == before
    gated.api.merge(f"{objects.NODES}/n1", {"metadata": {"labels": {"c": "1"}}})
    assert _reviews(gated) > before, "once, or again where the manager wrote at the same time"


def test_only_amplified_nodes_have_their_status_looked_at(gated: Gated) -> None:
    """Each write is reviewed by itself, from every writer, the manager too."""
    path = "/mutate-node-status"
    before = _reviews(gated, path)
    assert _allocatable(gated, "n2", cpu="14") == "14"
    assert _reviews(gated, path) == before
    objects.create_nodes(gated.plane.api, [objects.node("n3", labels={"amplified": "1"})])
    wait_for(lambda: _ratio(gated, "n3") == '{"cpu":1.50}', SOON_S, "the manager to amplify it")
    assert _allocatable(gated, "n3", cpu="15") == "22500m"
    assert _allocatable(gated, "n3", cpu="14") == "21"
    assert _reviews(gated, path) >= before + 2
    gated.api.merge(f"{objects.NODES}/n3", {"metadata": {"labels": {"amplified": None}}})
    wait_for(lambda: _ratio(gated, "n3") is None, SOON_S, "the manager to amplify it no more")
    assert _allocatable(gated, "n3", cpu="15") == "15"
    before = _reviews(gated, path)
    assert _allocatable(gated, "n3", cpu="14") == "14"
    assert _reviews(gated, path) == before, "what it remembered of kubelet's went with the review before"


def _ratio(gated: Gated, name: str) -> str | None:
    found: str | None = gated.api.get(f"{objects.NODES}/{name}")["metadata"].get("annotations", {}).get(RATIO)
    return found


def _allocatable(gated: Gated, name: str, cpu: str) -> str:
    """Of CPU, after kubelet has told the API server of ``cpu``."""
    node = gated.api.merge(f"{objects.NODES}/{name}/status", {"status": {"allocatable": {"cpu": cpu}}})
    return str(node["status"]["allocatable"]["cpu"])


def _reviews(gated: Gated, path: str = "/validate-node") -> int:
    name = "koord_manager_webhook_duration_seconds_count{"
    lines = [line for line in gated.replica.page("metrics").splitlines() if line.startswith(name)]
    return sum(int(float(line.split()[-1])) for line in lines if f'"{path}"' in line)


def test_a_changed_profile_reaches_pods_that_wait(gated: Gated) -> None:
    selected = {"app": "job"}
    gated.api.create(PODS, objects.pod("waits", {"cpu": "1"}, labels=selected))
    gated.api.create(PODS, objects.pod("placed", {"cpu": "1"}, labels=selected, nodeName="n1"))
    spec: Object = {
        "selector": {"matchLabels": selected},
        "qosClass": "BE",
        "labels": {"tier": "one"},
        "schedulerName": "s",
    }
    labels = {"config.koordinator.sh/controller-managed": "true"}
    profile = {"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile"}
    gated.api.create(PROFILES, {**profile, "metadata": {"name": "p", "labels": labels}, "spec": spec})
    wait_for(lambda: _label(gated, "waits", "tier") == "one", SOON_S, "the pod to follow")
    gated.api.merge(f"{PROFILES}/p", {"spec": {"labels": {"tier": "two"}}})
    wait_for(lambda: _label(gated, "waits", "tier") == "two", SOON_S, "the pod to follow again")
    assert _label(gated, "waits", "koordinator.sh/qosClass") is None
    assert _label(gated, "placed", "tier") is None
    gated.api.create(PODS, objects.pod("later", {"cpu": "1"}))
    gated.api.merge(f"{PODS}/later", {"metadata": {"labels": selected}})
    wait_for(lambda: _label(gated, "later", "tier") == "two", SOON_S, "a pod that has come to match")


def _label(gated: Gated, pod: str, key: str) -> str | None:
    text: str | None = gated.api.get(f"{PODS}/{pod}")["metadata"]["labels"].get(key)
    return text
