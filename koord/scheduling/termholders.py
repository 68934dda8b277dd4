"""Which nodes have pods that hold a term of affinity, for pods that come later and match it.

A pod's terms bind those that come after it, too: what it must be apart from may not come near, and what it prefers
counts from both sides. Terms are found by the labels that they ask for: a term that wants a value of some label is
looked at only for pods that have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from koord.model.selector import LabelSelector, Operator
from koord.scheduling.podcounts import Namespaces, PodSelection
from koord.scheduling.podinfo import AffinityTerm, PodLabels, WeightedTerm

_Label = tuple[str, str]


def selection_of(term: AffinityTerm) -> PodSelection:
    """Returns the pods that the term is about."""
    return PodSelection(term.namespaces, term.selector_json, term.namespace_selector_json)


class HeldTerm:
    """``rows``: how many holders are on each node."""

    __slots__ = ("rows", "selection", "term", "weight")

    def __init__(self, term: AffinityTerm, weight: int) -> None:
        self.term, self.weight = term, weight
        self.selection = selection_of(term)
        self.rows: dict[int, int] = {}


class TermHolders:
    """``namespaces``: by whose labels terms select namespaces."""

    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces
        self._held: dict[WeightedTerm, HeldTerm] = {}
        self._by_label: dict[_Label | None, dict[WeightedTerm, HeldTerm]] = {}

    def add(self, row: int, terms: Iterable[WeightedTerm]) -> None:
        for term in terms:
            held = self._held.get(term)
            if held is None:
                held = self._held[term] = HeldTerm(*term)
                for label in _wanted(term.term.selector):
                    self._by_label.setdefault(label, {})[term] = held
            held.rows[row] = held.rows.get(row, 0) + 1

    def remove(self, row: int, terms: Iterable[WeightedTerm]) -> None:
        for term in terms:
            held = self._held[term]
            held.rows[row] -= 1
            if held.rows[row]:
                continue
            del held.rows[row]
            if not held.rows:
                del self._held[term]
                for label in _wanted(term.term.selector):
                    del self._by_label[label][term]
                    if not self._by_label[label]:
                        del self._by_label[label]

    def about(self, labels: PodLabels) -> Iterator[HeldTerm]:
        """Yields the held terms that a pod of these labels matches, each once."""
        if not self._held:
            return
        for label in (None, *labels.labels):
            for held in self._by_label.get(label, {}).values():
                if self._namespaces.matches(held.selection, labels):
                    yield held


def _wanted(selector: LabelSelector | None) -> tuple[_Label | None, ...]:
    """The labels one of which a pod needs in order to match; None stands for any pod."""
    if selector is None:
        return ()
    for item in selector.match_labels.items():
        return (item,)
    for requirement in selector.match_expressions:
        if requirement.operator == Operator.IN:
            return tuple([(requirement.key, value) for value in dict.fromkeys(requirement.values)])
    return (None,)
