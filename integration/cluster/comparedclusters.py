"""The objects of a generated cluster, as an API server takes them: with volumes, budgets and all kinds of containers.

Nodes and pods are those of the unit tests' generator; what the scheduler's arithmetic and its volumes go by beside
that is added here. Equal seeds give equal clusters. Names carry the seed, so that clusters do not meet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from koord.scheduling.podinfo import PodInfo
from tests.scheduling.clusters import APPS, HOSTNAME, ZONE, Generator

NAMESPACES: Mapping[str, Mapping[str, str]] = {"default": {"team": "a"}, "other": {"team": "b"}}
DRIVER, OTHER, EBS = "csi.example.com", "other.example.com", "ebs.csi.aws.com"
PRIORITIES = (0, 100, 1000)
PREEMPTING = "preempting"
"""The prefix of the classes of pods that may preempt."""
_HEAVY = "heavy"
_TAKEN_OVER = "storage.alpha.kubernetes.io/migrated-plugins"
_EBS_ZONE, _OLD_ZONE = "topology.ebs.csi.aws.com/zone", "failure-domain.beta.kubernetes.io/zone"
_MODES = ("ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany")
_CORE, _STORAGE = "/api/v1", "/apis/storage.k8s.io/v1"


class Made(NamedTuple):
    """``collection``: where it is created; ``status``: what it gets there once it exists."""

    collection: str
    document: dict[str, Any]
    status: dict[str, Any] | None = None

    @property
    def path(self) -> str:
        return f"{self.collection}/{self.document['metadata']['name']}"


def collection(plural: str, namespace: str = "") -> str:
    """The path of core objects, or of storage.k8s.io's."""
    root = _CORE if plural in ("pods", "nodes", "persistentvolumes", "persistentvolumeclaims") else _STORAGE
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


def common() -> Iterator[Made]:
    """What all clusters need, beside namespaces."""
    for value in PRIORITIES:
        for name, policy in ((f"p{value}", "Never"), (f"{PREEMPTING}{value}", "PreemptLowerPriority")):
            yield _named("/apis/scheduling.k8s.io/v1/priorityclasses", name, value=value, preemptionPolicy=policy)
    overhead = {"podFixed": {"cpu": "250m", "memory": "120Mi"}}
    yield _named("/apis/node.k8s.io/v1/runtimeclasses", _HEAVY, handler="h", overhead=overhead)
    topologies = [
        {"matchLabelExpressions": [{"key": ZONE, "values": ["z0"]}]},
        {"matchLabelExpressions": [{"key": ZONE, "values": ["z1"]}, {"key": "disk", "values": ["ssd"]}]},
    ]
    for name, provisioner, waits, allowed in (
        ("static", "kubernetes.io/no-provisioner", True, []),
        ("local", DRIVER, True, []),
        ("zonal", OTHER, True, topologies),
        ("ebs", "kubernetes.io/aws-ebs", True, []),
        ("now", DRIVER, False, []),
    ):
        mode = "WaitForFirstConsumer" if waits else "Immediate"
        members: dict[str, Any] = {"allowedTopologies": allowed} if allowed else {}
        made = _named(collection("storageclasses"), name, provisioner=provisioner, volumeBindingMode=mode)
        yield made._replace(document={**made.document, **members})
    yield _named(collection("csidrivers"), DRIVER, spec={"storageCapacity": True, "attachRequired": True})


class ClusterGenerator:
    """``claims``: by namespace, the names of claims that the pods use."""

    def __init__(self, seed: int, node_count: int) -> None:
        self._generator, self._seed = Generator(seed), seed
        self.random = self._generator.random
        self.nodes = [f"s{seed}-n{index}" for index in range(node_count)]
        self.claims: dict[str, list[str]] = {namespace: [] for namespace in NAMESPACES}
        self._volumes: list[str] = []

    def node_objects(self) -> Iterator[Made]:
        for name in self.nodes:
            document = as_document(self._generator.node(name))
            if self.random.random() < 0.6:
                document["metadata"]["labels"][_EBS_ZONE] = f"z{self.random.randrange(3)}"
            yield Made(collection("nodes"), document)

    def storage(self) -> Iterator[Made]:
        """In the order in which they are to be made: the scheduler hears of them before it hears of pods."""
        yield from self._csi_nodes()
        yield from self._capacities()
        yield from self._volumes_and_claims()
        yield from self._attachments()

    def budgets(self) -> Iterator[Made]:
        for index, namespace in enumerate(NAMESPACES):
            for app in self.random.sample(APPS, 2):
                made = _named(
                    f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
                    f"s{self._seed}-{app}{index}",
                    spec={"minAvailable": 1, "selector": {"matchLabels": {"app": app}}},
                )
                allowed = self.random.randrange(3)
                counts = {"currentHealthy": 3, "desiredHealthy": 1, "expectedPods": 3, "observedGeneration": 1}
                yield made._replace(status={**counts, "disruptionsAllowed": allowed})

    def pod(self, scheduler: str, node: str = "", is_preempting: bool = False) -> Made:
        made = self._generator.pod(node)
        document = as_document(made.pod)
        status = document.pop("status", {})
        document["metadata"] = {
            "name": f"s{self._seed}-{made.name}",
            "namespace": made.namespace,
            "labels": dict(made.labels),
        }
        spec = document["spec"]
        self._add(spec, made)
        if is_preempting and self.random.random() < 0.7:
            self._make_large(spec)
        prefix = PREEMPTING if is_preempting else "p"
        spec["priorityClassName"] = f"{prefix}{spec.pop('priority', 0)}"
        spec.pop("preemptionPolicy", None)
        spec["schedulerName"] = scheduler
        started = {"startTime": status["startTime"]} if node else None
        return Made(collection("pods", made.namespace), document, started)

    def _make_large(self, spec: dict[str, Any]) -> None:
        """Nothing but what it requests keeps the pod from nodes, so that others have to leave for it."""
        for key in ("affinity", "nodeSelector", "topologySpreadConstraints", "volumes", "initContainers", "resources"):
            spec.pop(key, None)
        requests = {"cpu": self.random.choice(["2500m", "4", "6"]), "memory": "1Gi"}
        spec["containers"] = [{"name": "c0", "image": "registry.example/web:1", "resources": {"requests": requests}}]
        spec["tolerations"] = [{"operator": "Exists"}]
        spec["priority"] = self.random.choice(PRIORITIES[1:])

    def _add(self, spec: dict[str, Any], made: PodInfo) -> None:
        """What the generator of unit tests does not have."""
        draw = self.random
        if draw.random() < 0.15:
            spec["runtimeClassName"] = _HEAVY
        if draw.random() < 0.15:
            spec["resources"] = {
                "requests": {"cpu": draw.choice(["1500m", "2"]), "memory": draw.choice(["2Gi", "3Gi"])}
            }
        if draw.random() < 0.2:
            spec["initContainers"] = [self._init_container(index) for index in range(draw.randrange(1, 4))]
        volumes: list[dict[str, Any]] = []
        claims = self.claims[made.namespace]
        if draw.random() < 0.3 and claims:
            for name in draw.sample(claims, min(len(claims), draw.choice([1, 1, 2]))):
                volumes.append({"name": f"v{len(volumes)}", "persistentVolumeClaim": {"claimName": name}})
        elif draw.random() < 0.15:
            volumes.append({"name": "d", **self._disk()})
        if volumes:
            spec["volumes"] = volumes

    def _init_container(self, index: int) -> dict[str, Any]:
        draw = self.random
        requests = {"cpu": draw.choice(["100m", "700m", "1500m"]), "memory": draw.choice(["100Mi", "1Gi", "2500Mi"])}
        sidecar = {"restartPolicy": "Always"} if draw.random() < 0.5 else {}
        return {"name": f"i{index}", "image": "registry.example/web:1", "resources": {"requests": requests}, **sidecar}

    def _disk(self) -> dict[str, Any]:
        draw, read_only = self.random, self.random.random() < 0.5
        name = draw.choice("ab")
        rbd = {"monitors": draw.sample(["a", "b", "c"], 2), "image": name, "readOnly": read_only}
        iscsi = {"targetPortal": "10.0.0.1:3260", "iqn": f"iqn.2026-01.com.example:{name}", "lun": 0}
        return draw.choice(
            [
                {"gcePersistentDisk": {"pdName": name, "readOnly": read_only}},
                {"awsElasticBlockStore": {"volumeID": f"vol-{name}"}},
                {"rbd": rbd},
                {"iscsi": {**iscsi, "readOnly": read_only}},
            ]
        )

    def _csi_nodes(self) -> Iterator[Made]:
        draw = self.random
        for name in self.nodes:
            if draw.random() < 0.8:
                drivers = [
                    {"name": each, "nodeID": name, **({"allocatable": {"count": count}} if count else {})}
                    for each in (DRIVER, OTHER, EBS)
                    for count in (draw.choice([None, 1, 2, 3]),)
                ]
                annotations = {_TAKEN_OVER: "kubernetes.io/aws-ebs,kubernetes.io/gce-pd"} if draw.random() < 0.6 else {}
                yield _named(collection("csinodes"), name, annotations=annotations, spec={"drivers": drivers})

    def _capacities(self) -> Iterator[Made]:
        draw = self.random
        for index in range(draw.randrange(4)):
            topology = draw.choice([{}, {"matchLabels": {ZONE: f"z{draw.randrange(3)}"}}])
            yield _named(
                collection("csistoragecapacities", "default"),
                f"s{self._seed}-{index}",
                storageClassName="local",
                capacity=draw.choice(["2Gi", "8Gi", "20Gi"]),
                nodeTopology=topology,
            )

    def _volumes_and_claims(self) -> Iterator[Made]:
        """Sizes of volumes differ, so that it is certain which one is the smallest."""
        draw = self.random
        for index in range(12):
            name, size = f"s{self._seed}-v{index}", f"{3 + index}Gi"
            namespace = draw.choice([*NAMESPACES])
            is_bound = draw.random() < 0.5
            claim = f"s{self._seed}-c{index}"
            spec = self._volume_spec(name, size)
            if is_bound:
                spec["claimRef"] = {"kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim}
            labels = {draw.choice([ZONE, _OLD_ZONE]): draw.choice(["z0", "z1__z2"])} if draw.random() < 0.3 else {}
            self._volumes.append(name)
            made = _named(collection("persistentvolumes"), name, spec=spec, labels=labels)
            yield made._replace(status={"phase": "Bound" if is_bound else "Available"})
            if is_bound:
                self.claims[namespace].append(claim)
                yield self._claim(claim, namespace, "2Gi", spec["storageClassName"], name, spec["accessModes"])
        for index in range(12, 20):
            namespace, claim = draw.choice([*NAMESPACES]), f"s{self._seed}-c{index}"
            self.claims[namespace].append(claim)
            storage_class = draw.choice(["static", "static", "local", "zonal", "ebs", "now"])
            modes = [draw.choice([*_MODES, "ReadWriteOncePod"])]
            yield self._claim(claim, namespace, f"{draw.randrange(1, 12)}Gi", storage_class, "", modes)
        if draw.random() < 0.3:
            self.claims[draw.choice([*NAMESPACES])].append(f"s{self._seed}-nowhere")

    def _volume_spec(self, name: str, size: str) -> dict[str, Any]:
        draw = self.random
        node = draw.choice(self.nodes)
        terms = draw.choice(
            [
                None,
                [{"key": HOSTNAME, "operator": "In", "values": [node]}],
                [{"key": ZONE, "operator": "In", "values": ["z0", "z1"]}],
                [{"key": _OLD_ZONE, "operator": "In", "values": ["z0", "z1"]}],
                [{"key": ZONE, "operator": "NotIn", "values": ["z0"]}, {"key": "disk", "operator": "Exists"}],
            ]
        )
        source = draw.choice(
            [
                {"csi": {"driver": draw.choice([DRIVER, OTHER]), "volumeHandle": draw.choice(["h1", name])}},
                {"csi": {"driver": DRIVER, "volumeHandle": name}},
                {"awsElasticBlockStore": {"volumeID": f"aws://z/vol-{draw.choice('ab')}"}},
                {"hostPath": {"path": "/data"}},
            ]
        )
        spec: dict[str, Any] = {
            "capacity": {"storage": size},
            "accessModes": [*_MODES] if draw.random() < 0.7 else ["ReadWriteOncePod"],
            "storageClassName": draw.choice(["static", "static", "local"]),
            "persistentVolumeReclaimPolicy": "Retain",
            **source,
        }
        if terms:
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": terms}]}}
        return spec

    def _claim(self, name: str, namespace: str, size: str, storage_class: str, volume: str, modes: list[str]) -> Made:
        spec: dict[str, Any] = {
            "accessModes": modes,
            "resources": {"requests": {"storage": size}},
            "storageClassName": storage_class,
        }
        annotations = {}
        if volume:
            spec["volumeName"] = volume
            annotations["pv.kubernetes.io/bind-completed"] = "yes"
        made = _named(
            collection("persistentvolumeclaims", namespace), name, namespace, annotations=annotations, spec=spec
        )
        lost = bool(volume) and self.random.random() < 0.02
        return made._replace(status={"phase": "Lost" if lost else "Bound"} if volume else None)

    def _attachments(self) -> Iterator[Made]:
        draw = self.random
        for index in range(draw.randrange(5)):
            source = {"persistentVolumeName": draw.choice(self._volumes)}
            spec = {"attacher": draw.choice([DRIVER, OTHER]), "nodeName": draw.choice(self.nodes), "source": source}
            yield _named(collection("volumeattachments"), f"s{self._seed}-a{index}", spec=spec)


def _named(
    collection: str,
    name: str,
    namespace: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **members: Any,
) -> Made:
    metadata: dict[str, Any] = {"name": name, "labels": dict(labels or {}), "annotations": dict(annotations or {})}
    if namespace:
        metadata["namespace"] = namespace
    return Made(collection, {"metadata": metadata, **members})


def as_document(value: msgspec.Struct) -> dict[str, Any]:
    """As an API server takes it: without what is not set."""
    pruned = _pruned(json_of(value))
    assert isinstance(pruned, dict)
    return pruned


def json_of(value: msgspec.Struct) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def _pruned(value: Any) -> Any:
    """An empty selector, which has a meaning, stays."""
    if isinstance(value, dict):
        return {
            key: _pruned(member)
            for key, member in value.items()
            if member not in (None, "", [], ()) and (member != {} or key in ("labelSelector", "namespaceSelector"))
        }
    return [_pruned(each) for each in value] if isinstance(value, list) else value
