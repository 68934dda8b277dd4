"""Finds what manifests use of Koordinator that this release does not do, so that Koordinator has to stay for it.

docs/migration.md lists these. A kind of another project with the same name is not meant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from koord.model import devices
from koord.model.core import Pod
from koord.model.documents import at, mapping
from koord.model.priority import BATCH_CPU, BATCH_MEMORY
from koord.model.problem import Problem
from koordctl.manifests import Manifest

LABEL_ZONES = "node.koordinator.sh/numa-topology-policy"
_SEE = "keep what Koordinator has for it (docs/migration.md, Do not migrate yet)"
_KINDS: Mapping[str, tuple[str, str]] = {
    "Device": ("scheduling.koordinator.sh", "koord-manager writes no resources of devices onto the Node"),
}
"""The group of each kind, and what is not done about its objects."""

_TOPOLOGY, _NODE = "NodeResourceTopology", "Node"
_GROUPS = {**{kind: group for kind, (group, _) in _KINDS.items()}, _TOPOLOGY: "topology.node.k8s.io", _NODE: ""}


def is_known(manifest: Manifest) -> bool:
    """Returns whether this kind is looked at here."""
    version = str(manifest.document.get("apiVersion") or "")
    return _GROUPS.get(manifest.kind) == (version.rpartition("/")[0])


def of_object(manifest: Manifest) -> Iterator[Problem]:
    """Yields the problems of an object that ``is_known``."""
    if manifest.kind in _KINDS:
        yield Problem("kind", f"{_KINDS[manifest.kind][1]}: {_SEE}")
    elif manifest.kind == _TOPOLOGY:
        for index, zone in enumerate(_items(manifest.document, "zones")):
            if any(at(each, "name") in (BATCH_CPU, BATCH_MEMORY) for each in _items(zone, "resources")):
                yield Problem(f"zones[{index}].resources", f"koord-manager writes no batch amounts of zones: {_SEE}")
    else:
        yield from _of_node(manifest)


def of_pod(pod: Pod) -> Iterator[Problem]:
    """Yields the problems of a pod."""
    for member, containers in (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers)):
        for index, container in enumerate(containers):
            for kind in ("requests", "limits"):
                for name in devices.among(getattr(container.resources, kind)):
                    yield Problem(f"spec.{member}[{index}].resources.{kind}.{name}", _of_device(name))


def _of_node(manifest: Manifest) -> Iterator[Problem]:
    for name in devices.among(mapping(manifest.document, "status", "allocatable")):
        yield Problem(f"status.allocatable.{name}", f"koord-manager does not keep it up to date: {_SEE}")
    if manifest.labels.get(LABEL_ZONES, "None") not in ("", "None"):
        why = "the scheduler fits pods to zones here, and koord-manager writes no batch amounts of zones"
        yield Problem(f"metadata.labels.{LABEL_ZONES}", f"{why}: {_SEE}")


def _of_device(name: str) -> str:
    also = (
        "neither makes gpu-core and gpu-memory-ratio of it nor writes it"
        if name == devices.GPU
        else "does not write it"
    )
    return f"koord-manager {also} onto Nodes: {_SEE}"


def _items(document: object, member: str) -> list[Any]:
    found = at(document, member)
    return found if isinstance(found, list) else []
