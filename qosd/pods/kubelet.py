"""kubelet's own pod list, which knows what no runtime does: ``spec.priority``, requests, phase and QoS class.

``/pods`` comes from the read-only port (plain HTTP) or from the authenticated one (TLS with a bearer token).
Invariant: a pod with something unreadable in it loses that only; a list that cannot be read as a whole is a
FetchError, never an empty list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from koord.model import podtotal, quantity
from koord.model.podtotal import Role
from koord.model.qos import KubeQoS
from koord.model.quantity import Bytes, MilliCPU, QuantityError
from koord.model.requirements import ContainerAmounts
from qosd.hooks.context import OVERHEAD, SpecContainer
from qosd.hooks.edits import Resources
from qosd.pods.http import Access, FetchError, get
from qosd.snapshot import NO_FACTS, Owner, PodFacts

TERMINAL = ("Succeeded", "Failed")
_ALWAYS = "Always"  # restartPolicy of an init container that is a sidecar
_NATIVE = ("cpu", "memory")
_PERIOD_US, _MIN_QUOTA_US = 100_000, 1000
_QOS = {qos.value: qos for qos in KubeQoS}


class KubeletContainer(msgspec.Struct, frozen=True):
    """A container as kubelet's status tells it. ``id`` is the runtime's, without its scheme; "" before it exists."""

    name: str
    id: str
    state: str
    """"waiting", "running" or "terminated"; "" if nobody tells."""
    requested: Resources = msgspec.field(default_factory=Resources)
    """What kubelet makes of the container's limits."""
    restarts: int = 0
    """How often it was made again: the runtime's "attempt" of the container that ``id`` names."""


class KubeletPod(msgspec.Struct, frozen=True):
    """One pod of kubelet's list. None = not said, or unreadable."""

    uid: str
    namespace: str
    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    priority: int | None
    phase: str
    kube_qos: KubeQoS | None
    cpu_request_milli: int | None
    memory_request_bytes: int | None
    requested: Resources
    """What kubelet makes of the pod's limits: set only where every container has one."""
    containers: tuple[KubeletContainer, ...]
    spec_containers: tuple[SpecContainer, ...] | None = None
    """All containers of the spec with their native amounts; None: some cannot be read, or the pod has amounts of its
    own, which replace them."""
    facts: PodFacts = NO_FACTS

    @property
    def ended(self) -> bool:
        return self.phase in TERMINAL


class _Resources(msgspec.Struct):
    requests: dict[str, Any] | None = None
    limits: dict[str, Any] | None = None


class _Container(msgspec.Struct, rename="camel"):
    name: str = ""
    resources: _Resources | None = None
    restart_policy: str = ""


class _Owner(msgspec.Struct):
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class _Meta(msgspec.Struct, rename="camel"):
    uid: str = ""
    namespace: str = ""
    name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None
    deletion_timestamp: str | None = None


class _Spec(msgspec.Struct, rename="camel"):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    overhead: dict[str, Any] | None = None
    resources: _Resources | None = None
    priority: int | None = None
    host_network: bool | None = None
    runtime_class_name: str | None = None
    restart_policy: str = ""


class _ContainerStatus(msgspec.Struct):
    name: str = ""
    container_id: str = msgspec.field(default="", name="containerID")
    restart_count: int = msgspec.field(default=0, name="restartCount")
    state: dict[str, Any] | None = None


class _Status(msgspec.Struct, rename="camel"):
    phase: str = ""
    qos_class: str = ""
    start_time: str | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None


class _Pod(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _List(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class KubeletClient:
    """Asks one kubelet; every request is bounded by ``timeout_s``."""

    def __init__(self, access: Access, timeout_s: float) -> None:
        self._access, self._timeout_s = access, timeout_s

    @property
    def address(self) -> str:
        return self._access.base_url

    async def pods(self) -> tuple[KubeletPod, ...]:
        """All pods kubelet knows, ended ones too. Raises FetchError."""
        body = await get(self._access, "/pods", self._timeout_s)
        try:
            return read_pods(body)
        except ValueError as error:
            raise FetchError(f"{self.address}/pods", f"is no pod list: {error}") from error

    async def config(self) -> Mapping[str, Any]:
        """kubelet's configuration in force (``/configz``; the read-only port has none). Raises FetchError."""
        body = await get(self._access, "/configz", self._timeout_s)
        try:
            return msgspec.json.decode(body, type=dict[str, dict[str, Any]])["kubeletconfig"]
        except (ValueError, KeyError) as error:
            raise FetchError(f"{self.address}/configz", f"is no kubelet configuration: {error!r}") from error


def read_pods(body: bytes) -> tuple[KubeletPod, ...]:
    """The pods of a ``v1.PodList``; one that is no pod at all is left out. ValueError if it is no list of any."""
    found = []
    items = msgspec.json.decode(body, type=_List).items or ()
    for raw in items:
        try:
            pod = _decoder.decode(raw)
        except msgspec.ValidationError:
            continue
        if pod.metadata.uid:
            found.append(_pod(pod))
    if items and not found:
        raise ValueError(f"none of its {len(items)} items is a pod")
    return tuple(found)


_decoder = msgspec.json.Decoder(_Pod)


def _pod(pod: _Pod) -> KubeletPod:
    meta, spec, status = pod.metadata, pod.spec, pod.status
    statuses = (status.init_container_statuses or []) + (status.container_statuses or [])
    limits = {one.name: one.resources for one in (spec.init_containers or []) + (spec.containers or [])}
    return KubeletPod(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        labels=meta.labels or {},
        annotations=meta.annotations or {},
        priority=spec.priority,
        phase=status.phase,
        kube_qos=_QOS.get(status.qos_class),
        cpu_request_milli=_request(spec, "cpu"),
        memory_request_bytes=_request(spec, "memory"),
        requested=_cri(_limit(spec, "cpu"), _limit(spec, "memory")),
        containers=tuple([_container(one, limits.get(one.name)) for one in statuses]),
        spec_containers=_spec_containers(spec),
        facts=PodFacts(
            _controller(meta),
            _unix_s(status.start_time),
            _unix_s(meta.deletion_timestamp),
            bool(spec.host_network),
            spec.runtime_class_name or "",
            spec.restart_policy,
        ),
    )


def _controller(meta: _Meta) -> Owner | None:
    """The one owner that makes the pod anew."""
    owners = [each for each in meta.owner_references or () if each.controller]
    return Owner(owners[0].kind, owners[0].name) if owners else None


def _unix_s(time: str | None) -> float | None:
    try:
        return None if time is None else datetime.fromisoformat(time).timestamp()
    except ValueError:
        return None


def _spec_containers(spec: _Spec) -> tuple[SpecContainer, ...] | None:
    """In the order in which they count; the overhead of the pod's runtime is there all the time, as a sidecar is."""
    if any(_says(resource, spec.resources) for resource in _NATIVE):
        return None
    overhead = _Resources(requests=spec.overhead, limits=spec.overhead)
    always = [SpecContainer(OVERHEAD, Role.SIDECAR, _native(overhead))] if spec.overhead else []
    try:
        found = [SpecContainer(one.name, role, _native(one.resources)) for one, role in _in_order(spec)]
    except QuantityError:
        return None
    return (*always, *found)


def _native(resources: _Resources | None) -> ContainerAmounts:
    limits = {} if resources is None else resources.limits or {}
    return ContainerAmounts(
        cpu_request=MilliCPU(_requested("cpu", resources)),
        cpu_limit=MilliCPU(_amount("cpu", limits)),
        memory_request=Bytes(_requested("memory", resources)),
        memory_limit=Bytes(_amount("memory", limits)),
    )


def _container(status: _ContainerStatus, resources: _Resources | None) -> KubeletContainer:
    id_ = status.container_id.rpartition("://")[2]
    return KubeletContainer(
        status.name, id_, next(iter(status.state or {}), ""), _asked(resources), status.restart_count
    )


def _asked(resources: _Resources | None) -> Resources:
    """What is unreadable is not asked."""
    limits = resources.limits or {} if resources is not None else {}
    try:
        return _cri(_amount("cpu", limits), _amount("memory", limits))
    except QuantityError:
        return Resources()


def _cri(cpu_milli: int | None, memory_bytes: int | None) -> Resources:
    """kubelet's quota (100 ms periods, at least 1 ms of each) and memory limit; 0 and None = no limit."""
    quota_us = max(_MIN_QUOTA_US, cpu_milli * _PERIOD_US // 1000) if cpu_milli else None
    return Resources(_PERIOD_US if quota_us else None, quota_us, memory_bytes or None)


def _request(spec: _Spec, resource: str) -> int | None:
    """What the scheduler counts; a container without a request asks for its limit, as the API server defaults it."""
    try:
        return _total(spec, resource, _requested) + _amount(resource, spec.overhead or {})
    except QuantityError:
        return None


def _limit(spec: _Spec, resource: str) -> int | None:
    """The pod's limit; None unless the pod or each of its containers has one."""
    try:
        return _total(spec, resource, _limited) + _amount(resource, spec.overhead or {})
    except (QuantityError, _Unlimited):
        return None


class _Unlimited(Exception):
    """A container has no limit, so the pod has none."""


def _total(spec: _Spec, resource: str, of: Callable[[str, _Resources | None], int]) -> int:
    """The pod's amount; pod level resources replace those of the containers."""
    if _says(resource, spec.resources):
        return of(resource, spec.resources)
    return podtotal.total([(role, of(resource, one.resources)) for one, role in _in_order(spec)])


def _in_order(spec: _Spec) -> list[tuple[_Container, Role]]:
    """The containers as they come to run."""
    inits = spec.init_containers or []
    found = [(one, Role.SIDECAR if one.restart_policy == _ALWAYS else Role.INIT) for one in inits]
    return [*found, *[(one, Role.MAIN) for one in spec.containers or []]]


def _says(resource: str, resources: _Resources | None) -> bool:
    return resources is not None and resource in {**(resources.requests or {}), **(resources.limits or {})}


def _requested(resource: str, resources: _Resources | None) -> int:
    if resources is None:
        return 0
    requests, limits = resources.requests or {}, resources.limits or {}
    return _amount(resource, requests if resource in requests else limits)


def _limited(resource: str, resources: _Resources | None) -> int:
    limits = {} if resources is None else resources.limits or {}
    if resource not in limits:
        raise _Unlimited
    return _amount(resource, limits)


def _amount(resource: str, amounts: Mapping[str, Any]) -> int:
    if resource not in amounts:
        return 0
    found = quantity.from_json(amounts[resource])
    return quantity.cpu_milli(found) if resource == "cpu" else quantity.memory_bytes(found)
