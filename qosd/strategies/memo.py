"""Makes a decision again only if one of the objects that it depends on has been replaced.

Snapshots share unchanged parts as the same objects, so a tick at which nothing happened costs a comparison of
identities. Invariant: an equal decision is the last object itself, so that nothing downstream works for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from qosd.decide.decision import Decision


@dataclass(frozen=True, slots=True)
class Memo:
    """The last decision, and the objects that it was made from."""

    inputs: tuple[object, ...]
    decision: Decision


def decide_anew(last: Memo | None, inputs: tuple[object, ...], decide: Callable[[], Decision]) -> tuple[Decision, Memo]:
    """Returns ``decide()``, or the last decision if ``inputs``, all that ``decide`` depends on, are the same."""
    if last is not None and all(before is now for before, now in zip(last.inputs, inputs, strict=True)):
        return last.decision, last
    decision = decide()
    if last is not None and last.decision == decision:
        decision = last.decision
    return decision, Memo(inputs, decision)
