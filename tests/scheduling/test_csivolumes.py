"""What CSI drivers call volumes, and what nodes have attached for VolumeAttachments."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from koord.model import core
from koord.model.scheduling.pods import Volume
from koord.model.scheduling.storage import CSINode
from koord.scheduling import csivolumes
from koord.scheduling.csivolumes import AttachedVolume
from koord.scheduling.plugins.volumebinding import VolumeBinding
from koord.scheduling.plugins.volumes import NodeVolumeLimits
from koord.scheduling.state import ClusterState
from tests.scheduling.clusters import HOSTNAME, node, pod
from tests.scheduling.test_volumeplugins import MOST, cluster, csi, told
from tests.scheduling.volumeobjects import (
    DRIVER,
    EBS,
    attachment,
    claim,
    csi_node,
    of_claims,
    put,
    storage_class,
    volume,
)

OLD_REGION = "failure-domain.beta.kubernetes.io/region"
GCE, OLD, ZONE = "pd.csi.storage.gke.io", "failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"
AZURE, CINDER, PORTWORX = "disk.csi.azure.com", "cinder.csi.openstack.org", "pxd.portworx.com"


def disk(of: str) -> str:
    return f"projects/UNSPECIFIED/{of}/disks/d"


@pytest.mark.parametrize(
    ("source", "labels", "driver", "handle"),
    [
        ({"csi": {"driver": "d", "volumeHandle": "h"}}, {}, "d", "h"),
        ({"csi": {"driver": "d"}}, {}, "", ""),
        ({"awsElasticBlockStore": {"volumeID": "vol-1"}}, {}, EBS, "vol-1"),
        ({"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-1"}}, {}, EBS, "vol-1"),
        ({"awsElasticBlockStore": {"volumeID": "aws:///vol-1"}}, {}, EBS, "vol-1"),
        ({"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/disk"}}, {}, "", ""),
        ({"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-1/x"}}, {}, "", ""),
        ({"gcePersistentDisk": {"pdName": "d"}}, {}, GCE, disk("zones/UNSPECIFIED")),
        ({"gcePersistentDisk": {"pdName": "d"}}, {ZONE: "us-east1-a"}, GCE, disk("zones/us-east1-a")),
        ({"gcePersistentDisk": {"pdName": "d"}}, {ZONE: "b", OLD: "a"}, GCE, disk("zones/a")),
        ({"gcePersistentDisk": {"pdName": "d"}}, {ZONE: "us-east1-a__us-east1-b"}, GCE, disk("regions/us-east1")),
        ({"gcePersistentDisk": {"pdName": "d"}}, {ZONE: "us-east1-a__us-west1-b"}, "", ""),
        ({"gcePersistentDisk": {"pdName": "d"}}, {ZONE: "a__b"}, "", ""),
        ({"azureDisk": {"diskName": "d", "diskURI": "/subscriptions/d"}}, {}, AZURE, "/subscriptions/d"),
        ({"cinder": {"volumeID": "c"}}, {}, CINDER, "c"),
        ({"portworxVolume": {"volumeID": "p"}}, {}, PORTWORX, "p"),
        ({"vsphereVolume": {"volumePath": "p"}}, {}, "", ""),
        ({"nfs": {"server": "s", "path": "/"}}, {}, "", ""),
    ],
)
def test_what_a_driver_calls_a_volume(source: dict[str, Any], labels: dict[str, str], driver: str, handle: str) -> None:
    expected = AttachedVolume(driver, handle) if driver else None
    assert csivolumes.of_object(volume("v", labels=labels, **source)) == expected
    if not labels and "csi" not in source:
        inline = core.read(Volume, msgspec.json.encode({"name": "v", **source}))
        assert csivolumes.of_inline(inline) == expected


@pytest.mark.parametrize(
    ("provisioner", "driver"),
    [
        ("kubernetes.io/aws-ebs", EBS),
        ("kubernetes.io/gce-pd", GCE),
        ("kubernetes.io/azure-disk", AZURE),
        ("kubernetes.io/cinder", CINDER),
        ("kubernetes.io/portworx-volume", PORTWORX),
        ("kubernetes.io/vsphere-volume", ""),
        ("kubernetes.io/azure-file", ""),
        ("csi.example.com", "csi.example.com"),
    ],
)
def test_who_attaches_what_a_class_makes(provisioner: str, driver: str) -> None:
    assert csivolumes.driver_of(provisioner) == driver
    state = cluster([storage_class("s", provisioner), claim("c", storage_class="s")])
    attached = state.volumes.attached_volume(pod("p", volumes=of_claims("c")).claims[0].key)
    assert (attached.driver if attached else "") == driver


AT = "topology.ebs.csi.aws.com/zone"


@pytest.mark.parametrize(
    ("at", "labels", "plain", "taken_over"),
    [
        pytest.param({ZONE: ["a"]}, {}, "n1 n2", "n2 n3", id="the driver's label stands for the zone's"),
        pytest.param({OLD: ["a"]}, {}, "", "n2 n3", id="and for the old one, which nodes have no more"),
        pytest.param({OLD: ["a"], OLD_REGION: ["r"]}, {}, "", "n2", id="an old region is found in the new label"),
        pytest.param(None, {ZONE: "a__b"}, "n1 n2 n3 n4", "n2 n3 n4", id="a label of the volume asks for zones"),
        pytest.param(None, {}, "n1 n2 n3 n4", "n1 n2 n3 n4", id="nothing is asked for"),
        pytest.param({"disk": ["ssd"]}, {ZONE: "b"}, "n3 n4", "n4", id="a label of the volume beside its affinity"),
        pytest.param({HOSTNAME: ["n1"]}, {}, "n1", "n1", id="no zone at all"),
    ],
)
def test_where_a_volume_is_reached_whose_kind_was_taken_over(
    at: dict[str, list[str]] | None, labels: dict[str, str], plain: str, taken_over: str
) -> None:
    state = ClusterState()
    for name, own in (
        ("n1", {ZONE: "a"}),
        ("n2", {ZONE: "a", AT: "a", "topology.kubernetes.io/region": "r"}),
        ("n3", {AT: "a", "disk": "ssd"}),
        ("n4", {ZONE: "c", AT: "b", "disk": "ssd"}),
    ):
        state.put_node(node(name, labels=own))
    disk: dict[str, Any] = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
    put(state, [claim("c", volume="v"), volume("v", at=at, labels=labels, **disk)])
    waiting = pod("p", volumes=of_claims("c"))

    def reached() -> str:
        found = VolumeBinding().filter(state, waiting)
        return " ".join(f"n{row + 1}" for row in range(4) if found is None or found[row])

    assert reached() == plain
    for name in ("n1", "n2", "n3", "n4"):
        put(state, [migrated(name, "kubernetes.io/gce-pd,kubernetes.io/aws-ebs")])
    assert reached() == taken_over
    for name in ("n1", "n2", "n3", "n4"):
        put(state, [migrated(name, "kubernetes.io/gce-pd")])
    assert reached() == plain


def test_a_node_that_comes_after_its_csi_node_has_what_was_taken_over() -> None:
    state = ClusterState()
    put(state, [migrated("n1", "kubernetes.io/aws-ebs"), migrated("n2", "")])
    for _ in range(2):
        for name in ("n1", "n2"):
            state.put_node(node(name))
        assert taken_over(state) == {"n1"}
        state.remove_node("n1")
        state.put_node(node("n9"))
        assert taken_over(state) == set()
        state.remove_node("n9")
    state.put_node(node("n1"))
    state.volumes.limits.remove("n1")
    assert taken_over(state) == set()


def taken_over(state: ClusterState) -> set[str]:
    found = state.volumes.limits.is_taken_over("kubernetes.io/aws-ebs")
    assert found is not None
    return {state.table.name(row) for row, each in enumerate(found) if each}


def migrated(name: str, plugins: str) -> CSINode:
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": plugins}
    return core.read(CSINode, msgspec.json.encode({"metadata": {"name": name, "annotations": annotations}}))


def limited(limit: int) -> ClusterState:
    return cluster(
        [csi_node("n1", csi_example_com=limit, ebs_csi_aws_com=limit)]
        + [claim(name, volume=f"v-{name}") for name in "abd"]
        + [volume(f"v-{name}", **csi(name)) for name in "ab"]
        + [volume("v-d", awsElasticBlockStore={"volumeID": "vol-d"})],
        [pod("x", nodeName="n1", volumes=of_claims("a"))],
    )


INLINE = [{"name": "e", "awsElasticBlockStore": {"volumeID": "vol-e"}}]


@pytest.mark.parametrize(
    ("limit", "attachments", "volumes", "is_full"),
    [
        pytest.param(2, [], of_claims("b"), False, id="one pod's"),
        pytest.param(2, [("n1", "v-a", DRIVER)], of_claims("b"), False, id="attached for the pod that is there"),
        pytest.param(2, [("n1", "v-c", DRIVER)], of_claims("b"), False, id="of an unknown volume"),
        pytest.param(2, [("n1", "v-b", DRIVER)], of_claims("b"), True, id="attached without a pod"),
        pytest.param(2, [("n2", "v-b", DRIVER)], of_claims("b"), False, id="on another node"),
        pytest.param(2, [("n1", "v-b", "other")], of_claims("b"), False, id="by another driver"),
        pytest.param(2, [("n1", "v-b", "")], of_claims("b"), False, id="by none"),
        pytest.param(2, [("n1", "", DRIVER)], of_claims("b"), False, id="what a pod describes itself"),
        pytest.param(1, [("n1", "v-d", EBS)], INLINE, False, id="a volume that names no driver"),
        pytest.param(3, [("n1", "v-b", DRIVER)] * 2, of_claims("b"), False, id="twice the same"),
        pytest.param(1, [], INLINE, False, id="a disk of the pod's own"),
        pytest.param(0, [], INLINE, True, id="a disk too many"),
        pytest.param(1, [], [*INLINE, *of_claims("d")], True, id="two disks"),
    ],
)
def test_what_the_attach_controller_holds_counts(
    limit: int, attachments: list[tuple[str, str, str]], volumes: list[dict[str, Any]], is_full: bool
) -> None:
    state, waiting = limited(limit), pod("p", volumes=volumes)
    put(state, [attachment(f"a{index}", *each) for index, each in enumerate(attachments)])
    assert told(NodeVolumeLimits(), state, waiting) == ({"n1": MOST} if is_full else {})


def test_an_attachment_follows_its_volume_and_its_node() -> None:
    state, waiting = limited(2), pod("p", volumes=of_claims("b"))
    put(state, [attachment("one", "n1", "v-new")])
    assert told(NodeVolumeLimits(), state, waiting) == {}
    put(state, [volume("v-new", **csi("new"))])
    assert told(NodeVolumeLimits(), state, waiting) == {"n1": MOST}
    state.remove_node("n1")
    state.put_node(node("n1"))
    assert told(NodeVolumeLimits(), state, waiting) == {"n1": MOST}
    state.volumes.remove_volume("v-new")
    assert told(NodeVolumeLimits(), state, waiting) == {}
    put(state, [volume("v-new", **csi("new"))])
    state.volumes.attachments.remove("one")
    state.volumes.attachments.remove("one")
    assert told(NodeVolumeLimits(), state, waiting) == {}
