"""kubelet's own pod list, with facts that no runtime has: ``spec.priority``, requests, volumes, phase, QoS class.

``/pods`` comes from the read-only port (plain HTTP) or from the authenticated one (TLS with a bearer token). Invariant:
an unreadable part of a pod costs that part, or the pod, and a problem says so; a list that cannot be read as a whole is
a FetchError, never an empty list.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from koord.model import cfs, core, podrequests, quantity
from koord.model.annotations import ContainerResources, ExtendedResourceSpec
from koord.model.core import ContainerStatus, ObjectList, Pod, PodSpec, ResourceRequirements, is_of_api
from koord.model.podtotal import Role
from koord.model.priority import CPU, EXTENDED_RESOURCES, MEMORY
from koord.model.qos import KubeQoS
from koord.model.quantity import MilliCPU, QuantityError
from qosd.model.pod import OVERHEAD, Resources, RuntimeRequest, SpecContainer
from qosd.model.snapshot import NO_FACTS, Owner, PodFacts
from qosd.pods.http import FetchError, KubeletAccess, get

TERMINAL = ("Succeeded", "Failed")
SERVING_CERTIFICATES = ("pki/kubelet-server-current.pem", "pki/kubelet.crt")
"""In kubelet's directory: the certificate that the cluster signed, and the one that kubelet signed itself where the
cluster signs none."""
_QOS = {qos.value: qos for qos in KubeQoS}


class KubeletContainer(msgspec.Struct, frozen=True):
    """A container as kubelet's status tells it. ``id`` is the runtime's, without its scheme; "" before it exists."""

    name: str
    id: str
    state: str
    """"waiting", "running" or "terminated"; "" if it is not known."""
    requested: Resources = msgspec.field(default_factory=Resources)
    """The container's limits as kubelet asks the runtime for them."""
    restarts: int = 0
    """How often it was made again: the runtime's "attempt" of the container that ``id`` names."""


class KubeletPod(msgspec.Struct, frozen=True):
    """One pod of kubelet's list. None = not said, or unreadable."""

    uid: str = ""
    namespace: str = ""
    name: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    priority: int | None = None
    phase: str = ""
    kube_qos: KubeQoS | None = None
    cpu_request_milli: int | None = None
    memory_request_bytes: int | None = None
    requested: Resources = msgspec.field(default_factory=Resources)
    """The pod's limits as kubelet sets them: only where every container has one."""
    containers: tuple[KubeletContainer, ...] = ()
    spec_containers: tuple[SpecContainer, ...] | None = None
    """All containers of the spec with their native amounts; None: some cannot be read, or the pod has amounts of its
    own, which replace them."""
    extended: ExtendedResourceSpec | None = None
    """The batch and mid amounts of its containers; None: some cannot be read, or it is a static pod, which kubelet
    lets request none: the manifest's annotation is all that says them."""
    facts: PodFacts = NO_FACTS

    @property
    def ended(self) -> bool:
        return self.phase in TERMINAL

    def completed(self, request: RuntimeRequest) -> RuntimeRequest:
        """Returns ``request``, the runtime's for this pod, with what the pod's spec says."""
        return msgspec.structs.replace(request, cpu_request_milli=self.cpu_request_milli, extended=self.extended)


UNLISTED = KubeletPod()
"""Stands for a pod that is not in kubelet's list."""


class KubeletClient:
    """Asks one kubelet; every request is bounded by ``timeout_s``.

    ``observe``: told of each request its path, its HTTP status (0: no answer) and the seconds that it took by
    ``clock``.
    """

    def __init__(
        self,
        access: KubeletAccess,
        timeout_s: float,
        observe: Callable[[str, int, float], None] = lambda path, status, seconds: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._access, self._timeout_s, self._observe, self._clock = access, timeout_s, observe, clock

    @property
    def address(self) -> str:
        return self._access.base_url

    async def pods(self) -> ObjectList[KubeletPod]:
        """Returns all pods that kubelet knows, ended ones too. Raises FetchError."""
        body = await self._get("/pods")
        try:
            return read_pods(body)
        except ValueError as error:
            raise FetchError(f"{self.address}/pods", f"is no pod list: {error}") from error

    async def config(self) -> Mapping[str, Any]:
        """Returns kubelet's configuration in force (``/configz``; the read-only port has none). Raises FetchError."""
        body = await self._get("/configz")
        try:
            return msgspec.json.decode(body, type=dict[str, dict[str, Any]])["kubeletconfig"]
        except (ValueError, KeyError) as error:
            raise FetchError(f"{self.address}/configz", f"is no kubelet configuration: {error!r}") from error

    async def _get(self, path: str) -> bytes:
        began_s, status = self._clock(), 0
        try:
            body = await get(self._access, path, self._timeout_s)
            status = 200
            return body
        except FetchError as error:
            status = error.status
            raise
        finally:
            self._observe(path, status, self._clock() - began_s)


def read_pods(body: bytes) -> ObjectList[KubeletPod]:
    """Returns the pods of a ``v1.PodList``. Raises ValueError if it is no list of pods."""
    listed = core.read_list(Pod, body)
    pods = tuple([of_pod(pod) for pod in listed.items if pod.metadata.uid])
    anonymous = [pod.metadata for pod in listed.items if not pod.metadata.uid]
    problems = (*listed.problems, *[f"Pod {meta.namespace}/{meta.name} has no UID" for meta in anonymous])
    if problems and not pods:
        raise ValueError(f"none of its {len(problems)} items is a pod: {problems[0]}")
    return ObjectList(pods, problems)


def of_pod(pod: Pod) -> KubeletPod:
    """Returns the pod without its unreadable parts."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    resources = {container.name: container.resources for container, _ in podrequests.in_order(spec)}
    return KubeletPod(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        labels=meta.labels,
        annotations=meta.annotations,
        priority=spec.priority,
        phase=status.phase,
        kube_qos=_QOS.get(status.qos_class),
        cpu_request_milli=_request(spec, CPU),
        memory_request_bytes=_request(spec, MEMORY),
        requested=_cri(_limit(spec, CPU), _limit(spec, MEMORY)),
        containers=tuple(
            [
                _container(each, resources.get(each.name, ResourceRequirements()))
                for each in (*status.init_container_statuses, *status.container_statuses)
            ]
        ),
        spec_containers=_spec_containers(spec),
        extended=_extended(spec) if is_of_api(meta.annotations) else None,
        facts=_facts(pod),
    )


def _facts(pod: Pod) -> PodFacts:
    controller = pod.metadata.controller
    return PodFacts(
        owner=None if controller is None else Owner(controller.kind, controller.name),
        started_unix_s=core.unix_s(pod.status.start_time),
        deletion_unix_s=core.unix_s(pod.metadata.deletion_timestamp),
        host_network=pod.spec.host_network,
        runtime_class=pod.spec.runtime_class_name,
        restart_policy=pod.spec.restart_policy,
        pod_ips=tuple([each.ip for each in pod.status.pod_ips]),
        volumes=pod.spec.volumes,
    )


def _spec_containers(spec: PodSpec) -> tuple[SpecContainer, ...] | None:
    """Returns the containers in the order in which they count; the runtime's overhead counts as a sidecar."""
    if any(podrequests.for_pod(spec, resource) for resource in (CPU, MEMORY)):
        return None
    overhead = ResourceRequirements(spec.overhead, spec.overhead)
    try:
        always = (
            [SpecContainer(OVERHEAD, Role.SIDECAR, podrequests.container_amounts(overhead))] if spec.overhead else []
        )
        containers = [
            SpecContainer(container.name, role, podrequests.container_amounts(container.resources))
            for container, role in podrequests.in_order(spec)
        ]
    except QuantityError:
        return None
    return (*always, *containers)


def _extended(spec: PodSpec) -> ExtendedResourceSpec | None:
    try:
        containers, init_containers = (
            {container.name: _extended_amounts(container.resources) for container in containers}
            for containers in (spec.containers, spec.init_containers)
        )
    except QuantityError:
        return None
    return ExtendedResourceSpec(containers=containers, init_containers=init_containers)


def _extended_amounts(resources: ResourceRequirements) -> ContainerResources:
    requests, limits = (
        {name: quantity.from_json(amounts[name]) for name in EXTENDED_RESOURCES if name in amounts}
        for amounts in (resources.requests, resources.limits)
    )
    return ContainerResources(requests=requests, limits=limits)


def _container(status: ContainerStatus, resources: ResourceRequirements) -> KubeletContainer:
    id_ = status.container_id.rpartition("://")[2]
    return KubeletContainer(status.name, id_, next(iter(status.state), ""), _requested(resources), status.restart_count)


def _requested(resources: ResourceRequirements) -> Resources:
    """Returns what kubelet requests for ``resources``; nothing if they are unreadable."""
    try:
        cpu, memory = (podrequests.container_limit(resources, resource) for resource in (CPU, MEMORY))
    except QuantityError:
        return Resources()
    return _cri(cpu, memory)


def _cri(cpu_milli: int | None, memory_bytes: int | None) -> Resources:
    """Returns what a kubelet with default configuration makes of limits; 0 and None = no limit."""
    quota_us = cfs.quota_us(MilliCPU(cpu_milli)) if cpu_milli else None
    return Resources(cfs.PERIOD_US if quota_us else None, quota_us, memory_bytes or None, is_assumed=True)


def _request(spec: PodSpec, resource: str) -> int | None:
    try:
        return podrequests.request(spec, resource)
    except QuantityError:
        return None


def _limit(spec: PodSpec, resource: str) -> int | None:
    """Returns the limit of the pod's own cgroup."""
    try:
        return podrequests.limit(spec, resource) if podrequests.is_limited(spec, resource) else None
    except QuantityError:
        return None
