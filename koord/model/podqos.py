"""Kubernetes' own QoS class of a pod: what the API server wrote, else what the spec's amounts make it."""

from __future__ import annotations

from koord.model import podrequests, requirements
from koord.model.core import Pod
from koord.model.qos import KubeQoS

_BY_NAME = {each.value: each for each in KubeQoS}


def kube_qos(pod: Pod) -> KubeQoS:
    """Amounts of the pod as a whole count instead of its containers'. Raises QuantityError if one cannot be read."""
    stated = _BY_NAME.get(pod.status.qos_class)
    if stated is not None:
        return stated
    whole = podrequests.container_amounts(pod.spec.resources)
    if not whole.empty():
        return requirements.kube_qos([whole])
    return requirements.kube_qos(
        [podrequests.container_amounts(each.resources) for each, _ in podrequests.in_order(pod.spec)]
    )
