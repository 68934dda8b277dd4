"""What must hold once everything is told and done, and time has passed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from koord.model import core
from koord.model.gang import GangKey
from koord.model.quantity import QuantityError
from koord.model.scheduling.koordinator import PodGroup
from koord.model.scheduling.owners import ReplicaSet, Service
from koord.model.scheduling.pods import Node, Pod
from koord.model.scheduling.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from koord.scheduling import gangplacement
from koord.scheduling.gangplacement import Member, NoHolder
from koord.scheduling.gangs import Gangs
from koord.scheduling.owners import ControllerKey
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState
from koord_scheduler.options import NAME
from koord_scheduler.view import ClusterView
from tests.koord_scheduler.simulation.apiserver import (
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
)
from tests.koord_scheduler.simulation.replica import SECOND, Replica, Violation
from tests.scheduling.oracle import Oracle
from tests.scheduling.test_state import dump
from tests.scheduling.test_volumes_against_oracle import dump as dump_volumes
from tests.scheduling.volumeoracle import VolumeOracle

T = TypeVar("T", bound=msgspec.Struct)
_ABOVE_ALL = 1 << 31


class Truth:
    """The server's objects, as they are read. ``waiting``: our pods that want a node, by uid; ``unreadable``: those
    that cannot be placed as they are.
    """

    def __init__(self, server: APIServer) -> None:
        self._server = server
        self.nodes = {each.metadata.name: each for each in self.read(NODES, Node)}
        self.namespaces = {
            each["metadata"]["name"]: each["metadata"].get("labels", {}) for each in server.documents(NAMESPACES)
        }
        self.placed: dict[str, tuple[PodInfo, str]] = {}
        self.waiting: dict[str, PodInfo] = {}
        self.unreadable: set[str] = set()
        for pod in self.read(PODS, Pod):
            self._put(pod)
        self.claims = list(self.read(CLAIMS, PersistentVolumeClaim))
        self.volumes = list(self.read(VOLUMES, PersistentVolume))
        self.classes = list(self.read(CLASSES, StorageClass))
        self.oracle = Oracle(self.nodes, self.placed, self.namespaces)
        self.volume_oracle = VolumeOracle(
            self.nodes,
            self.placed,
            {(each.metadata.namespace, each.metadata.name): each for each in self.claims},
            {each.metadata.name: each for each in self.volumes},
            {each.metadata.name: each for each in self.classes},
        )

    def read(self, path: str, struct: type[T]) -> Iterator[T]:
        for each in self._server.collection(path).objects.values():
            yield core.read(struct, each.json)

    def _put(self, pod: Pod) -> None:
        try:
            info = PodInfo.of(pod)
        except QuantityError:
            self.unreadable.add(pod.metadata.uid)
            return
        if info.is_finished:
            return
        if pod.spec.node_name:
            self.placed[info.uid] = info, pod.spec.node_name
        elif not info.is_terminating and pod.spec.scheduler_name in (NAME, SECOND):
            self.waiting[info.uid] = info

    def gangs(self, state: ClusterState) -> Gangs:
        gangs = Gangs(state)
        for group in self.read(POD_GROUPS, PodGroup):
            gangs.put_pod_group(group)
        for pod in self.read(PODS, Pod):
            with contextlib.suppress(QuantityError):
                info = PodInfo.of(pod)
                if info.uid in self.waiting or pod.spec.node_name or info.is_finished:
                    gangs.put(info)
        return gangs

    def fits(self, pod: PodInfo, node: str) -> bool:
        return not self.oracle.reasons(pod, node) and not (pod.claims and self.volume_oracle.reasons(pod, node))

    def state(self) -> ClusterState:
        """A state that is made anew, of pods first."""
        state = ClusterState()
        for pod, _ in self.placed.values():
            state.put_pod(pod)
        for volume in self.volumes:
            state.volumes.put_volume(volume)
        for claim in self.claims:
            state.volumes.put_claim(claim)
        for storage_class in self.classes:
            state.volumes.put_class(storage_class)
        for name in sorted(self.nodes, reverse=True):
            state.put_node(self.nodes[name])
        for name, labels in self.namespaces.items():
            state.put_namespace(name, labels)
        for service in self.read(SERVICES, Service):
            state.owners.put_service(service.metadata.namespace, service.metadata.name, service.spec.selector)
        for each in self.read(REPLICA_SETS, ReplicaSet):
            key = ControllerKey("ReplicaSet", each.metadata.namespace, each.metadata.name)
            state.owners.put_controller(key, each.spec.selector)
        return state


def check_replica(truth: Truth, replica: Replica) -> None:
    """Raises Violation where a replica's memory is not what the cluster is."""
    view, name = replica.view, replica.name
    if view.state.assumed:
        raise Violation(f"{name} still assumes {sorted(view.state.assumed)}")
    if replica.scheduler.binding.window.under_way:
        raise Violation(f"{name} counts {replica.scheduler.binding.window.under_way} requests under way")
    queued = {each.pod.uid for each in view.queue}
    if queued != truth.waiting.keys():
        raise Violation(f"{name} has forgotten {sorted(truth.waiting.keys() - queued)}, and has left over "
                        f"{sorted(queued - truth.waiting.keys())}")  # fmt: skip
    if sum(view.queue.counts().values()) != len(queued):
        raise Violation(f"{name} has {len(queued)} pods in a queue of {view.queue.counts()}")
    if view.problems.keys() != truth.unreadable:
        raise Violation(f"{name} has problems with {sorted(view.problems)}, not {sorted(truth.unreadable)}")
    for each in view.queue:
        key = view.gangs.of(each.pod.uid)
        is_held = key is not None and view.gangs.why_not(key) != ""
        is_gated = view.queue.part_of(each.pod.uid) == "gated"
        if not is_held and is_gated is not bool(each.pod.spec.scheduling_gates):
            raise Violation(f"{name} has pod {each.pod.name} in {view.queue.part_of(each.pod.uid)}")
    _compare(f"the gangs of {name}", _dump(view.gangs), _dump(truth.gangs(view.state)))
    nominated = {each.uid for node in _nodes(replica) for each in view.state.nominations.below(_ABOVE_ALL, node)}
    if nominated - truth.waiting.keys():
        raise Violation(f"{name} has nominations of {sorted(nominated - truth.waiting.keys())}")
    anew = truth.state()
    _compare(f"the state of {name}", dump(view.state), dump(anew))
    _compare(f"what {name} knows of volumes", dump_volumes(view.state), dump_volumes(anew))


def check_pods(truth: Truth, leader: Replica, *, are_told: bool) -> None:
    """Raises Violation where a pod waits that a node would do for; with ``are_told``, where it does not say so."""
    nominations = leader.view.state.nominations
    for pod in truth.waiting.values():
        if pod.spec.scheduling_gates:
            continue
        key = leader.view.gangs.of(pod.uid)
        if key is not None and leader.view.gangs.why_not(key):
            continue
        is_of_needed_gang = key is not None and any(leader.view.gangs.needs(key).values())
        if key is not None and is_of_needed_gang:
            _check_gang(leader.view, key)
        for node in truth.nodes if not is_of_needed_gang else ():
            if truth.fits(pod, node) and _fits_beside(truth, pod, node, nominations.ahead_on(node, pod)):
                raise Violation(f"pod {pod.name} waits, and {node} would do: {_where(leader, pod.uid)}")
        condition = pod.pod.status.condition("PodScheduled")
        if are_told and (condition is None or condition.status != "False"):
            raise Violation(f"pod {pod.name} waits, and does not say so")


def _check_gang(view: ClusterView, key: GangKey) -> None:
    """Raises Violation if the gang would have room as a whole."""
    candidates = sorted(view.gangs.candidates(key), key=lambda each: (-each.priority, each.name))
    members = [Member(each, view.gangs.of(each.uid) or key) for each in candidates]
    with gangplacement.held(view.state, NoHolder()) as attempt:
        found = attempt.fill(view.framework_of, members, view.gangs.needs(key))
    if found.is_whole:
        raise Violation(f"gang {key} waits, and {sorted(each.pod.name for each in members)} would have room")


def _dump(gangs: Gangs) -> dict[str, Any]:
    return {
        str(each.key): (set(each.waiting), set(each.placed), dict(each.succeeded), each.failed, each.settings)
        for each in gangs
    }


def _fits_beside(truth: Truth, pod: PodInfo, node: str, ahead: Iterable[PodInfo]) -> bool:
    promised = {each.uid: (each, node) for each in ahead}
    if not promised:
        return True
    oracle = Oracle(truth.nodes, {**truth.placed, **promised}, truth.namespaces)
    return not oracle.reasons(pod, node)


def _where(leader: Replica, uid: str) -> str:
    for each in leader.view.queue:
        if each.pod.uid == uid:
            return f"attempts {each.attempts}, errors {each.errors}, rejected by {sorted(each.rejected_by)}"
    return "it is not in the queue"


def _nodes(replica: Replica) -> Iterable[str]:
    state = replica.view.state
    names = {state.table.name(row) for row in range(state.length)}
    return [*filter(None, names), *[each.status.nominated_node_name for each in replica.view.pods.objects.values()]]


def _compare(what: str, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    for name in {**found, **wanted}:
        if found.get(name) != wanted.get(name):
            raise Violation(f"{what} says of {name} {found.get(name)}, and the cluster {wanted.get(name)}")
