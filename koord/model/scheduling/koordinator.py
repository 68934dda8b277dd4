"""Koordinator's own objects of scheduling, v1alpha1 each.

PodGroup is of the scheduler-plugins project (scheduling.sigs.k8s.io), which Koordinator has taken over; Reservation and
Device are of scheduling.koordinator.sh and have no namespace.
"""

from __future__ import annotations

from collections.abc import Mapping

from koord.model.core import Amount, Condition, ObjectMeta, OwnerReference, Slim, Taint
from koord.model.nodemetric import DeviceInfo
from koord.model.scheduling.pods import PodSpec
from koord.model.scheduling.storage import ObjectReference
from koord.model.selector import LabelSelector

POD_GROUP_API, SCHEDULING_API = "scheduling.sigs.k8s.io", "scheduling.koordinator.sh"


# PodGroup


class PodGroupSpec(Slim, frozen=True):
    min_member: int = 0
    """As many are placed, or none."""
    min_resources: Mapping[str, Amount] = {}
    """As much must be free on all nodes together, beside what its pods have already, before any is placed."""
    schedule_timeout_seconds: int | None = None


class PodGroupStatus(Slim, frozen=True):
    phase: str = ""
    occupied_by: str = ""
    """The owners of its pods: ``namespace/name``, with commas between them."""
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    schedule_start_time: str | None = None


class PodGroup(Slim, frozen=True):
    """Pods that are placed together: those with its name in the label ``pod-group.scheduling.sigs.k8s.io``."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


# Reservation


class PodTemplate(Slim, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class ControllerReference(OwnerReference, frozen=True):
    namespace: str = ""


class ReservationOwner(Slim, frozen=True):
    """Pods that may use it: those of which all that is not None holds."""

    object: ObjectReference | None = None
    controller: ControllerReference | None = None
    label_selector: LabelSelector | None = None


class ReservationSpec(Slim, frozen=True):
    template: PodTemplate = PodTemplate()
    """A pod like this would use what is reserved; its ``node_name``, if any, is where."""
    owners: tuple[ReservationOwner, ...] = ()
    """One of them is enough."""
    ttl: str | None = None
    """As Go writes durations: ``24h0m0s``; "0s": it never expires."""
    expires: str | None = None
    """A time, which wins over ``ttl``."""
    pre_allocation: bool = False
    allocate_once: bool = True
    allocate_policy: str = ""
    """``Aligned`` or ``Restricted``."""
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class ReservationStatus(Slim, frozen=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    current_owners: tuple[ObjectReference, ...] = ()
    node_name: str = ""
    allocatable: Mapping[str, Amount] = {}
    allocated: Mapping[str, Amount] = {}


class Reservation(Slim, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ReservationSpec = ReservationSpec()
    status: ReservationStatus = ReservationStatus()


# Device


class DeviceSpec(Slim, frozen=True):
    devices: tuple[DeviceInfo, ...] = ()


class DeviceAllocationItem(Slim, frozen=True):
    name: str = ""
    namespace: str = ""
    uuid: str = ""
    minors: tuple[int, ...] = ()


class DeviceTypeAllocation(Slim, frozen=True):
    type: str = ""
    entries: tuple[DeviceAllocationItem, ...] = ()


class DeviceStatus(Slim, frozen=True):
    allocations: tuple[DeviceTypeAllocation, ...] = ()


class Device(Slim, frozen=True):
    """Has its node's name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceSpec = DeviceSpec()
    status: DeviceStatus = DeviceStatus()
