"""A decision worked out again only if one of the objects that it depends on is another one.

Snapshots share what did not change as the very same objects, so a tick at which nothing happened costs a comparison of
identities. Invariant: an equal decision is the last one itself, so that nothing downstream works for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from qosd.decide.decision import Decision


@dataclass(frozen=True, slots=True)
class Memo:
    """What was decided of which objects."""

    inputs: tuple[object, ...]
    decision: Decision


def decide_anew(last: Memo | None, inputs: tuple[object, ...], decide: Callable[[], Decision]) -> tuple[Decision, Memo]:
    """``last``: what the last call returned, None at first; ``inputs``: all that ``decide`` depends on."""
    if last is not None and all(before is now for before, now in zip(last.inputs, inputs, strict=True)):
        return last.decision, last
    decision = decide()
    if last is not None and last.decision == decision:
        decision = last.decision
    return decision, Memo(inputs, decision)
