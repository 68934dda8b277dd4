"""A cluster with volumes to which random things happen, told to a state and to an oracle."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from koord.model.scheduling.storage import ObjectReference, PersistentVolume, PersistentVolumeClaim
from koord.scheduling.defaults import default_plugins
from koord.scheduling.framework import Framework
from koord.scheduling.plugins.volumebinding import binding
from koord.scheduling.podinfo import ClaimKey, PodInfo
from koord.scheduling.state import ClusterState
from koord.scheduling.volumes import NO_PROVISIONER, SELECTED_NODE, VolumeDecision
from tests.scheduling.clusters import HOSTNAME, ZONE, node, pod
from tests.scheduling.volumeobjects import (
    DRIVER,
    attachment,
    capacity,
    claim,
    csi_node,
    driver,
    of_claims,
    of_ephemeral,
    put,
    storage_class,
    volume,
)
from tests.scheduling.volumeoracle import VolumeOracle

CLASSES = (
    storage_class("static", NO_PROVISIONER),
    storage_class("local", DRIVER),
    storage_class("zonal", "other", topologies=[{ZONE: ["z0"]}, {ZONE: ["z1"], "disk": ["ssd"]}]),
    storage_class("now", DRIVER, waits=False),
)
NAMES = tuple(f"c{index}" for index in range(8))
VOLUMES = tuple(f"v{index}" for index in range(20))
SIZES = ("1Gi", "2Gi", "3Gi", "4Gi")
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"


class VolumeHistory:
    """``state`` is told of assumptions, ``oracle`` of objects that say the same. ``waiting``: assumed pods whose own
    events have not come yet.
    """

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.state = ClusterState()
        self.oracle = VolumeOracle()
        self.claims: dict[ClaimKey, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.decisions: dict[str, VolumeDecision] = {}
        self._pods = 0
        for index in range(self.draw.randrange(2, 6)):
            self.put_node(f"n{index}")
        for each in CLASSES:
            put(self.state, [each])
            self.oracle.classes[each.metadata.name] = each
        self.framework = Framework(self.state, default_plugins(), seed)
        for _ in range(60):
            self.change_object()

    def put_node(self, name: str) -> None:
        labels = {"disk": self.draw.choice(["ssd", "hdd"])}
        if self.draw.random() < 0.8:
            labels[self.draw.choice([ZONE, ZONE, OLD_ZONE])] = f"z{self.draw.randrange(3)}"
        self.oracle.nodes[name] = node(name, pods="20", labels=labels)
        self.state.put_node(self.oracle.nodes[name])

    def step(self) -> PodInfo:
        """Lets something happen, and returns a pod that waits."""
        draw, kind = self.draw, self.draw.random()
        if kind < 0.4:
            self.change_object()
        elif kind < 0.5:
            name = draw.choice(["gone", *self.oracle.nodes])
            made = self.pod(name)
            self.oracle.placed[made.uid] = made, name
            self.state.put_pod(made)
        elif kind < 0.6 and self.oracle.placed:
            self.remove_pod(draw.choice(sorted(self.oracle.placed)))
        elif kind < 0.65:
            self.put_node(draw.choice([*self.oracle.nodes, f"n{len(self.oracle.nodes)}", "gone"]))
        elif kind < 0.68 and len(self.oracle.nodes) > 1:
            name = draw.choice(sorted(self.oracle.nodes))
            del self.oracle.nodes[name]
            self.state.remove_node(name)
        elif kind < 0.75 and self.decisions:
            self.confirm(draw.choice(sorted(self.decisions)))
        else:
            self.place(self.pod())
        return self.pod()

    def place(self, made: PodInfo) -> None:
        placement = self.framework.place(made)
        if placement is not None:
            decision = binding(self.state, made, placement.node)
            self.state.assume(made, placement.node, decision)
            self.oracle.placed[made.uid] = made, placement.node
            self.decisions[made.uid] = decision
            for _, name in decision.bindings:
                if self.volumes[name].spec.claim_ref is not None:
                    self._is_confirmed(name, made.uid)
            for key in decision.provisions:
                if SELECTED_NODE in self.claims[key].metadata.annotations:
                    self._is_confirmed(key, made.uid)
            self.tell()

    def confirm(self, uid: str) -> None:
        """What was assumed for the pod is written, and its events come, in any order."""
        decision = self.decisions[uid]
        for key, name in decision.bindings:
            if key in self.claims and name in self.volumes and self.volumes[name].spec.claim_ref is None:
                self.put_volume(bound(self.volumes[name], self.claims[key]))
        for key in decision.provisions:
            if key in self.claims:
                self.put_claim(selected(self.claims[key], decision.node))
        made, name = self.oracle.placed[uid]
        del self.decisions[uid]
        confirmed = PodInfo.of(replace(made.pod, spec=replace(made.spec, node_name=name)))
        self.oracle.placed[uid] = confirmed, name
        self.state.put_pod(confirmed)
        self.tell()

    def remove_pod(self, uid: str) -> None:
        del self.oracle.placed[uid]
        if self.decisions.pop(uid, None) is not None and self.draw.random() < 0.5:
            self.state.forget(uid)
        else:
            self.state.remove_pod(uid)
        self.tell()

    def tell(self) -> None:
        """The oracle's objects are those of the cluster with what is assumed."""
        self.oracle.claims = {(each.metadata.namespace, each.metadata.name): each for each in self.claims.values()}
        self.oracle.volumes = dict(self.volumes)
        for decision in self.decisions.values():
            for key, name in decision.bindings:
                if key in self.claims and name in self.volumes and self.volumes[name].spec.claim_ref is None:
                    self.oracle.volumes[name] = bound(self.volumes[name], self.claims[key])
            for key in decision.provisions:
                if key in self.claims and SELECTED_NODE not in self.claims[key].metadata.annotations:
                    self.oracle.claims[key] = selected(self.claims[key], decision.node)

    def change_object(self) -> None:
        draw, kind = self.draw, self.draw.random()
        if kind < 0.3:
            self.put_claim(self.claim(draw.choice(NAMES)))
        elif kind < 0.33 and self.claims:
            self.remove_claim(draw.choice(sorted(self.claims)))
        elif kind < 0.75:
            self.put_volume(self.volume(draw.choice(VOLUMES)))
        elif kind < 0.8 and self.volumes:
            name = draw.choice(sorted(self.volumes))
            if not any(name == each for decision in self.decisions.values() for _, each in decision.bindings):
                del self.volumes[name]
                self.state.volumes.remove_volume(name)
        elif kind < 0.85:
            name = draw.choice(["n9", *self.oracle.nodes])
            self.oracle.csi_nodes[name] = csi_node(
                name, csi_example_com=draw.choice([None, 1, 2]), other=1, ebs_csi_aws_com=draw.choice([None, 1, 2])
            )
            put(self.state, [self.oracle.csi_nodes[name]])
        elif kind < 0.88:
            self.oracle.drivers[DRIVER] = driver(DRIVER, storage_capacity=draw.random() < 0.5)
            put(self.state, [self.oracle.drivers[DRIVER]])
        elif kind < 0.92:
            self.change_attachment(f"a{draw.randrange(6)}")
        elif kind < 0.96:
            self.put_capacity(f"s{draw.randrange(4)}")
        elif self.oracle.capacities:
            name = draw.choice(sorted(self.oracle.capacities))
            del self.oracle.capacities[name]
            self.state.volumes.remove_capacity("kube-system", name)
        self.tell()

    def put_claim(self, made: PersistentVolumeClaim) -> None:
        key = ClaimKey(made.metadata.namespace, made.metadata.name)
        if not self._is_assumed(key) or SELECTED_NODE in made.metadata.annotations:
            self.claims[key] = made
            put(self.state, [made])
            if SELECTED_NODE in made.metadata.annotations:
                self._is_confirmed(key)

    def remove_claim(self, key: ClaimKey) -> None:
        if not self._is_assumed(key):
            del self.claims[key]
            self.state.volumes.remove_claim(*key)

    def put_volume(self, made: PersistentVolume) -> None:
        self.volumes[made.metadata.name] = made
        put(self.state, [made])
        if made.spec.claim_ref is not None:
            self._is_confirmed(made.metadata.name)

    def put_capacity(self, name: str) -> None:
        draw = self.draw
        topology: Mapping[str, Any] = draw.choice(
            [
                {},
                {"matchLabels": {ZONE: "z0"}},
                {"matchLabels": {HOSTNAME: draw.choice(["n0", "n1"])}},
                {
                    "matchExpressions": [{"key": ZONE, "operator": "NotIn", "values": ["z1"]}],
                    "matchLabels": {"disk": "ssd"},
                },
            ]
        )
        members = {"maximumVolumeSize": draw.choice(SIZES)} if draw.random() < 0.3 else {}
        made = capacity(name, draw.choice(SIZES), topology, storage_class=draw.choice(["local", "zonal"]), **members)
        self.oracle.capacities[name] = made
        put(self.state, [made])

    def change_attachment(self, name: str) -> None:
        draw = self.draw
        if name in self.oracle.attachments and draw.random() < 0.5:
            del self.oracle.attachments[name]
            self.state.volumes.attachments.remove(name)
            return
        node_name, of = draw.choice(["n9", *self.oracle.nodes]), draw.choice(["", "gone", *VOLUMES])
        made = attachment(name, node_name, of, draw.choice([DRIVER, DRIVER, "other", ""]))
        self.oracle.attachments[name] = made
        put(self.state, [made])

    def claim(self, name: str) -> PersistentVolumeClaim:
        draw, spec = self.draw, dict[str, Any]()
        class_name = draw.choice([*["static", "local", "zonal"] * 4, "now", "none"])
        annotations = {}
        metadata: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if draw.random() < 0.03 else {}
        to = ""
        if draw.random() < 0.2:
            to = draw.choice([*self.volumes, *self.volumes, "gone"])
        elif draw.random() < 0.1:
            annotations[SELECTED_NODE] = draw.choice(["gone", *self.oracle.nodes])
        if draw.random() < 0.1:
            spec["selector"] = {"matchLabels": {"tier": "a"}}
        if draw.random() < 0.1:
            spec["volumeMode"] = "Block"
        modes = [draw.choice([*["ReadWriteOnce"] * 4, "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"])]
        return claim(
            name,
            draw.choice([None, *SIZES]),
            storage_class=class_name,
            volume=to,
            modes=modes,
            annotations=annotations,
            metadata=metadata,
            phase="Lost" if draw.random() < 0.03 else "",
            **spec,
        )

    def volume(self, name: str) -> PersistentVolume:
        draw = self.draw
        at: Mapping[str, list[str]] | None = draw.choice(
            [
                None,
                {HOSTNAME: [draw.choice(["n0", "n1", "n2"])]},
                {HOSTNAME: [draw.choice(["n0", "n1", "n2"])]},
                {ZONE: ["z0", "z1"]},
                {ZONE: ["z0"], "disk": ["ssd"]},
            ]
        )
        spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteOncePod"]}
        if draw.random() < 0.1:
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": ZONE, "operator": "NotIn", "values": ["z0"]}]}]}}  # fmt: skip
            at = None
        if draw.random() < 0.6:
            spec["csi"] = {"driver": draw.choice([DRIVER, "other"]), "volumeHandle": draw.choice(["h1", "h2", name])}
        elif draw.random() < 0.5:
            spec["awsElasticBlockStore"] = {"volumeID": draw.choice(["a", "b", name])}
        if draw.random() < 0.1:
            spec["volumeMode"] = "Block"
        labels = {"tier": draw.choice(["a", "b"])}
        if draw.random() < 0.3:
            labels[draw.choice([ZONE, OLD_ZONE])] = draw.choice(["z0", "z1__z2"])
        return volume(
            name,
            draw.choice(SIZES),
            storage_class=draw.choice(["static", "static", "static", "local", "zonal"]),
            at=at,
            claim_ref=draw.choice(NAMES) if draw.random() < 0.15 else "",
            claim_uid=draw.choice([None, None, "", "old"]),
            phase=draw.choice(["Available", "Available", "Available", "Released"]),
            labels=labels,
            metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"} if draw.random() < 0.05 else {},
            **spec,
        )

    def pod(self, node_name: str = "") -> PodInfo:
        draw = self.draw
        self._pods += 1
        name = f"p{self._pods}"
        volumes = of_claims(*draw.sample(NAMES, draw.choice([0, 1, 1, 1, 1, 2, 2])))
        if draw.random() < 0.1:
            volumes += of_ephemeral("e")
            if draw.random() < 0.8:
                owner = {"ownerReferences": [{"uid": draw.choice([name, name, "other"]), "controller": True}]}
                self.put_claim(claim(f"{name}-e", storage_class=draw.choice(["static", "local"]), metadata=owner))
                self.tell()
        if draw.random() < 0.2:
            read_only = draw.random() < 0.5
            volumes.append(
                draw.choice(
                    [
                        {"name": "d", "gcePersistentDisk": {"pdName": draw.choice("ab"), "readOnly": read_only}},
                        {"name": "d", "awsElasticBlockStore": {"volumeID": draw.choice("ab")}},
                        {"name": "d", "rbd": {"monitors": draw.sample("abc", 2), "image": "i", "readOnly": read_only}},
                    ]
                )
            )
        return pod(name, volumes=volumes, nodeName=node_name)

    def _is_confirmed(self, what: ClaimKey | str, *uids: str) -> None:
        """An object says what was assumed for these pods, or all, or something else, and nothing is assumed of it."""
        for uid in uids or tuple(self.decisions):
            node_name, bindings, provisions = self.decisions[uid]
            self.decisions[uid] = VolumeDecision(
                node_name,
                tuple([each for each in bindings if each.volume != what]),
                tuple([each for each in provisions if each != what]),
            )

    def _is_assumed(self, key: ClaimKey) -> bool:
        return any(key in decision.claims for decision in self.decisions.values())


def bound(made: PersistentVolume, to: PersistentVolumeClaim) -> PersistentVolume:
    metadata = to.metadata
    ref = ObjectReference(
        kind="PersistentVolumeClaim", namespace=metadata.namespace, name=metadata.name, uid=metadata.uid
    )
    return replace(made, spec=replace(made.spec, claim_ref=ref))


def selected(made: PersistentVolumeClaim, name: str) -> PersistentVolumeClaim:
    metadata = replace(made.metadata, annotations={**made.metadata.annotations, SELECTED_NODE: name})
    return replace(made, metadata=metadata)
