"""What admission knows of the cluster besides the object in hand: one frozen view for the whole of a request."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from koord.admission import gates
from koord.admission.priorityclasses import PriorityClassObjects
from koord.admission.quotatree import NO_QUOTAS, QuotaTree
from koord.admission.schedulerkeys import ADMINISTRATORS, scheduler_users
from koord.model import core, featuregates
from koord.model.core import ObjectMeta
from koord.model.featuregates import Settings
from koord.model.locations import NAMESPACE
from koord.model.profile import ClusterColocationProfile
from koord.model.selector import LabelSelector

KUBE_SYSTEM = "kube-system"


@dataclass(frozen=True, slots=True)
class AdmissionContext:
    """``namespaces``: the labels of each by its name, None of one that does not exist; one that is missing has labels
    that are not known yet.

    ``unread_profiles``: a sentence for each profile that cannot be read. ``pools``: which nodes a quota tree has, by
    its ID.
    """

    profiles: tuple[ClusterColocationProfile, ...] = ()
    namespaces: Mapping[str, Mapping[str, str] | None] = field(default_factory=dict)
    priority_classes: PriorityClassObjects = field(default_factory=dict)
    own_namespace: str = NAMESPACE
    feature_gates: Settings = field(default_factory=dict)
    scheduler_users: frozenset[str] = frozenset(scheduler_users(NAMESPACE))
    unread_profiles: tuple[str, ...] = ()
    quotas: QuotaTree = NO_QUOTAS
    pools: Mapping[str, LabelSelector] = field(default_factory=dict)

    def is_on(self, gate: str) -> bool:
        return featuregates.is_on(gate, gates.GATES, self.feature_gates)

    def may_bind(self, user: str, groups: Collection[str]) -> bool:
        """Returns whether the user may write the annotations that are the scheduler's."""
        return user in self.scheduler_users or ADMINISTRATORS in groups

    def is_exempt(self, pod: ObjectMeta) -> bool:
        """Returns whether the pod with this metadata is left alone.

        Left alone are the pods of two namespaces, so that the cluster can always start its own, and mirrors of static
        pods: kubelet runs the manifest of its node, whatever becomes of the mirror, and runs no pod of the API that
        has the annotation, so the annotation is no way around admission.
        """
        return pod.namespace in (KUBE_SYSTEM, self.own_namespace) or core.ANNOTATION_MIRROR in pod.annotations
