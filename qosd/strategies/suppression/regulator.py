"""Regulates the CPU time of best-effort pods by how long they make latency-sensitive containers wait.

    above the set point and its dead band   shrink, in proportion to the excess, from what they use now, not from the
                                            limit (so that a limit that was not reached shrinks at once)
    below it for ``CALM_NS``                grow, ``GROWTH_PERCENT`` of the node a second
    between                                 stay

The wait is filtered twice: a small excess counts when it lasts, a large one (``SEVERE``) at once.

The regulator remembers a limit that hurt: growth stops short of it until ``PATIENCE_NS`` is over (twice as long each
time, up to ``PATIENCE_MOST_NS``), or until the others use clearly more or less than they did then. So it does not try a
steady load again and again.

The ceiling bounds what best-effort pods get (``LimitBounds.of``), not the limit: the ceiling moves with every sample of
the others' load, and that says nothing about the effect of the limit. A limit is needless (``is_needless``) when it has
first reached the ceiling in a calm ``NEEDLESS_NS`` ago, wherever the ceiling has moved since.

Pure; invariants: what best-effort pods get is between floor and ceiling; one change of the limit a second at most;
after a change, none in the other direction before its effect can have been seen; in a calm the limit never shrinks, so
that it is needless after the seconds that growth through the whole node takes, once its patience is over.
"""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

SECOND_NS = 1_000_000_000
FAST_S, SLOW_S = 2.0, 8.0
"""The time constants of the two filters."""
CALM_NS = 3 * SECOND_NS
DWELL_NS = 1 * SECOND_NS
TURN_NS = 3 * SECOND_NS
"""After so long the effect of a change shows: the wait is measured over a second, and filtered."""
PATIENCE_NS = 60 * SECOND_NS
PATIENCE_MOST_NS = 960 * SECOND_NS
DEAD_BAND = 0.25
SEVERE = 1.6
NEEDLESS_NS = 10 * SECOND_NS
GROWTH_PERCENT = 8
SHRINK_MOST, SHRINK_LEAST = 0.7, 0.95
"""The factors by which a limit shrinks: at twice the set point or more, and just above the dead band."""
_SHORT_OF = 0.95
_OTHER_LOAD_PERCENT = 10


class LimitBounds(msgspec.Struct, frozen=True):
    """The bounds in thousandths of a CPU; ``set_point``: the wait, in µs per second, that counts as none."""

    floor_milli: int
    ceiling_milli: int
    capacity_milli: int
    set_point: float

    def of(self, limit: Limit) -> int:
        """Returns what best-effort pods get by ``limit``."""
        return max(self.floor_milli, min(limit.milli, self.ceiling_milli))


class Filtered(msgspec.Struct, frozen=True):
    """The wait in µs per second, filtered over ``FAST_S`` and over ``SLOW_S``."""

    fast: float = 0.0
    slow: float = 0.0

    def fed(self, wait: float, passed_s: float) -> Filtered:
        """Returns the filters after one more sample, ``passed_s`` after the last."""
        fast, slow = (1 - math.exp(-passed_s / constant_s) for constant_s in (FAST_S, SLOW_S))
        return Filtered(self.fast + fast * (wait - self.fast), self.slow + slow * (wait - self.slow))


class Limit(msgspec.Struct, frozen=True):
    """The limit of best-effort pods, below the ceiling. ``load_milli``: what the others used when it hurt.

    ``hurt_milli``: the limit that hurt; growth stops short of it until ``patient_ns``; 0 = none hurt.
    """

    milli: int
    changed_ns: int
    grew: bool = False
    calm_ns: int = 0
    """Since when it has been calm; 0 = it is not."""
    reached_ns: int = 0
    """When the limit reached the ceiling first in this calm; 0 = it has not."""
    hurt_milli: int = 0
    load_milli: int = 0
    patience_ns: int = PATIENCE_NS
    patient_ns: int = 0

    def is_needless(self, now_ns: int) -> bool:
        """Has as much as the ceiling allows not hurt for ``NEEDLESS_NS``?"""
        is_patient = bool(self.hurt_milli) and now_ns < self.patient_ns
        return bool(self.reached_ns) and now_ns - self.reached_ns >= NEEDLESS_NS and not is_patient


def regulated(
    limit: Limit, bounds: LimitBounds, wait: Filtered, used_milli: int, load_milli: int, now_ns: int
) -> Limit:
    """Returns the limit after one sample. ``used_milli``: by best-effort pods; ``load_milli``: by all others."""
    limit = _forgiven(limit, bounds, load_milli)
    fast, slow = wait.fast / bounds.set_point, wait.slow / bounds.set_point
    if max(fast, slow) < 1 - DEAD_BAND:
        limit = _grown(replace(limit, calm_ns=limit.calm_ns or now_ns), bounds, now_ns)
        is_first = not limit.reached_ns and limit.milli >= bounds.ceiling_milli
        return replace(limit, reached_ns=now_ns) if is_first else limit
    limit = replace(limit, calm_ns=0, reached_ns=0)
    is_painful = fast > SEVERE or min(fast, slow) > 1 + DEAD_BAND
    return _shrunk(limit, bounds, fast, used_milli, load_milli, now_ns) if is_painful else limit


def _forgiven(limit: Limit, bounds: LimitBounds, load_milli: int) -> Limit:
    """Forgets the limit that hurt if the others' load is clearly another now."""
    is_other = abs(load_milli - limit.load_milli) * 100 > _OTHER_LOAD_PERCENT * bounds.capacity_milli
    return replace(limit, hurt_milli=0, patience_ns=PATIENCE_NS) if limit.hurt_milli and is_other else limit


def _shrunk(limit: Limit, bounds: LimitBounds, excess: float, used_milli: int, load_milli: int, now_ns: int) -> Limit:
    if now_ns - limit.changed_ns < DWELL_NS:
        return limit
    factor = max(SHRINK_MOST, SHRINK_LEAST - (excess - 1 - DEAD_BAND) / (1 - DEAD_BAND) * (SHRINK_LEAST - SHRINK_MOST))
    milli = max(bounds.floor_milli, int(min(bounds.of(limit), used_milli) * factor))
    if milli >= limit.milli:
        return limit
    if not limit.grew:
        return replace(limit, milli=milli, changed_ns=now_ns)
    again = bool(limit.hurt_milli)
    patience_ns = min(PATIENCE_MOST_NS, limit.patience_ns * 2) if again else PATIENCE_NS
    return Limit(
        milli=milli,
        changed_ns=now_ns,
        hurt_milli=bounds.of(limit),
        load_milli=load_milli,
        patience_ns=patience_ns,
        patient_ns=now_ns + patience_ns,
    )


def _grown(limit: Limit, bounds: LimitBounds, now_ns: int) -> Limit:
    is_early = now_ns - limit.calm_ns < CALM_NS or now_ns - limit.changed_ns < (DWELL_NS if limit.grew else TURN_NS)
    most = bounds.ceiling_milli
    if limit.hurt_milli and now_ns < limit.patient_ns:
        most = min(most, int(limit.hurt_milli * _SHORT_OF))
    milli = min(most, limit.milli + bounds.capacity_milli * GROWTH_PERCENT // 100)
    if is_early or milli <= limit.milli:
        return limit
    return replace(limit, milli=milli, changed_ns=now_ns, grew=True)
