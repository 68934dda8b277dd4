"""CPU normalization: how much more one CPU of this node does than a nominal one, from a table by CPU model.

The manager writes the ratio as an annotation; the node's agent divides quotas by it, and batch-cpu is multiplied by it.
A disabled node says 1.00. Where the ratio cannot be told, the annotation stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from koord.model import cfs
from koord.model.annotations import decode
from koord.model.schema import json_name
from koord.model.topologyannotations import CPU_BASIC_INFO, CPUBasicInfo

ANNOTATION = "node.koordinator.sh/cpu-normalization-ratio"
LABEL_ENABLED = "node.koordinator.sh/cpu-normalization-enabled"

LOWEST, HIGHEST = 1.0, 5.0
NormalizationRatio = Annotated[float, Meta(ge=LOWEST, le=HIGHEST)]
_TRUE = re.compile("1|[tT]|TRUE|true|True")
_FALSE = re.compile("0|[fF]|FALSE|false|False")


class NormalizationError(ValueError):
    """The ratio of a node cannot be told."""


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


def ratio(labels: Mapping[str, str], strategy: CPUNormalization, cpu_basic_info: str | None) -> float:
    """The ratio of a node with these labels, of two decimals; 1.0 if it is disabled. Raises NormalizationError.

    ``cpu_basic_info``: the annotation's text; None if there is none.
    """
    of_node = by_label(labels)
    if not (strategy.enable if of_node is None else of_node):
        return LOWEST
    if cpu_basic_info is None:
        raise NormalizationError(f"the node's topology has no annotation {CPU_BASIC_INFO}")
    try:
        info = decode.read(CPUBasicInfo, cpu_basic_info)
    except decode.BadValue as error:
        raise NormalizationError(f"annotation {CPU_BASIC_INFO}: {error}") from error
    return _checked(_of_model(info, strategy), info.cpu_model)


def text(of_node: float) -> str:
    return f"{of_node:.2f}"


def current(annotations: Mapping[str, str]) -> float | None:
    """What the node's annotation says; None if there is none, or none that can be read."""
    stated = annotations.get(ANNOTATION)
    try:
        return None if stated is None else float(cfs.parse_ratio(stated))
    except cfs.RatioError:
        return None


def by_label(labels: Mapping[str, str]) -> bool | None:
    """What a node's own label says, which goes before the cluster's configuration; None if there is none.

    Raises NormalizationError.
    """
    label = labels.get(LABEL_ENABLED)
    if label is None:
        return None
    if _TRUE.fullmatch(label):
        return True
    if _FALSE.fullmatch(label):
        return False
    raise NormalizationError(f"label {LABEL_ENABLED}: {label!r} is neither true nor false")


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
