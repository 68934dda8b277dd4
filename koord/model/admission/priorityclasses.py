"""The PriorityClass objects of the cluster as admission needs them, and the priority class that a pod has by now.

The API server's Priority plugin refuses a pod whose priority or preemption policy is not that of its class, so the
three are always set together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from koord.model import podrequests, priority, qos, requirements
from koord.model.core import Pod, ResourceRequirements
from koord.model.priority import CPU, MEMORY, PriorityClass
from koord.model.qos import KubeQoS
from koord.model.quantity import Bytes, MilliCPU
from koord.model.requirements import ContainerAmounts

PREEMPT_LOWER_PRIORITY = "PreemptLowerPriority"


class PriorityClassObject(NamedTuple):
    """A ``scheduling.k8s.io/v1`` PriorityClass."""

    value: int
    preemption_policy: str = PREEMPT_LOWER_PRIORITY


PriorityClassObjects = Mapping[str, PriorityClassObject]
"""By name."""


def raw(pod: Pod) -> PriorityClass | None:
    """The class that the pod says itself."""
    return priority.raw(pod.metadata.labels, pod.spec.priority)


def effective(pod: Pod) -> PriorityClass:
    """The class that the pod is treated by. Raises QuantityError where its amounts decide and cannot be read."""
    labels = pod.metadata.labels
    if (said := raw(pod)) is not None:
        return said
    labelled = qos.labelled(labels)
    derived = labelled or qos.derive(None, kube_qos(pod)).qos
    return priority.effective(labels, pod.spec.priority, derived)


def kube_qos(pod: Pod) -> KubeQoS:
    """Kubernetes' own QoS class: what the status says, else what the amounts make it. Raises QuantityError.

    Amounts of the pod as a whole count instead of its containers'.
    """
    if pod.status.qos_class in list(KubeQoS):
        return KubeQoS(pod.status.qos_class)
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
