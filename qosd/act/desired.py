"""The acts of one kind that strategies want at a tick, compared with those that an actor follows already.

Invariant: while the strategies return the same objects, the comparison is one of identity per strategy.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

import msgspec

from qosd.decide.decision import Act, Acts
from qosd.decide.runner import Decisions

A = TypeVar("A", bound=Act)


class DesiredActs(msgspec.Struct, Generic[A], frozen=True, eq=False):
    """``acts``: those of ``kind``, by strategy. ``returned``: all acts of these strategies, as they returned them.

    ``undecided``: the strategies that have not decided since the start; None: no decisions were followed yet.
    """

    kind: type[A]
    acts: Mapping[str, tuple[A, ...]] = MappingProxyType({})
    returned: Mapping[str, Acts] = MappingProxyType({})
    undecided: frozenset[str] | None = None

    def now(self, decisions: Decisions) -> DesiredActs[A]:
        """Returns the acts of ``decisions``; this object itself if the strategies returned the same objects."""
        returned = {result.name: result.decision.acts for result in decisions.results if result.decision.acts}
        are_returned = len(returned) == len(self.returned) and all(
            self.returned.get(name) is acts for name, acts in returned.items()
        )
        if are_returned and decisions.undecided == self.undecided:
            return self
        acts = {name: tuple([act for act in every if isinstance(act, self.kind)]) for name, every in returned.items()}
        return DesiredActs(self.kind, {name: own for name, own in acts.items() if own}, returned, decisions.undecided)

    def are(self, others: DesiredActs[A]) -> bool:
        """Are they equal?"""
        return self is others or (self.undecided == others.undecided and self.acts == others.acts)
