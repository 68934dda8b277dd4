"""Whether there can be a node that several label selectors match, and whether one matches all that another does.

Labels are independent of each other, so it is decided exactly and for each key alone: the label may be absent if no
requirement wants it present; else it needs a value that every ``In`` lists and no ``NotIn`` excludes. Without an
``In`` there are more values than a selector can exclude.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from koord.model.selector import LabelSelector, Operator, Requirement


def example(selectors: Sequence[LabelSelector]) -> dict[str, str] | None:
    """The labels of a node that all ``selectors`` match, as few as will do; None if there can be no such node.

    The selectors are such as ``koord.model.selector.check`` takes.
    """
    labels: dict[str, str] = {}
    for key, requirements in _by_key(selectors).items():
        if all(each.operator in (Operator.NOT_IN, Operator.DOES_NOT_EXIST) for each in requirements):
            continue
        value = _value(requirements)
        if value is None:
            return None
        labels[key] = value
    return labels


def listed(selector: LabelSelector) -> dict[str, frozenset[str]]:
    """The values that ``selector`` leaves for a label, by the keys of those that it lists values of."""
    values: dict[str, frozenset[str]] = {}
    for requirement in _requirements(selector):
        if requirement.operator == Operator.IN:
            of_one = frozenset(requirement.values)
            values[requirement.key] = of_one & values.get(requirement.key, of_one)
    return values


def implies(selector: LabelSelector, other: LabelSelector) -> bool:
    """Returns whether ``other`` matches every node that ``selector`` matches, which is at least one."""
    by_key = _by_key([selector])
    return all(_holds(requirement, by_key.get(requirement.key, [])) for requirement in _requirements(other))


def keys(selector: LabelSelector) -> Iterator[str]:
    """Returns the keys of the labels that ``selector`` looks at."""
    return (requirement.key for requirement in _requirements(selector))


def are_disjoint(first: Mapping[str, frozenset[str]], second: Mapping[str, frozenset[str]]) -> bool:
    """Returns whether two selectors' ``listed`` values alone rule a common node out. A hundred times as quick as an
    example.
    """
    return any(key in second and values.isdisjoint(second[key]) for key, values in first.items())


def _requirements(selector: LabelSelector) -> Iterator[Requirement]:
    for key, value in selector.match_labels.items():
        yield Requirement(key=key, operator=Operator.IN, values=(value,))
    yield from selector.match_expressions


def _by_key(selectors: Iterable[LabelSelector]) -> dict[str, list[Requirement]]:
    """The requirements of all ``selectors`` for each label."""
    by_key: dict[str, list[Requirement]] = {}
    for selector in selectors:
        for requirement in _requirements(selector):
            by_key.setdefault(requirement.key, []).append(requirement)
    return by_key


def _value(requirements: Sequence[Requirement]) -> str | None:
    """A value of a label that is present and fulfils all ``requirements``."""
    if any(each.operator == Operator.DOES_NOT_EXIST for each in requirements):
        return None
    excluded = {value for each in requirements if each.operator == Operator.NOT_IN for value in each.values}
    listed = [each.values for each in requirements if each.operator == Operator.IN]
    if not listed:
        return next(value for number in itertools.count() if (value := f"any-{number}") not in excluded)
    common = set(listed[0]).intersection(*listed) - excluded
    return next((value for value in listed[0] if value in common), None)


def _holds(wanted: Requirement, given: Sequence[Requirement]) -> bool:
    """Returns whether ``wanted`` holds for each label of its key, or absence of it, that fulfils all of ``given``."""
    operators = {each.operator for each in given}
    if Operator.DOES_NOT_EXIST in operators:
        return wanted.operator in (Operator.DOES_NOT_EXIST, Operator.NOT_IN)
    excluded = {value for each in given if each.operator == Operator.NOT_IN for value in each.values}
    listed = [frozenset(each.values) for each in given if each.operator == Operator.IN]
    if wanted.operator == Operator.EXISTS:
        return Operator.IN in operators or Operator.EXISTS in operators
    if wanted.operator == Operator.DOES_NOT_EXIST:
        return False
    if not listed:
        return wanted.operator == Operator.NOT_IN and excluded.issuperset(wanted.values)
    left = frozenset.intersection(*listed) - excluded
    return left.issubset(wanted.values) if wanted.operator == Operator.IN else left.isdisjoint(wanted.values)
