"""Kubernetes' own QoS class of a pod: what the API server wrote, else what the spec's amounts make it."""

from __future__ import annotations

from koord.model import podrequests, requirements
from koord.model.core import Pod, ResourceRequirements
from koord.model.priority import CPU, MEMORY
from koord.model.qos import KubeQoS
from koord.model.quantity import Bytes, MilliCPU
from koord.model.requirements import ContainerAmounts

_BY_NAME = {each.value: each for each in KubeQoS}


def kube_qos(pod: Pod) -> KubeQoS:
    """Amounts of the pod as a whole count instead of its containers'. Raises QuantityError if one cannot be read."""
    stated = _BY_NAME.get(pod.status.qos_class)
    if stated is not None:
        return stated
    whole = _amounts(pod.spec.resources)
    if not whole.empty():
        return requirements.kube_qos([whole])
    return requirements.kube_qos([_amounts(each.resources) for each, _ in podrequests.in_order(pod.spec)])


def _amounts(resources: ResourceRequirements) -> ContainerAmounts:
    return ContainerAmounts(
        cpu_request=MilliCPU(podrequests.container_request(resources, CPU)),
        cpu_limit=MilliCPU(podrequests.container_limit(resources, CPU)),
        memory_request=Bytes(podrequests.container_request(resources, MEMORY)),
        memory_limit=Bytes(podrequests.container_limit(resources, MEMORY)),
    )
