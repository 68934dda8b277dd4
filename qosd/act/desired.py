"""The acts of one kind that strategies want at a tick, and whether they are those that an actor has followed already.

Invariant: while the strategies return the very same acts, that costs a comparison of identity per strategy.
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
    """``acts``: those of ``kind``, by strategy. ``returned``: all that these strategies want, as they returned it.

    ``undecided``: the strategies that have not decided since the start; None: nothing was followed yet.
    """

    kind: type[A]
    acts: Mapping[str, tuple[A, ...]] = MappingProxyType({})
    returned: Mapping[str, Acts] = MappingProxyType({})
    undecided: frozenset[str] | None = None

    def now(self, decisions: Decisions) -> DesiredActs[A]:
        """Those of ``decisions``; this very object if nobody has returned anything else since."""
        returned = {result.name: result.decision.acts for result in decisions.results if result.decision.acts}
        are_returned = len(returned) == len(self.returned) and all(
            self.returned.get(name) is acts for name, acts in returned.items()
        )
        if are_returned and decisions.undecided == self.undecided:
            return self
        acts = {name: tuple([act for act in every if isinstance(act, self.kind)]) for name, every in returned.items()}
        return DesiredActs(self.kind, {name: own for name, own in acts.items() if own}, returned, decisions.undecided)

    def are(self, others: DesiredActs[A]) -> bool:
        """Do they come to the same?"""
        return self is others or (self.undecided == others.undecided and self.acts == others.acts)
