"""Whether a ``slo-controller-config`` may be stored, or a node labelled so: the strict rules of the webhooks.

    every key is JSON, and every field within its bounds                        ParseConfigFail, ConfigParamInvalid
    what each node would have, merged, keeps the rules between fields           ConfigParamInvalid
    every node entry selects nodes by something, and has a name if it must      ConfigParamInvalid
    of two entries of one key none matches all nodes of the other               NodeStrategiesOverlap
    no node exists that two entries of one key match                            ExistNodeConfict

Entries that select by different labels are in conflict only where a node has both: there the first one would count.

Upstream checks five keys as they are written and three not at all, wants both thresholds of a pair, mixes percents with
bytes per second, and needs ``system-config`` beside ``resource-qos-config``; none of this is so here.

Invariant: what passes, ``loading.load`` takes without a problem. Nothing here raises.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from koord.model.problem import Problem
from koord.model.readable import shorten_list
from koord.sloconfig import loading, mergedrules, reading, selectors
from koord.sloconfig.config import Labels, NodeEntry, Section, SLOConfig
from koord.sloconfig.reading import Statement
from koord.sloconfig.rows import ROWS, KeyRow

MOST_ENTRIES = 400
"""Of one key: each is compared with each, which takes seconds of more."""
MOST_EXAMPLES = 5
MOST_OVERLAPS = 20
"""Of one key: a document with more need not be listed to its end."""

Nodes = Sequence[tuple[str, Labels]]
"""Name and labels."""


class Reason(StrEnum):
    """Upstream's words, misspelling included."""

    PARSE = "ParseConfigFail"
    PARAMETER = "ConfigParamInvalid"
    OVERLAP = "NodeStrategiesOverlap"
    EXISTING_NODE = "ExistNodeConfict"


@dataclass(frozen=True, slots=True)
class Violation:
    """A reason to refuse. ``strategies`` and ``example_nodes``: the names of those in conflict."""

    reason: Reason
    key: str
    problem: Problem
    strategies: tuple[str, ...] = ()
    example_nodes: tuple[str, ...] = ()

    def upstream_form(self) -> str:
        """Returns ``___{"reason":…,"message":…}___``; of a conflict the message is an object."""
        conflict = {"config": self.key, "strategies": self.strategies, "exampleNodes": self.example_nodes}
        message: object = conflict if self.reason is Reason.EXISTING_NODE else str(self.problem)
        return f"___{msgspec.json.encode({'reason': self.reason, 'message': message}).decode()}___"


def check(
    data: Mapping[str, str],
    nodes: Nodes = (),
    *,
    names_required: bool = False,
    old: Mapping[str, str] | None = None,
) -> list[Violation]:
    """Returns what forbids ``data``, in the order of the keys. ``old``: the data that they replace.

    Of a key that does not change only what the change of another makes wrong is a reason, so what is wrong already does
    not forbid putting the rest right.
    """
    violations = _all(data, nodes, names_required)
    if old is None:
        return violations
    before = frozenset(_all(old, nodes, names_required))
    changed = {row.key for row in ROWS if data.get(row.key, "") != old.get(row.key, "")}
    return [each for each in violations if each.key in changed or each not in before]


def check_node(config: SLOConfig, name: str, labels: Labels) -> list[Violation]:
    """Returns what forbids the node ``name`` to have ``labels``: that two entries of one key match it."""
    return [violation for row in ROWS for violation in _conflicts(row, _entries(config, row), [(name, labels)])]


def _all(data: Mapping[str, str], nodes: Nodes, names_required: bool) -> list[Violation]:
    config, found = loading.load(data).config, list[Violation]()
    statements = [(row, reading.read(row, data.get(row.key, ""))) for row in ROWS]
    if crowded := [_crowded(row, statement) for row, statement in statements if len(statement.entries) > MOST_ENTRIES]:
        return crowded
    for row, statement in statements:
        found += _fields(row, statement)
        found += _invalid(row, mergedrules.problems(row, config))
        found += _invalid(row, _selectors(statement))
        if names_required:
            found += _invalid(row, _names(statement))
        found += _overlaps(row, _entries(config, row), nodes)
    return found


def _crowded(row: KeyRow[Any], statement: Statement[Any]) -> Violation:
    place = f"{row.key}.{row.layout}"
    message = f"has {len(statement.entries)} entries: {MOST_ENTRIES} are the most that can be checked"
    return Violation(Reason.PARAMETER, row.key, Problem(place, message))


def _entries(config: SLOConfig, row: KeyRow[Any]) -> tuple[NodeEntry[Any], ...]:
    section: Section[Any] = getattr(config, row.section)
    return section.entries


def _invalid(row: KeyRow[Any], problems: Sequence[Problem]) -> list[Violation]:
    return [Violation(Reason.PARAMETER, row.key, problem) for problem in problems]


def _fields(row: KeyRow[Any], statement: Statement[Any]) -> list[Violation]:
    if not statement.is_json:
        return [Violation(Reason.PARSE, row.key, problem) for problem in statement.problems]
    of_entries = [problem for entry in statement.entries for problem in (*entry.problems, *entry.selector_problems)]
    return _invalid(row, [*statement.problems, *of_entries])


def _selectors(statement: Statement[Any]) -> list[Problem]:
    """Entries that select nothing, or everything."""
    found = list[Problem]()
    for entry in statement.entries:
        place = f"{entry.path}.nodeSelector"
        if entry.selector is None and not entry.selector_problems:
            found.append(Problem(place, "is missing, so the entry matches no node"))
        elif entry.selector is not None and entry.selector.is_empty:
            found.append(Problem(place, "is empty, so the entry matches every node: use the cluster's strategy"))
    return found


def _names(statement: Statement[Any]) -> list[Problem]:
    """Entries that cannot be told from each other by name."""
    found, paths = list[Problem](), dict[str, str]()
    for entry in statement.entries:
        place = f"{entry.path}.name"
        if not entry.name:
            found.append(Problem(place, "is missing"))
        elif entry.name in paths:
            found.append(Problem(place, f"{entry.name!r} is the name of {paths[entry.name]}, too"))
        paths.setdefault(entry.name, entry.path)
    return found


def _overlaps(row: KeyRow[Any], entries: Sequence[NodeEntry[Any]], nodes: Nodes) -> list[Violation]:
    """Reports entries that match all nodes of another entry, and then Nodes that two entries match."""
    found, suspects = list[Violation](), set[str]()
    for first, second, labels, is_hidden in _overlapping(entries):
        suspects |= {first.path, second.path}
        if is_hidden:
            found.append(_overlap(row, first, second, labels))
            if len(found) == MOST_OVERLAPS:
                break
    return [*found, *_conflicts(row, [entry for entry in entries if entry.path in suspects], nodes)]


def _overlapping(entries: Sequence[NodeEntry[Any]]) -> Iterator[tuple[NodeEntry[Any], NodeEntry[Any], Labels, bool]]:
    """Yields two entries that one node can match, its labels, and whether one matches all nodes of the other.

    Of entries that look at labels of their own neither matches all nodes of the other, and the labels are left out.
    """
    selecting = [
        (entry, entry.selector, selectors.listed(entry.selector), frozenset(selectors.keys(entry.selector)))
        for entry in entries
        if entry.selector and not entry.selector.is_empty and selectors.example([entry.selector]) is not None
    ]
    for (first, selector, values, keys), (second, other, other_values, other_keys) in itertools.combinations(
        selecting, 2
    ):
        if keys.isdisjoint(other_keys):
            yield first, second, {}, False
            continue
        if selectors.are_disjoint(values, other_values):
            continue
        labels = selectors.example([selector, other])
        if labels is not None:
            yield first, second, labels, selectors.implies(selector, other) or selectors.implies(other, selector)


def _overlap(row: KeyRow[Any], first: NodeEntry[Any], second: NodeEntry[Any], labels: Labels) -> Violation:
    example = " ".join(f"{key}={value}" for key, value in labels.items())
    node = f"a node with the labels {example}" if example else "a node without labels"
    problem = Problem(f"{second.path}.nodeSelector", f"matches {node}, as does {first.path}")
    return Violation(Reason.OVERLAP, row.key, problem, (_name(first), _name(second)))


def _conflicts(row: KeyRow[Any], entries: Sequence[NodeEntry[Any]], nodes: Nodes) -> list[Violation]:
    """Returns every set of entries that nodes match together, with a few of these nodes."""
    names: dict[tuple[str, ...], list[str]] = {}
    matched: dict[tuple[str, ...], list[NodeEntry[Any]]] = {}
    keys = sorted({key for entry in entries if entry.selector for key in selectors.keys(entry.selector)})
    alike: dict[tuple[str | None, ...], list[NodeEntry[Any]]] = {}
    for name, labels in nodes:
        looked_at = tuple([labels.get(key) for key in keys])
        if looked_at not in alike:
            alike[looked_at] = [entry for entry in entries if entry.matches(labels)]
        matching = alike[looked_at]
        if len(matching) > 1:
            group = tuple(entry.path for entry in matching)
            matched[group] = matching
            names.setdefault(group, []).append(name)
    return [_conflict(row, matched[group], names[group]) for group in names]


def _conflict(row: KeyRow[Any], entries: Sequence[NodeEntry[Any]], nodes: Sequence[str]) -> Violation:
    shown = ", ".join(shorten_list(nodes, MOST_EXAMPLES))
    others = ", ".join(entry.path for entry in entries if entry is not entries[1])
    problem = Problem(f"{entries[1].path}.nodeSelector", f"matches {shown}, as does {others}")
    examples = tuple(nodes[:MOST_EXAMPLES])
    return Violation(Reason.EXISTING_NODE, row.key, problem, tuple(map(_name, entries)), examples)


def _name(entry: NodeEntry[Any]) -> str:
    return entry.name or entry.path
