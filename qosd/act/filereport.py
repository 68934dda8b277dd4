"""The state of kernel files after a tick, for readers in any thread.

Invariant: immutable. It shares each of its mappings with the actor, which replaces a mapping whole and only when
something in it changes, so a report costs one object per tick.
"""

from __future__ import annotations

from collections.abc import Mapping

from koord.host.files import Target
from koord.host.order import BURST, CPUS, QUOTA
from koord.host.originals import Original
from koord.host.reconcile.state import FREE, FileState
from koord.host.reconcile.step import FIGHT_WITHIN_NS
from koord.host.reconcile.wanted import Refusals, no_wider, within_quota
from koord.model import cpuset
from qosd.act.actor import ActReport
from qosd.act.composition import Composed
from qosd.act.intents import TickIntents
from qosd.act.ownership import Ownership
from qosd.decide.runner import Decisions


class FileReport(ActReport, frozen=True, eq=False):
    """``states``: of all known files. ``decisions``: those that were executed last; None: none were.

    ``refused``: (strategy, why) of the opinions that are not followed, by file. ``originals``: by cgroup of a
    container, then by row. ``unsynced``: why systemd does not know some held values; "" if it knows them all.
    """

    states: Mapping[Target, FileState]
    refused: Refusals
    originals: Mapping[str, Mapping[str, Original]]
    unsynced: str
    owners: Mapping[str, Ownership]
    decisions: Decisions | None

    @property
    def owned(self) -> Mapping[Target, FileState]:
        """The files that are held."""
        return {target: state for target, state in self.states.items() if state.is_held}

    @property
    def contested(self) -> Mapping[Target, str]:
        """The files left to another writer, and why; a strategy enforces them one level up if it can."""
        return {target: state.contested for target, state in self.states.items() if state.is_contested}

    def fought_cpus(self, now_ns: int) -> dict[str, str]:
        """Returns by cgroup the CPUs that its tasks really have, where another writer fights for its CPU set.

        They are those in the file, and those that the writer put there within the last minute.
        """
        found = {}
        for target, state in self.states.items():
            if target.name != CPUS:
                continue
            if state.is_contested:
                found[target.cgroup] = str(state.base)
            elif state.restored_times and now_ns - state.restored_ns < FIGHT_WITHIN_NS:
                found[target.cgroup] = str(cpuset.parse(str(state.written)) | cpuset.parse(str(state.restored_value)))
        return found

    def original(self, target: Target) -> Original | None:
        """Returns the values that kubelet requested and that the runtime got for this file; None if unchanged."""
        originals = self.originals.get(target.cgroup)
        return None if originals is None else originals.get(target.name)

    def composed(self, target: Target) -> Composed | None:
        """Returns the value of ``decisions`` for ``target``, a burst within its quota; None without an opinion."""
        composed = self._composed(target)
        if composed is not None and target.name == CPUS and self.decisions is not None and self.decisions.cpus_unknown:
            state = self.states.get(target, FREE)
            held = state.written if state.is_held else None
            return no_wider(composed, state.base, held, self.decisions.cpus_unknown)
        if composed is None or target.name != BURST:
            return composed
        of_quota = Target(target.cgroup, QUOTA)
        state, quota = self.states.get(of_quota, FREE), self._composed(of_quota)
        held_us = state.written if state.is_held else None
        return within_quota(composed, composed.value, held_us if quota is None else quota.value)

    def _composed(self, target: Target) -> Composed | None:
        if self.decisions is None:
            return None
        state = self.states.get(target, FREE)
        intent = TickIntents(self.decisions, self.owners).of(target, state)
        return intent.wanted(state.base if state.is_held else None) if intent.by else None
