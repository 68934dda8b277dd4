"""What another agent left in the files of kubelet's tiers, and of the pods of the BestEffort one.

A look at a node on which koord-qosd does not run: what the files hold beside what kubelet writes there. Of other pods
only koord-qosd, which asks kubelet and the runtime, knows what that is. Invariant: nothing is written; a file of which
Koord's own undo record speaks is no other agent's.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping

from koord.host import kubeletvalues, undo
from koord.host.cgroup import ReadError, Tree, effective_value
from koord.host.files import ROWS, ParseError, Target, Value
from koord.host.kubeletvalues import FILES, NOT_CERTAIN, OF_BEST_EFFORT, Kubelet, Place
from koord.host.notes import Entry
from koord.host.order import CPUS
from koord.host.writer import Writer
from koord.model.qos import KubeQoS
from koordctl.doctor.grants import UNDO_RECORD
from koordctl.host.node import Node


def look(node: Node, tree: Tree, tiers: Mapping[KubeQoS, str], has_memory_qos: bool | None) -> tuple[str, ...]:
    """One sentence a file. ``has_memory_qos``: is kubelet's feature MemoryQoS on? None: nobody tells."""
    if not tiers:
        return ()
    writer, root, ours = Writer(tree), tiers[KubeQoS.GUARANTEED], _recorded(node)
    pods_cpus = "" if tree.version == 2 else _holds(writer, Target(root, CPUS))
    kubelet = Kubelet(tree.version, None if pods_cpus is None else str(pods_cpus), None, has_memory_qos)
    everywhere = effective_value(tree, Target(root, CPUS)) if tree.version == 2 else None  # holds nobody back
    return tuple(
        node.plain(f"{writer.path(target)} holds {found}, and kubelet writes {base!s}")
        for target, base in _expected(node, tree, tiers, kubelet)
        if target not in ours and (found := _holds(writer, target)) is not None
        if not ROWS[target.name].same(base, found, mmap.PAGESIZE, tree.version)
        if target.name != CPUS or found != everywhere
    )


def _expected(node: Node, tree: Tree, tiers: Mapping[KubeQoS, str], kubelet: Kubelet) -> Iterator[tuple[Target, Value]]:
    for qos, tier in tiers.items():
        place = Place.ROOT if qos is KubeQoS.GUARANTEED else Place.TIER
        yield from _of(tier, place, qos, kubelet)
    tier = tiers[KubeQoS.BEST_EFFORT]
    for pod in _below(node, tree, tier):
        if "pod" in pod.rpartition("/")[2]:
            yield from _of(pod, Place.POD, KubeQoS.BEST_EFFORT, kubelet)
            for container in _below(node, tree, pod):
                yield from _of(container, Place.CONTAINER, KubeQoS.BEST_EFFORT, kubelet)


def _of(cgroup: str, place: Place, qos: KubeQoS, kubelet: Kubelet) -> Iterator[tuple[Target, Value]]:
    asked = OF_BEST_EFFORT if place in (Place.POD, Place.CONTAINER) else NOT_CERTAIN
    for row in FILES[place]:
        base = kubeletvalues.value(row, place, qos, asked, kubelet)
        if base is not None:
            yield Target(cgroup, row), base


def _below(node: Node, tree: Tree, cgroup: str) -> Iterator[str]:
    top = node.own(tree.directory(cgroup))
    return (f"{cgroup}/{name}" for name in node.names(top) if tree.exists(f"{cgroup}/{name}"))


def _holds(writer: Writer, target: Target) -> Value | None:
    try:
        return writer.read(target)
    except (ReadError, ParseError):
        return None


def _recorded(node: Node) -> frozenset[Target]:
    """The files of which the undo record speaks."""
    return frozenset(each.target for each in undo.held(node.at(UNDO_RECORD)) if isinstance(each, Entry))
