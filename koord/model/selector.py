"""Label selectors as Kubernetes has them: ``matchLabels`` and ``matchExpressions``, of which each must hold.

What a missing selector means is up to who has it: everything for a ClusterColocationProfile, nothing for an entry of
``slo-controller-config``. An empty one matches everything.

Invariant: a selector of which Kubernetes would refuse a part (an operator, a list of values, a key or value that no
label can have) never matches, whatever its sense; ``check`` says what is wrong with it. The rules are those of
k8s.io/apimachinery: ``LabelSelectorAsSelector``, ``labels.NewRequirement``, ``IsQualifiedName``, ``IsValidLabelValue``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum

import msgspec

from koord.model.problem import Problem
from koord.model.schema import SchemaError, json_name, wrong

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", re.ASCII)
"""Of a label's key, behind its prefix; and of its value, which may be empty, too."""

_SUBDOMAIN = re.compile(r"(?=.{1,253}/)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*/", re.ASCII)
"""The prefix of a label's key, with its slash."""


class Operator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


_WITH_VALUES = (Operator.IN, Operator.NOT_IN)


class Requirement(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """One of ``matchExpressions``. ``NotIn`` holds where the label is absent, too."""

    key: str
    operator: str
    """``In``, ``NotIn``, ``Exists`` or ``DoesNotExist``."""
    values: tuple[str, ...] = ()
    """At least one with ``In`` and ``NotIn``, else none."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self.operator == Operator.EXISTS:
            holds = self.key in labels
        elif self.operator == Operator.DOES_NOT_EXIST:
            holds = self.key not in labels
        else:
            holds = (labels.get(self.key) in self.values) is (self.operator == Operator.IN)
        return holds and not self.error()

    def error(self) -> str:
        """Why Kubernetes would refuse it; "" if it would not."""
        if self.operator not in list(Operator):
            return f"operator {self.operator!r} is not one of {', '.join(Operator)}"
        if bool(self.values) != (self.operator in _WITH_VALUES):
            return f"operator {self.operator} {'has' if self.values else 'lacks'} values"
        return label_error(self.key, *self.values)


class LabelSelector(msgspec.Struct, frozen=True, kw_only=True, rename=json_name):
    """Matches the labels that have all of ``matchLabels`` and for which each of ``matchExpressions`` holds."""

    match_labels: Mapping[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(
            labels.get(key) == value and not label_error(key, value) for key, value in self.match_labels.items()
        ) and all(requirement.matches(labels) for requirement in self.match_expressions)

    @property
    def is_empty(self) -> bool:
        return not self.match_labels and not self.match_expressions


def check(selector: LabelSelector, path: str) -> None:
    """Raises SchemaError for the first part that Kubernetes would refuse."""
    for problem in problems(selector, path):
        raise SchemaError.of(problem)


def problems(selector: LabelSelector, path: str) -> Iterator[Problem]:
    """One for each part that Kubernetes would refuse."""
    for place, key, why in _unusable(selector):
        yield wrong(f"{path}.{place}", key, f"cannot be used: {why}")


def label_error(key: str, *values: str) -> str:
    """Why no label can have this key, or one of these values; "" if it can."""
    prefix = _SUBDOMAIN.match(key)
    if _NAME.fullmatch(key, prefix.end() if prefix else 0) is None:
        return f"{key!r} is not the key of a label"
    bad = next((value for value in values if value and _NAME.fullmatch(value) is None), None)
    return "" if bad is None else f"{bad!r} is not the value of a label"


def _unusable(selector: LabelSelector) -> Iterator[tuple[str, str, str]]:
    """The place, the key and the reason of each part that Kubernetes would refuse."""
    for key, value in selector.match_labels.items():
        if why := label_error(key, value):
            yield "matchLabels", key, why
    for index, requirement in enumerate(selector.match_expressions):
        if why := requirement.error():
            yield f"matchExpressions[{index}]", requirement.key, why
