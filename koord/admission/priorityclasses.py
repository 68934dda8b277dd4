"""The PriorityClass objects of the cluster as admission needs them, and the priority class that a pod has by now.

The API server's Priority plugin refuses a pod whose priority or preemption policy is not that of its class, so the
three are always set together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from koord.model import priority, qos
from koord.model.core import Pod
from koord.model.podrequests import kube_qos
from koord.model.priority import PriorityClass

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
