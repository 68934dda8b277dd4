"""A pod as scheduling counts it: read once of each version of its object, and never changed.

``signature`` is equal for pods that every plugin treats alike wherever they go: replicas of one template. What differs
between replicas (name, uid, times, status) is not in it.
Fails with QuantityError where an amount of the pod cannot be read: such a pod cannot be placed, and nothing else is
affected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import msgspec

from koord.model import podrequests, priority, qos
from koord.model.core import unix_s
from koord.model.priority import CPU, MEMORY, PriorityClass
from koord.model.qos import QoSClass
from koord.model.scheduling.pods import Pod, PodAffinityTerm, PodSpec
from koord.model.selector import LabelSelector, Operator, Requirement
from koord.scheduling import amounts, csivolumes
from koord.scheduling.csivolumes import AttachedVolume

ANY_IP = "0.0.0.0"
_FINISHED = ("Succeeded", "Failed")


class HostPort(NamedTuple):
    protocol: str
    port: int
    ip: str


class ClaimKey(NamedTuple):
    namespace: str
    name: str


class PodClaim(NamedTuple):
    """A claim that one of the pod's volumes names; of an ephemeral volume the pod must own it."""

    key: ClaimKey
    is_ephemeral: bool


class DiskKey(NamedTuple):
    """A disk of a kind that not all pods of a node may share: its ``kind`` of source and what names it there."""

    kind: str
    name: tuple[str, ...]


class PodDisk(NamedTuple):
    """``is_shared``: several pods of a node may have it as long as all of them have it shared."""

    key: DiskKey
    is_shared: bool


class PodLabels(NamedTuple):
    """What selectors of pods go by. Pods of equal ones are counted together."""

    namespace: str
    labels: frozenset[tuple[str, str]]
    is_terminating: bool


class AffinityTerm(NamedTuple):
    """A term of a pod's affinity as it holds for that pod: with its own namespace and ``matchLabelKeys`` filled in.

    ``namespace_selector`` None: ``namespaces`` alone. Its JSON is what makes two of them equal, since selectors hold
    mappings.
    """

    topology_key: str
    namespaces: frozenset[str]
    selector_json: bytes
    namespace_selector_json: bytes

    @property
    def selector(self) -> LabelSelector | None:
        """None matches no pod."""
        return selector_of(self.selector_json)

    @property
    def namespace_selector(self) -> LabelSelector | None:
        return selector_of(self.namespace_selector_json)


class WeightedTerm(NamedTuple):
    term: AffinityTerm
    weight: int


@dataclass(frozen=True, eq=False)
class PodInfo:
    """``requests``, ``assumed_cpu_milli``, ``assumed_memory_bytes``: as of `koord.scheduling.amounts.PodAmounts`."""

    pod: Pod
    requests: Mapping[str, int]
    assumed_cpu_milli: int
    assumed_memory_bytes: int

    @classmethod
    def of(cls, pod: Pod) -> PodInfo:
        """Raises QuantityError."""
        return cls(pod, *amounts.of_pod(pod))

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def namespace(self) -> str:
        return self.pod.metadata.namespace

    @property
    def name(self) -> str:
        return self.pod.metadata.name

    @cached_property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def labels(self) -> Mapping[str, str]:
        return self.pod.metadata.labels

    @property
    def spec(self) -> PodSpec:
        return self.pod.spec

    @property
    def priority(self) -> int:
        return self.pod.spec.priority or 0

    @property
    def is_terminating(self) -> bool:
        return self.pod.metadata.deletion_timestamp is not None

    @property
    def is_finished(self) -> bool:
        """Returns whether it holds nothing of its node any more."""
        return self.pod.status.phase in _FINISHED

    @cached_property
    def limits(self) -> Mapping[str, int]:
        """What it may use, by the name of the resource, in the units of its requests. Raises QuantityError."""
        return podrequests.limits(self.spec)

    @cached_property
    def priority_class(self) -> PriorityClass:
        """The class that it is treated by: what it says, else prod, or batch for one of BE."""
        derived = qos.labelled(self.labels)
        if derived is None and (CPU in self.requests or MEMORY in self.requests):
            derived = QoSClass.LS  # it is not BestEffort, which is all that matters of the class of others
        if derived is None:
            derived = qos.derive(None, podrequests.kube_qos(self.pod)).qos
        return priority.effective(self.labels, self.spec.priority, derived)

    @cached_property
    def is_prod(self) -> bool:
        return self.priority_class is PriorityClass.PROD

    @cached_property
    def scheduled_s(self) -> float | None:
        """When it got its node, in seconds since 1970; None: its object does not say so yet."""
        return self._became_true_s("PodScheduled")

    @cached_property
    def initialized_s(self) -> float | None:
        """When its init containers had ended, in seconds since 1970; None: they have not."""
        return self._became_true_s("Initialized")

    @cached_property
    def created_s(self) -> float:
        """When its object was made, in seconds since 1970; 0: it does not say."""
        return unix_s(self.pod.metadata.creation_timestamp) or 0.0

    def _became_true_s(self, type: str) -> float | None:
        condition = self.pod.status.condition(type)
        return unix_s(condition.last_transition_time) if condition is not None and condition.status == "True" else None

    @cached_property
    def counted(self) -> Mapping[str, int]:
        """What its node has less of: its requests, and one of the node's places for pods."""
        return {**self.requests, amounts.PODS: 1}

    @cached_property
    def pod_labels(self) -> PodLabels:
        return PodLabels(self.namespace, frozenset(self.labels.items()), self.is_terminating)

    @cached_property
    def host_ports(self) -> tuple[HostPort, ...]:
        """The ports of its node that its containers and sidecars take."""
        return tuple(dict.fromkeys(_host_ports(self.spec)))

    @cached_property
    def claims(self) -> tuple[PodClaim, ...]:
        """The PersistentVolumeClaims of its volumes, each once, in their order."""
        return tuple(dict.fromkeys(_claims(self))) if self.spec.volumes else ()

    @cached_property
    def disks(self) -> tuple[PodDisk, ...]:
        """Its disks that other pods of its node may not have, too."""
        return tuple(_disks(self.spec)) if self.spec.volumes else ()

    @cached_property
    def inline_volumes(self) -> tuple[AttachedVolume, ...]:
        """What drivers attach for its volumes that name their disks themselves, each once."""
        found = [csivolumes.of_inline(volume) for volume in self.spec.volumes]
        return tuple(dict.fromkeys([each for each in found if each is not None]))

    @property
    def has_volumes(self) -> bool:
        """Returns whether it has volumes that a node may not take."""
        return bool(self.spec.volumes) and bool(self.claims or self.disks or self.inline_volumes)

    @cached_property
    def affinity(self) -> tuple[AffinityTerm, ...]:
        """Terms that must hold, of pods to be near."""
        affinity = self.spec.affinity
        return _terms(self, affinity.pod_affinity.required if affinity and affinity.pod_affinity else ())

    @cached_property
    def anti_affinity(self) -> tuple[AffinityTerm, ...]:
        """Terms that must hold, of pods to be apart from."""
        affinity = self.spec.affinity
        return _terms(self, affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else ())

    @cached_property
    def preferred_affinity(self) -> tuple[WeightedTerm, ...]:
        """Terms that should hold; those of pods to be apart from have a weight below 0."""
        affinity = self.spec.affinity
        if affinity is None:
            return ()
        near = affinity.pod_affinity.preferred if affinity.pod_affinity else ()
        apart = affinity.pod_anti_affinity.preferred if affinity.pod_anti_affinity else ()
        return (
            *[WeightedTerm(affinity_term(self, each.pod_affinity_term), each.weight) for each in near],
            *[WeightedTerm(affinity_term(self, each.pod_affinity_term), -each.weight) for each in apart],
        )

    @cached_property
    def signature(self) -> bytes:
        """Equal for pods that are placed alike, by their annotations, too, which plugins may go by. One with ephemeral
        volumes has claims of its own, and is like none.
        """
        spec = msgspec.structs.replace(self.spec, node_name="", termination_grace_period_seconds=None)
        owner = self.pod.metadata.controller
        annotations = self.pod.metadata.annotations
        own = self.uid if any(claim.is_ephemeral for claim in self.claims) else ""
        return msgspec.json.encode(
            (self.namespace, self.labels, annotations, spec, owner, tuple(self.requests.items()), own),
            order="deterministic",
        )


def affinity_term(pod: PodInfo, term: PodAffinityTerm) -> AffinityTerm:
    """Returns ``term`` as it holds for ``pod``."""
    selector = term.label_selector
    if selector is not None:
        selector = with_label_keys(selector, pod.labels, term.match_label_keys, term.mismatch_label_keys)
    namespaces = term.namespaces
    if not namespaces and term.namespace_selector is None:
        namespaces = (pod.namespace,)
    return AffinityTerm(
        term.topology_key, frozenset(namespaces), selector_json(selector), selector_json(term.namespace_selector)
    )


def with_label_keys(
    selector: LabelSelector, labels: Mapping[str, str], same: tuple[str, ...], other: tuple[str, ...] = ()
) -> LabelSelector:
    """Returns ``selector`` that also wants ``labels``' values of the keys ``same``, and none of those of ``other``.

    Keys that the labels lack are left out.
    """
    added = [Requirement(key=key, operator=Operator.IN, values=(labels[key],)) for key in same if key in labels]
    added += [Requirement(key=key, operator=Operator.NOT_IN, values=(labels[key],)) for key in other if key in labels]
    if not added:
        return selector
    return LabelSelector(match_labels=selector.match_labels, match_expressions=(*selector.match_expressions, *added))


def pairs_of(selector: LabelSelector | None) -> Sequence[tuple[str, str]] | None:
    """Returns labels of which each pod has one that the selector matches; None: they cannot be told."""
    if selector is None:
        return ()  # it matches no pod
    for pair in selector.match_labels.items():
        return (pair,)
    for each in selector.match_expressions:
        if each.operator == Operator.IN:
            return tuple([(each.key, value) for value in each.values])
    return None


def selector_json(selector: LabelSelector | None) -> bytes:
    return b"" if selector is None else msgspec.json.encode(selector, order="deterministic")


@lru_cache(maxsize=4096)
def selector_of(json: bytes) -> LabelSelector | None:
    return msgspec.json.decode(json, type=LabelSelector) if json else None


def _terms(pod: PodInfo, terms: tuple[PodAffinityTerm, ...]) -> tuple[AffinityTerm, ...]:
    return tuple([affinity_term(pod, term) for term in terms])


def _host_ports(spec: PodSpec) -> Iterator[HostPort]:
    sidecars = [each for each in spec.init_containers if each.restart_policy == "Always"]
    for container in (*sidecars, *spec.containers):
        for port in container.ports:
            if port.host_port > 0:
                yield HostPort(port.protocol or "TCP", port.host_port, port.host_ip or ANY_IP)


def _claims(pod: PodInfo) -> Iterator[PodClaim]:
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield PodClaim(ClaimKey(pod.namespace, volume.persistent_volume_claim.claim_name), False)
        elif volume.ephemeral is not None:
            yield PodClaim(ClaimKey(pod.namespace, f"{pod.name}-{volume.name}"), True)


def _disks(spec: PodSpec) -> Iterator[PodDisk]:
    """An image of RBD counts by each of its monitors, since two with one monitor in common are the same."""
    for volume in spec.volumes:
        if (gce := volume.gce_persistent_disk) is not None:
            yield PodDisk(DiskKey("gcePersistentDisk", (gce.pd_name,)), gce.read_only)
        if (ebs := volume.aws_elastic_block_store) is not None:
            yield PodDisk(DiskKey("awsElasticBlockStore", (ebs.volume_id,)), False)
        if (iscsi := volume.iscsi) is not None:
            yield PodDisk(DiskKey("iscsi", (iscsi.iqn,)), iscsi.read_only)
        if (rbd := volume.rbd) is not None:
            for monitor in dict.fromkeys(rbd.monitors):
                yield PodDisk(DiskKey("rbd", (monitor, rbd.pool, rbd.image)), rbd.read_only)
