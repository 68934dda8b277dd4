"""ClusterColocationProfile: which pods become colocated ones, and what they are given. Upstream's kind, field by field.

A cluster's administrator writes it; the pod webhook and the profile controller read it. This module knows the object
alone; what it does to a pod is admission's.

Invariant: a profile that is read can be applied as it stands: its selectors are such as Kubernetes takes, and its
probability is a percentage. Fails with SchemaError, which names path and value; such a profile matches no pod.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from koord.model import schema, selector
from koord.model.core import ObjectMeta
from koord.model.problem import Problem
from koord.model.qos import QoSClass
from koord.model.qos_settings import Int32
from koord.model.schema import SchemaError, json_name
from koord.model.selector import LabelSelector

GROUP = "config.koordinator.sh"
CERTAIN_PERCENT = 100
_PERCENTAGE = re.compile(r"([+-]?[0-9]{1,18})%", re.ASCII)


class ProfileSpec(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """What a pod gets that both selectors match; one that is absent or empty matches every pod."""

    namespace_selector: LabelSelector | None = None
    """Of the labels of the pod's namespace."""
    selector: LabelSelector | None = None
    """Of the pod's labels as they were submitted."""
    probability: int | str | None = None
    """The share of the matching pods that the profile is applied to: 70 or "70%"; all of them when absent."""
    qos_class: QoSClass | None = None
    """The QoS class that the pod's label gets."""
    priority_class_name: str = ""
    """The PriorityClass that the pod gets, with its value and its preemption policy."""
    koordinator_priority: Int32 | None = None
    """The pod's order among those of its band."""
    labels: Mapping[str, str] = {}
    """Set on the pod, whatever it had."""
    annotations: Mapping[str, str] = {}
    """Set on the pod, whatever it had."""
    label_keys_mapping: Mapping[str, str] = {}
    """By the key of a label of the pod: the key of another that gets its value."""
    annotation_keys_mapping: Mapping[str, str] = {}
    """By the key of an annotation of the pod: the key of another that gets its value."""
    label_suffixes: Mapping[str, str] = {}
    """By the key of a label that the pod has: what is appended to its value."""
    scheduler_name: str = ""
    """The scheduler that the pod gets."""
    patch: Mapping[str, Any] | None = None
    """A strategic merge patch of the pod, applied last."""

    @property
    def probability_percent(self) -> int:
        """The probability in 0..100: less than none is none, and more than all is all. Raises ValueError."""
        return min(max(_percent(self.probability), 0), CERTAIN_PERCENT)


class ClusterColocationProfile(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """Which pods become colocated ones, and what they are given. Profiles are applied in the order of their names."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ProfileSpec = ProfileSpec()


def read(document: str | bytes | Mapping[str, Any], unknown: schema.Unknown | None = None) -> ClusterColocationProfile:
    """Reads the profile in JSON text or in a document already parsed. Raises SchemaError.

    ``unknown`` is told the path of each key under ``spec`` that the kind does not have; such a key is no error.
    """
    parsed = schema.parse_json(document) if isinstance(document, str | bytes) else document
    if not isinstance(parsed, Mapping):
        raise SchemaError("ClusterColocationProfile", parsed, "is not an object")
    profile = ClusterColocationProfile(
        metadata=schema.read(ObjectMeta, _object(parsed, "metadata"), "metadata"),
        spec=schema.read(ProfileSpec, _object(parsed, "spec"), "spec", unknown),
    )
    for problem in _problems(profile.spec):
        raise SchemaError.of(problem)
    return profile


def read_leniently(
    document: Mapping[str, Any], unknown: schema.Unknown | None = None
) -> tuple[ClusterColocationProfile, tuple[Problem, ...]]:
    """The profile without its wrong members, and all that is wrong with them, for people who are to mend it.

    A profile of which anything is wrong is none that ``read`` reads, and matches no pod.
    """
    wrong: list[Problem] = []
    metadata = _good_members(ObjectMeta, document, "metadata", None, wrong)
    spec = _good_members(ProfileSpec, document, "spec", unknown, wrong)
    profile = ClusterColocationProfile(
        metadata=schema.read(ObjectMeta, metadata, "metadata"), spec=schema.read(ProfileSpec, spec, "spec")
    )
    return profile, tuple(wrong)


def _good_members(
    cls: type[msgspec.Struct],
    document: Mapping[str, Any],
    name: str,
    unknown: schema.Unknown | None,
    wrong: list[Problem],
) -> dict[str, Any]:
    """The members of the object ``name`` in which nothing is wrong; what is in the others is appended to ``wrong``."""
    part, good = _object(document, name), dict[str, Any]()
    if not isinstance(part, Mapping):
        wrong.append(schema.wrong(name, part, "is not an object"))
        return good
    for key, value in part.items():
        found: list[Problem] = []
        try:
            read_alone = schema.read(cls, {key: value}, name, unknown, found.append)
            found += _problems(read_alone) if isinstance(read_alone, ProfileSpec) else ()
        except SchemaError as error:
            found.append(error.problem)
        wrong += found
        if not found:
            good[key] = value
    return good


def _object(document: Mapping[str, Any], key: str) -> object:
    """The member ``key``, where null is the empty object."""
    member = document.get(key)
    return {} if member is None else member


def _problems(spec: ProfileSpec) -> Iterator[Problem]:
    """Yields what is wrong that types alone do not say."""
    try:
        _percent(spec.probability)
    except ValueError as error:
        yield schema.wrong("spec.probability", spec.probability, str(error))
    for name in ("namespace_selector", "selector"):
        labels: LabelSelector | None = getattr(spec, name)
        if labels is not None:
            yield from selector.problems(labels, f"spec.{json_name(name)}")


def _percent(probability: int | str | None) -> int:
    """Scales an IntOrString by 100, as Kubernetes does. Raises ValueError."""
    if probability is None:
        return CERTAIN_PERCENT
    if isinstance(probability, int):
        return probability
    match = _PERCENTAGE.fullmatch(probability)
    if match is None:
        raise ValueError('is neither a whole number nor a percentage such as "70%"')
    return int(match.group(1))
