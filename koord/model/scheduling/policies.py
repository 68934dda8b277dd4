"""Whom a scheduler may disturb for whom: policy/v1 PodDisruptionBudget, scheduling.k8s.io/v1 PriorityClass."""

from __future__ import annotations

from collections.abc import Mapping

from koord.model.core import Condition, ObjectMeta, Slim
from koord.model.selector import LabelSelector

CountOrPercent = int | str
"""``3``, or ``"30%"``."""


class DisruptionBudgetSpec(Slim, frozen=True):
    selector: LabelSelector | None = None
    """None matches no pod, an empty one all of the namespace."""
    min_available: CountOrPercent | None = None
    max_unavailable: CountOrPercent | None = None
    unhealthy_pod_eviction_policy: str = "IfHealthyBudget"


class DisruptionBudgetStatus(Slim, frozen=True):
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    observed_generation: int = 0
    """Of another generation than the object's, the other figures are old."""
    disrupted_pods: Mapping[str, str] = {}
    """When the eviction of each was admitted; they are counted already, and may still be there."""
    conditions: tuple[Condition, ...] = ()


class PodDisruptionBudget(Slim, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DisruptionBudgetSpec = DisruptionBudgetSpec()
    status: DisruptionBudgetStatus = DisruptionBudgetStatus()


class PriorityClass(Slim, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    description: str = ""
    preemption_policy: str = "PreemptLowerPriority"
