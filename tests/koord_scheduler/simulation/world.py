"""What happens to a cluster whatever its scheduler does: users, kubelets, controllers of volumes, other schedulers."""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec

from koord.model.gang import ANNOTATION_MATCH_POLICY, ANNOTATION_MIN, ANNOTATION_NAME, MatchPolicy
from koord_scheduler.options import NAME
from tests.koord_scheduler.simulation.apiserver import (
    BUDGETS,
    CLAIMS,
    CLASSES,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    REPLICA_SETS,
    SERVICES,
    VOLUMES,
    APIServer,
    Document,
)
from tests.koord_scheduler.simulation.kinds import Kind
from tests.koord_scheduler.simulation.replica import SECOND
from tests.scheduling.clusters import APPS, HOSTNAME, Generator
from tests.scheduling.volumehistory import CLASSES as STORAGE_CLASSES
from tests.scheduling.volumehistory import NAMES as CLAIM_NAMES
from tests.scheduling.volumehistory import VOLUMES as VOLUME_NAMES
from tests.scheduling.volumeobjects import DRIVER
from tests.scheduling.volumeoracle import BOUND, SELECTED

OTHERS = "default-scheduler"
MOST_PODS, MOST_NODES = 60, 10
TEAMS = ("a", "b")
PORTS = [{"containerPort": 80, "hostPort": 8080}]


class World:
    """``chance`` decides what happens, as often as in lives of the ``kind``. ``stuck``: pods that no kubelet lets go
    for now, by their uids.
    """

    def __init__(self, server: APIServer, chance: Random, counts: Counter[str], kind: Kind) -> None:
        self.server, self.chance, self.counts, self.kind = server, chance, counts, kind
        self._generator = Generator(chance.randrange(1 << 30))
        self._names = 0
        self._gangs: list[str] = []
        self.stuck: set[str] = set()
        for name, team in (("default", "a"), ("other", "b")):
            server.put(NAMESPACES, {"metadata": {"name": name, "labels": {"team": team}}})
        for each in STORAGE_CLASSES:
            server.put(CLASSES, _document(each))
        for _ in range(chance.randrange(3, MOST_NODES)):
            self.add_node()
        self._templates = [self._template() for _ in range(6)]

    def happen(self) -> None:
        """One thing."""
        happenings = self.kind.happenings
        (name,) = self.chance.choices(list(happenings), list(happenings.values()))
        getattr(self, name)()

    def calm(self) -> None:
        """Kubelets and controllers do what is left to do."""
        for pod in self._pods():
            if "deletionTimestamp" in pod["metadata"] and pod["metadata"]["uid"] not in self.stuck:
                self._remove_pod(pod)
        self.bind_claims(is_calm=True)

    # pods

    def _template(self) -> Document:
        chance, kind = self.chance, self.kind
        container: Document = {"name": "main", "resources": {"requests": {
            "cpu": chance.choice(kind.cpus), "memory": chance.choice(("64Mi", "500Mi", "2Gi")),
        }}}  # fmt: skip
        if chance.randrange(6) == 0:
            container["ports"] = PORTS
        spec = {"containers": [container], **chance.choice(kind.specs), "priority": chance.choice(kind.priorities)}
        labels = {"app": chance.choice(APPS), "tier": chance.choice("ab")}
        if self._is_one_of(kind.other_specs):
            made = self._generator.pod().pod
            spec, labels = _document(made.spec), dict(made.metadata.labels)
        scheduler = chance.choice((*[NAME] * 8, SECOND, SECOND, OTHERS))
        namespace = chance.choice(("default", "default", "other"))
        return {
            "metadata": {"namespace": namespace, "labels": labels},
            "spec": {**spec, "schedulerName": scheduler},
            "has_claim": namespace == "default" and self._is_one_of(kind.claims),
        }

    def _is_one_of(self, count: int) -> bool:
        return count > 0 and self.chance.randrange(count) == 0

    def change_templates(self) -> None:
        self._templates[self.chance.randrange(len(self._templates))] = self._template()

    def _pods(self, *, is_placed: bool | None = None) -> list[Document]:
        return [
            each
            for each in self.server.documents(PODS)
            if is_placed is None or bool(each["spec"].get("nodeName")) is is_placed
        ]

    def _some_pod(self, *, is_placed: bool | None = None) -> Document | None:
        pods = self._pods(is_placed=is_placed)
        return self.chance.choice(pods) if pods else None

    def add_pods(self) -> None:
        template = self.chance.choice(self._templates)
        for _ in range(self.chance.choice((1, 1, 1, 2, 4, 8))):
            if len(self.server.collection(PODS).objects) >= MOST_PODS:
                self.delete_pods()
                return
            self._names += 1
            self._add_pod(f"p{self._names}", template)

    def add_gang(self) -> None:
        """Members of a gang, all or not all of them yet; its minimum is in its name. Sometimes more of an older one."""
        chance = self.chance
        if not self._gangs or chance.randrange(3):
            self._names += 1
            self._gangs = [*self._gangs[-3:], f"g{chance.randrange(1, 5)}-{self._names}"]
            if chance.randrange(2):
                self._put_pod_group(self._gangs[-1])
        name = chance.choice(self._gangs)
        template = chance.choice(self._templates)
        annotations = {ANNOTATION_NAME: name, ANNOTATION_MIN: least_of(name), ANNOTATION_MATCH_POLICY: policy_of(name)}
        metadata = {**template["metadata"], "annotations": annotations, "namespace": "default"}
        for _ in range(chance.randrange(1, 6)):
            if len(self.server.collection(PODS).objects) < MOST_PODS:
                self._names += 1
                self._add_pod(f"p{self._names}", {**template, "metadata": metadata})
                self.counts["members of gangs created"] += 1

    def _put_pod_group(self, name: str) -> None:
        metadata = {"name": name, "namespace": "default", "annotations": {ANNOTATION_MATCH_POLICY: policy_of(name)}}
        self.server.put(POD_GROUPS, {"metadata": metadata, "spec": {"minMember": int(least_of(name))}, "status": {}})

    def change_pod_groups(self) -> None:
        groups = self.server.documents(POD_GROUPS)
        if len(groups) > 4 or (groups and self.chance.randrange(2)):
            self.server.remove(POD_GROUPS, ("default", self.chance.choice(groups)["metadata"]["name"]))
        elif self._gangs:
            self._put_pod_group(self.chance.choice(self._gangs))

    def _add_pod(self, name: str, template: Document) -> None:
        chance, spec = self.chance, template["spec"]
        if template["has_claim"]:
            claim = self._add_claim()
            if claim is None:
                return
            volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
            spec = {**spec, "volumes": [volume]}
        if chance.randrange(20) == 0:
            spec = {**spec, "schedulingGates": [{"name": "wait"}]}
        if chance.randrange(60) == 0:
            requests = {"cpu": "many"}
            spec = {**spec, "containers": [{"name": "main", "resources": {"requests": requests}}]}
        started = f"2026-01-01T00:{self._names // 60 % 60:02}:{self._names % 60:02}Z"
        document = {"metadata": {**template["metadata"], "name": name}, "spec": spec, "status": {"startTime": started}}
        self.counts["pods created"] += 1
        self.server.put(PODS, document)

    def delete_pods(self) -> None:
        for _ in range(self.chance.choice((1, 1, 2, 6))):
            pod = self._some_pod()
            if pod is not None:
                self.counts["pods deleted"] += 1
                self.server.delete(pod)

    def delete_promised_pod(self) -> None:
        """One for which others make room."""
        promised = [each for each in self._pods(is_placed=False) if each["status"].get("nominatedNodeName")]
        if promised:
            self.counts["promised pods deleted"] += 1
            self.server.delete(self.chance.choice(promised))

    def let_pods_go(self) -> None:
        """Kubelets let some go that are deleted."""
        for pod in self._pods(is_placed=True):
            if "deletionTimestamp" in pod["metadata"]:
                if self.chance.randrange(2):
                    self._remove_pod(pod)
                elif self.chance.randrange(8) == 0:
                    self.stuck.add(pod["metadata"]["uid"])
                else:
                    self.stuck.discard(pod["metadata"]["uid"])

    def _remove_pod(self, pod: Document) -> None:
        self.server.remove(PODS, (pod["metadata"]["namespace"], pod["metadata"]["name"]))

    def replace_pod(self) -> None:
        """Another pod gets the name of one that has gone at once."""
        pod = self._some_pod()
        if pod is not None and pod["spec"].get("schedulerName") != OTHERS:
            self._remove_pod(pod)
            metadata = {"namespace": pod["metadata"]["namespace"], "labels": pod["metadata"]["labels"]}
            spec = {name: value for name, value in pod["spec"].items() if name != "nodeName"}
            self._add_pod(pod["metadata"]["name"], {"metadata": metadata, "spec": spec, "has_claim": False})

    def end_pod(self) -> None:
        pod = self._some_pod(is_placed=True)
        if pod is not None:
            phase = self.chance.choice(("Succeeded", "Failed"))
            self.server.put(PODS, {**pod, "status": {**pod["status"], "phase": phase}})

    def relabel_pod(self) -> None:
        pod = self._some_pod()
        if pod is not None:
            labels = {"app": self.chance.choice(APPS), "tier": self.chance.choice("ab")}
            self.server.put(PODS, {**pod, "metadata": {**pod["metadata"], "labels": labels}})

    def resize_pod(self) -> None:
        """In place, as far as its node has set aside, or not yet."""
        pod = self._some_pod(is_placed=self.chance.choice((True, True, False)))
        if pod is not None:
            first, *others = pod["spec"]["containers"]
            requests = {"cpu": self.chance.choice(("100m", "500m", "2")), "memory": "64Mi"}
            first = {**first, "resources": {**first.get("resources", {}), "requests": requests}}
            self.server.put(PODS, {**pod, "spec": {**pod["spec"], "containers": [first, *others]}})
            self.counts["pods resized"] += 1

    def ungate_pod(self) -> None:
        gated = [each for each in self._pods(is_placed=False) if each["spec"].get("schedulingGates")]
        if gated:
            pod = self.chance.choice(gated)
            self.server.put(PODS, {**pod, "spec": {**pod["spec"], "schedulingGates": []}})

    def mend_pod(self) -> None:
        """What cannot be read of it can be."""
        for pod in self._pods(is_placed=False):
            if pod["spec"]["containers"][0].get("resources", {}).get("requests", {}).get("cpu") == "many":
                containers = [{"name": "main", "resources": {"requests": {"cpu": "100m"}}}]
                self.server.put(PODS, {**pod, "spec": {**pod["spec"], "containers": containers}})

    def place_pod_elsewhere(self) -> None:
        """Another scheduler places a pod, of its own or of ours, wherever it likes."""
        pod, nodes = self._some_pod(is_placed=False), self.server.documents(NODES)
        if pod is not None and nodes and not pod["spec"].get("schedulingGates"):
            name = self.chance.choice(nodes)["metadata"]["name"]
            self.server.assign(pod, self.chance.choice((name, name, name, "gone")))
            self.counts["pods placed by others"] += 1

    # nodes and what else there is

    def add_node(self) -> None:
        nodes = {each["metadata"]["name"] for each in self.server.documents(NODES)}
        free = [name for index in range(MOST_NODES) if (name := f"n{index}") not in nodes]
        if free:
            self._put_node(self.chance.choice(free))

    def _put_node(self, name: str) -> None:
        self.server.put(NODES, _document(self._generator.node(name)))

    def remove_node(self) -> None:
        nodes = self.server.documents(NODES)
        if len(nodes) > 1:
            name = self.chance.choice(nodes)["metadata"]["name"]
            self.server.remove(NODES, ("", name))
            self.counts["nodes gone"] += 1
            if self.chance.randrange(2):
                for pod in self._pods(is_placed=True):
                    if pod["spec"]["nodeName"] == name:
                        self._remove_pod(pod)

    def change_node(self) -> None:
        nodes = self.server.documents(NODES)
        if not nodes:
            return
        node = self.chance.choice(nodes)
        kind = self.chance.randrange(3)
        if kind == 0:
            self._put_node(node["metadata"]["name"])
        elif kind == 1:
            is_out = not node["spec"].get("unschedulable")
            self.server.put(NODES, {**node, "spec": {**node["spec"], "unschedulable": is_out}})
        else:
            allocatable = {**node["status"]["allocatable"], "cpu": self.chance.choice(("1", "4", "8"))}
            self.server.put(NODES, {**node, "status": {**node["status"], "allocatable": allocatable}})

    def change_namespace(self) -> None:
        name = self.chance.choice(("default", "other"))
        self.server.put(NAMESPACES, {"metadata": {"name": name, "labels": {"team": self.chance.choice(TEAMS)}}})

    def change_owner(self) -> None:
        metadata = {"name": f"s{self.chance.randrange(3)}", "namespace": "default"}
        selector = {"app": self.chance.choice(APPS)}
        if self.chance.randrange(2):
            self.server.put(SERVICES, {"metadata": metadata, "spec": {"selector": selector}})
        else:
            self.server.put(REPLICA_SETS, {"metadata": metadata, "spec": {"selector": {"matchLabels": selector}}})

    def change_budget(self) -> None:
        metadata = {"name": f"b{self.chance.randrange(3)}", "namespace": "default"}
        selector = {"matchLabels": {"app": self.chance.choice(APPS)}}
        status = {"disruptionsAllowed": self.chance.randrange(3)}
        self.server.put(BUDGETS, {"metadata": metadata, "spec": {"selector": selector}, "status": status})

    # volumes

    def _add_claim(self) -> str | None:
        """Returns the name of one that no pod uses; None where there are too many."""
        free = [name for name in CLAIM_NAMES if self.server.get(CLAIMS, ("default", name)) is None]
        if not free:
            return None
        name = self.chance.choice(free)
        self.server.put(CLAIMS, {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": self.chance.choice(("static", "local", "local")),
                "resources": {"requests": {"storage": self.chance.choice(("1Gi", "2Gi"))}},
            },
            "status": {"phase": "Pending"},
        })  # fmt: skip
        return name

    def change_volumes(self) -> None:
        """Claims that no pod uses any more go, with their volumes; others of a node come."""
        used = {
            volume["persistentVolumeClaim"]["claimName"]
            for pod in self._pods()
            for volume in pod["spec"].get("volumes", ())
            if volume.get("persistentVolumeClaim")
        }
        for claim in self.server.documents(CLAIMS):
            if claim["metadata"]["name"] not in used:
                self.server.remove(CLAIMS, ("default", claim["metadata"]["name"]))
        for volume in self.server.documents(VOLUMES):
            ref = volume["spec"].get("claimRef")
            found = None if ref is None else self.server.get(CLAIMS, ("default", ref["name"]))
            if ref is not None and (found is None or found["metadata"]["uid"] != ref["uid"]):
                self.server.remove(VOLUMES, ("", volume["metadata"]["name"]))
        self._add_volume(f"n{self.chance.randrange(MOST_NODES)}", "static")

    def _add_volume(self, node: str, class_name: str, claim: Document | None = None) -> str | None:
        half = len(VOLUME_NAMES) // 2
        names = VOLUME_NAMES[half:] if claim is None else VOLUME_NAMES[:half]
        free = [name for name in names if self.server.get(VOLUMES, ("", name)) is None]
        if not free:
            return None
        term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [node]}]}
        spec: Document = {
            "capacity": {"storage": "2Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class_name,
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            "csi": {"driver": DRIVER, "volumeHandle": free[0]},
        }
        if claim is not None:
            spec["claimRef"] = {"namespace": "default", **{name: claim["metadata"][name] for name in ("name", "uid")}}
        document = {"metadata": {"name": free[0]}, "spec": spec, "status": {"phase": "Available"}}
        self.server.put(VOLUMES, document)
        return free[0]

    def bind_claims(self, *, is_calm: bool = False) -> None:
        """The controllers make volumes where they were asked to, or say that they cannot, and bind what belongs
        together.
        """
        for claim in self.server.documents(CLAIMS):
            node = claim["metadata"].get("annotations", {}).get(SELECTED)
            if node is not None and not claim["spec"].get("volumeName"):
                if not is_calm and self.chance.randrange(4) == 0:
                    self.server.put(CLAIMS, {**claim, "metadata": {**claim["metadata"], "annotations": {}}})
                elif claim["spec"]["storageClassName"] == "local":
                    self._add_volume(node, "local", claim)
        for volume in self.server.documents(VOLUMES):
            ref = volume["spec"].get("claimRef")
            found = None if ref is None else self.server.get(CLAIMS, ("default", ref["name"]))
            if found is None or found["spec"].get("volumeName") or found["metadata"]["uid"] != ref["uid"]:
                continue
            self.counts["claims bound"] += 1
            annotations = {**found["metadata"].get("annotations", {}), BOUND: "yes"}
            metadata = {**found["metadata"], "annotations": annotations}
            spec = {**found["spec"], "volumeName": volume["metadata"]["name"]}
            self.server.put(CLAIMS, {"metadata": metadata, "spec": spec, "status": {"phase": "Bound"}})
            self.server.put(VOLUMES, {**volume, "status": {"phase": "Bound"}})


def least_of(gang: str) -> str:
    return gang[1]


def policy_of(gang: str) -> MatchPolicy:
    return MatchPolicy.WAITING_AND_RUNNING if int(gang.partition("-")[2]) % 3 == 0 else MatchPolicy.ONCE_SATISFIED


def _document(value: object) -> Document:
    found: Document = msgspec.json.decode(msgspec.json.encode(value))
    found.get("metadata", {}).pop("resourceVersion", None)
    return found
