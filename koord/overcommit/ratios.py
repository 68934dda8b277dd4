"""The two ratios of a node: of its CPUs to nominal ones (normalization), and of what it shows to what it has
(amplification). The manager writes each as an annotation.

*Normalization*, by a table of CPU models: how much more one CPU of this node does than a nominal one. The node's agent
divides quotas by it, and batch-cpu is multiplied by it. A disabled node says 1.00. Where the ratio cannot be told, the
annotation stays as it is.

*Amplification*: the webhook of the node's status multiplies allocatable by the ratios and keeps what kubelet said in
``raw-allocatable``. So on such a node native requests are in amplified units, and a formula that sets them off against
capacity divides them first. Mid resources are made of the capacity and are real ones, as are CPUs bound to LSE and LSR
pods. Upstream takes the normalization ratio from the annotation of the pass before, and removes its own annotation on
any error. Here both ratios are of one pass, and an error leaves the annotation as it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from koord.model import cfs
from koord.model.annotations import codecs, decode
from koord.model.annotations.codecs import document
from koord.model.priority import CPU
from koord.model.problem import Bad, Problem
from koord.model.qos import QoSClass
from koord.model.schema import json_name
from koord.model.topologyannotations import CPU_BASIC_INFO, CPUBasicInfo
from koord.overcommit.amounts import CPUMemory

NORMALIZATION = "node.koordinator.sh/cpu-normalization-ratio"
NORMALIZATION_ENABLED = "node.koordinator.sh/cpu-normalization-enabled"

LOWEST, HIGHEST = 1.0, 5.0
NormalizationRatio = Annotated[float, Meta(ge=LOWEST, le=HIGHEST)]
_TRUE = re.compile("1|[tT]|TRUE|true|True")
_FALSE = re.compile("0|[fF]|FALSE|false|False")


class NormalizationError(ValueError):
    """The ratio of a node cannot be determined."""


class ModelRatios(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """The ratios of one CPU model, by which of its two features the node has on."""

    base_ratio: NormalizationRatio | None = None
    hyper_thread_enabled_ratio: NormalizationRatio | None = None
    turbo_enabled_ratio: NormalizationRatio | None = None
    hyper_thread_turbo_enabled_ratio: NormalizationRatio | None = None


class CPUNormalization(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """``cpu-normalization-config`` for one node."""

    enable: bool | None = None
    default_ratio: NormalizationRatio | None = None
    """Of CPU models that ``ratio_model`` lacks."""
    ratio_model: Mapping[str, ModelRatios] | None = None
    """By the model's name, as the node's ``cpu-basic-info`` has it."""


def normalization_ratio(labels: Mapping[str, str], strategy: CPUNormalization, cpu_basic_info: str | None) -> float:
    """Returns the ratio of a node's CPU model, rounded to two decimals; 1.0 where the node's label, or ``strategy``
    without one, does not enable it. Raises NormalizationError.

    ``cpu_basic_info``: the annotation's text; None if there is none.
    """
    switch = normalization_switch(labels)
    if not (strategy.enable if switch is None else switch):
        return LOWEST
    if cpu_basic_info is None:
        raise NormalizationError(f"the node's topology has no annotation {CPU_BASIC_INFO}")
    try:
        info = decode.read(CPUBasicInfo, cpu_basic_info)
    except decode.BadValue as error:
        raise NormalizationError(f"annotation {CPU_BASIC_INFO}: {error}") from error
    return _checked(_of_model(info, strategy), info.cpu_model)


def normalization_text(of_node: float) -> str:
    """Returns the annotation's value."""
    return f"{of_node:.2f}"


def current_normalization(annotations: Mapping[str, str]) -> float | None:
    """Returns the ratio in the node's annotation; None if there is none, or none that can be read."""
    stated = annotations.get(NORMALIZATION)
    try:
        return None if stated is None else float(cfs.parse_ratio(stated))
    except cfs.RatioError:
        return None


def normalization_switch(labels: Mapping[str, str]) -> bool | None:
    """Returns whether a node's own label switches normalization on, which goes before the cluster's configuration; None
    without the label.

    Raises NormalizationError.
    """
    label = labels.get(NORMALIZATION_ENABLED)
    if label is None:
        return None
    if _TRUE.fullmatch(label):
        return True
    if _FALSE.fullmatch(label):
        return False
    raise NormalizationError(f"label {NORMALIZATION_ENABLED}: {label!r} is neither true nor false")


def _of_model(info: CPUBasicInfo, strategy: CPUNormalization) -> float:
    model = (strategy.ratio_model or {}).get(info.cpu_model, ModelRatios())
    of_node = {
        (False, False): model.base_ratio,
        (True, False): model.hyper_thread_enabled_ratio,
        (False, True): model.turbo_enabled_ratio,
        (True, True): model.hyper_thread_turbo_enabled_ratio,
    }[info.hyper_thread_enabled, info.turbo_enabled]
    if of_node is None:
        of_node = strategy.default_ratio
    if of_node is None:
        raise NormalizationError(f"there is no ratio for CPU model {info.cpu_model!r}, and no defaultRatio")
    return of_node


def _checked(of_node: float, model: str) -> float:
    if not LOWEST <= of_node <= HIGHEST:
        raise NormalizationError(f"the ratio of CPU model {model!r}, {of_node}, is not in {LOWEST}..{HIGHEST}")
    return round(of_node, 2)


# amplification

AMPLIFICATION = "node.koordinator.sh/resource-amplification-ratio"
AmplificationRatio = Annotated[float, Meta(gt=0)]
"""At least 1 with the normalization ratio, which multiplies that of CPU first."""
_BOUND = (QoSClass.LSE, QoSClass.LSR)
_ONE = Fraction(1)


class AmplificationError(ValueError):
    """The ratio of ``resource`` comes to ``value``, which is none."""

    def __init__(self, resource: str, value: object) -> None:
        normalized = ", with the normalization ratio" if resource == CPU else ""
        super().__init__(f"resourceAmplificationRatio.{resource}: {value!r} is not a number of at least 1{normalized}")


class ResourceAmplification(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """``resource-amplification-config`` for one node."""

    enable: bool | None = None
    resource_amplification_ratio: Mapping[str, AmplificationRatio] | None = None
    """By the resource's name: the node shows its allocatable so many times as large."""


class Amplification(NamedTuple):
    """The factors by which a node's allocatable is multiplied."""

    cpu: Fraction = _ONE
    memory: Fraction = _ONE

    def real(self, request: CPUMemory, qos: QoSClass) -> CPUMemory:
        """Returns ``request`` of a pod of class ``qos`` in the units of the node's capacity, rounded up."""
        cpu = _ONE if qos in _BOUND else self.cpu
        return CPUMemory(_divided(request.cpu_milli, cpu), _divided(request.memory_bytes, self.memory))


NOT_AMPLIFIED = Amplification()


class _Ratios(msgspec.Struct, frozen=True):
    cpu: Any = None
    memory: Any = None


_KEY = document(AMPLIFICATION, _Ratios)


def amplification_ratios(strategy: ResourceAmplification, normalization_ratio: float = 1.0) -> dict[str, float]:
    """Returns the ratio by resource, of two decimals; empty: the node is not amplified. Raises AmplificationError.

    ``normalization_ratio``: that of the same pass, or the last good one; above 1 it multiplies the ratio of CPU.
    """
    found = dict(strategy.resource_amplification_ratio or {}) if strategy.enable else {}
    if normalization_ratio > 1 and _is_number(found.get(CPU, 1.0)):
        found[CPU] = found.get(CPU, 1.0) * normalization_ratio
    for resource, ratio in found.items():
        if not _is_number(ratio) or ratio < 1:
            raise AmplificationError(resource, ratio)
    return {resource: round(ratio, 2) for resource, ratio in sorted(found.items())}


def amplification_text(by_resource: Mapping[str, float]) -> str | None:
    """Returns the annotation's value, in upstream's form; None: the annotation is to be absent."""
    members = (f'"{resource}":{ratio:.2f}' for resource, ratio in sorted(by_resource.items()))
    return f"{{{','.join(members)}}}" if by_resource else None


def amplification_of(annotations: Mapping[str, str], bad: Bad) -> Amplification:
    """Returns the amplification in force on a node. A ratio that is none, or not above 1, multiplies nothing."""
    stated = codecs.of_object(annotations, _KEY, _Ratios, bad)
    if stated is None:
        return NOT_AMPLIFIED
    return Amplification(_in_force("cpu", stated.cpu, bad), _in_force("memory", stated.memory, bad))


def _in_force(resource: str, value: Any, bad: Bad) -> Fraction:
    if value is None:
        return _ONE
    if not _is_number(value):
        bad(Problem(f"annotation {AMPLIFICATION}: {resource}", f"{value!r} is no ratio"))
        return _ONE
    return max(_ONE, Fraction(str(value)))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _divided(amount: int, ratio: Fraction) -> int:
    return amount if ratio == 1 else -(-amount * ratio.denominator // ratio.numerator)
