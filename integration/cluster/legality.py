"""koord.scheduling beside the real kube-scheduler on the same objects: which nodes it finds feasible, and their scores.

kube-scheduler shows an HTTP extender of ours the nodes that all filters let pass, and its log at -v=10 the score of
each plugin on each node. A generated cluster is put on a real API server, its pods are created one after the other, and
after each decision of kube-scheduler's the same question is put to `koord.scheduling`, on the objects as the API server
had them before.

A difference is a sentence; none is as it should be.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from integration import build
from integration.cluster import arguments
from integration.cluster.api import Api, ApiError
from integration.cluster.controlplane import ControlPlane
from integration.cluster.health import serves
from integration.cluster.part import Part
from integration.cluster.ports import free_ports
from integration.harness.processes import wait_for
from koord.model import core
from koord.model.scheduling.pods import Node, Pod
from koord.scheduling.defaults import default_plugins
from koord.scheduling.framework import Framework
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState
from tests.scheduling.clusters import Generator

NAME = "compared"
NAMESPACES: Mapping[str, Mapping[str, str]] = {"default": {"team": "a"}, "other": {"team": "b"}}
SOON_S = 30.0
MINOR = 34
_PODS, _NODES = "/api/v1/namespaces/{}/pods", "/api/v1/nodes"
_SCORE = re.compile(
    r'"Plugin scored node for pod" pod="[^/"]*/(?P<pod>[^"]+)" plugin="(?P<plugin>\w+)" node="(?P<node>[^"]+)" '
    r"score=(?P<score>\d+)"
)
_TAKEN = re.compile(r'"(?:Update event for node" node="|Add event for scheduled pod" pod="[^/"]*/)(?P<name>[^"]+)"')
"""A node is updated once, when its taints are put right."""
_PRIORITIES = (0, 100, 1000)
_WEIGHTS = {each.plugin.name: each.weight for each in default_plugins()}


@dataclass
class Extender:
    """What kube-scheduler's extender was shown: the feasible nodes of each pod, by its name."""

    port: int
    feasible: dict[str, frozenset[str]] = field(default_factory=dict)

    @property
    def configuration(self) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.port}"
        return {"urlPrefix": url, "filterVerb": "filter", "nodeCacheCapable": True, "enableHTTPS": False}

    def answer(self, body: Mapping[str, Any]) -> dict[str, Any]:
        sent = {key.lower(): value for key, value in body.items()}
        names = sent["nodenames"] or []
        self.feasible[sent["pod"]["metadata"]["name"]] = frozenset(names)
        return {"NodeNames": names}


@contextlib.contextmanager
def extender() -> Iterator[Extender]:
    """An extender that lets all nodes pass."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            content = json.dumps(made.answer(body)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Extender(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def kube_scheduler(plane: ControlPlane, directory: Path, extender: Extender) -> Iterator[Part]:
    """kube-scheduler of pods whose scheduler is ``NAME``; it looks at all nodes, and its log says every score."""
    kubeconfig, ports = plane.kubeconfig("system:kube-scheduler"), arguments.Ports(*free_ports(5))
    document = json.loads(arguments.scheduler_configuration(kubeconfig, [NAME]))
    document |= {"percentageOfNodesToScore": 100, "extenders": [extender.configuration]}
    configuration = directory / "compared.json"
    configuration.write_text(json.dumps(document))
    flags = [*arguments.scheduler(ports, kubeconfig, configuration), "-v=10"]
    url = f"https://{arguments.LOOPBACK}:{ports.scheduler}/healthz"
    part = Part([build.program("kube-scheduler"), *flags], directory / "compared.log", lambda: serves(url))
    part.start()
    try:
        yield part
    finally:
        part.stop()


@dataclass
class Comparison:
    """``log``: kube-scheduler's. ``pods``, ``nodes``, ``scores``: how many were compared."""

    api: Api
    extender: Extender
    log: Path
    pods: int = 0
    nodes: int = 0
    scores: int = 0
    placed: int = 0
    _read_to: int = 0

    def prepare(self) -> None:
        """Makes what all clusters need."""
        for name, labels in NAMESPACES.items():
            if not self.api.exists(f"/api/v1/namespaces/{name}"):
                self.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
            self.api.merge(f"/api/v1/namespaces/{name}", {"metadata": {"labels": dict(labels)}})
        for value in _PRIORITIES:
            document = {"metadata": {"name": f"p{value}"}, "value": value, "preemptionPolicy": "Never"}
            self.api.create("/apis/scheduling.k8s.io/v1/priorityclasses", document)

    def cluster(self, seed: int, node_count: int = 8, running: int = 15, waiting: int = 15) -> list[str]:
        """Makes the cluster of ``seed``, compares each of its pods, and removes it; returns the differences."""
        generator, found = Generator(seed), list[str]()
        names = [f"s{seed}-n{index}" for index in range(node_count)]
        for name in names:
            self.api.create(_NODES, _document(generator.node(name)))
            self.api.merge(
                f"{_NODES}/{name}", {"spec": {"taints": _document(generator.node(name))["spec"].get("taints")}}
            )
        pods = [self._create(generator.pod(generator.random.choice(names)), seed) for _ in range(running)]
        self._wait_until_known(names, [each["metadata"]["name"] for each in pods if each is not None])
        for _ in range(waiting):
            found += [f"seed {seed}: {each}" for each in self._compared(generator.pod(), seed)]
        self._remove()
        return found

    def _wait_until_known(self, nodes: list[str], pods: list[str]) -> None:
        """Returns once kube-scheduler has taken the events of all these objects, as its log says."""
        wanted = {*nodes, *pods}

        def are_known() -> bool:
            with self.log.open(encoding="utf-8", errors="replace") as log:
                log.seek(self._read_to)
                return wanted <= {match["name"] for match in _TAKEN.finditer(log.read())}

        wait_for(are_known, SOON_S, "kube-scheduler to know the cluster")

    def _compared(self, made: PodInfo, seed: int) -> list[str]:
        state = self._state()
        created = self._create(made, seed)
        if created is None:
            return []
        name, namespace = created["metadata"]["name"], created["metadata"]["namespace"]
        path = f"{_PODS.format(namespace)}/{name}"
        wait_for(lambda: _is_decided(self.api.get(path)), SOON_S, f"a decision about {name}")
        if not self.api.get(path)["spec"].get("nodeName"):
            self.api.delete(path, gracePeriodSeconds="0")  # it is not to be placed behind our back later
        framework = Framework(state, default_plugins(MINOR))
        pod = PodInfo.of(core.read(Pod, json.dumps(created).encode()))
        feasible = framework.feasible(pod)
        ours = frozenset(state.table.name(int(row)) for row in np.flatnonzero(feasible))
        theirs = self.extender.feasible.get(name, frozenset())
        self.pods += 1
        self.nodes += len(state.table)
        if ours != theirs:
            return [
                f"pod {name}: feasible are {sorted(ours)}, by kube-scheduler {sorted(theirs)}: "
                f"{json.dumps(created['spec'])}"
            ]
        self.placed += bool(theirs)
        return self._compared_scores(framework, pod, name, theirs) if len(theirs) > 1 else []

    def _compared_scores(self, framework: Framework, pod: PodInfo, name: str, feasible: frozenset[str]) -> list[str]:
        found, logged = [], self._logged(name, len(feasible))
        for node in sorted(feasible):
            said = framework.explain(pod, node).by_plugin
            ours = {plugin: each.score * _WEIGHTS[plugin] for plugin, each in said.items() if each.score is not None}
            theirs = logged.get(node, {})
            self.scores += len(theirs)
            if ours != theirs:
                found.append(f"pod {name} on {node}: {ours}, by kube-scheduler {theirs}")
        return found

    def _logged(self, name: str, nodes: int) -> dict[str, dict[str, int]]:
        """The weighted scores in the log, by node and plugin."""
        found: dict[str, dict[str, int]] = {}

        def read() -> bool:
            found.clear()
            with self.log.open(encoding="utf-8", errors="replace") as log:
                log.seek(self._read_to)
                for match in _SCORE.finditer(log.read()):
                    if match["pod"] == name:
                        found.setdefault(match["node"], {})[match["plugin"]] = int(match["score"])
            return len(found) >= nodes

        wait_for(read, SOON_S, f"scores of {name}")
        self._read_to = self.log.stat().st_size
        return found

    def _create(self, made: PodInfo, seed: int) -> dict[str, Any] | None:
        """The pod as the API server stores it; None of one that it does not accept."""
        document = _document(made.pod)
        document["metadata"] = {
            "name": f"s{seed}-{made.name}",
            "namespace": made.namespace,
            "labels": dict(made.labels),
        }
        spec = document["spec"]
        spec["priorityClassName"] = f"p{spec.pop('priority', 0)}"
        spec.pop("preemptionPolicy", None)
        spec["schedulerName"] = NAME
        document.pop("status", None)
        try:
            return self.api.create(_PODS.format(made.namespace), document)
        except ApiError as error:
            if error.status != 422:
                raise
            return None

    def _state(self) -> ClusterState:
        state = ClusterState()
        for name, labels in NAMESPACES.items():
            state.put_namespace(name, {**labels, "kubernetes.io/metadata.name": name})
        for node in core.read_list(Node, self.api.raw("GET", _NODES)).items:
            state.put_node(node)
        for pod in core.read_list(Pod, self.api.raw("GET", "/api/v1/pods")).items:
            state.put_pod(PodInfo.of(pod))
        return state

    def _remove(self) -> None:
        for namespace in NAMESPACES:
            self.api.delete(_PODS.format(namespace), gracePeriodSeconds="0")
        self.api.delete(_NODES)
        wait_for(lambda: not self.api.items("/api/v1/pods") and not self.api.items(_NODES), SOON_S, "an empty cluster")


def _is_decided(pod: Mapping[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return bool(pod["spec"].get("nodeName")) or any(each.get("reason") == "Unschedulable" for each in conditions)


def _document(value: msgspec.Struct) -> dict[str, Any]:
    """As an API server takes it: without what is not set."""
    pruned = _pruned(json.loads(msgspec.json.encode(value)))
    assert isinstance(pruned, dict)
    return pruned


def _pruned(value: Any) -> Any:
    """An empty selector, which has a meaning, stays."""
    if isinstance(value, dict):
        return {
            key: _pruned(member)
            for key, member in value.items()
            if member not in (None, "", [], ()) and (member != {} or key in ("labelSelector", "namespaceSelector"))
        }
    return [_pruned(each) for each in value] if isinstance(value, list) else value
