"""koord.scheduling beside the real kube-scheduler on the same objects: what is feasible, how it scores, who leaves.

A generated cluster is put on a real API server, its pods are created one after the other, and after each decision of
kube-scheduler's the same question is put to `koord.scheduling`, on the objects as the API server had them before: the
feasible nodes, every plugin's score on each, the volumes of the node that was taken, and, of a pod that may preempt,
the victims on each node and the node that is taken. At last pods of the real koord-scheduler wait on the same cluster:
of those that it leaves waiting kube-scheduler is given a twin, which it must not be able to place.

A difference is a sentence; none is as it should be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from integration.cluster.api import Api, ApiError
from integration.cluster.comparedclusters import (
    NAMESPACES,
    PREEMPTING,
    ClusterGenerator,
    Made,
    collection,
    common,
)
from integration.cluster.comparedscheduler import NAME, Extender, Victims
from integration.cluster.comparedstorage import STORAGE, Storage, StorageController
from integration.harness.processes import HarnessError, wait_for
from koord.model import core
from koord.model.core import ResourceRequirements
from koord.model.scheduling.pods import Node, Pod
from koord.model.scheduling.policies import PodDisruptionBudget
from koord.scheduling.defaults import default_plugins
from koord.scheduling.framework import Framework
from koord.scheduling.plugin import Event, EventKind
from koord.scheduling.plugins.spread import PodTopologySpread
from koord.scheduling.plugins.volumebinding import binding
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.preemption import CandidateCount, Preemption, Preemptor, best
from koord.scheduling.state import ClusterState

SOON_S = 30.0
BACKOFF_S = 15.0
"""Longer than a pod of koord-scheduler backs off."""
MINOR = 34
OURS = "koord-scheduler"
_BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
_SCORE = re.compile(
    r'"Plugin scored node for pod" pod="[^/"]*/(?P<pod>[^"]+)" plugin="(?P<plugin>\w+)" node="(?P<node>[^"]+)" '
    r"score=(?P<score>\d+)"
)
_TAKEN = re.compile(r'"(?:Update event for node" node="|Add event for scheduled pod" pod="[^/"]*/)(?P<name>[^"]+)"')
"""A node is updated once, when its taints are put right."""
_FAILED = "SchedulerError"
_FIT = "NodeResourcesFit"
_SPREAD = PodTopologySpread()
_WEIGHTS = {each.plugin.name: each.weight for each in default_plugins()}


@dataclass
class Counts:
    """How many answers were compared, of each kind; ``placed``: pods with a node, ``left``: pods that ours left.
    ``miscounted``: nodes whose victims were passed over.
    """

    pods: int = 0
    placed: int = 0
    nodes: int = 0
    scores: int = 0
    claims: int = 0
    preemptors: int = 0
    victims: int = 0
    miscounted: int = 0
    ours: int = 0
    left: int = 0

    def __str__(self) -> str:
        return (
            f"{self.pods} pods of which {self.placed} have a node, {self.nodes} answers of filters, {self.scores} "
            f"scores, {self.claims} claims bound with their pods, {self.preemptors} preemptors with {self.victims} "
            f"sets of victims, {self.miscounted} nodes that kube-scheduler miscounts, {self.ours} pods of "
            f"koord-scheduler of which it left {self.left}"
        )


@dataclass
class Comparison:
    """``log``: kube-scheduler's."""

    api: Api
    extender: Extender
    log: Path
    counts: Counts = field(default_factory=Counts)
    _storage: Storage | None = None
    """As the API server has it; None: a pod's claims may have changed since it was read."""
    _retried: set[str] = field(default_factory=set)
    """Pods whose claims could not be written at first, and were bound in part when they were tried again."""
    _read_to: int = 0
    _started: Iterator[int] = field(default_factory=count)

    def prepare(self) -> None:
        """Makes what all clusters need."""
        for name, labels in NAMESPACES.items():
            if not self.api.exists(f"/api/v1/namespaces/{name}"):
                self.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
            self.api.merge(f"/api/v1/namespaces/{name}", {"metadata": {"labels": dict(labels)}})
        for each in common():
            self.api.create(each.collection, each.document)

    def cluster(
        self, seed: int, nodes: int = 8, running: int = 15, waiting: int = 12, preempting: int = 5, ours: int = 8
    ) -> list[str]:
        """Makes the cluster of ``seed``, compares each of its pods, and removes it; returns the differences."""
        generator, found = ClusterGenerator(seed, nodes), list[str]()
        for each in (*generator.storage(), *generator.budgets(), *generator.node_objects()):
            self._create(each)
        for name in generator.nodes:
            node = self.api.get(f"{collection('nodes')}/{name}")
            taints = [each for each in node["spec"].get("taints", ()) if not each["key"].startswith("node.kubernetes")]
            self.api.merge(f"{collection('nodes')}/{name}", {"spec": {"taints": taints}})
        pods = [self._create(generator.pod(NAME, generator.random.choice(generator.nodes))) for _ in range(running)]
        there = [each for each in pods if each is not None]
        for pod in there:
            if generator.random.random() < 0.1:
                self.api.delete(_path(pod))  # it is terminating for as long as there is no kubelet
        self._wait_until_known(generator.nodes, [each["metadata"]["name"] for each in there])
        for _ in range(waiting):
            found += self._compared(generator.pod(NAME))
        for _ in range(preempting):
            found += self._compared(generator.pod(NAME, is_preempting=True))
        found += self._left_waiting([generator.pod(OURS) for _ in range(ours)])
        self._remove()
        self._storage = None
        return [f"seed {seed}: {each}" for each in found]

    def _wait_until_known(self, nodes: list[str], pods: list[str]) -> None:
        """Returns once kube-scheduler has taken the events of all these objects, as its log says."""
        wanted = {*nodes, *pods}

        def are_known() -> bool:
            with self.log.open(encoding="utf-8", errors="replace") as log:
                log.seek(self._read_to)
                return wanted <= {match["name"] for match in _TAKEN.finditer(log.read())}

        wait_for(are_known, SOON_S, "kube-scheduler to know the cluster")

    # one pod

    def _compared(self, made: Made) -> list[str]:
        """Has kube-scheduler decide about the pod, and compares all that it says of it."""
        state, budgets = self._state(), self._budgets()
        created = self._create(made)
        if created is None:
            return []
        name = created["metadata"]["name"]
        decided = self._decided(created)
        framework = Framework(state, default_plugins(MINOR))
        pod = PodInfo.of(core.read(Pod, json.dumps(created).encode()))
        feasible = framework.feasible(pod)
        ours = frozenset(state.table.name(int(row)) for row in np.flatnonzero(feasible))
        theirs = self.extender.feasible.get(name, frozenset())
        self.counts.pods += 1
        self.counts.nodes += len(state.table)
        if ours != theirs:
            found = [
                f"pod {name}: feasible are {sorted(ours)}, by kube-scheduler {sorted(theirs)}: "
                f"{json.dumps(created['spec'])}"
            ]
        elif theirs:
            self.counts.placed += 1
            found = self._compared_scores(framework, pod, name, theirs) if len(theirs) > 1 else []
            if name not in self._retried:
                found += self._compared_volumes(state, pod, decided["spec"]["nodeName"])
        elif made.document["spec"]["priorityClassName"].startswith(PREEMPTING):
            found = self._compared_victims(framework, pod, budgets, decided)
        else:
            found = []
        if decided["spec"].get("nodeName"):
            self._start(created)
        else:
            self.api.delete(_path(created), gracePeriodSeconds="0")  # it is not to be placed behind our back later
        return found

    def _decided(self, created: Mapping[str, Any]) -> dict[str, Any]:
        """The pod once kube-scheduler has decided, and its node's volumes are bound to its claims."""
        path, controller = _path(created), StorageController(self.api)
        has_claims = any("persistentVolumeClaim" in each for each in created["spec"].get("volumes", ()))

        def decided() -> dict[str, Any] | None:
            pod = self.api.get(path)
            if _is_decided(pod):
                return pod
            if _FAILED in _reasons(pod):
                self._retried.add(pod["metadata"]["name"])
            if has_claims:
                self._storage = None
                controller.bind()
            return None

        return wait_for(decided, SOON_S, f"a decision about {path}")

    def _start(self, created: Mapping[str, Any]) -> None:
        """Says, as kubelet does, when the pod started: each at another time, so that it is certain who is the elder."""
        number = next(self._started)
        started = f"2026-02-01T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z"
        self.api.merge(f"{_path(created)}/status", {"status": {"startTime": started}})

    def _compared_scores(self, framework: Framework, pod: PodInfo, name: str, feasible: frozenset[str]) -> list[str]:
        found, logged = [], self._logged(name, len(feasible))
        for node in sorted(feasible):
            said = dict(framework.explain(pod, node).by_plugin)
            if pod.spec.resources.requests:
                said[_FIT] = framework.explain(_of_containers(pod), node).by_plugin[_FIT]
            ours = {plugin: each.score * _WEIGHTS[plugin] for plugin, each in said.items() if each.score is not None}
            theirs = logged.get(node, {})
            self.counts.scores += len(theirs)
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
                        found.setdefault(match["node"], {}).setdefault(match["plugin"], int(match["score"]))
            return len(found) >= nodes

        wait_for(read, SOON_S, f"scores of {name}")
        self._read_to = self.log.stat().st_size
        return found

    def _compared_volumes(self, state: ClusterState, pod: PodInfo, node: str) -> list[str]:
        """What kube-scheduler had bound to the pod's claims for its node is what would be bound here."""
        decision, found = binding(state, pod, node), []
        for key, volume in decision.bindings:
            self.counts.claims += 1
            claim = self.api.get(f"{collection('persistentvolumeclaims', key.namespace)}/{key.name}")
            if claim["spec"].get("volumeName") != volume:
                found.append(f"claim {key} is for {volume}, by kube-scheduler for {claim['spec'].get('volumeName')}")
        for key in decision.provisions:
            self.counts.claims += 1
            claim = self.api.get(f"{collection('persistentvolumeclaims', key.namespace)}/{key.name}")
            selected = claim["metadata"].get("annotations", {}).get("volume.kubernetes.io/selected-node")
            if selected != node:
                found.append(f"a volume of claim {key} is to be made for {node}, by kube-scheduler for {selected}")
        return found

    def _compared_victims(
        self, framework: Framework, pod: PodInfo, budgets: list[PodDisruptionBudget], decided: Mapping[str, Any]
    ) -> list[str]:
        """Who would leave each node, and which node is taken."""
        self.counts.preemptors += 1
        preemptor = Preemptor(framework, budgets, CandidateCount(100, 100))
        candidates = preemptor.candidates_for(pod, framework.diagnose(pod))
        ours = {each.node: Victims(tuple([one.uid for one in each.victims]), each.violations) for each in candidates}
        theirs = self.extender.victims.get(pod.name, {})
        self.counts.victims += len(theirs)
        different = {node for node in ours.keys() | theirs.keys() if ours.get(node) != theirs.get(node)}
        miscounted = {node for node in different if _is_miscounted(framework, pod, node)}
        self.counts.miscounted += len(miscounted)
        different -= miscounted
        if different:
            return [
                f"preemptor {pod.name} on {node}: {ours.get(node)}, by kube-scheduler {theirs.get(node)}"
                for node in sorted(different)
            ]
        taken = decided["status"].get("nominatedNodeName", "")
        by_node = {each.node: each for each in candidates}
        if taken in miscounted:
            return []
        if not taken:
            return [f"preemptor {pod.name}: on {sorted(by_node)}, by kube-scheduler nowhere"] if by_node else []
        self._wait_until_evicted(by_node[taken])
        chosen = best([by_node[taken], *candidates])
        if chosen is not by_node[taken]:
            return [f"preemptor {pod.name}: on {chosen and chosen.node}, by kube-scheduler on {taken}"]
        return []

    def _wait_until_evicted(self, preemption: Preemption) -> None:
        paths = [f"{collection('pods', each.namespace)}/{each.name}" for each in preemption.victims]
        wait_for(
            lambda: all("deletionTimestamp" in self.api.get(each)["metadata"] for each in paths),
            SOON_S,
            f"the victims on {preemption.node} to be deleted",
        )

    # pods of koord-scheduler

    def _left_waiting(self, pods: list[Made]) -> list[str]:
        """Which of the pods koord-scheduler leaves waiting though kube-scheduler could place them."""
        created = [(made, stored) for made in pods if (stored := self._create(made)) is not None]
        self.counts.ours += len(created)
        for _, stored in created:
            self._decided(stored)
        found = []
        for made, stored in created:
            if self._has_node(stored):
                continue
            self.counts.left += 1
            if self._can_be_placed(made) and not self._gets_node(stored):
                found.append(f"koord-scheduler leaves {stored['metadata']['name']}, which kube-scheduler can place")
        return found

    def _has_node(self, pod: Mapping[str, Any]) -> bool:
        return bool(self.api.get(_path(pod))["spec"].get("nodeName"))

    def _gets_node(self, pod: Mapping[str, Any]) -> bool:
        """Returns whether the pod, which may back off, has a node soon."""
        try:
            return wait_for(lambda: self._has_node(pod), BACKOFF_S, "a node")
        except HarnessError:
            return False

    def _can_be_placed(self, made: Made) -> bool:
        """Returns whether kube-scheduler finds a node for a pod like this one."""
        metadata, spec = made.document["metadata"], made.document["spec"]
        document = {
            "metadata": {**metadata, "name": f"{metadata['name']}-twin"},
            "spec": {**spec, "schedulerName": NAME},
        }
        twin = self.api.create(made.collection, document)
        decided = self._decided(twin)
        self.api.delete(_path(twin), gracePeriodSeconds="0")
        return bool(decided["spec"].get("nodeName"))

    # objects

    def _create(self, made: Made) -> dict[str, Any] | None:
        """The object as the API server stores it; None of one that it does not accept."""
        try:
            created = self.api.create(made.collection, made.document)
        except ApiError as error:
            if error.status != 422:
                raise
            return None
        if made.status is not None:
            created = self.api.merge(f"{made.path}/status", {"status": made.status})
        return created

    def _state(self) -> ClusterState:
        state = ClusterState()
        for name, labels in NAMESPACES.items():
            state.put_namespace(name, {**labels, "kubernetes.io/metadata.name": name})
        if self._storage is None:
            self._storage = Storage.read(self.api)
        self._storage.put(state.volumes)
        for node in core.read_list(Node, self.api.raw("GET", collection("nodes"))).items:
            state.put_node(node)
        for pod in core.read_list(Pod, self.api.raw("GET", "/api/v1/pods")).items:
            state.put_pod(PodInfo.of(pod))
        return state

    def _budgets(self) -> list[PodDisruptionBudget]:
        return list(core.read_list(PodDisruptionBudget, self.api.raw("GET", _BUDGETS)).items)

    def _remove(self) -> None:
        for namespace in NAMESPACES:
            self.api.delete(collection("pods", namespace), gracePeriodSeconds="0")
            self.api.delete(f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets")
            for plural in STORAGE.namespaced:
                self.api.delete(collection(plural, namespace))
        for plural in (*STORAGE.cluster_wide, "nodes"):
            self.api.delete(collection(plural))
        paths = ("/api/v1/pods", _BUDGETS, *[collection(each) for each in ("nodes", *STORAGE.all)])
        wait_for(lambda: not any(map(self._items, paths)), SOON_S, "an empty cluster")

    def _items(self, path: str) -> Iterable[object]:
        return self.api.items(path)


def _path(pod: Mapping[str, Any]) -> str:
    return f"{collection('pods', pod['metadata']['namespace'])}/{pod['metadata']['name']}"


def _is_miscounted(framework: Framework, pod: PodInfo, node: str) -> bool:
    """Returns whether kube-scheduler may be wrong about who has to leave the node for the pod.

    A pod that is being deleted counts for no spread constraint, but kube-scheduler 1.34 takes it from the constraint's
    count all the same when it tries the node without it (``updateWithPod``): it finds room that its leaving does not
    make.
    """
    return _SPREAD.goes_by_pods(framework.state, pod) and any(
        each.is_terminating
        and each.priority < pod.priority
        and _SPREAD.is_helped_by(framework.state, pod, Event(EventKind.POD_LEFT, pod=each))
        for each in framework.state.pods_on(node)
    )


def _of_containers(pod: PodInfo) -> PodInfo:
    """The pod as kube-scheduler 1.34 scores it by NodeResourcesFit: without what it requests as a whole, which counts
    at every other place, and for every pod that is on a node. The scorer is made without being told of that feature
    (noderesources/fit.go, NewFit). Here it counts.
    """
    return PodInfo.of(replace(pod.pod, spec=replace(pod.spec, resources=ResourceRequirements())))


def _is_decided(pod: Mapping[str, Any]) -> bool:
    return bool(pod["spec"].get("nodeName")) or "Unschedulable" in _reasons(pod)


def _reasons(pod: Mapping[str, Any]) -> set[str]:
    """Why it has no node yet."""
    return {each.get("reason") for each in pod["status"].get("conditions", []) if each["type"] == "PodScheduled"}
