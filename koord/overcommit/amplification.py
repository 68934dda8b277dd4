"""Resource amplification: a node whose allocatable is advertised as a multiple of what it is.

The manager writes the ratios as an annotation; the webhook of the node's status multiplies allocatable by them and
keeps what kubelet said in ``raw-allocatable``. So on such a node native requests are in amplified units, and a formula
that sets them off against capacity divides them first. Mid resources are made of the capacity and are real ones, as are
CPUs bound to LSE and LSR pods.

Upstream takes the normalization ratio from the annotation of the pass before, and removes its own annotation on any
error. Here both ratios are of one pass, and an error leaves the annotation as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from koord.model.annotations.codecs import document
from koord.model.annotations.decode import Bad
from koord.model.priority import CPU
from koord.model.qos import QoSClass
from koord.model.schema import json_name
from koord.overcommit.amounts import CPUMemory
from koord.overcommit.noderead import annotation

ANNOTATION = "node.koordinator.sh/resource-amplification-ratio"
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
    """By the resource's name. Of allocatable, which a node then shows that much larger."""


class Amplification(NamedTuple):
    """By how much a node's allocatable is multiplied."""

    cpu: Fraction = _ONE
    memory: Fraction = _ONE

    def real(self, request: CPUMemory, qos: QoSClass) -> CPUMemory:
        """``request`` of a pod of class ``qos`` in the units of the node's capacity, rounded up."""
        cpu = _ONE if qos in _BOUND else self.cpu
        return CPUMemory(_divided(request.cpu_milli, cpu), _divided(request.memory_bytes, self.memory))


NONE = Amplification()


class _Ratios(msgspec.Struct, frozen=True):
    cpu: Any = None
    memory: Any = None


_KEY = document(ANNOTATION, _Ratios)


def ratios(strategy: ResourceAmplification, normalization_ratio: float = 1.0) -> dict[str, float]:
    """The ratio by resource, of two decimals; empty: the node is not amplified. Raises AmplificationError.

    ``normalization_ratio``: that of the same pass, or the last good one; above 1 it multiplies the ratio of CPU.
    """
    found = dict(strategy.resource_amplification_ratio or {}) if strategy.enable else {}
    if normalization_ratio > 1 and _is_number(found.get(CPU, 1.0)):
        found[CPU] = found.get(CPU, 1.0) * normalization_ratio
    for resource, ratio in found.items():
        if not _is_number(ratio) or ratio < 1:
            raise AmplificationError(resource, ratio)
    return {resource: round(ratio, 2) for resource, ratio in sorted(found.items())}


def text(by_resource: Mapping[str, float]) -> str | None:
    """The annotation's value, in upstream's form; None: the annotation is to be absent."""
    members = (f'"{resource}":{ratio:.2f}' for resource, ratio in sorted(by_resource.items()))
    return f"{{{','.join(members)}}}" if by_resource else None


def of_node(annotations: Mapping[str, str], bad: Bad) -> Amplification:
    """What is in force on a node. A ratio that is none, or not above 1, multiplies nothing."""
    stated = annotation(annotations, _KEY, _Ratios, bad)
    if stated is None:
        return NONE
    return Amplification(_in_force("cpu", stated.cpu, bad), _in_force("memory", stated.memory, bad))


def _in_force(resource: str, value: Any, bad: Bad) -> Fraction:
    if value is None:
        return _ONE
    if not _is_number(value):
        bad(f"annotation {ANNOTATION}: {resource}: {value!r} is no ratio")
        return _ONE
    return max(_ONE, Fraction(str(value)))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _divided(amount: int, ratio: Fraction) -> int:
    return amount if ratio == 1 else -(-amount * ratio.denominator // ratio.numerator)
