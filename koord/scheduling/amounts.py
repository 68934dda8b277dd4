"""What a pod requests as the scheduler of Kubernetes counts it, in whole units by the name of the resource.

``cpu`` counts in thousandths of a CPU, everything else in its own unit. An amount above ``MOST`` counts as ``MOST``,
so that a hundred times an amount is below 2**53, where a division in float64 is exact.

A container that is resized counts with the largest of what its spec says, what its node has set aside and what is in
force; where the node cannot give what the spec says, the spec does not count (k8s.io/component-helpers, PodRequests).
Fails with QuantityError where an amount cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from koord.model import podrequests, quantity
from koord.model.core import Amounts
from koord.model.priority import CPU, MEMORY
from koord.model.scheduling.pods import Container, ContainerStatus, Pod, PodSpec

PODS = "pods"
"""How many pods a node takes, as a resource."""
MOST = 2**46
"""64 TiB of memory."""
ASSUMED: Amounts = {CPU: "100m", MEMORY: "200Mi"}
"""What scores count for a container that requests no CPU or no memory."""

_RESIZE_PENDING, _INFEASIBLE = "PodResizePending", "Infeasible"


class PodAmounts(NamedTuple):
    """``requests``: by the name of the resource, without zeros. ``assumed_cpu_milli``, ``assumed_memory_bytes``: what
    scores count: a container that requests none of one has ``ASSUMED`` of it, unless the pod as a whole requests that.
    """

    requests: Mapping[str, int]
    assumed_cpu_milli: int
    assumed_memory_bytes: int


def of_pod(pod: Pod) -> PodAmounts:
    """Raises QuantityError."""
    spec = _with_resizes(pod)
    named = podrequests.requests(spec)
    return PodAmounts(
        {name: min(amount, MOST) for name, amount in named.items() if amount}, *_assumed_requests(spec, named)
    )


def _assumed_requests(spec: PodSpec, named: Mapping[str, int]) -> tuple[int, int]:
    """``named``: all that the pod requests, zeros among it."""
    of_pod = bool(spec.resources.requests or spec.resources.limits)
    missing = {name: text for name, text in ASSUMED.items() if not (of_pod and name in named)}
    assumed = replace(
        spec,
        containers=tuple([_with_assumed(each, missing) for each in spec.containers]),
        init_containers=tuple([_with_assumed(each, missing) for each in spec.init_containers]),
    )
    return min(podrequests.request(assumed, CPU), MOST), min(podrequests.request(assumed, MEMORY), MOST)


def allocatable(amounts: Amounts) -> dict[str, int]:
    """Returns what a node offers of each resource."""
    return {name: min(_units(name, amount), MOST) for name, amount in amounts.items()}


def _units(name: str, amount: str | int | float) -> int:
    parsed = quantity.from_json(amount)
    return max(0, parsed.milli_value() if name == CPU else parsed.value())


def _with_resizes(pod: Pod) -> PodSpec:
    """Returns the spec with the requests of resized containers as they count."""
    status = pod.status
    if not any(each.resources or each.allocated_resources for each in status.container_statuses) and not any(
        each.resources or each.allocated_resources for each in status.init_container_statuses
    ):
        return pod.spec
    pending = status.condition(_RESIZE_PENDING)
    is_infeasible = pending is not None and pending.status == "True" and pending.reason == _INFEASIBLE
    return replace(
        pod.spec,
        containers=_resized(pod.spec.containers, status.container_statuses, is_infeasible),
        init_containers=_resized(pod.spec.init_containers, status.init_container_statuses, is_infeasible),
    )


def _resized(
    containers: Iterable[Container], statuses: Iterable[ContainerStatus], is_infeasible: bool
) -> tuple[Container, ...]:
    by_name = {status.name: status for status in statuses}
    return tuple([_resized_one(each, by_name.get(each.name), is_infeasible) for each in containers])


def _resized_one(container: Container, status: ContainerStatus | None, is_infeasible: bool) -> Container:
    if status is None or status.resources is None:
        return container
    lists = [status.resources.requests, status.allocated_resources]
    if not is_infeasible:
        lists.append(container.resources.requests)
    return replace(container, resources=replace(container.resources, requests=_largest(lists)))


def _largest(lists: Iterable[Amounts]) -> Amounts:
    largest: dict[str, str | int | float] = {}
    for amounts in lists:
        for name, amount in amounts.items():
            if name not in largest or quantity.from_json(amount).nano > quantity.from_json(largest[name]).nano:
                largest[name] = amount
    return largest


def _with_assumed(container: Container, missing: Amounts) -> Container:
    resources = container.resources
    lacking = {name: text for name, text in missing.items() if name not in {**resources.limits, **resources.requests}}
    if not lacking:
        return container
    return replace(container, resources=replace(resources, requests={**lacking, **resources.requests}))
