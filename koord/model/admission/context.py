"""What admission knows of the cluster besides the object in hand: one frozen view for the whole of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from koord.model import featuregates
from koord.model.admission import gates
from koord.model.admission.priorityclasses import PriorityClassObjects
from koord.model.featuregates import Settings
from koord.model.profile import ClusterColocationProfile

KUBE_SYSTEM = "kube-system"


@dataclass(frozen=True, slots=True)
class AdmissionContext:
    """``namespaces``: the labels of each by its name; one that is missing has labels that nobody knows."""

    profiles: tuple[ClusterColocationProfile, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    priority_classes: PriorityClassObjects = field(default_factory=dict)
    own_namespace: str = "koordinator-system"
    feature_gates: Settings = field(default_factory=dict)

    def is_on(self, gate: str) -> bool:
        return featuregates.is_on(gate, gates.GATES, self.feature_gates)

    def is_exempt(self, namespace: str) -> bool:
        """Are pods of the namespace left alone, so that the cluster can always start its own?"""
        return namespace in (KUBE_SYSTEM, self.own_namespace)
