"""When a figure differs enough from the one that the node shows to be worth a write to the API server.

Invariant: the comparison is exact, so 27500 against 25000 is no difference at 10 %, and 27501 is one.
"""

from __future__ import annotations

from fractions import Fraction


def threshold(share: float) -> Fraction:
    """``resourceDiffThreshold``: 0.1 is a tenth, as it is written."""
    return Fraction(str(share))


def is_significant(observed: int | None, desired: int | None, share: Fraction) -> bool:
    """Is it there and is not to be, or the reverse, or off by more than ``share`` of what is there?"""
    if observed is None or desired is None:
        return observed is not desired
    return abs(desired - observed) > observed * share
