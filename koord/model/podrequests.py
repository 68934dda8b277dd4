"""What a pod requests and may use of any resource, as Kubernetes counts it, and its QoS class by that.

The containers' amounts come to what `podtotal` says. Amounts of the pod as a whole, which are for CPU, memory and huge
pages only, replace that; then what its runtime class takes is added, to a limit only where there is one. A missing
request is the limit, as the API server writes it into the spec. A resize that is under way does not count. Sources:
k8s.io/component-helpers/resource (PodRequests, PodLimits), pkg/apis/core/v1/defaults.go.

Invariant: sums are exact, and only the total is rounded, up, to the unit in which Koord counts: thousandths of native
``cpu``, whole units of all else (``kubernetes.io/batch-cpu`` counts thousandths in whole units).
Fails with QuantityError where an amount that is needed cannot be read, is negative or makes too large a total.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter

from koord.model import podtotal, quantity, requirements
from koord.model.core import Amounts, Container, Pod, PodSpec, ResourceRequirements
from koord.model.podtotal import Role
from koord.model.priority import CPU, MEMORY
from koord.model.qos import KubeQoS
from koord.model.quantity import Bytes, MilliCPU, QuantityError
from koord.model.requirements import ContainerAmounts

_ALWAYS = "Always"
_HUGE_PAGES = "hugepages-"
_NOTHING = ResourceRequirements()
_QOS_BY_NAME = {each.value: each for each in KubeQoS}
_MILLI, _ONE = 10**6, 10**9
"""In nano-units, of which a quantity is made."""


def kube_qos(pod: Pod) -> KubeQoS:
    """Returns the QoS class that the API server wrote, else what the spec's amounts make it.

    Amounts of the pod as a whole count instead of its containers'. Raises QuantityError if one cannot be read.
    """
    stated = _QOS_BY_NAME.get(pod.status.qos_class)
    if stated is not None:
        return stated
    whole = container_amounts(pod.spec.resources)
    if not whole.empty():
        return requirements.kube_qos([whole])
    return requirements.kube_qos([container_amounts(each.resources) for each, _ in in_order(pod.spec)])


def request(spec: PodSpec, resource: str) -> int:
    """Returns the amount that the scheduler counts; 0 if nothing is requested."""
    return _units(resource, _request_nano(spec, resource) + _nano(spec.overhead, resource))


def limit(spec: PodSpec, resource: str) -> int | None:
    """The sum of the limits that there are; None if there is none. A pod with one may be unlimited all the same."""
    nano = _limit_nano(spec, resource)
    return None if nano is None else _units(resource, nano + (_nano(spec.overhead, resource) if nano else 0))


def is_limited(spec: PodSpec, resource: str) -> bool:
    """Returns whether kubelet limits the pod's own cgroup: the pod itself or each of its containers has a limit above
    0.
    """
    if _counts_for_pod(resource) and _nano(spec.resources.limits, resource):
        return True
    return all(_nano(container.resources.limits, resource) for container, _ in in_order(spec))


def requests(spec: PodSpec) -> dict[str, int]:
    """Returns ``request`` of every resource of which there is one."""
    lists = [_with_defaults(container.resources) for container, _ in in_order(spec)]
    names = {name for each in (*lists, spec.overhead) for name in each}
    names |= {name for name in _with_defaults(spec.resources) if _counts_for_pod(name)}
    return {name: request(spec, name) for name in sorted(names)}


def limits(spec: PodSpec) -> dict[str, int]:
    """Returns ``limit`` of every resource of which there is one."""
    names = {name for container, _ in in_order(spec) for name in container.resources.limits}
    names |= {name for name in spec.resources.limits if _counts_for_pod(name)}
    return {name: amount for name in sorted(names) if (amount := limit(spec, name)) is not None}


def container_request(resources: ResourceRequirements, resource: str) -> int:
    """Returns what one container requests; 0 = nothing."""
    return _units(resource, _nano(_with_defaults(resources), resource))


def container_limit(resources: ResourceRequirements, resource: str) -> int:
    """Returns what one container may use; 0 = no limit."""
    return _units(resource, _nano(resources.limits, resource))


def container_amounts(resources: ResourceRequirements) -> ContainerAmounts:
    """Native CPU and memory of one container; 0 = nothing."""
    return ContainerAmounts(
        cpu_request=MilliCPU(container_request(resources, CPU)),
        cpu_limit=MilliCPU(container_limit(resources, CPU)),
        memory_request=Bytes(container_request(resources, MEMORY)),
        memory_limit=Bytes(container_limit(resources, MEMORY)),
    )


def in_order(spec: PodSpec) -> Iterator[tuple[Container, Role]]:
    """The containers in the order in which they come to run."""
    for container in spec.init_containers:
        yield container, Role.SIDECAR if container.restart_policy == _ALWAYS else Role.INIT
    for container in spec.containers:
        yield container, Role.MAIN


def for_pod(spec: PodSpec, resource: str) -> bool:
    """Returns whether the pod as a whole has a request or limit, which replaces that of its containers."""
    return _counts_for_pod(resource) and resource in _with_defaults(spec.resources)


def _request_nano(spec: PodSpec, resource: str) -> int:
    pod = spec.resources if _counts_for_pod(resource) else _NOTHING
    if resource in pod.requests:
        return _nano(pod.requests, resource)
    containers = _of_containers(spec, resource, _with_defaults)
    if containers is None or (resource in pod.limits and resource.startswith(_HUGE_PAGES)):
        return _nano(pod.limits, resource)
    return containers


def _limit_nano(spec: PodSpec, resource: str) -> int | None:
    if _counts_for_pod(resource) and resource in spec.resources.limits:
        return _nano(spec.resources.limits, resource)
    return _of_containers(spec, resource, attrgetter("limits"))


def _of_containers(spec: PodSpec, resource: str, amounts_of: Callable[[ResourceRequirements], Amounts]) -> int | None:
    """Their total; None if no container has any."""
    lists = [(role, amounts_of(container.resources)) for container, role in in_order(spec)]
    if not any(resource in amounts for _, amounts in lists):
        return None
    return podtotal.total([(role, _nano(amounts, resource)) for role, amounts in lists])


def _counts_for_pod(resource: str) -> bool:
    return resource in (CPU, MEMORY) or resource.startswith(_HUGE_PAGES)


def _with_defaults(resources: ResourceRequirements) -> Amounts:
    return {**resources.limits, **resources.requests} if resources.limits else resources.requests


def _nano(amounts: Amounts, resource: str) -> int:
    if resource not in amounts:
        return 0
    nano = quantity.from_json(amounts[resource]).nano
    if nano < 0:
        raise QuantityError(amounts[resource], "is negative")
    return nano


def _units(resource: str, nano: int) -> int:
    """Returns the amount in the unit in which Koord counts ``resource``, rounded up. Raises QuantityError."""
    amount = -(-nano // (_MILLI if resource == CPU else _ONE))
    if amount > quantity.MAX_INT64:
        raise QuantityError(f"{amount} of {resource}", "does not fit 64 bits")
    return amount
