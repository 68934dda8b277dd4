"""The decision of a strategy: an opinion per kernel file, acts that are no file's value, shortages, a sentence.

An opinion is an operator and its operand: a value, a factor, an amount more, a bound, a release (give the file back to
its base) or a keep (no opinion now: the last one stays). Where several strategies shape one file, each has its opinion
at its stage, with any operator: usually SPEC sets a value, NORMALIZATION and BURST scale it, SUPPRESSION bounds it, and
RELIEF bounds it further during a shortage. ``koord.host`` knows how the kernel spells a value and how two values of a
kind compare; opinions never do.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Protocol, Self, TypeVar

import msgspec
from msgspec.structs import replace

from koord.host.files import Target
from koord.model.formulas import NO_INPUTS, Formula, Inputs
from koord.model.lattice import Value
from qosd.decide.shortage import Shortage
from qosd.model.besteffort import BestEffortScheduling
from qosd.model.policy import EffectivePolicy
from qosd.model.snapshot import NodeSnapshot, PressureTrigger, Window

S = TypeVar("S")


class Stage(IntEnum):
    """The order in which opinions on one file are composed."""

    SPEC = 0
    NORMALIZATION = 1
    BURST = 2
    SUPPRESSION = 3
    RELIEF = 4
    ENFORCEMENT = 5


class Op(StrEnum):
    """What an opinion does with the value of the earlier stages; at the first stage, with the file's base."""

    SET = "set"
    SCALE = "scale"
    ADD = "add"
    AT_MOST = "at most"
    AT_LEAST = "at least"
    RELEASE = "release"
    KEEP = "keep"


class Opinion(msgspec.Struct, frozen=True):
    """The opinion of one strategy on one kernel file.

    ``value``: in CRI's units (-1 = unlimited); a Fraction for SCALE, None for RELEASE and KEEP. ``inputs``: of the
    formula, by name, for the journal and ``explain``. ``pod``: ``namespace/name`` whose file it is, "" = the
    node's. ``is_temporary``: an experiment that ends with koord-qosd; opinions of RELIEF always are.
    """

    op: Op
    value: Value | Fraction | None
    why: str
    inputs: Inputs = NO_INPUTS
    pod: str = ""
    is_temporary: bool = False

    @classmethod
    def set(cls, value: Value, why: str, inputs: Inputs = NO_INPUTS, pod: str = "") -> Opinion:
        """The file is to hold ``value``, before any later stage."""
        return cls(Op.SET, value, why, inputs, pod)

    @classmethod
    def scale(cls, factor: Fraction, why: str, inputs: Inputs = NO_INPUTS, pod: str = "") -> Opinion:
        """``factor`` times the value, rounded towards it; an unlimited value stays unlimited."""
        return cls(Op.SCALE, factor, why, inputs, pod)

    @classmethod
    def add(cls, amount: int, why: str, inputs: Inputs = NO_INPUTS, pod: str = "") -> Opinion:
        """``amount`` more than the value; an unlimited value stays unlimited."""
        return cls(Op.ADD, amount, why, inputs, pod)

    @classmethod
    def at_most(cls, value: Value, why: str, inputs: Inputs = NO_INPUTS, pod: str = "") -> Opinion:
        """The smaller of both; of CPU sets the intersection."""
        return cls(Op.AT_MOST, value, why, inputs, pod)

    @classmethod
    def at_least(cls, value: Value, why: str, inputs: Inputs = NO_INPUTS, pod: str = "") -> Opinion:
        """The larger of both; of CPU sets the union."""
        return cls(Op.AT_LEAST, value, why, inputs, pod)

    @classmethod
    def release(cls, why: str, pod: str = "") -> Opinion:
        """The file goes back to its base: the last value that someone else wrote."""
        return cls(Op.RELEASE, None, why, pod=pod)

    @classmethod
    def keep(cls, why: str) -> Opinion:
        """No opinion now: the last one stays in force."""
        return cls(Op.KEEP, None, why)


Opinions = Mapping[Target, Opinion]
NO_OPINIONS: Opinions = MappingProxyType({})


class Act(Protocol):
    """A wanted state that is no kernel file's value: tasks in a resctrl group, or attributes of tasks.

    Each kind is an immutable struct in ``koord.host``, beside its undo note, and one actor follows it.
    """

    @property
    def why(self) -> str: ...


Acts = tuple[Act, ...]


class OneShot(msgspec.Struct, frozen=True):
    """A value to be written once: it makes the kernel do something, holds nothing, and cannot be given back."""

    target: Target
    value: Value
    why: str
    inputs: Inputs = NO_INPUTS
    pod: str = ""


class Eviction(msgspec.Struct, frozen=True):
    """A pod to evict, by UID, and why. ``pod``: ``namespace/name``; ``cgroup``: its cgroup, "" if unknown.

    ``grace_s``: the time that its processes have to end by themselves. ``gate``: the feature gate of the eviction; ""
    if unknown.
    """

    uid: str
    pod: str
    why: str
    cgroup: str = ""
    grace_s: int = 0
    inputs: Inputs = NO_INPUTS
    gate: str = ""


class Decision(msgspec.Struct, frozen=True):
    """The decision of one strategy at one tick.

    ``opinions`` is complete: a file that the last decision named and this one does not is released. So is ``acts``: an
    act that is no longer among them is undone. The same object twice means "nothing changed", and costs nothing
    downstream. ``best_effort`` None: the strategy does not limit best-effort pods. ``one_shots`` and ``shortages`` are
    of this tick alone. ``warnings``: what people should mend, one sentence each.
    """

    sentence: str
    opinions: Opinions = NO_OPINIONS
    acts: Acts = ()
    one_shots: tuple[OneShot, ...] = ()
    shortages: tuple[Shortage, ...] = ()
    best_effort: BestEffortScheduling | None = None
    warnings: tuple[str, ...] = ()

    def lasting(self) -> Self:
        """Returns what stays in force until the strategy decides again: not the one-shot writes."""
        return replace(self, one_shots=()) if self.one_shots else self


class Strategy(Protocol[S]):
    """A strategy. ``decide`` is pure: same snapshot and last state, same answer. ``S``: its state; None at first.

    Strategies derive from it; a member with a value here is a default.
    """

    @property
    def name(self) -> str: ...
    @property
    def stage(self) -> Stage: ...

    @property
    def rows(self) -> frozenset[str]:
        """The kernel files on which it may have opinions, by the names of their rows."""

    @property
    def needs(self) -> Mapping[str, float]:
        """Inputs (names of ``NodeSnapshot.ages_s``) with the age in seconds beyond which the strategy is frozen."""

    @property
    def gate(self) -> str:
        """The feature gate that switches it (``koord.model.featuregates``); "" = none."""
        return ""

    @property
    def windows(self) -> tuple[Window, ...]:
        """The windows that it reads. A strategy with windows decides once for each set of samples, unless it
        ``counts_samples``.

        They are worked out while it is on: a strategy that has just been switched on may find none yet.
        """
        return ()

    def windows_under(self, policy: EffectivePolicy) -> tuple[Window, ...]:
        """Returns its windows; a strategy overrides it if the policy sets their length."""
        return self.windows

    @property
    def counts_samples(self) -> bool:
        """Does it tell by ``sampled_ns`` itself which samples are new, or remember nothing of them? Then it decides at
        every tick, and so follows what changes between two beats."""
        return False

    @property
    def limits_best_effort(self) -> bool:
        """May it limit best-effort pods (``Decision.best_effort``)? Then it decides before the other strategies, which
        follow these limits in the same tick."""
        return False

    @property
    def triggers(self) -> tuple[PressureTrigger, ...]:
        """The triggers that wake the node's loop for it between two beats, with new samples."""
        return ()

    @property
    def grants(self) -> tuple[str, ...]:
        """The grants that it needs beyond what the systemd unit always allows (``koord.model.grants``)."""
        return ()

    @property
    def formulas(self) -> tuple[Formula, ...]:
        """The formulas that only its opinions' inputs name; shared ones are in ``koord.model``."""
        return ()

    def enabled(self, snapshot: NodeSnapshot) -> bool: ...

    def decide(self, snapshot: NodeSnapshot, last: S | None) -> tuple[Decision, S | None]: ...


AnyStrategy = Strategy[Any]
"""A strategy with a state of any type."""
