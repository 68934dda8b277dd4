"""Node selectors over all nodes at once, by the columns of labels, and of one node.

A term holds if each of its expressions does; one without any holds nowhere. A requirement that Kubernetes would refuse
holds nowhere. Source: component-helpers/scheduling/corev1/nodeaffinity.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from koord.model.scheduling.pods import NodeSelectorRequirement, NodeSelectorTerm, PodSpec
from koord.scheduling.labels import ABSENT, NO_NUMBER, LabelColumn, integer
from koord.scheduling.state import ClusterState
from koord.scheduling.table import Bools, Int32s

_NAME = "metadata.name"


def required(state: ClusterState, spec: PodSpec) -> Bools | None:
    """bool[N]: the nodes that ``nodeSelector`` and the required node affinity allow; None: all of them."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    selector = affinity.required if affinity else None
    if not spec.node_selector and selector is None:
        return None
    found = np.ones(state.length, np.bool_)
    for key, value in spec.node_selector.items():
        column = state.nodes.labels.key(key)
        found &= state.nodes.labels.domains(key) == column.numbers.get(value, ABSENT - 1)
    if selector is not None:
        found &= any_of(state, selector.node_selector_terms)
    return found


def any_of(state: ClusterState, terms: tuple[NodeSelectorTerm, ...]) -> Bools:
    """bool[N]: the nodes for which one of the terms holds."""
    found = np.zeros(state.length, np.bool_)
    for each in terms:
        found |= term(state, each)
    return found


def term(state: ClusterState, each: NodeSelectorTerm) -> Bools:
    """bool[N]: the nodes for which the term holds."""
    if not each.match_expressions and not each.match_fields:
        return np.zeros(state.length, np.bool_)
    found = np.ones(state.length, np.bool_)
    for requirement in each.match_expressions:
        found &= _expression(state, requirement)
    for requirement in each.match_fields:
        found &= _field(state, requirement)
    return found


def holds(spec: PodSpec, name: str, labels: Mapping[str, str]) -> bool:
    """Returns whether one node is allowed by ``nodeSelector`` and the required node affinity."""
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    selector = affinity.required if affinity else None
    return selector is None or any(term_holds(each, name, labels) for each in selector.node_selector_terms)


def term_holds(each: NodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    """Returns whether the term holds for one node."""
    return (
        bool(each.match_expressions or each.match_fields)
        and all(_holds(requirement, labels.get(requirement.key)) for requirement in each.match_expressions)
        and all(_field_holds(requirement, name) for requirement in each.match_fields)
    )


def _expression(state: ClusterState, requirement: NodeSelectorRequirement) -> Bools:
    column, domains = state.nodes.labels.key(requirement.key), state.nodes.labels.domains(requirement.key)
    nowhere = np.zeros(len(domains), np.bool_)
    match requirement.operator:
        case "In" if requirement.values:
            return _is_one_of(column, domains, requirement.values)
        case "NotIn" if requirement.values:
            return ~_is_one_of(column, domains, requirement.values)
        case "Exists" if not requirement.values:
            return np.not_equal(domains, ABSENT)
        case "DoesNotExist" if not requirement.values:
            return np.equal(domains, ABSENT)
        case "Gt" | "Lt" if (bound := _bound(requirement)) is not None:
            if not column.domain_count:
                return nowhere
            numbers = column.integers()
            compared = np.greater(numbers, bound) if requirement.operator == "Gt" else np.less(numbers, bound)
            compared &= numbers != NO_NUMBER
            return np.logical_and(compared[domains], np.not_equal(domains, ABSENT))
    return nowhere


def _is_one_of(column: LabelColumn, domains: Int32s, values: tuple[str, ...]) -> Bools:
    numbers = [column.numbers[value] for value in values if value in column.numbers]
    if len(numbers) == 1:
        return np.equal(domains, numbers[0])
    return np.isin(domains, np.array(numbers, np.int32))


def _field(state: ClusterState, requirement: NodeSelectorRequirement) -> Bools:
    found = np.zeros(state.length, np.bool_)
    if requirement.key != _NAME or len(requirement.values) != 1:
        return found
    row = state.table.row(requirement.values[0])
    if row is not None:
        found[row] = True
    match requirement.operator:
        case "In":
            return found
        case "NotIn":
            return ~found
    return np.zeros(state.length, np.bool_)


def _holds(requirement: NodeSelectorRequirement, value: str | None) -> bool:
    match requirement.operator:
        case "In" if requirement.values:
            return value in requirement.values
        case "NotIn" if requirement.values:
            return value not in requirement.values
        case "Exists" if not requirement.values:
            return value is not None
        case "DoesNotExist" if not requirement.values:
            return value is None
        case "Gt" | "Lt" if (bound := _bound(requirement)) is not None and value is not None:
            number = integer(value)
            if number == NO_NUMBER:
                return False
            return number > bound if requirement.operator == "Gt" else number < bound
    return False


def _field_holds(requirement: NodeSelectorRequirement, name: str) -> bool:
    if requirement.key != _NAME or len(requirement.values) != 1:
        return False
    is_named = name == requirement.values[0]
    return {"In": is_named, "NotIn": not is_named}.get(requirement.operator, False)


def _bound(requirement: NodeSelectorRequirement) -> int | None:
    """The value that ``Gt`` and ``Lt`` compare with; None where there is no such integer."""
    if len(requirement.values) != 1:
        return None
    number = integer(requirement.values[0])
    return None if number == NO_NUMBER else number
