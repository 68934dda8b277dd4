"""Pods with claims: volumes that exist are kept for them, others are made for the node, and the pod waits for that."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from koord.kube.client import Client
from koord.scheduling.podinfo import ClaimKey
from koord.scheduling.table import Table
from koord.scheduling.volumes import ClaimBinding, VolumeDecision, Volumes
from koord_scheduler.volumewriter import VolumeWriter
from tests.koord_scheduler.rig import HOSTNAME, Rig, running
from tests.kube.server import Fault, JSONObject
from tests.scheduling.volumeobjects import claim as a_claim
from tests.scheduling.volumeobjects import volume as a_volume
from tests.support.waiting import until

CLAIMS, VOLUMES = "/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
CSI_NODES, ATTACHMENTS = "/apis/storage.k8s.io/v1/csinodes", "/apis/storage.k8s.io/v1/volumeattachments"
ONE = {"count": 1}
SELECTED, COMPLETED = "volume.kubernetes.io/selected-node", "pv.kubernetes.io/bind-completed"


def prepare(rig: Rig) -> None:
    """Two nodes; a class whose volumes exist, a class whose volumes are made."""
    rig.node("n1").node("n2")
    for name, provisioner in (("static", "kubernetes.io/no-provisioner"), ("made", "csi.example")):
        rig.server.put(CLASSES, "", name, provisioner=provisioner, volumeBindingMode="WaitForFirstConsumer")


def claim(rig: Rig, storage_class: str, name: str = "c", **members: Any) -> None:
    spec: dict[str, Any] = {"storageClassName": storage_class, "accessModes": ["ReadWriteOnce"]}
    spec |= {"resources": {"requests": {"storage": "1Gi"}}}
    rig.server.put(CLAIMS, "default", name, **{"spec": spec, **members})


def local_volume(rig: Rig, name: str, node: str, **spec: Any) -> None:
    term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [node]}]}
    affinity = {"required": {"nodeSelectorTerms": [term]}}
    made = {"capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "static"}
    rig.server.put(VOLUMES, "", name, spec={**made, "nodeAffinity": affinity, **spec}, status={"phase": "Available"})


def with_claim(rig: Rig, name: str = "p", claim: str = "c") -> None:
    rig.pod(name, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": claim}}])


def stored(rig: Rig, path: str, name: str, namespace: str = "") -> JSONObject:
    root, _, plural = path.rpartition("/")
    return rig.server.objects[root, plural][namespace, name]


def selected(rig: Rig) -> str:
    return str(stored(rig, CLAIMS, "c", "default")["metadata"].get("annotations", {}).get(SELECTED, ""))


def bind_claim(rig: Rig, volume: str) -> None:
    """What the cluster's controller does."""
    document = stored(rig, CLAIMS, "c", "default")
    metadata = {
        **document["metadata"],
        "annotations": {**document["metadata"].get("annotations", {}), COMPLETED: "yes"},
    }
    rig.server.put(CLAIMS, "default", "c", metadata=metadata, spec={**document["spec"], "volumeName": volume})


async def test_a_volume_that_exists_is_kept_for_the_claim() -> None:
    async with running(prepare) as rig:
        claim(rig, "static")
        local_volume(rig, "v2", "n2")
        await rig.lead()
        with_claim(rig)
        await until(lambda: stored(rig, VOLUMES, "v2")["spec"].get("claimRef"))
        reference = stored(rig, VOLUMES, "v2")["spec"]["claimRef"]
        uid = stored(rig, CLAIMS, "c", "default")["metadata"]["uid"]
        assert (reference["name"], reference["namespace"], reference["uid"]) == ("c", "default", uid)
        assert (rig.node_of(), rig.requested("n2")) == ("", 1000), "it holds its room while its claim is bound"
        bind_claim(rig, "v2")
        assert await rig.placed("p") == ["n2"]


async def test_a_volume_is_made_for_the_node() -> None:
    async with running(prepare) as rig:
        claim(rig, "made")
        await rig.lead()
        with_claim(rig)
        await until(lambda: selected(rig))
        node = selected(rig)
        assert rig.node_of() == ""
        bind_claim(rig, "v")
        rig.server.put(VOLUMES, "", "v", spec={"claimRef": {"namespace": "default", "name": "c"}})
        assert await rig.placed("p") == [node]


async def test_a_provisioner_that_gives_up_has_the_pod_decided_anew() -> None:
    async with running(prepare) as rig:
        claim(rig, "made")
        await rig.lead()
        with_claim(rig)
        await until(lambda: selected(rig))
        claim(rig, "made", metadata={"annotations": {}})
        await until(lambda: rig.condition()[1] == "SchedulerError")
        assert "no volume could be made for claim default/c on node" in rig.condition()[2]
        assert [rig.requested(name) for name in ("n1", "n2")] == [0, 0]
        rig.offset_s += 20
        rig.view.changed()
        await until(lambda: selected(rig))


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault("patch", status=409, reason="Conflict"), "Conflict"),
        (Fault("patch", status=403, reason="Forbidden"), "Forbidden"),
    ],
)
async def test_a_write_that_is_refused_gives_the_room_back(fault: Fault, says: str) -> None:
    async with running(prepare) as rig:
        claim(rig, "made")
        rig.server.faults.append(fault)
        await rig.lead()
        with_claim(rig)
        await until(lambda: rig.condition()[1] == "SchedulerError")
        assert says in rig.condition()[2]
        assert [rig.requested(name) for name in ("n1", "n2")] == [0, 0]


async def test_a_claim_that_comes_later_wakes_its_pod() -> None:
    async with running(prepare) as rig:
        await rig.lead()
        with_claim(rig)
        message = '0/2 nodes are available: persistentvolumeclaim "c" not found.'
        await until(lambda: rig.condition()[2].startswith(message))
        claim(rig, "made")
        rig.offset_s += 20
        await until(lambda: selected(rig))


async def test_two_pods_get_two_volumes() -> None:
    async with running(prepare) as rig:
        for number in (1, 2):
            claim(rig, "static", f"c{number}")
            local_volume(rig, f"v{number}", "n1")
        held = asyncio.Event()
        rig.server.faults += [Fault("patch", until=held)] * 2
        await rig.lead()
        with_claim(rig, "p1", "c1")
        with_claim(rig, "p2", "c2")
        await until(lambda: len(rig.view.state.assumed) == 2)
        held.set()
        await until(lambda: all(stored(rig, VOLUMES, f"v{number}")["spec"].get("claimRef") for number in (1, 2)))
        names = {stored(rig, VOLUMES, f"v{number}")["spec"]["claimRef"]["name"] for number in (1, 2)}
        assert names == {"c1", "c2"}


async def test_a_volume_that_is_detached_leaves_room_for_another() -> None:
    def full(rig: Rig) -> None:
        rig.node("n1")
        rig.server.put(CSI_NODES, "", "n1", spec={"drivers": [{"name": "d", "nodeID": "n1", "allocatable": ONE}]})
        for name in ("old", "new"):
            csi = {"driver": "d", "volumeHandle": name}
            rig.server.put(VOLUMES, "", name, spec={"csi": csi, "capacity": {"storage": "1Gi"}})
        source = {"persistentVolumeName": "old"}
        rig.server.put(ATTACHMENTS, "", "a", spec={"attacher": "d", "nodeName": "n1", "source": source})
        claim(rig, "")
        bind_claim(rig, "new")

    async with running(full) as rig:
        with_claim(rig)
        await rig.lead()
        await until(lambda: rig.condition()[1] == "Unschedulable")
        assert "1 node(s) exceed max volume count" in rig.condition()[2]
        rig.server.delete(ATTACHMENTS, "", "a")
        rig.offset_s += 20
        assert await rig.placed("p") == ["n1"]


@pytest.mark.parametrize(
    ("version", "node", "error"),
    [
        ("1", None, "claims are not bound after 0.05 s: default/c"),
        ("2", "n1", "claims are not bound after 0.05 s: default/c"),
        ("3", None, "no volume could be made for claim default/c on node n1"),
        ("3", "n2", "no volume could be made for claim default/c on node n1"),
        (None, None, "no volume could be made for claim default/c on node n1"),
    ],
    ids=["nothing is told yet", "the selection is told", "taken back unseen", "another node", "the claim is gone"],
)
async def test_what_a_claim_says_after_its_node_was_selected(version: str | None, node: str | None, error: str) -> None:
    volumes = Volumes(Table())
    volumes.put_claim(a_claim("c", metadata={"resourceVersion": "1"}))

    class Server:
        async def patch(self, *_: object) -> None:
            if version is None:
                volumes.remove_claim("default", "c")
            else:
                annotations = {} if node is None else {SELECTED: node}
                volumes.put_claim(a_claim("c", metadata={"resourceVersion": version, "annotations": annotations}))

    writer = VolumeWriter(cast(Client, Server()), volumes)
    assert await writer.prepare(VolumeDecision("n1", provisions=(ClaimKey("default", "c"),)), 0.05) == error


@pytest.mark.parametrize(
    ("kept_for", "has_volume", "error"),
    [
        ("c", True, "claims are not bound after 0.05 s: default/c"),
        ("other", True, "volume v is not for claim default/c any more"),
        ("c", False, "volume v is not for claim default/c any more"),
    ],
    ids=["it is kept", "another claim has it", "it is gone"],
)
async def test_what_becomes_of_a_volume_that_was_chosen(kept_for: str, has_volume: bool, error: str) -> None:
    """Whether another client has it first, or comes after the pod began to wait."""
    for is_first in (True, False):
        volumes = Volumes(Table())
        volumes.put_claim(a_claim("c"))
        volumes.put_volume(a_volume("v"))

        def change(volumes: Volumes = volumes) -> None:
            if has_volume:
                volumes.put_volume(a_volume("v", claim_ref=kept_for))
            else:
                volumes.remove_volume("v")

        class Server:
            async def patch(self, *_: object) -> None:
                pass

        writer = VolumeWriter(cast(Client, Server()), volumes)
        if is_first:
            change()
        waiting = asyncio.create_task(
            writer.prepare(VolumeDecision("n1", bindings=(ClaimBinding(ClaimKey("default", "c"), "v"),)), 0.05)
        )
        await asyncio.sleep(0)
        if not is_first:
            change()
            writer.changed()
        assert await waiting == error
