"""How one parent's amount of one resource is divided among its children: to the unit, and again after each change.

Each child has its minimum, or what it requests if that is less and it lends the rest; who requests more than the
minimum *needs more*, and what is left goes to those by weight, none getting more than it requests. Rounds of

    share = left * weight / sum of weights

are rounded down; the units that are over go one each to the largest remainders, and among equal ones by name. What a
child cannot use returns to what is left, for the next round of those that still need more.

Where the minima come to more than there is, they are scaled: minimum * total / sum of minima, rounded down.

Invariant: the answer depends on the claims and the total alone, not on how they came about. Children of one weight get
the same in each round but for the units that are over, so a round costs by the number of weights, not of children.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

_AFTER_ANY_NAME = "\U0010ffff"


class Claim(NamedTuple):
    """What one child has a claim to, in the resource's unit, none below 0.

    ``request``: no more than its maximum. ``guarantee``: a minimum that is not scaled. ``lends``: what it does not
    request of its minimum goes to others.
    """

    minimum: int = 0
    request: int = 0
    weight: int = 0
    lends: bool = True
    guarantee: int = 0


class Share(NamedTuple):
    """What a child gets, and why. ``minimum``: after scaling and guarantee; ``needs``: what it requests beyond that, 0
    where it does not need more; ``gain``: what it gets of that.
    """

    minimum: int
    needs: int
    gain: int
    runtime: int


class Summary(NamedTuple):
    """``total`` is divided. ``minima``: the sum of all minima, unscaled; ``left``: what the rounds are about, below 0
    where even the scaled minima are more than there is; ``needs``, ``weights``: the sums of those that need more.
    """

    total: int
    minima: int
    is_scaled: bool
    left: int
    needs: int
    weights: int


class _Level:
    """Children of one weight that have got the same ``gain`` so far. ``rooms``: what each needs, with its name, the
    least first; those before ``first`` have got it.
    """

    __slots__ = ("first", "gain", "rooms", "share", "spare", "weight")

    def __init__(self, weight: int, rooms: list[tuple[int, str]], first: int = 0, gain: int = 0) -> None:
        self.weight, self.rooms, self.first, self.gain = weight, rooms, first, gain
        self.share = self.spare = 0

    def __len__(self) -> int:
        return len(self.rooms) - self.first

    def cap(self) -> int:
        """Ends it for those that have what they need; returns what they have beyond that."""
        end = bisect_right(self.rooms, (self.gain, _AFTER_ANY_NAME), self.first)
        if end == self.first:
            return 0
        excess = self.gain * (end - self.first) - sum([room for room, _ in self.rooms[self.first : end]])
        self.first = end
        return excess


class Division:
    """The claims of one parent's children to one resource. ``scales``: whether minima are scaled."""

    __slots__ = (
        "_claims", "_exceptions", "_gains", "_is_divided", "_minima", "_rooms", "_scale", "_taken", "_weights",
        "scales",
    )  # fmt: skip

    def __init__(self, scales: bool = True) -> None:
        self.scales = scales
        self._claims: dict[str, Claim] = {}
        self._minima = 0
        self._scale: tuple[int, int] | None = None
        """By what minima are scaled in ``_taken`` and ``_rooms``: times, divided by."""
        self._taken = 0
        """What all have before the rounds."""
        self._rooms: dict[int, list[tuple[int, str]]] = {}
        """By weight: what those that need more need, with their names, the least first."""
        self._weights = 0
        """The sum of theirs."""
        self._is_divided: int | None = None
        self._gains: dict[int, int] = {}
        self._exceptions: dict[str, int] = {}

    def put(self, name: str, claim: Claim) -> None:
        """The child has this claim, and no other any more."""
        before = self._claims.get(name)
        if before == claim:
            return
        divided = self._is_divided if before is not None and self._goes_short_alike(name, before, claim) else None
        if before is not None:
            self._count(name, before, -1)
        self._claims[name] = claim
        self._count(name, claim)
        self._is_divided = divided

    def remove(self, name: str) -> None:
        before = self._claims.pop(name, None)
        if before is not None:
            self._count(name, before, -1)

    def claim(self, name: str) -> Claim:
        """Returns the child's; one that requests nothing and has nothing is as one that there is not."""
        return self._claims.get(name, Claim())

    def __iter__(self) -> Iterator[str]:
        return iter(self._claims)

    def runtime(self, name: str, total: int) -> int:
        """Returns what the child may use where there is ``total`` for all."""
        return self.share(name, total).runtime

    def share(self, name: str, total: int) -> Share:
        """Returns what the child gets, and why."""
        self._scale_for(total)
        claim = self.claim(name)
        minimum = self._minimum(claim)
        needs = claim.request - minimum
        if needs <= 0:
            return Share(minimum, 0, 0, claim.request if claim.lends else minimum)
        self._divide(total)
        gain = self._exceptions.get(name)
        if gain is None:
            gain = self._gains.get(claim.weight, 0)
        gain = min(gain, needs)
        return Share(minimum, needs, gain, minimum + gain)

    def allows(self, name: str, amount: int, total: int) -> bool:
        """Returns whether the child may use as much. Who wants no more than the first round alone gives is told so
        without a division.
        """
        if self._is_divided != total:
            self._scale_for(total)
            claim = self.claim(name)
            minimum = self._minimum(claim)
            if claim.request > minimum and self._weights and total > self._taken:
                first = (total - self._taken) * claim.weight // self._weights
                if amount <= min(claim.request, minimum + first):
                    return True
        return amount <= self.runtime(name, total)

    def summary(self, total: int) -> Summary:
        self._divide(total)
        needs = sum(room for rooms in self._rooms.values() for room, _ in rooms)
        return Summary(total, self._minima, self._scale is not None, total - self._taken, needs, self._weights)

    def _goes_short_alike(self, name: str, before: Claim, after: Claim) -> bool:
        """Returns whether the child gets less than it requests, of the one and of the other claim: what it requests
        matters to nobody then.
        """
        if self._is_divided is None or before._replace(request=after.request) != after:
            return False
        _, needs, gain, _ = self.share(name, self._is_divided)
        return gain < needs and gain < after.request - self._minimum(after)

    def _minimum(self, claim: Claim) -> int:
        minimum = claim.minimum
        if self._scale is not None:
            times, by = self._scale
            minimum = minimum * times // by
        return max(minimum, claim.guarantee)

    def _count(self, name: str, claim: Claim, sign: int = 1) -> None:
        self._minima += sign * claim.minimum
        self._count_taken(name, claim, sign)
        self._is_divided = None

    def _count_taken(self, name: str, claim: Claim, sign: int = 1) -> None:
        minimum = self._minimum(claim)
        if claim.request <= minimum:
            self._taken += sign * (claim.request if claim.lends else minimum)
            return
        self._taken += sign * minimum
        self._weights += sign * claim.weight
        entry = claim.request - minimum, name
        rooms = self._rooms.setdefault(claim.weight, [])
        if sign > 0:
            insort(rooms, entry)
        else:
            del rooms[bisect_left(rooms, entry)]
            if not rooms:
                del self._rooms[claim.weight]

    def _divide(self, total: int) -> None:
        self._scale_for(total)
        if self._is_divided == total:
            return
        levels = [_Level(weight, rooms) for weight, rooms in self._rooms.items() if weight > 0]
        made = _in_rounds(total - self._taken, levels)
        self._gains = {each.weight: each.gain for each in levels}
        self._exceptions = {name: level.gain for level in made for _, name in level.rooms}
        self._is_divided = total

    def _scale_for(self, total: int) -> None:
        """Minima are scaled where they come to more than ``total``."""
        if not self.scales:
            return
        scale = (max(total, 0), self._minima) if self._minima > max(total, 0) else None
        if scale != self._scale:
            self._scale, self._taken, self._weights, self._rooms, self._is_divided = scale, 0, 0, {}, None
            for name, claim in self._claims.items():
                self._count_taken(name, claim)


def divide(total: int, claims: Mapping[str, Claim], scales: bool = True) -> dict[str, int]:
    """Returns what each child may use of ``total``."""
    division = Division(scales)
    for name, claim in claims.items():
        division.put(name, claim)
    return {name: division.runtime(name, total) for name in claims}


def _in_rounds(left: int, levels: Iterable[_Level]) -> list[_Level]:
    """Gives what is left to those that need more. Returns the levels that were made of some of a level's children."""
    active, made = list(levels), list[_Level]()
    while left > 0 and active:
        weights = sum([each.weight * len(each) for each in active])
        over = left
        for each in active:
            each.share, each.spare = divmod(left * each.weight, weights)
            over -= each.share * len(each)
        if over:
            parted = _give_units(over, active)
            active += parted
            made += parted
        left = 0
        for each in active:
            each.gain += each.share
            left += each.cap()
        active = [each for each in active if len(each)]
    return made


def _give_units(units: int, levels: list[_Level]) -> list[_Level]:
    """Adds one each to the shares with the largest remainders. Returns new levels of those children of a level that
    get a unit where others of it do not.
    """
    for _, same in groupby(sorted(levels, key=attrgetter("spare"), reverse=True), key=attrgetter("spare")):
        equal = list(same)
        count = sum([len(each) for each in equal])
        if count > units:
            names = sorted([name for each in equal for _, name in each.rooms[each.first :]])
            lucky = frozenset(names[:units])
            return [parted for each in equal if (parted := _parted(each, lucky)) is not None]
        for each in equal:
            each.share += 1
        units -= count
        if not units:
            break
    return []


def _parted(level: _Level, lucky: frozenset[str]) -> _Level | None:
    """Takes the lucky ones out of the level, with a unit more; None: there are none in it."""
    taken = [each for each in level.rooms[level.first :] if each[1] in lucky]
    if not taken:
        return None
    rest = [each for each in level.rooms[level.first :] if each[1] not in lucky]
    level.rooms = level.rooms[: level.first] + rest
    parted = _Level(level.weight, taken, 0, level.gain)
    parted.share = level.share + 1
    return parted
