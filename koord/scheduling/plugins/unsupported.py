"""What pods may ask for that no plugin here can give: such a pod is placed nowhere, and its condition says why.

To pass over what such a pod asks for would place it without its devices, or one by one where it is to start with
others. Extended resources that a device class stands for need no rule: no node has them, so none has enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from koord.scheduling.plugin import Plugin, Rejection, Scope
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState


class Unsupported(Plugin):
    """Stands for upstream's plugin of its name. ``asks``: what of a pod needs that."""

    filter_scope: ClassVar[Scope] = Scope.OBJECT
    asks: ClassVar[str]

    def rejections(self, state: ClusterState, pod: PodInfo) -> Sequence[Rejection]:
        if not self.is_needed(pod):
            return ()
        return (Rejection(self.reason, state.table.exists, False, is_of_pod=True),)

    @property
    def reason(self) -> str:
        return f"the pod has {self.asks}, and this scheduler has no {self.name}"

    def is_needed(self, pod: PodInfo) -> bool:
        raise NotImplementedError


class DynamicResources(Unsupported):
    name: ClassVar[str] = "DynamicResources"
    asks: ClassVar[str] = "spec.resourceClaims"

    def is_needed(self, pod: PodInfo) -> bool:
        return bool(pod.spec.resource_claims)


class GangScheduling(Unsupported):
    """Of Kubernetes' Workload API; a pod's field is there only while the API server has that switched on."""

    name: ClassVar[str] = "GangScheduling"
    asks: ClassVar[str] = "spec.workloadRef or spec.schedulingGroup"

    def is_needed(self, pod: PodInfo) -> bool:
        return pod.spec.workload_ref is not None or pod.spec.scheduling_group is not None


UNSUPPORTED: tuple[Unsupported, ...] = (DynamicResources(), GangScheduling())
