"""What volumes rule out, reason by reason, and what is then to be bound and made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from koord.scheduling.defaults import default_plugins
from koord.scheduling.framework import Framework
from koord.scheduling.plugin import Event, EventKind, Plugin
from koord.scheduling.plugins.volumebinding import VolumeBinding, binding
from koord.scheduling.plugins.volumes import NodeVolumeLimits, VolumeRestrictions, VolumeZone
from koord.scheduling.podinfo import ClaimKey, PodInfo
from koord.scheduling.state import ClusterState
from koord.scheduling.volumes import NO_PROVISIONER, SELECTED_NODE, ClaimBinding, VolumeDecision
from tests.scheduling.clusters import HOSTNAME, ZONE, node, pod
from tests.scheduling.volumeobjects import (
    StorageObject,
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

NODES = ("n1", "n2", "n3")
"""In the zones a, b and none."""
RWOP = ("ReadWriteOncePod",)
REACH, NONE = "node(s) had volume node affinity conflict", "node(s) didn't find available persistent volumes to bind"
ROOM, DISK = "node(s) did not have enough free storage", "node(s) had no available disk"
MOST, ZONES = "node(s) exceed max volume count", "node(s) had no available volume zone"
GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
ONE_POD = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
STATIC = storage_class("fast", NO_PROVISIONER)


def cluster(objects: Sequence[StorageObject] = (), pods: Sequence[PodInfo] = ()) -> ClusterState:
    state = ClusterState()
    zones: dict[str, dict[str, str]] = {"n1": {ZONE: "a"}, "n2": {ZONE: "b"}, "n3": {}}
    for name, labels in zones.items():
        state.put_node(node(name, labels=labels))
    put(state, objects)
    for each in pods:
        state.put_pod(each)
    return state


def told(plugin: Plugin, state: ClusterState, waiting: PodInfo) -> dict[str, str]:
    """The reasons by node, which ``filter`` agrees with; a ``!`` where it would not help if pods left."""
    passed = plugin.filter(state, waiting)
    found = {}
    for name in NODES:
        row = state.table.row(name)
        assert row is not None
        reasons = plugin.explain(state, waiting, row, state.table.exists).reasons
        assert bool(reasons) == (passed is not None and not passed[row])
        if reasons:
            found[name] = "; ".join(each.text + ("" if each.is_resolvable else "!") for each in reasons)
    return found


def everywhere(text: str) -> dict[str, str]:
    return dict.fromkeys(NODES, text)


# VolumeRestrictions

GCE, GCE_READ = {"gcePersistentDisk": {"pdName": "d"}}, {"gcePersistentDisk": {"pdName": "d", "readOnly": True}}
EBS, EBS_READ = (
    {"awsElasticBlockStore": {"volumeID": "v"}},
    {"awsElasticBlockStore": {"volumeID": "v", "readOnly": True}},
)
ISCSI, ISCSI_READ = {"iscsi": {"iqn": "q", "lun": 1}}, {"iscsi": {"iqn": "q", "lun": 2, "readOnly": True}}
RBD, RBD_READ = (
    {"rbd": {"monitors": ["a", "b"], "image": "i"}},
    {"rbd": {"monitors": ["b"], "image": "i", "readOnly": True}},
)


@pytest.mark.parametrize(
    ("there", "wanted", "conflicts"),
    [
        *[
            pytest.param(there, wanted, conflicts, id=f"{next(iter(one))} {name}")
            for one, shared in ((GCE, GCE_READ), (ISCSI, ISCSI_READ), (RBD, RBD_READ))
            for there, wanted, conflicts, name in (
                (one, one, True, "written by both"),
                (shared, one, True, "written by the new pod"),
                (one, shared, True, "written by the one there"),
                (shared, shared, False, "read by both"),
            )
        ],
        pytest.param(EBS_READ, EBS_READ, True, id="EBS is for one pod even if it is only read"),
        pytest.param(EBS, {"awsElasticBlockStore": {"volumeID": "w"}}, False, id="another EBS"),
        pytest.param(GCE, {"gcePersistentDisk": {"pdName": "e"}}, False, id="another disk"),
        pytest.param(RBD, {"rbd": {"monitors": ["a"], "image": "j"}}, False, id="another image"),
        pytest.param(RBD, {"rbd": {"monitors": ["a"], "pool": "p", "image": "i"}}, False, id="another pool"),
        pytest.param(RBD, {"rbd": {"monitors": ["c"], "image": "i"}}, False, id="other monitors"),
        pytest.param(GCE, {"iscsi": {"iqn": "d"}}, False, id="another kind"),
    ],
)
def test_disks(there: dict[str, Any], wanted: dict[str, Any], conflicts: bool) -> None:
    state = cluster(pods=[pod("x", nodeName="n2", volumes=[{"name": "v", **there}])])
    waiting = pod("p", volumes=[{"name": "w", **wanted}])
    assert told(VolumeRestrictions(), state, waiting) == ({"n2": DISK} if conflicts else {})
    assert VolumeRestrictions().goes_by_pods(state, waiting)
    state.remove_pod("x")
    assert not told(VolumeRestrictions(), state, waiting)


def test_a_disk_that_two_pods_read_is_free_to_write_once_both_have_left() -> None:
    readers = [pod(name, nodeName="n1", volumes=[{"name": "v", **GCE_READ}]) for name in ("x", "y")]
    state, writer = cluster(pods=readers), pod("p", volumes=[{"name": "w", **GCE}])
    for reader in readers:
        assert told(VolumeRestrictions(), state, writer) == {"n1": DISK}
        state.remove_pod(reader.uid)
    assert told(VolumeRestrictions(), state, writer) == {}


def test_a_claim_for_one_pod() -> None:
    plugin, waiting = VolumeRestrictions(), pod("p", volumes=of_claims("data"))
    user = pod("x", nodeName="n1", volumes=of_claims("data"))
    other = pod("y", nodeName="n1", volumes=of_claims("else"))
    state = cluster([claim("data", modes=RWOP, volume="v"), claim("else")], [user, other])
    assert told(plugin, state, waiting) == everywhere(ONE_POD)
    assert plugin.goes_by_pods(state, waiting)
    for event, helps in (
        (Event(EventKind.POD_LEFT, 0, user), True),
        (Event(EventKind.POD_LEFT, 0, other), False),
        (Event(EventKind.POD_CAME, 0, user), False),
        (Event(EventKind.NODE, 0), False),
    ):
        assert plugin.is_helped_by(state, waiting, event) is helps
    state.remove_pod("x")
    assert told(plugin, state, waiting) == {}
    put(state, [claim("data", volume="v")])
    state.put_pod(user)
    assert told(plugin, state, waiting) == {}
    assert not plugin.goes_by_pods(state, waiting)


def test_a_claim_for_one_pod_is_of_one_namespace() -> None:
    state = cluster(
        [claim("data", modes=RWOP)], [pod("x", namespace="other", nodeName="n1", volumes=of_claims("data"))]
    )
    assert told(VolumeRestrictions(), state, pod("p", volumes=of_claims("data"))) == {}


# NodeVolumeLimits


def csi(handle: str) -> dict[str, Any]:
    return {"csi": {"driver": "csi.example.com", "volumeHandle": handle}}


@pytest.mark.parametrize(
    ("limit", "there", "wanted", "expected"),
    [
        pytest.param(1, ["a"], ["b"], {"n1": MOST}, id="one too many"),
        pytest.param(2, ["a"], ["b"], {}, id="as many as it takes"),
        pytest.param(2, ["a"], ["b", "c"], {"n1": MOST}, id="two are too many"),
        pytest.param(1, ["a"], ["a"], {}, id="attached already"),
        pytest.param(1, ["a"], ["a2"], {}, id="attached already, by another claim"),
        pytest.param(2, ["a", "a", "a2"], ["b"], {}, id="a volume of several pods counts once"),
        pytest.param(0, [], ["b"], {"n1": MOST}, id="none at all"),
        pytest.param(None, ["a"], ["b"], {}, id="no limit"),
        pytest.param(1, ["a"], ["new"], {"n1": MOST}, id="one that is yet to be made"),
        pytest.param(1, ["new"], ["b"], {"n1": MOST}, id="one is yet to be made"),
        pytest.param(1, ["new"], ["new"], {}, id="the same one"),
        pytest.param(1, ["a"], ["plain"], {}, id="a volume of no driver"),
        pytest.param(1, ["a"], ["lost"], {"n1": MOST}, id="by its class where its volume is unknown"),
        pytest.param(1, ["a"], ["odd"], {}, id="of no class"),
        pytest.param(1, ["unknown"], ["a"], {}, id="an unknown claim of a pod that runs"),
    ],
)
def test_how_many_a_node_takes(
    limit: int | None, there: list[str], wanted: list[str], expected: dict[str, str]
) -> None:
    objects: list[StorageObject] = [
        *[claim(name, volume=f"v-{name[0]}") for name in ("a", "a2", "b", "c", "lost")],
        *[volume(f"v-{name}", **csi(name)) for name in ("a", "b", "c")],
        volume("v-p", nfs={}),
        claim("plain", volume="v-p"),
        claim("new"),
        claim("odd", storage_class=None),
        storage_class(),
        csi_node("n1", csi_example_com=limit, other=0),
        csi_node("n9", csi_example_com=0),
    ]
    state = cluster(objects, [pod(f"x{i}", nodeName="n1", volumes=of_claims(each)) for i, each in enumerate(there)])
    waiting = pod("p", volumes=of_claims(*wanted))
    assert told(NodeVolumeLimits(), state, waiting) == expected
    if expected:
        said = NodeVolumeLimits().explain(state, waiting, 0, state.table.exists)
        count = len({each.replace("2", "") for each in there})
        detail = f"csi.example.com: {count} of {limit} are attached, {len(wanted)} to be added"
        assert said.reasons[0].detail == detail


def test_a_claim_that_is_bound_counts_as_its_volume() -> None:
    users = [pod(name, nodeName="n1", volumes=of_claims(name)) for name in ("a", "b")]
    objects: list[StorageObject] = [
        storage_class(),
        csi_node("n1", csi_example_com=2),
        claim("a"),
        claim("b"),
        claim("c"),
    ]
    state, waiting = cluster(objects, users), pod("p", volumes=of_claims("c"))
    assert told(NodeVolumeLimits(), state, waiting) == {"n1": MOST}
    put(state, [volume("v", **csi("h")), claim("a", volume="v"), claim("b", volume="v")])
    assert told(NodeVolumeLimits(), state, waiting) == {}
    state.volumes.remove_volume("v")
    assert told(NodeVolumeLimits(), state, waiting) == {"n1": MOST}
    state.volumes.remove_class("fast")
    assert told(NodeVolumeLimits(), state, waiting) == {}
    put(state, [storage_class("slow"), claim("d", storage_class="slow")])
    assert told(NodeVolumeLimits(), state, pod("p", volumes=of_claims("d"))) == {}
    put(state, [storage_class()])
    assert told(NodeVolumeLimits(), state, pod("p", volumes=of_claims("d"))) == {"n1": MOST}
    assert told(NodeVolumeLimits(), state, waiting) == {"n1": MOST}
    state.volumes.remove_claim("default", "a")
    assert told(NodeVolumeLimits(), state, waiting) == {}


def test_a_node_that_comes_after_its_csi_node_has_its_limit() -> None:
    state = cluster([storage_class(), claim("a"), csi_node("n4", csi_example_com=0)])
    waiting = pod("p", volumes=of_claims("a"))
    row = 3
    for _ in range(2):
        state.put_node(node("n4"))
        assert state.table.row("n4") == row
        assert NodeVolumeLimits().explain(state, waiting, row, state.table.exists).reasons
        state.remove_node("n4")
    state.volumes.limits.remove("n4")
    state.put_node(node("n5"))
    assert NodeVolumeLimits().filter(state, waiting) is not None
    assert NodeVolumeLimits().explain(state, waiting, row, state.table.exists).reasons == ()


# VolumeZone

OLD = "failure-domain.beta.kubernetes.io/zone"


@pytest.mark.parametrize(
    ("labels", "rejected"),
    [
        pytest.param({}, [], id="no label"),
        pytest.param({ZONE: "a"}, ["n2"], id="n3 is in no zone, and will do"),
        pytest.param({ZONE: "a__b"}, [], id="several zones"),
        pytest.param({ZONE: "c__d"}, ["n1", "n2"], id="other zones"),
        pytest.param({ZONE: "c__"}, [], id="a label that cannot be read"),
        pytest.param({OLD: "b"}, ["n1"], id="an old label is found in the new one"),
        pytest.param({ZONE: "a", "topology.kubernetes.io/region": "r"}, ["n1", "n2"], id="a region that no node has"),
    ],
)
def test_zones(labels: dict[str, str], rejected: list[str]) -> None:
    state = cluster([claim("data", volume="v"), volume("v", labels=labels)])
    assert told(VolumeZone(), state, pod("p", volumes=of_claims("data"))) == dict.fromkeys(rejected, ZONES + "!")


def test_a_new_label_is_not_found_in_an_old_one() -> None:
    state = cluster([claim("data", volume="v"), volume("v", labels={ZONE: "a"})])
    state.put_node(node("n3", labels={OLD: "a"}))
    assert told(VolumeZone(), state, pod("p", volumes=of_claims("data"))) == dict.fromkeys(("n2", "n3"), ZONES + "!")


@pytest.mark.parametrize(
    ("plugin", "objects", "volumes", "expected"),
    [
        *[
            pytest.param(plugin, [], of_claims("data"), 'persistentvolumeclaim "data" not found', id=plugin.name)
            for plugin in (VolumeRestrictions(), VolumeBinding(), VolumeZone())
        ],
        pytest.param(
            NodeVolumeLimits(),
            [],
            of_claims("data"),
            'looking up PVC default/data: persistentvolumeclaim "data" not found',
            id="NodeVolumeLimits",
        ),
        pytest.param(VolumeRestrictions(), [], of_ephemeral("data"), "", id="ephemeral volumes are not its business"),
        pytest.param(VolumeZone(), [], of_ephemeral("data"), "", id="nor that of zones"),
        pytest.param(
            VolumeBinding(),
            [],
            of_ephemeral("data"),
            'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-data"',
            id="ephemeral, not made yet",
        ),
        pytest.param(
            VolumeBinding(),
            [claim("p-data", metadata={"ownerReferences": [{"uid": "q", "controller": True}]})],
            of_ephemeral("data"),
            "PVC default/p-data was not created for pod default/p (pod is not owner)",
            id="ephemeral, of another pod",
        ),
        pytest.param(
            VolumeBinding(),
            [claim("data", volume="v", phase="Lost")],
            of_claims("data"),
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "v"',
            id="lost",
        ),
        pytest.param(
            VolumeBinding(),
            [claim("data", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})],
            of_claims("data"),
            'persistentvolumeclaim "data" is being deleted',
            id="being deleted",
        ),
        *[
            pytest.param(
                VolumeBinding(),
                [each, storage_class(), storage_class("now", waits=False), volume("v")],
                of_claims("data"),
                "pod has unbound immediate PersistentVolumeClaims",
                id=name,
            )
            for name, each in (
                ("of a class that binds at once", claim("data", storage_class="now")),
                ("of no class", claim("data", storage_class="")),
                ("of a class that is not there", claim("data", storage_class="other")),
                ("named a volume, not bound yet", claim("data", volumeName="v")),
                ("the annotation's class comes first",
                 claim("data", annotations={"volume.beta.kubernetes.io/storage-class": "now"})),
            )
        ],
        pytest.param(VolumeZone(), [claim("data", storage_class="")], of_claims("data"),
                     "PersistentVolumeClaim had no pv name and storageClass name", id="zone: no class"),
        pytest.param(VolumeZone(), [claim("data")], of_claims("data"),
                     'storageclass.storage.k8s.io "fast" not found', id="zone: unknown class"),
        pytest.param(VolumeZone(), [claim("data"), storage_class(waits=False)], of_claims("data"),
                     "PersistentVolume had no name", id="zone: not bound yet"),
        pytest.param(VolumeZone(), [claim("data"), storage_class()], of_claims("data"), "", id="zone: waits"),
        pytest.param(VolumeZone(), [claim("data", volume="v")], of_claims("data"),
                     'persistentvolume "v" not found', id="zone: unknown volume"),
        pytest.param(VolumeZone(), [], of_claims(""), "PersistentVolumeClaim had no name", id="zone: no name"),
    ],
)  # fmt: skip
def test_pods_that_can_be_nowhere(
    plugin: Plugin, objects: list[StorageObject], volumes: list[dict[str, Any]], expected: str
) -> None:
    found = told(plugin, cluster(objects), pod("p", volumes=volumes))
    assert found == (everywhere(expected + "!") if expected else {})


def test_an_ephemeral_volume_of_the_pod() -> None:
    made = claim("p-data", volume="v", metadata={"ownerReferences": [{"uid": "p", "controller": True}]})
    state = cluster([made, volume("v", at={ZONE: ["a"]})])
    assert set(told(VolumeBinding(), state, pod("p", volumes=of_ephemeral("data")))) == {"n2", "n3"}


def test_the_pods_own_reason_is_the_whole_message() -> None:
    state = cluster()
    state.put_node(node("n1", unschedulable=True))
    framework = Framework(state, default_plugins())
    waiting = pod("p", {"cpu": "100"}, volumes=of_claims("data"))
    diagnosis = framework.diagnose(waiting)
    assert diagnosis.message == '0/3 nodes are available: persistentvolumeclaim "data" not found.'
    assert diagnosis.plugins == {"VolumeRestrictions"}
    assert not diagnosis.is_resolvable.any()
    put(state, [claim("data", volume="v"), volume("v", at={ZONE: ["b"]})])
    assert framework.diagnose(pod("p", volumes=of_claims("data"))).message == (
        "0/3 nodes are available: 1 node(s) had volume node affinity conflict, 1 node(s) were unschedulable."
    )


# VolumeBinding: nodes


@pytest.mark.parametrize(
    ("objects", "claims", "expected"),
    [
        pytest.param([claim("a", volume="v"), volume("v")], "a", {}, id="reached from everywhere"),
        pytest.param([claim("a", volume="v"), volume("v", at={HOSTNAME: ["n2"]})], "a",
                     dict.fromkeys(("n1", "n3"), REACH), id="of one node"),
        pytest.param([claim("a", volume="v"), volume("v", at={ZONE: ["a", "b"]})], "a", {"n3": REACH},
                     id="of two zones"),
        pytest.param([claim("a", volume="v"), volume("v", at={HOSTNAME: ["n1", "n2"], ZONE: ["b"]})], "a",
                     dict.fromkeys(("n1", "n3"), REACH), id="by two labels"),
        pytest.param([claim("a", volume="v")], "a", everywhere(GONE), id="a volume that is not there"),
        pytest.param([claim("a", volume="v"), volume("v", at={ZONE: ["a"]}), claim("b", volume="w")], "ab",
                     {"n1": GONE, "n2": REACH, "n3": REACH}, id="what comes first counts"),
        pytest.param([claim("a", volume="v"), volume("v", at={ZONE: ["a"]}, claim_ref="a"), claim("b"), STATIC],
                     "ab",
                     {"n1": NONE, "n2": f"{REACH}!; {NONE}", "n3": f"{REACH}!; {NONE}"}, id="bound and waiting"),
        # static volumes
        pytest.param([claim("a"), STATIC], "a", everywhere(NONE), id="no volume"),
        pytest.param([claim("a"), STATIC, volume("v", at={HOSTNAME: ["n2"]})], "a",
                     dict.fromkeys(("n1", "n3"), NONE), id="a volume of one node"),
        pytest.param([claim("a"), STATIC, volume("v", "4Gi")], "a", everywhere(NONE), id="too small"),
        pytest.param([claim("a", None), STATIC, volume("v", "0")], "a", {}, id="no size asked for"),
        *[
            pytest.param([each, STATIC, made], "a", everywhere(NONE), id=name)
            for name, each, made in (
                ("another class", claim("a"), volume("v", storage_class="slow")),
                ("another mode", claim("a", volumeMode="Block"), volume("v")),
                ("another access mode", claim("a", modes=["ReadWriteMany"]), volume("v")),
                ("other labels", claim("a", selector={"matchLabels": {"x": "y"}}), volume("v")),
                ("another attributes class", claim("a", volumeAttributesClassName="gold"), volume("v")),
                ("released", claim("a"), volume("v", phase="Released")),
                ("of another claim", claim("a"), volume("v", claim_ref="b")),
                ("of an older claim", claim("a"), volume("v", claim_ref="a", claim_uid="old")),
                ("being deleted", claim("a"), volume("v", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})),
                ("kept for the claim, but too small", claim("a"), volume("v", "1Gi", claim_ref="a")),
            )
        ],
        pytest.param([claim("a"), STATIC, volume("v", claim_ref="a", claim_uid="", phase="Pending")], "a", {},
                     id="kept for the claim by name"),
        pytest.param([claim("a"), STATIC, volume("v", claim_ref="a", at={ZONE: ["a"]}), volume("w", "6Gi")], "a",
                     dict.fromkeys(("n2", "n3"), NONE), id="kept for the claim, and no other will do"),
        pytest.param([claim("a"), claim("b"), STATIC, volume("v")], "ab", everywhere(NONE), id="one for two claims"),
        pytest.param([claim("a"), claim("b", "9Gi"), STATIC, volume("v"), volume("w", "6Gi", at={ZONE: ["a"]})], "ba",
                     dict.fromkeys(("n2", "n3"), NONE), id="the small one leaves the large one to the other"),
        # new volumes
        pytest.param([claim("a"), storage_class()], "a", {}, id="made anywhere"),
        pytest.param([claim("a"), storage_class(provisioner="")], "a", everywhere(NONE), id="no provisioner"),
        pytest.param([claim("a"), storage_class(topologies=[{ZONE: ["a"]}])], "a",
                     dict.fromkeys(("n2", "n3"), NONE), id="made in one zone"),
        pytest.param([claim("a"), storage_class(topologies=[{ZONE: ["a"]}, {ZONE: ["b"], HOSTNAME: ["n2"]}, {}])], "a",
                     {"n3": NONE}, id="made in one of several places"),
        pytest.param([claim("a"), storage_class(topologies=[{ZONE: ["a"]}]), volume("v", at={ZONE: ["b"]})], "a",
                     {"n3": NONE}, id="made here, there already there"),
        pytest.param([claim("a", annotations={SELECTED_NODE: "n2"}), storage_class(), volume("v", at={ZONE: ["a"]})],
                     "a", dict.fromkeys(("n1", "n3"), NONE), id="made for n2"),
        pytest.param([claim("a", annotations={SELECTED_NODE: "gone"}), storage_class()], "a", everywhere(NONE),
                     id="made for a node that is gone"),
        # room
        pytest.param([claim("a"), storage_class(), driver()], "a", everywhere(ROOM), id="no room anywhere"),
        pytest.param([claim("a"), storage_class(), driver(storage_capacity=False)], "a", {}, id="room is not told"),
        pytest.param([claim("a", None), storage_class(), driver()], "a", {}, id="no size, no room needed"),
        pytest.param([claim("a"), storage_class(), driver(), capacity("c", "5Gi", {"matchLabels": {ZONE: "a"}})], "a",
                     dict.fromkeys(("n2", "n3"), ROOM), id="room in one zone"),
        pytest.param([claim("a"), storage_class(), driver(), capacity("c", "5Gi", {})], "a", {}, id="room for all"),
        *[
            pytest.param([claim("a"), storage_class(), driver(), each], "a", everywhere(ROOM), id=name)
            for name, each in (
                ("too little room", capacity("c", "4Gi", {})),
                ("room of another class", capacity("c", "5Gi", {}, storage_class="slow")),
                ("room that no node reaches", capacity("c", "5Gi", None)),
                ("room of unknown size", capacity("c", None, {})),
                ("no volume so large", capacity("c", "50Gi", {}, maximumVolumeSize="4Gi")),
            )
        ],
        pytest.param([claim("a"), storage_class(), driver(), capacity("c", "5Gi", {"matchExpressions": [
                         {"key": ZONE, "operator": "Exists"},
                         {"key": HOSTNAME, "operator": "NotIn", "values": ["n2"]}]})],
                     "a", dict.fromkeys(("n2", "n3"), ROOM), id="room by a selector"),
        pytest.param([claim("a"), storage_class(topologies=[{ZONE: ["a", "b"]}]), driver(),
                      capacity("c", "5Gi", {"matchLabels": {ZONE: "a"}})],
                     "a", {"n2": ROOM, "n3": NONE}, id="topology before room"),
    ],
)  # fmt: skip
def test_what_volumes_nodes_have(objects: list[StorageObject], claims: str, expected: dict[str, str]) -> None:
    state, waiting = cluster(objects), pod("p", volumes=of_claims(*claims))
    assert told(VolumeBinding(), state, waiting) == {name: text + "!" for name, text in expected.items()}
    assert not VolumeBinding().goes_by_pods(state, waiting)


# what is to be bound and made


def key(name: str) -> ClaimKey:
    return ClaimKey("default", name)


@pytest.mark.parametrize(
    ("objects", "claims", "at", "bindings", "provisions"),
    [
        pytest.param([], "", "n1", {}, "", id="no claims"),
        pytest.param([claim("a", volume="v"), volume("v")], "a", "n1", {}, "", id="bound already"),
        pytest.param([claim("a"), STATIC, volume("v"), volume("w", "5Gi"), volume("x", "7Gi")], "a", "n1",
                     {"a": "w"}, "", id="the smallest"),
        pytest.param([claim("a"), STATIC, volume("w", "7Gi"), volume("v", "7Gi")], "a", "n1",
                     {"a": "v"}, "", id="of equal ones the first by name"),
        pytest.param([claim("a"), STATIC, volume("v", "5Gi", at={ZONE: ["a"]}), volume("w")], "a", "n2",
                     {"a": "w"}, "", id="the smallest of the node"),
        pytest.param([claim("a"), STATIC, volume("v", "5Gi"), volume("w", claim_ref="a")], "a", "n1",
                     {"a": "w"}, "", id="the one that is kept for it"),
        pytest.param([claim("a"), claim("b", "1Gi"), STATIC, volume("v", "5Gi"), volume("w")], "ab", "n1",
                     {"b": "v", "a": "w"}, "", id="the smaller claim chooses first"),
        pytest.param([claim("a"), claim("b", "9Gi"), storage_class(), volume("v", "5Gi")], "ba", "n1",
                     {"a": "v"}, "b", id="one bound, one made"),
        pytest.param([claim("a"), claim("b", annotations={SELECTED_NODE: "n1"}), storage_class()], "ab", "n1",
                     {}, "ba", id="one that is being made comes first"),
    ],
)  # fmt: skip
def test_what_is_to_be_done(
    objects: list[StorageObject], claims: str, at: str, bindings: dict[str, str], provisions: str
) -> None:
    state = cluster(objects)
    decision = binding(state, pod("p", volumes=of_claims(*claims)), at)
    assert decision == VolumeDecision(
        at, tuple(ClaimBinding(key(name), to) for name, to in bindings.items()), tuple(key(name) for name in provisions)
    )
    assert set(decision.claims) == {key(name) for name in (*bindings, *provisions)}


def test_a_pod_without_claims_is_asked_for_nothing() -> None:
    state = cluster([storage_class(), csi_node("n1", csi_example_com=0)])
    waiting = pod("p", volumes=[{"name": "token", "projected": {}}, {"name": "tmp", "emptyDir": {}}])
    for plugin in (VolumeRestrictions(), NodeVolumeLimits(), VolumeBinding(), VolumeZone()):
        assert plugin.rejections(state, waiting) == ()
        assert plugin.filter(state, waiting) is None
        assert not plugin.goes_by_pods(state, waiting)


def test_rows_that_nodes_gave_back_take_no_volumes() -> None:
    """Or a volume that all but some reach would be counted for nodes that are not there."""
    state = cluster([claim("a"), STATIC])
    state.put_node(node("gone"))
    state.put_node(node("n4"))
    state.remove_node("gone")
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": HOSTNAME, "operator": "NotIn", "values": ["n1"]}]}]}}  # fmt: skip
    put(state, [volume("v", "6Gi", nodeAffinity=affinity), volume("w", "7Gi", at={HOSTNAME: ["n1"]})])
    passed = VolumeBinding().filter(state, pod("p", volumes=of_claims("a")))
    assert passed is not None
    assert np.all(passed[state.table.exists])
