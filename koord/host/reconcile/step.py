"""What follows for one file from its state, what it holds and what is wanted: pure, without a clock or a file.

A file is free, held or contested. Held means: Koord's value is there, and ``base`` is what someone else wrote last.

    free       wanted value found already → held; another → write, then held
    held       no longer wanted → base is written, then free; another value wanted → write
    held, and someone else's value found → that is the base now. Wanted all the same: put right. The same value
               again soon, and again soon after that was put right too → contested; so after five other values in a row
    contested  not written for ``FORGIVEN_AFTER_NS``; then tried once more; no longer wanted → free

Soon is ``FIGHT_WITHIN_NS`` after the last time it was put right: an agent that fights for a value repeats it within
seconds, while kubelet or the runtime rewrite values now and then, for reasons of their own, and that must not cost
the pod its protection. A pod that is resized in place has its files written several times within seconds, with other
values each time.

Invariants: a file that is gone, or another of the same path, is free. The base is never a value of ours: what an
earlier run may have written is known from the undo record before this is called, and what systemd was told last it may
write over a newer value of which it has not heard. A file that changes along with another one (the shares of a cgroup
under ``cpu.idle``) has no foreign writer that could be told, so its base stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec
from msgspec.structs import replace

from koord.host.files import Value
from koord.host.reconcile.state import FREE, FileState, Phase, Speakers
from koord.host.reconcile.wanted import Wanted
from koord.host.writer import Reading

FIGHT_WITHIN_NS = 60 * 1_000_000_000
FORGIVEN_AFTER_NS = 600 * 1_000_000_000
_PATIENCE, _PATIENCE_WITH_CHANGES = 2, 5
"""How often in a row the same foreign value is put right, and how often one that changes, each soon after the last."""


class FileRules(Protocol):
    """How values of one file compare. ``attainable``: what comes nearest to a value that the kernel no longer takes."""

    def same(self, wanted: Value, actual: Value) -> bool: ...
    def comes_of(self, written: Value, actual: Value) -> bool:
        """May ``actual`` have become of ``written``? Laxer than ``same``: other mappings of shares count too, and what
        systemd makes of a value that it does not know."""

    def attainable(self, value: Value) -> Value: ...


class Observed(msgspec.Struct, frozen=True):
    """All that a step depends on. ``wanted`` gives the wanted value for an base; None: that cannot be told."""

    state: FileState
    reading: Reading | None
    wanted: Callable[[Value | None], Wanted]
    speakers: Speakers
    rules: FileRules
    now_ns: int


class Transition(msgspec.Struct, frozen=True):
    """What follows. ``state``: the file's state if nothing is written.

    ``write``: the value to write, None for none; ``after``: the state after that write. ``is_foreign``: someone else's
    value was found. ``is_outdated``: what the undo record says of the file is. ``gives_up``: it is contested from here.
    """

    reading: Reading | None
    wanted: Wanted
    state: FileState = FREE
    write: Value | None = None
    after: FileState = FREE
    is_foreign: bool = False
    is_outdated: bool = False
    gives_up: bool = False


def step(observed: Observed) -> Transition:
    """The transition of a file that no other file's value depends on."""
    state, reading = observed.state, observed.reading
    if reading is None:
        return Transition(None, observed.wanted(None), is_outdated=state.is_held)
    if state.is_contested and state.is_of(reading):
        return _of_contested(observed, reading)
    held = _held(observed, reading)
    if held is not None and not held.follows and not _is_ours(observed, held, reading):
        return _of_foreign(observed, reading, held)
    return _of_ours(observed, reading, held)


def step_shares(observed: Observed, shall_be_idle: bool, idle_is_ours: bool) -> Transition:
    """The transition of ``cpu_shares`` of a cgroup whose ``cpu.idle`` is set, or will be by this tick's writes.

    The kernel makes them 3 then and locks them, and 1024 when it is cleared. So they are held along with an idle state
    of ours, and written after its end; with someone else's, a release leaves them.
    """
    reading = observed.reading
    if reading is None:
        return step(observed)
    held = _held(observed, reading)
    wanted = observed.wanted(reading.value if held is None else held.base)
    if shall_be_idle and not idle_is_ours and wanted.value is None and not wanted.keep:
        return Transition(reading, wanted, is_outdated=True)
    held = held or _claim(observed, reading, wanted, None)
    along = replace(held, follows=True, by=wanted.by or held.by)
    if shall_be_idle:
        return Transition(reading, wanted, along)
    value = held.base if wanted.value is None else wanted.value
    after = FREE if wanted.value is None else _claim(observed, reading, wanted, held)
    return Transition(reading, wanted, along, value, after)


def _held(observed: Observed, reading: Reading) -> FileState | None:
    """The state, if it is that of this very file, and it is held."""
    state = observed.state
    return state if state.is_held and state.is_of(reading) else None


def _is_ours(observed: Observed, held: FileState, reading: Reading) -> bool:
    """What a temporary value ends with may be written beside this process, which is about to end then."""
    return (
        observed.rules.comes_of(held.written, reading.value)
        or reading.value == held.systemd_value
        or (held.lasting is not None and observed.rules.same(held.lasting, reading.value))
    )


def _of_ours(observed: Observed, reading: Reading, held: FileState | None) -> Transition:
    """Nobody else wrote since the last look."""
    wanted = observed.wanted(reading.value if held is None else held.base)
    is_outdated = observed.state.is_held and held is None
    if wanted.keep:
        return Transition(reading, wanted, held or FREE, is_outdated=is_outdated)
    if wanted.value is None:
        return _release(observed, reading, wanted, held, is_outdated)
    claim = _claim(observed, reading, wanted, held)
    if observed.rules.same(wanted.value, reading.value):
        return Transition(reading, wanted, _held_already(claim, held, reading.value), is_outdated=is_outdated)
    return Transition(reading, wanted, held or FREE, wanted.value, claim, is_outdated=is_outdated)


def _release(
    observed: Observed, reading: Reading, wanted: Wanted, held: FileState | None, is_outdated: bool
) -> Transition:
    if held is None:
        return Transition(reading, wanted, is_outdated=is_outdated)
    base = observed.rules.attainable(held.base)
    if observed.rules.same(base, reading.value):
        return Transition(reading, wanted, is_outdated=True)
    return Transition(reading, wanted, held, base)


def _of_foreign(observed: Observed, reading: Reading, held: FileState) -> Transition:
    """Someone else wrote: that value is the base, whatever becomes of the file."""
    wanted = observed.wanted(reading.value)
    based = replace(held, base=reading.value, written=reading.value)
    if wanted.keep:
        return Transition(reading, wanted, based, is_foreign=True, is_outdated=True)
    if wanted.value is None:
        return Transition(reading, wanted, is_foreign=True, is_outdated=True)
    claim = _claim(observed, reading, wanted, based)
    if observed.rules.same(wanted.value, reading.value):
        return Transition(reading, wanted, claim, is_foreign=True, is_outdated=True)
    is_soon = observed.now_ns - held.restored_ns < FIGHT_WITHIN_NS
    times = held.restored_times if is_soon else 0
    same_times = held.restored_same_times if is_soon and held.restored_value == reading.value else 0
    if same_times >= _PATIENCE or times >= _PATIENCE_WITH_CHANGES:
        why = f"degraded: contested by another writer, who set {reading.value!s} again where {wanted.value!s} is wanted"
        contested = FileState(Phase.CONTESTED, reading.path, reading.inode, since_ns=observed.now_ns, contested=why)
        state = _as_wanted(contested, reading, wanted)
        return Transition(reading, wanted, state, is_foreign=True, is_outdated=True, gives_up=True)
    return Transition(
        reading,
        wanted,
        _restored(based, observed.now_ns, times + 1, same_times + 1, reading.value),
        wanted.value,
        _restored(claim, observed.now_ns, times + 1, same_times + 1, reading.value),
        is_foreign=True,
        is_outdated=True,
    )


def _restored(state: FileState, now_ns: int, times: int, same_times: int, value: Value) -> FileState:
    return replace(
        state, restored_ns=now_ns, restored_times=times, restored_same_times=same_times, restored_value=value
    )


def _as_wanted(contested: FileState, reading: Reading, wanted: Wanted) -> FileState:
    """The state says what is there and what would be written, for whoever enforces it elsewhere."""
    assert wanted.value is not None
    state = replace(contested, base=reading.value, written=wanted.value, by=wanted.by, pod=wanted.pod)
    return contested if state == contested else state


def _of_contested(observed: Observed, reading: Reading) -> Transition:
    state, wanted = observed.state, observed.wanted(reading.value)
    if wanted.keep:
        return Transition(reading, wanted, state)
    if wanted.value is None:
        return Transition(reading, wanted)
    claim = _claim(observed, reading, wanted, None)
    claim = _restored(claim, observed.now_ns, _PATIENCE_WITH_CHANGES, _PATIENCE, reading.value)
    if observed.rules.same(wanted.value, reading.value):
        return Transition(reading, wanted, claim)
    state = _as_wanted(state, reading, wanted)
    if observed.now_ns - state.since_ns < FORGIVEN_AFTER_NS:
        return Transition(reading, wanted, state)
    return Transition(reading, wanted, replace(state, since_ns=observed.now_ns), wanted.value, claim)


def _claim(observed: Observed, reading: Reading, wanted: Wanted, held: FileState | None) -> FileState:
    """The file as held for the strategies that speak now; ``written`` is still what was found."""
    known = FREE if held is None else held
    return FileState(
        Phase.HELD,
        reading.path,
        reading.inode,
        reading.value if held is None else held.base,
        reading.value,
        wanted.by,
        observed.now_ns,
        wanted.pod,
        observed.speakers,
        known.restored_times,
        known.restored_ns,
        systemd_value=known.systemd_value,
        restored_same_times=known.restored_same_times,
        restored_value=known.restored_value,
        lasting=wanted.lasting,
    )


def _held_already(claim: FileState, held: FileState | None, value: Value) -> FileState:
    """``claim`` without a write: what is held stays held since then, and nothing new is made if nothing differs."""
    if held is None:
        return claim
    stays = replace(claim, since_ns=held.since_ns or claim.since_ns, written=value, good=held.good, retry=held.retry)
    return held if stays == held else stays
