"""The common part of the strategies that evict by NodeSLO's ``resourceUsedThresholdWithBE``.

Each states a shortage and no more: relief (``qosd.decide.relief``) chooses the victims, and a milder step if that will
do. A strategy acts only on young inputs: samples of the last three seconds, a pod list of at most 90 seconds, and
kubelet's list as well unless the class label alone says which pods go. A strategy with a wrong setting says so and
states nothing.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from koord.model.formulas import FORMULA, Formula, Inputs, number
from koord.model.qos import QoSClass
from koord.model.schema import json_name
from koord.model.slo import ResourceThresholds
from qosd.decide import gates
from qosd.decide.decision import Decision, S, Stage, Strategy
from qosd.decide.shortage import OrderKey, Resource, Victims
from qosd.model.policy import EffectivePolicy
from qosd.model.snapshot import PODS_MAX_AGE_S, NodeSnapshot

SAMPLES_S = 3.0
"""Three samples of a collector that runs every second."""
BEST_EFFORT_LISTS: Mapping[str, float] = MappingProxyType({"pods": PODS_MAX_AGE_S})
LISTS: Mapping[str, float] = MappingProxyType({**BEST_EFFORT_LISTS, "kubelet": PODS_MAX_AGE_S})
_BETWEEN_EQUALS = (OrderKey.OWNER, OrderKey.LOST_WORK)
BEST_EFFORT_BY_USE_OF_REQUEST = (OrderKey.PRIORITY, OrderKey.USE_OF_REQUEST, *_BETWEEN_EQUALS)
BEST_EFFORT_BY_AMOUNT = (OrderKey.PRIORITY, OrderKey.AMOUNT, *_BETWEEN_EQUALS)
BY_PRIORITY = (
    OrderKey.EVICTION_PRIORITY, OrderKey.PRIORITY, OrderKey.SUB_PRIORITY, OrderKey.AMOUNT, *_BETWEEN_EQUALS,
)  # fmt: skip
_SPEC = "resourceUsedThresholdWithBE"
_DEFAULT_GAP_PERCENT = 2


class SettingError(ValueError):
    """A setting that the strategy needs is missing, or makes no sense."""

    def __init__(self, name: str, value: int | None, why: str = "is not set, and nothing is done without it") -> None:
        said = f"{_SPEC}.{json_name(name)}"
        super().__init__(f"{said} {why}" if value is None else f"{said}: {value} {why}")


class Evicting(Strategy[S]):
    """``states`` returns the decision under the thresholds. Raises SettingError."""

    name: ClassVar[str]
    gate: ClassVar[str]
    needs: ClassVar[Mapping[str, float]]
    stage: ClassVar[Stage] = Stage.RELIEF
    rows: ClassVar[frozenset[str]] = frozenset()
    counts_samples: ClassVar[bool] = True  # they remember nothing of them

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        return is_enabled(snapshot.policy)

    def is_on(self, policy: EffectivePolicy) -> bool:
        """May it run at all?"""
        return is_enabled(policy) and not gates.why_shut(self, policy)

    def decide(self, snapshot: NodeSnapshot, last: S | None) -> tuple[Decision, S | None]:
        thresholds = snapshot.policy.slo.thresholds
        assert thresholds is not None, "it is enabled"
        try:
            return self.states(snapshot, thresholds, last)
        except SettingError as error:
            return Decision(str(error)), last

    @abstractmethod
    def states(
        self, snapshot: NodeSnapshot, thresholds: ResourceThresholds, last: S | None
    ) -> tuple[Decision, S | None]: ...


def is_enabled(policy: EffectivePolicy) -> bool:
    return policy.slo.thresholds is not None and bool(policy.slo.thresholds.enable)


def required(thresholds: ResourceThresholds, name: str) -> int:
    """Returns the value of the setting. Raises SettingError if there is none."""
    value = getattr(thresholds, name)
    if value is None:
        raise SettingError(name, None)
    assert isinstance(value, int)
    return value


def usage_percents(thresholds: ResourceThresholds, upper_name: str, lower_name: str) -> tuple[int, int]:
    """Returns (upper, lower); a lower percent that is not set is two less than the upper. Raises SettingError."""
    upper, lower = required(thresholds, upper_name), getattr(thresholds, lower_name)
    if not 0 < upper <= 100:
        raise SettingError(upper_name, upper, "is not in 1..100")
    if lower is None:
        return upper, max(0, upper - _DEFAULT_GAP_PERCENT)
    if not 0 <= lower < upper:
        raise SettingError(lower_name, lower, f"is not in 0..{upper - 1}, below {json_name(upper_name)}")
    return upper, lower


def best_effort(gate: str) -> Victims:
    return Victims(frozenset({QoSClass.BE}), gate)


def by_priority(gate: str, priority_at_most: int) -> Victims:
    """Returns as victims the pods of any class labelled ``eviction-enabled``, up to a priority."""
    return Victims(None, gate, priority_at_most, is_opt_in=True)


def percent_of(used: int, capacity: int) -> int:
    """Returns whole percents, as upstream counts."""
    return used * 100 // capacity


def to_release(used: int, capacity: int, lower_percent: int) -> int:
    """Returns what to release so that the usage comes down to the lower percent."""
    return capacity * (percent_of(used, capacity) - lower_percent) // 100


def release_formula(unit: str) -> Formula:
    """Returns the formula ``to_release`` for amounts in ``unit``, ``milli`` or ``bytes``."""

    def compute(inputs: Inputs) -> int:
        used, capacity = number(inputs, f"used_{unit}"), number(inputs, f"capacity_{unit}")
        return to_release(used, capacity, number(inputs, "lower_percent"))

    name = {"milli": "cpu_to_release", "bytes": "memory_to_release"}[unit]
    text = f"floor(capacity_{unit} * (floor(used_{unit} * 100 / capacity_{unit}) - lower_percent) / 100)"
    return Formula(name, text, compute)


CPU_TO_RELEASE, MEMORY_TO_RELEASE = release_formula("milli"), release_formula("bytes")
_RELEASES = {Resource.CPU_MILLI: (CPU_TO_RELEASE, "milli"), Resource.MEMORY_BYTES: (MEMORY_TO_RELEASE, "bytes")}


def release_inputs(resource: Resource, used: int, capacity: int, lower_percent: int) -> Inputs:
    """Returns the inputs of the formula of the resource's release."""
    formula, unit = _RELEASES[resource]
    return {
        FORMULA: formula.name, f"used_{unit}": used, f"capacity_{unit}": capacity, "lower_percent": lower_percent,
    }  # fmt: skip
