"""What a strategy may say: per kernel file one opinion, per cgroup its tasks' resctrl group, evictions, a sentence.

An opinion is a value, a release (give the file back to its base) or a keep (no opinion now: what was decided last
stays). Where several concerns shape one file, each speaks at its stage: the SPEC gives a value, NORMALIZATION and
BURST scale it, SUPPRESSION caps it. ``koord.host`` knows how the kernel spells a value; opinions never do.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from koord.host.files import Target
from qosd.snapshot import NodeSnapshot

Value = int | str


class Stage(IntEnum):
    """The order in which opinions on one file are composed."""

    SPEC = 0
    NORMALIZATION = 1
    BURST = 2
    SUPPRESSION = 3


class Set(msgspec.Struct, frozen=True):
    """The file shall hold ``value`` (CRI's units; -1 = unlimited), before any later stage."""

    value: Value
    why: str
    inputs: Mapping[str, Value | float | None] = MappingProxyType({})
    """What the formula was fed, by name, for the journal and ``explain``."""
    pod: str = ""
    """``namespace/name`` whose file it is; "" = the node's."""


class Scale(msgspec.Struct, frozen=True):
    """What earlier stages made, times ``factor``; an unlimited value stays unlimited."""

    factor: float
    why: str
    inputs: Mapping[str, Value | float | None] = MappingProxyType({})
    pod: str = ""


class Cap(msgspec.Struct, frozen=True):
    """At most ``value``, whatever earlier stages made of it."""

    value: int
    why: str
    inputs: Mapping[str, Value | float | None] = MappingProxyType({})
    pod: str = ""


class Release(msgspec.Struct, frozen=True):
    """The file goes back to its base: the last value that someone else wrote."""

    why: str
    pod: str = ""


class Keep(msgspec.Struct, frozen=True):
    """No opinion now: the last one stays in force."""

    why: str


Opinion = Set | Scale | Cap | Release | Keep


class Membership(msgspec.Struct, frozen=True):
    """The tasks of a cgroup, and of those below it, belong to resctrl group ``resctrl_group``."""

    resctrl_group: str
    why: str
    pod: str = ""


class Eviction(msgspec.Struct, frozen=True):
    """A pod to evict, by UID, and why."""

    uid: str
    pod: str
    why: str


class Decision(msgspec.Struct, frozen=True):
    """What one strategy wants at one tick.

    ``opinions`` is complete: a file that an earlier decision of the strategy named and this one does not is
    released. So is ``memberships``, by cgroup: tasks of one that is no longer named go back to the root group. The
    same mapping object twice means "nothing changed", and costs nothing downstream.
    """

    sentence: str
    opinions: Mapping[Target, Opinion] = MappingProxyType({})
    evictions: tuple[Eviction, ...] = ()
    memberships: Mapping[str, Membership] = MappingProxyType({})


class Strategy(Protocol):
    """``decide`` is pure: same snapshot and memory, same answer; ``memory`` is None at first."""

    @property
    def name(self) -> str: ...
    @property
    def stage(self) -> Stage: ...
    @property
    def rows(self) -> frozenset[str]:
        """The kernel files that it may speak of, by the names of their rows."""

    @property
    def needs(self) -> Mapping[str, float]:
        """Inputs (names of ``NodeSnapshot.ages_s``) with the age in seconds beyond which the strategy is frozen."""

    def enabled(self, snapshot: NodeSnapshot) -> bool: ...

    def decide(self, snapshot: NodeSnapshot, memory: Any) -> tuple[Decision, Any]: ...
