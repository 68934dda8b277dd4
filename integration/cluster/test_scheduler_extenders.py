"""kube-scheduler and koord-scheduler ask the same extender, on a real API server, about the same pods."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from integration.cluster import arguments, comparedscheduler, controlplane, objects
from integration.cluster.api import Api
from integration.cluster.comparedscheduler import Extender
from integration.cluster.controlplane import ControlPlane
from integration.cluster.ports import free_ports
from integration.harness.processes import Process, wait_for

OURS, THEIRS = "koord-scheduler", comparedscheduler.NAME
SOON_S = 60.0
NODES = {"n0": "4", "n1": "4", "n2": "4", "small": "1"}
SAYS = "extender"
"""The annotation that says how the extender answers about its pod."""
PODS = objects.pods_of("default")
_WHOSE = re.compile(r"no new claims to deallocate, |^extender http://[^ ]*: ")
"""Of kube-scheduler's messages what its plugin DynamicResources, which koord-scheduler has not, adds to each; of ours
which extender has failed."""
_OWN = ("uid", "resourceVersion", "creationTimestamp", "managedFields")


@dataclass
class Obedient(Extender):
    """Says what the pod's annotation has it say. ``asked``: verbs and questions, without what differs between twins."""

    api: Api = field(kw_only=True)
    is_node_cache_capable: bool = field(kw_only=True)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    _said: dict[str, Any] = field(default_factory=dict)

    @property
    def configuration(self) -> dict[str, Any]:
        verbs = {f"{verb}Verb": verb for verb in ("filter", "prioritize", "preempt", "bind")}
        return super().configuration | verbs | {"weight": 50, "nodeCacheCapable": self.is_node_cache_capable}

    def answer(self, path: str, body: Mapping[str, Any]) -> Any:
        verb, question = path.strip("/"), _compared(body)
        self.asked.append((verb, question))
        if verb == "bind":
            self._bind(body)
            return {}
        said = json.loads(body["Pod"]["metadata"].get("annotations", {}).get(SAYS, "{}"))
        if verb == "prioritize":
            return [{"Host": name, "Score": score} for name, score in said.get("scores", {}).items()]
        if verb == "preempt":
            return {"NodeNameToMetaVictims": {said["preempt"]: _victims(body)[said["preempt"]]}}
        failed = said.get("FailedNodes", {}) | said.get("FailedAndUnresolvableNodes", {})
        if body["NodeNames"] is not None:
            return said | {"NodeNames": [each for each in body["NodeNames"] if each not in failed]}
        items = [each for each in body["Nodes"]["items"] if each["metadata"]["name"] not in failed]
        return said | {"Nodes": {"items": items}}

    def _bind(self, body: Mapping[str, Any]) -> None:
        metadata = {"name": body["PodName"], "namespace": body["PodNamespace"], "uid": body["PodUID"]}
        target = {"apiVersion": "v1", "kind": "Node", "name": body["Node"]}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        self.api.create(f"{PODS}/{body['PodName']}/binding", binding)


def _victims(body: Mapping[str, Any]) -> dict[str, Any]:
    """By nodes, as uids."""
    if body["NodeNameToMetaVictims"]:
        return dict(body["NodeNameToMetaVictims"])
    return {
        node: said | {"Pods": [{"UID": each["metadata"]["uid"]} for each in said["Pods"]]}
        for node, said in body["NodeNameToVictims"].items()
    }


def _compared(body: Mapping[str, Any]) -> dict[str, Any]:
    """The question, without what differs between two pods of one name and their schedulers, or is in no order."""
    found: dict[str, Any] = json.loads(json.dumps(body))
    found.pop("PodUID", None)
    nodes, names = found.get("Nodes"), found.get("NodeNames")
    for each in (found.get("Pod"), *(nodes["items"] if nodes else ())):
        if each is not None:
            _strip(each)
    if nodes:
        nodes["items"].sort(key=lambda each: each["metadata"]["name"])
    if names:
        names.sort()
    for said in (found.get("NodeNameToVictims") or {}).values():
        for each in said["Pods"]:
            _strip(each)
    for said in (found.get("NodeNameToMetaVictims") or {}).values():
        said["Pods"] = len(said["Pods"])
    return found


def _strip(each: dict[str, Any]) -> None:
    for member in ("apiVersion", "kind"):
        each.pop(member, None)
    for member in _OWN:
        each["metadata"].pop(member, None)
    each["spec"].pop("schedulerName", None)
    each.pop("status", None) if "containers" in each["spec"] else None


@contextmanager
def koord_scheduler(plane: ControlPlane, directory: Path, extender: Extender) -> Iterator[None]:
    document = json.loads(arguments.scheduler_configuration(plane.admin, [OURS]))
    configuration = directory / "ours.json"
    configuration.write_text(json.dumps(document | {"extenders": [extender.configuration]}))
    (port,) = free_ports(1)
    argv = [
        *(sys.executable, "-m", "koord_scheduler", f"--config={configuration}", f"--kubeconfig={plane.admin}"),
        *(f"--metrics-addr=127.0.0.1:{port}", "--config-namespace=kube-system"),
    ]
    process = Process(argv, directory / "ours.log")
    try:
        yield
    finally:
        process.stop(10.0)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with controlplane.private(tmp_path_factory.mktemp("extenders") / "plane") as made:
        rooms = {name: {"cpu": cpu, "memory": "8Gi", "pods": "110"} for name, cpu in NODES.items()}
        objects.create_nodes(made.api, [objects.node(name, room) for name, room in rooms.items()])
        with made.api() as api:
            for name, policy in (("never", "Never"), ("high", "PreemptLowerPriority")):
                document = {"metadata": {"name": name}, "value": 1000, "preemptionPolicy": policy}
                api.create("/apis/scheduling.k8s.io/v1/priorityclasses", document)
        yield made


REJECTED = {"FailedNodes": {"n0": "no license", "n2": "no license"}, "FailedAndUnresolvableNodes": {"n1": "old"}}
CASES: Mapping[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "scored": ("500m", {"scores": {"n1": 10, "n2": 9, "n0": 1}}, {}),
    "left": ("500m", {"FailedNodes": {"n0": "no license", "small": "no license", "n2": "full"}}, {}),
    "rejected": ("2", REJECTED, {"priorityClassName": "never"}),
    "failed": ("2", {"Error": "no database"}, {}),
    "large": ("3", {"preempt": "n1"}, {"priorityClassName": "high"}),
}
"""What a pod requests, what the extender says of it, and what else its spec has."""


def decided(api: Api, name: str, scheduler: str) -> tuple[Any, ...]:
    """Has the pod decided by the scheduler, with a pod on each large node; returns where it is, or why nowhere."""
    for index in range(3):
        if not api.exists(f"{PODS}/there-{index}"):
            api.create(PODS, objects.pod(f"there-{index}", {"cpu": "2"}, nodeName=f"n{index}"))
    cpu, said, spec = CASES[name]
    document = objects.pod(name, {"cpu": cpu}, annotations={SAYS: json.dumps(said)}, schedulerName=scheduler, **spec)
    api.create(PODS, document)

    def is_decided() -> bool:
        pod = api.get(f"{PODS}/{name}")
        waits = bool(pod["status"].get("conditions")) and "preempt" not in said
        return waits or bool(pod["spec"].get("nodeName"))

    wait_for(is_decided, SOON_S, f"{scheduler} to decide about {name}")
    pod = api.get(f"{PODS}/{name}")
    if pod["spec"].get("nodeName"):
        return (pod["spec"]["nodeName"],)
    (condition,) = pod["status"]["conditions"]
    return (condition["status"], condition["reason"], _WHOSE.sub("", condition["message"]))


@pytest.mark.parametrize("is_node_cache_capable", [True, False])
def test_both_ask_the_same_and_do_what_is_answered(
    plane: ControlPlane, tmp_path: Path, is_node_cache_capable: bool
) -> None:
    with plane.api() as api, plane.api() as extenders_api:

        def make(port: int) -> Obedient:
            return Obedient(port, api=extenders_api, is_node_cache_capable=is_node_cache_capable)

        with (
            comparedscheduler.extender(make) as extender,
            comparedscheduler.kube_scheduler(plane, tmp_path, extender),
            koord_scheduler(plane, tmp_path, extender),
        ):
            for name in CASES:
                found, asked = {}, {}
                for scheduler in (THEIRS, OURS):
                    found[scheduler] = decided(api, name, scheduler)
                    asked[scheduler] = _once(extender.asked)
                    api.delete(f"{PODS}/{name}", gracePeriodSeconds="0")
                print(name, found[OURS], [verb for verb, _ in asked[OURS]])
                assert asked[OURS] == asked[THEIRS], name
                assert asked[OURS], name
                assert found[OURS] == found[THEIRS], name


def _once(asked: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    """Takes the questions so far, each once: a pod that has to wait may be asked about again."""
    found = [each for index, each in enumerate(asked) if each not in asked[:index]]
    asked.clear()
    return found
