"""When systemd is told of the values of its units: after each run's writes, and again while it could not be told.

Invariants: all held values of a unit, and all that it does not know yet, are told together, because systemd writes all
that it knows of a unit whenever it is told something. A value that could not be told is told later even if it was given
back meanwhile: systemd may still know the value of ours. A unit that is held from an earlier run is told with the first
tick: that run may have ended before it told. A bus that does not answer is left alone for ``AGAIN_AFTER_NS``, so that
few ticks wait for it. Without a systemd nothing is done here. Nothing raises.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from koord.host.files import Target
from koord.host.reconcile.state import FileState
from koord.host.systemd_units import SyncOutcome, Units

AGAIN_AFTER_NS = 10 * 1_000_000_000
_log = logging.getLogger(__name__)


class SystemdSync:
    """``held``: the files that an earlier run left."""

    def __init__(self, units: Units | None, held: Iterable[Target]) -> None:
        self._units = units
        self._unsynced: dict[Target, SyncOutcome | None] = dict.fromkeys(held) if units is not None else {}
        self._again_ns = self._silent_until_ns = 0
        self._logged = ""
        self.problem = ""
        """Why systemd does not know some values, "" if it knows all: a reload of it would take them back."""

    @property
    def unanswered(self) -> Mapping[Target, str]:
        """The files of which systemd has to be told and has not answered yet, and why as far as that is known."""
        return {
            target: "" if last is None else last.sentence
            for target, last in self._unsynced.items()
            if last is None or not last.answered
        }

    def after(
        self, changed: Collection[Target], states: Mapping[Target, FileState], monotonic_ns: int
    ) -> Mapping[Target, SyncOutcome]:
        """Tell of the files that were ``changed`` or given back, with what is held of the same units."""
        if self._units is None:
            return {}
        self._unsynced |= dict.fromkeys(changed)
        due = self._unsynced if monotonic_ns >= self._again_ns else changed
        cgroups = {target.cgroup for target in due}
        if monotonic_ns < self._silent_until_ns or not cgroups:
            return {}
        held = [target for target, state in states.items() if state.is_held and target.cgroup in cgroups]
        about = {*held, *(target for target in self._unsynced if target.cgroup in cgroups)}
        told = self._units.tell(about)
        refused = {target: one for target, one in told.items() if one.why}
        others = {target: last for target, last in self._unsynced.items() if target not in about}
        self._unsynced = {**others, **refused}  # what is gone is not among the answers
        self._again_ns = monotonic_ns + AGAIN_AFTER_NS
        if any(not one.answered for one in told.values()):
            self._silent_until_ns = self._again_ns
        self._say({target: one.why for target, one in refused.items()})
        return told

    def _say(self, refused: Mapping[Target, str]) -> None:
        if refused:
            target, why = next(iter(refused.items()))
            others = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
            self.problem = f"systemd does not know {target.cgroup}/{target.name}{others} and may undo it: {why}"
            if why != self._logged:
                _log.warning("%s", self.problem)
            self._logged = why
        elif not self._unsynced:
            self.problem = self._logged = ""
