"""A volume as its CSI driver knows it, also one of a kind that was part of Kubernetes before drivers were.

Such a volume is attached by the driver that took its kind over, and counts for that driver's limit. A node whose
CSINode says that the kind was taken over there reaches it by the driver's label of zones. What is read of it here is no
more than what tells one from another, and where it is.

Sources: staging/src/k8s.io/csi-translation-lib, pkg/scheduler/framework/plugins/nodevolumelimits/utils.go. Upstream
counts Portworx' only on nodes whose CSINode says that they were taken over there; a kubelet of today always says it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from koord.model.scheduling.pods import NodeSelectorRequirement, NodeSelectorTerm, Volume
from koord.model.scheduling.storage import PersistentVolume, PersistentVolumeSpec
from koord.scheduling.labels import OLD_REGION, OLD_ZONE, REGION, ZONE

_AWS, _GCE, _AZURE = "ebs.csi.aws.com", "pd.csi.storage.gke.io", "disk.csi.azure.com"
_CINDER, _PORTWORX = "cinder.csi.openstack.org", "pxd.portworx.com"
_AWS_PLUGIN, _GCE_PLUGIN, _CINDER_PLUGIN = "kubernetes.io/aws-ebs", "kubernetes.io/gce-pd", "kubernetes.io/cinder"
_DRIVERS = {
    _AWS_PLUGIN: _AWS,
    _GCE_PLUGIN: _GCE,
    "kubernetes.io/azure-disk": _AZURE,
    _CINDER_PLUGIN: _CINDER,
    "kubernetes.io/portworx-volume": _PORTWORX,
    "kubernetes.io/vsphere-volume": "",
    "kubernetes.io/azure-file": "",
}
"""By the name of a provisioner; "": upstream counts its volumes for none."""
_ZONES_OF = {
    _AWS_PLUGIN: f"topology.{_AWS}/zone",
    _GCE_PLUGIN: "topology.gke.io/zone",
    _CINDER_PLUGIN: f"topology.{_CINDER}/zone",
}
"""By the kind that was taken over, the driver's label of a node's zone."""
_MULTI_ZONE = "__"
_UNSPECIFIED = "UNSPECIFIED"


class AttachedVolume(NamedTuple):
    """``handle``: by which the driver knows it; of a claim without a volume one that the claim's name makes up."""

    driver: str
    handle: str


def driver_of(provisioner: str) -> str:
    """Returns the driver that attaches what the provisioner makes; "": none whose limits count."""
    return _DRIVERS.get(provisioner, provisioner)


def of_object(volume: PersistentVolume) -> AttachedVolume | None:
    """Returns what a driver attaches for the volume; None: nothing that counts."""
    csi = volume.spec.csi
    if csi is not None:
        return AttachedVolume(csi.driver, csi.volume_handle) if csi.driver and csi.volume_handle else None
    return _taken_over(volume.spec, volume.metadata.labels)


def of_inline(volume: Volume) -> AttachedVolume | None:
    """Returns what a driver attaches for a pod's volume that names its disk itself; None: nothing that counts."""
    if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
        return None
    return _taken_over(volume, {})


class TakenOver(NamedTuple):
    """``plugin``: the kind, as a CSINode names it. ``terms``: of the nodes that reach the volume where a driver has
    taken the kind over; None: every node does.
    """

    plugin: str
    terms: tuple[NodeSelectorTerm, ...] | None


def taken_over(volume: PersistentVolume) -> TakenOver | None:
    """Returns how the volume is reached where its kind was taken over; None: as elsewhere."""
    spec, labels = volume.spec, volume.metadata.labels
    plugin = _AWS_PLUGIN if spec.aws_elastic_block_store else _GCE_PLUGIN if spec.gce_persistent_disk else ""
    plugin = plugin or (_CINDER_PLUGIN if spec.cinder else "")
    if not plugin:
        return None
    required = spec.node_affinity.required if spec.node_affinity else None
    terms = required.node_selector_terms if required else ()
    keys = {each.key for term in terms for each in term.match_expressions}
    is_old = ZONE not in keys and (OLD_ZONE in keys or (ZONE not in labels and OLD_ZONE in labels))
    zone = OLD_ZONE if is_old else ZONE
    if zone in keys:
        renamed = {zone: _ZONES_OF[plugin], **({OLD_REGION: REGION} if is_old else {})}
        return TakenOver(plugin, tuple([_renamed(term, renamed) for term in terms]))
    zones = tuple(sorted({each.strip() for each in labels.get(zone, "").split(_MULTI_ZONE)} - {""}))
    if not zones:
        return TakenOver(plugin, terms if required else None)
    added = NodeSelectorRequirement(_ZONES_OF[plugin], "In", zones)
    return TakenOver(
        plugin,
        tuple([replace(term, match_expressions=(*term.match_expressions, added)) for term in terms])
        or (NodeSelectorTerm((added,)),),
    )


def _renamed(term: NodeSelectorTerm, names: Mapping[str, str]) -> NodeSelectorTerm:
    expressions = [replace(each, key=names.get(each.key, each.key)) for each in term.match_expressions]
    return replace(term, match_expressions=tuple(expressions))


def _taken_over(source: Volume | PersistentVolumeSpec, labels: Mapping[str, str]) -> AttachedVolume | None:
    driver = handle = ""
    if source.aws_elastic_block_store is not None:
        driver, handle = _AWS, _aws_handle(source.aws_elastic_block_store.volume_id)
    elif source.gce_persistent_disk is not None:
        place = _gce_place(labels.get(OLD_ZONE) or labels.get(ZONE, ""))
        name = source.gce_persistent_disk.pd_name
        driver, handle = _GCE, f"projects/{_UNSPECIFIED}/{place}/disks/{name}" if place else ""
    elif source.azure_disk is not None:
        driver, handle = _AZURE, source.azure_disk.disk_uri
    elif source.cinder is not None:
        driver, handle = _CINDER, source.cinder.volume_id
    elif source.portworx_volume is not None:
        driver, handle = _PORTWORX, source.portworx_volume.volume_id
    return AttachedVolume(driver, handle) if handle else None


def _aws_handle(volume_id: str) -> str:
    """``aws://us-east-1a/vol-1`` is ``vol-1``; "": it is no volume's."""
    if not volume_id.startswith("aws://"):
        return volume_id
    handle = volume_id.removeprefix("aws://").partition("/")[2].strip("/")
    return handle if handle.startswith("vol-") and "/" not in handle else ""


def _gce_place(zones: str) -> str:
    """Of several zones their region; "": they are not of one."""
    if _MULTI_ZONE not in zones:
        return f"zones/{zones or _UNSPECIFIED}"
    split = [zone.split("-") for zone in zones.split(_MULTI_ZONE)]
    regions = {"-".join(parts[:-1]) for parts in split}
    return f"regions/{regions.pop()}" if len(regions) == 1 and all(len(parts) == 3 for parts in split) else ""
