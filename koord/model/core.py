"""Kubernetes' core objects as far as Koord has a use for them, decoded by msgspec straight into frozen structs.

Fields have the API's names in Python's spelling; what is not listed here is skipped unread. Amounts stay the text that
they were (`podrequests` adds them up) and so do times (`unix_s`), so one that follows no grammar fails where it is used
and not the object. `koord.model.schema` is for what people write; this is for what an API server and kubelet say.

Invariants: a member that is null counts as absent, as for Go, which writes that for lists, maps and times that it does
not have; an object of a list that does not fit its struct costs itself only, and a problem names it.
Fails with ValueError, which says where the document is wrong.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)
Amount = str | int | float
"""A quantity as it is written."""

Amounts = Mapping[str, Amount]
"""By the name of their resource."""


class Slim(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A frozen struct that holds no cycle: of text, numbers and others such as itself."""


# metadata

ANNOTATION_SOURCE, SOURCE_API = "kubernetes.io/config.source", "api"
"""On each pod of kubelet's, from where it has it. In the API any client may write it: ``is_of_api``."""
ANNOTATION_MIRROR = "kubernetes.io/config.mirror"
"""On a pod: it mirrors a static pod, and the value is what kubelet calls that pod's UID."""


def is_of_api(annotations: Mapping[str, str]) -> bool:
    """Returns whether a pod with these annotations comes from the API, as one without them does."""
    return annotations.get(ANNOTATION_SOURCE, SOURCE_API) == SOURCE_API


class OwnerReference(Slim, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Slim, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    """By when it is to be gone, its grace period included; None: it is not being deleted."""

    @property
    def template(self) -> str:
        """What tells replicas that were made alike: the UID of their first owner, else their namespace."""
        return self.owner_references[0].uid if self.owner_references else self.namespace

    @property
    def controller(self) -> OwnerReference | None:
        """The one owner that makes the object anew."""
        return next((owner for owner in self.owner_references if owner.controller), None)


# Pod


class ResourceRequirements(Slim, frozen=True):
    requests: Amounts = {}
    limits: Amounts = {}


class Container(Slim, frozen=True):
    name: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str = ""
    """Of init containers alone: "Always" makes one a sidecar."""


class Source(Slim, frozen=True):
    """A volume's source of which only the kind matters."""


class EmptyDir(Slim, frozen=True):
    medium: str = ""
    """ "Memory": a tmpfs, which counts as its pod's memory."""
    size_limit: Amount | None = None


class HostPath(Slim, frozen=True):
    path: str = ""


class PersistentVolumeClaimSource(Slim, frozen=True):
    claim_name: str = ""


class CSI(Slim, frozen=True):
    driver: str = ""


class Volume(Slim, frozen=True):
    name: str = ""
    empty_dir: EmptyDir | None = None
    host_path: HostPath | None = None
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    csi: CSI | None = None
    ephemeral: Source | None = None
    config_map: Source | None = None
    secret: Source | None = None
    projected: Source | None = None
    downward_api: Source | None = msgspec.field(default=None, name="downwardAPI")
    image: Source | None = None
    nfs: Source | None = None
    iscsi: Source | None = None
    fc: Source | None = None

    @property
    def kind(self) -> str:
        """The source as the API spells it: ``emptyDir``, ``persistentVolumeClaim``…; "" for one that is not listed
        here.
        """
        names = zip(self.__struct_encode_fields__, self.__struct_fields__, strict=True)
        return next((kind for kind, name in names if isinstance(getattr(self, name), msgspec.Struct)), "")


class PodSpec(Slim, frozen=True):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    """Sidecars among them, in the order in which they start."""
    volumes: tuple[Volume, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    """Those of the pod as a whole."""
    overhead: Amounts = {}
    priority: int | None = None
    priority_class_name: str = ""
    node_name: str = ""
    scheduler_name: str = ""
    host_network: bool = False
    runtime_class_name: str = ""
    restart_policy: str = ""


class ContainerStatus(Slim, frozen=True):
    name: str = ""
    container_id: str = msgspec.field(default="", name="containerID")
    """With its runtime's scheme, ``containerd://…``; "" before it exists."""
    restart_count: int = 0
    state: Mapping[str, Source] = {}
    """Its one key is ``waiting``, ``running`` or ``terminated``."""


class PodIP(Slim, frozen=True):
    ip: str = ""


class PodStatus(Slim, frozen=True):
    phase: str = ""
    qos_class: str = ""
    start_time: str | None = None
    """When kubelet has accepted the pod."""
    pod_ips: tuple[PodIP, ...] = msgspec.field(default=(), name="podIPs")
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Slim, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# Node


class Taint(Slim, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Slim, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class Condition(Slim, frozen=True):
    """``type`` holds, does not, or that is not known: ``status`` is "True", "False" or "Unknown"."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_heartbeat_time: str | None = None
    last_transition_time: str | None = None


class NodeStatus(Slim, frozen=True):
    capacity: Amounts = {}
    allocatable: Amounts = {}
    conditions: tuple[Condition, ...] = ()


class Node(Slim, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


# Lease


class LeaseSpec(Slim, frozen=True):
    holder_identity: str = ""
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int = 0


class Lease(Slim, frozen=True):
    """``coordination.k8s.io/v1``."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


# reading

_IS_NULL = "got `null`"
_NULL_MEMBER, _COMMA = b'":null', ord(",")
_UNDECIDED = b'{[,:"\\ \t\r\n'


class _Items(msgspec.Struct):
    items: tuple[msgspec.Raw, ...] | None = None


class _Named(msgspec.Struct):
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ObjectList(Generic[T]):
    """The objects of a list, and a sentence for each item that is none."""

    items: tuple[T, ...]
    problems: tuple[str, ...] = ()


def read(cls: type[T], document: bytes | bytearray | msgspec.Raw) -> T:
    """Returns the ``cls`` in a JSON document. Raises ValueError."""
    try:
        return msgspec.json.decode(document, type=cls)
    except msgspec.ValidationError as error:
        if _IS_NULL not in str(error):
            raise
        return _read_with_nulls(cls, bytes(document))
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error


def read_list(cls: type[T], document: bytes) -> ObjectList[T]:
    """The objects of a list such as ``v1.PodList``. Raises ValueError if it is no list."""
    try:
        items = msgspec.json.decode(document, type=_Items).items or ()
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    objects, problems = [], []
    for number, item in enumerate(items):
        try:
            objects.append(read(cls, item))
        except ValueError as error:
            problems.append(f"{_label(cls, item, number)} cannot be read: {error}")
    return ObjectList(tuple(objects), tuple(problems))


def unix_s(time: str | None) -> float | None:
    """The seconds since 1970 at ``time``; None if it is absent, or no time."""
    try:
        return None if time is None else datetime.fromisoformat(time).timestamp()
    except ValueError:
        return None


def api_time(unix_s: float) -> str:
    """Returns the time as the API writes it: whole seconds, in UTC."""
    return _time_of_second(int(unix_s))


@lru_cache(maxsize=16)
def _time_of_second(unix_s: int) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _read_with_nulls(cls: type[T], document: bytes) -> T:
    """Reads again without nulls, which msgspec itself takes only where a type says so."""
    shorter = without_null_members(document)
    if shorter is not None:
        with contextlib.suppress(msgspec.ValidationError):  # a null in a list, or with a space before it
            return msgspec.json.decode(shorter, type=cls)
    return msgspec.convert(_without_nulls(msgspec.json.decode(document)), cls)


def without_null_members(document: bytes) -> bytes | None:
    """Returns the valid JSON ``document`` without its members that are null, as far as they are written ``"key":null``.

    None where the bytes alone do not tell a key from text. A quote that ends a string is told from one that begins it
    by the byte before: structure stands before a beginning, and a key that ends like structure is left undecided.
    """
    parts, begin = [], 0
    end_of_key = document.find(_NULL_MEMBER)
    while end_of_key >= 0:
        quote, end = document.rfind(b'"', begin, end_of_key), end_of_key + len(_NULL_MEMBER)
        if quote < 1 or document[end_of_key - 1] in _UNDECIDED or document[end] not in b",}":
            return None
        if document[quote - 1] not in b",{":
            return None
        if document[quote - 1] == _COMMA and quote > begin:
            parts.append(document[begin : quote - 1])
        else:  # the first member, or the first that stays: the comma behind it goes
            parts.append(document[begin:quote])
            end += document[end] == _COMMA
        begin = end
        end_of_key = document.find(_NULL_MEMBER, end)
    return b"".join([*parts, document[begin:]])


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(member) for key, member in value.items() if member is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _label(cls: type[T], item: msgspec.Raw, number: int) -> str:
    """The object's name, or where it stands if it has none that can be read."""
    try:
        metadata = msgspec.json.decode(item, type=_Named).metadata
    except (ValueError, RecursionError):
        metadata = {}
    names = [name for key in ("namespace", "name") if isinstance(name := metadata.get(key), str)]
    return f"{cls.__name__} {'/'.join(names)}" if names else f"{cls.__name__} {number} of the list"
