"""Pods and Events with the fields that explain them, which no other program of Koord needs to keep."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koord.kube import kind
from koord.model.core import Condition, ContainerStatus, ObjectMeta, Pod, PodSpec, PodStatus, Source


class ContainerState(Source, frozen=True):
    reason: str = ""
    message: str = ""
    exit_code: int = 0
    """0 of a container that has not terminated."""


class DetailedContainerStatus(ContainerStatus, frozen=True):
    state: Mapping[str, ContainerState] = {}
    last_state: Mapping[str, ContainerState] = {}
    """The state before the last restart; of a container in back-off its end is here."""
    ready: bool = True


class DetailedPodSpec(PodSpec, frozen=True):
    node_selector: Mapping[str, str] = {}


class DetailedPodStatus(PodStatus, frozen=True):
    conditions: tuple[Condition, ...] = ()
    reason: str = ""
    """Why kubelet ended the pod: "Evicted", "OutOfcpu"…"""
    message: str = ""
    container_statuses: tuple[DetailedContainerStatus, ...] = ()
    init_container_statuses: tuple[DetailedContainerStatus, ...] = ()

    def condition(self, type: str) -> Condition | None:
        return next((each for each in self.conditions if each.type == type), None)


class DetailedPod(Pod, frozen=True):
    spec: DetailedPodSpec = DetailedPodSpec()
    status: DetailedPodStatus = DetailedPodStatus()


class ObjectReference(msgspec.Struct, frozen=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class Event(msgspec.Struct, frozen=True, rename="camel"):
    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    """None: once, or its writer counts in ``series``."""
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None

    @property
    def last_time(self) -> str | None:
        """Returns when it happened last; None if it does not say."""
        return self.last_timestamp or self.event_time or self.first_timestamp or self.metadata.creation_timestamp


DETAILED_POD = kind.POD.decoded_as(DetailedPod)
EVENT = kind.EVENT.decoded_as(Event)
