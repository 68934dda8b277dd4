"""The wanted values of kernel files, as the reconciler sees them: it knows no strategy, only their result.

Pure. Invariant: the same intent and base give the same wanted value, so a plan can be made twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

import msgspec

from koord.host.files import Target, Value
from koord.host.reconcile.state import FileState, Speakers
from koord.model import cpuset
from koord.model.formulas import AT_MOST, COMPOSED, FORMULA, NO_INPUTS, Inputs


class Wanted(msgspec.Struct, frozen=True):
    """The wanted value of one file. ``value`` None: the file is released, or, if ``keep``, left alone.

    ``by``: the strategies behind it; ``inputs`` name a formula that makes ``value`` of them; ``pod``:
    ``namespace/name`` whose file it is; ``refused``: (strategy, why) of opinions that are not followed. ``lasting``:
    the value without its temporary part; None: no part of it is temporary.
    """

    value: Value | None = None
    by: str = ""
    why: str = ""
    inputs: Inputs = NO_INPUTS
    pod: str = ""
    keep: bool = False
    refused: tuple[tuple[str, str], ...] = ()
    lasting: Value | None = None


W = TypeVar("W", bound=Wanted)


def within_quota(wanted: W, burst_us: Value | None, quota_us: Value | None) -> W:
    """Returns what is wanted of a burst that would be ``burst_us``: the kernel takes none above the quota, and any
    without one.

    ``wanted`` itself if it fits.
    """
    if not (isinstance(quota_us, int) and isinstance(burst_us, int) and 0 <= quota_us < burst_us):
        return wanted
    why = f"{wanted.why}; at most the quota of {quota_us}"
    inputs: Inputs = {FORMULA: COMPOSED, "value": burst_us, f"quota{AT_MOST}": quota_us}
    return msgspec.structs.replace(wanted, value=quota_us, why=why, inputs=inputs, keep=False)


def no_wider(wanted: W, base: Value | None, actual: Value | None, why: str) -> W:
    """Returns what is wanted of a CPU set while, because of ``why``, no set may get a CPU that it does not have.

    ``actual``: what the file holds; "" is the set above it, of which every set is a part. ``wanted`` itself if it fits.
    """
    after = base if wanted.value is None else wanted.value
    if wanted.keep or not isinstance(actual, str) or not isinstance(after, str) or not actual:
        return wanted
    left = cpuset.parse(after) & cpuset.parse(actual)
    if after and left == cpuset.parse(after):
        return wanted
    said = f"{wanted.why}; no CPU set is widened: {why}"
    if wanted.value is None or not left:
        return msgspec.structs.replace(wanted, value=None, why=said, keep=True)
    return msgspec.structs.replace(wanted, value=str(left), why=said, inputs={FORMULA: "given", "value": str(left)})


class Intent(Protocol):
    """The opinions on one file. ``by``: the strategies that have one; ``speakers``: the same with their stages."""

    @property
    def speakers(self) -> Speakers: ...
    @property
    def by(self) -> tuple[str, ...]: ...
    @property
    def is_release(self) -> bool:
        """Returns whether no strategy wants a value, so that a file that is missing is no problem."""

    def wanted(self, base: Value | None) -> Wanted:
        """Returns their result on ``base``, the last value of another writer; None: that cannot be told."""


class Intents(Protocol):
    """The opinions of one tick. ``why_no_wider``: no CPU set may get CPUs that it does not have; "" = each may."""

    @property
    def why_no_wider(self) -> str: ...
    def of(self, target: Target, state: FileState) -> Intent: ...
    def why_released(self, state: FileState, wanted: Wanted) -> str:
        """For people: why the file goes back to its base."""


class _NoIntent:
    speakers: Speakers = ()
    by: tuple[str, ...] = ()
    is_release = True

    def __init__(self, why: str) -> None:
        self._wanted = Wanted(why=why)

    def wanted(self, base: Value | None) -> Wanted:
        return self._wanted


class NothingWanted:
    """Every file is released, because of ``why``."""

    why_no_wider = ""

    def __init__(self, why: str) -> None:
        self._why, self._intent = why, _NoIntent(why)

    def of(self, target: Target, state: FileState) -> Intent:
        return self._intent

    def why_released(self, state: FileState, wanted: Wanted) -> str:
        return self._why


Refusals = Mapping[Target, tuple[tuple[str, str], ...]]
"""By file, (strategy, why) of the opinions on it that are not followed."""
