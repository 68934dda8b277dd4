"""The state of relief between ticks, and its decision at a tick: plain values."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Self

import msgspec
from msgspec.structs import replace

from qosd.decide.decision import NO_OPINIONS, Acts, Decision, Eviction, Opinions
from qosd.decide.reliefsteps import NO_GIFTS, Freeze, Throttle
from qosd.decide.shortage import Key, Measure, ReliefStep, Resource


class Episode(msgspec.Struct, frozen=True, eq=False):
    """How far the steps for a claim have gone. ``gives``: by UID what the last mild step frees until ``wait_ns``."""

    stated_ns: int
    step: ReliefStep = ReliefStep.RECLAIM
    """The mildest step that may still be taken."""
    sampled_ns: int = 0
    wait_ns: int = 0
    measure: Measure = Measure.USAGE
    gives: Mapping[str, int] = NO_GIFTS
    throttles: Mapping[str, Throttle] = MappingProxyType({})


class Victim(msgspec.Struct, frozen=True, eq=False):
    """A pod that was evicted. ``keys``: the lasting episodes for which it was evicted; None: unknown.

    ``eviction``: the last one.
    """

    keys: frozenset[Key] | None
    since_ns: int
    floors: tuple[Throttle, ...] = ()
    eviction: Eviction | None = None


class ReliefState(msgspec.Struct, frozen=True, eq=False):
    """The state of relief between ticks; values about pods are by UID.

    ``started_ns``: of the first tick, None before it. ``rounds_ns``: when pods were evicted last for a resource.
    ``pending``: the pods that were about to go at the last tick. ``settled_ns``: samples up to then do not show the
    last eviction, or the end of one of those pods. ``is_rehearsal``: none of its steps was carried out.
    """

    started_ns: int | None = None
    episodes: Mapping[Key, Episode] = MappingProxyType({})
    freezes: Mapping[str, Freeze] = MappingProxyType({})
    victims: Mapping[str, Victim] = MappingProxyType({})
    evicted_ns: tuple[int, ...] = ()
    """The instants of the evictions of the last minute."""
    rounds_ns: Mapping[Resource, int] = MappingProxyType({})
    pending: frozenset[str] = frozenset()
    settled_ns: int = 0
    opinions: Opinions = NO_OPINIONS
    is_rehearsal: bool = False
    rehearsed: Acts = ()
    """The acts of a rehearsal at the last tick."""

    @property
    def is_empty(self) -> bool:
        return not (self.episodes or self.freezes or self.victims or self.evicted_ns)

    def of_kind(self, is_rehearsal: bool) -> ReliefState:
        """Returns the state; a new one after a switch between rehearsal and relief: rehearsed steps did not happen.

        The rate of evictions counts across a switch, so that switching does not get around it.
        """
        if self.is_rehearsal is is_rehearsal:
            return self
        return ReliefState(
            self.started_ns, evicted_ns=self.evicted_ns, rounds_ns=self.rounds_ns, is_rehearsal=is_rehearsal
        )

    def emptied(self) -> ReliefState:
        """Returns the state without what is over."""
        return ReliefState(
            self.started_ns, pending=self.pending, settled_ns=self.settled_ns, is_rehearsal=self.is_rehearsal
        )


NOTHING_DONE = ReliefState()


class Relief(Decision, frozen=True):
    """The decision about all shortages of a tick. ``evictions`` are of this tick alone."""

    evictions: tuple[Eviction, ...] = ()

    def lasting(self) -> Self:
        lasting = super().lasting()
        return replace(lasting, evictions=()) if lasting.evictions else lasting


NO_RELIEF = Relief("no shortage", NO_OPINIONS)
