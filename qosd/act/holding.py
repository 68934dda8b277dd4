"""What one file's state asks for: the state machine behind every write, pure and without a clock or a file.

A file is free, held or contested. Held means: Koord's value is there, and ``base`` is what someone else wrote last.

    free       wanted value found already → held; another → write, then held
    held       no longer wanted → base is written, then free; another value wanted → write
    held, and someone else's value found → that is the base now. Wanted all the same: put right. Written again
               soon, and again soon after that was put right too → contested
    contested  not written for ``FORGIVEN_AFTER_NS``; then tried once more; no longer wanted → free

Soon is ``FIGHT_WITHIN_NS`` after the last time it was put right: an agent that fights for a value repeats it within
seconds, while kubelet or the runtime rewrite values now and then, for reasons of their own, and that must not cost
the pod its protection.

Invariants: a file that is gone, or another of the same path, is free. The base is never a value of ours: what an
earlier run may have written is told by the undo record before this is asked. A file that changes along with another
one (the shares of a group under ``cpu.idle``) has no foreign writer that could be told, so its base stays.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from koord.host.files import Value
from koord.host.writer import Found
from qosd.act.composition import Composed
from qosd.act.ownership import Heard

FIGHT_WITHIN_NS = 60 * 1_000_000_000
FORGIVEN_AFTER_NS = 600 * 1_000_000_000
_PATIENCE = 2
"""How often in a row a foreign value is put right, if each comes soon after the last."""


class Holding(msgspec.Struct, frozen=True):
    """A held file; ``ours`` is what Koord wrote or found there, ``since_ns`` since when (monotonic; 0 = not known).

    ``follows``: its value changes with another file's, and may be anything. ``adopted``: an earlier run left it, and
    no strategy of this one has spoken of it yet. ``kept``: what systemd makes of ``ours``, where that differs.
    """

    path: str
    inode: int
    base: Value
    ours: Value
    by: str
    since_ns: int
    pod: str = ""
    heard: Heard = ()
    put_right: int = 0
    put_right_ns: int = 0
    follows: bool = False
    adopted: bool = False
    kept: Value | None = None

    def is_of(self, found: Found) -> bool:
        """Is it this very file?"""
        return (self.path, self.inode) == (found.path, found.inode)


class Contested(msgspec.Struct, frozen=True):
    """A file left to another writer, since ``since_ns`` of the monotonic clock."""

    path: str
    inode: int
    why: str
    since_ns: int


class Case(msgspec.Struct, frozen=True):
    """All that is known of one file. ``compose`` gives the wanted value from a base, ``same`` compares (wanted, found).

    ``comes_of``: may (written, found) be one? It is laxer: shares may have been spelled as a weight by another mapping.
    ``attainable``: what comes nearest to a base that the kernel no longer takes.
    """

    found: Found | None
    holding: Holding | None
    contested: Contested | None
    compose: Callable[[Value | None], Composed]
    same: Callable[[Value, Value], bool]
    comes_of: Callable[[Value, Value], bool]
    attainable: Callable[[Value], Value]
    heard: Heard
    monotonic_ns: int


class Verdict(msgspec.Struct, frozen=True):
    """What follows. ``holding`` and ``contested`` are the file's state if nothing is written.

    ``desired``: the value to write, None for none; ``claim``: the holding after that write, None if it frees the file.
    ``foreign``: someone else's value was found. ``new_base``: what the undo record says of the file is outdated.
    """

    found: Found | None
    composed: Composed
    holding: Holding | None = None
    contested: Contested | None = None
    desired: Value | None = None
    claim: Holding | None = None
    foreign: bool = False
    new_base: bool = False
    yielded: bool = False


def judge(case: Case) -> Verdict:
    """The verdict on a file that no other file's value depends on."""
    found, holding = case.found, case.holding
    if found is None:
        return Verdict(None, case.compose(None), new_base=holding is not None)
    if holding is not None and not holding.is_of(found):
        holding = None
    if case.contested is not None and (case.contested.path, case.contested.inode) == (found.path, found.inode):
        return _of_contested(case, found, case.contested)
    if holding is not None and not holding.follows and not _is_ours(case, holding, found):
        return _of_foreign(case, found, holding)
    return _of_ours(case, found, holding)


def _is_ours(case: Case, holding: Holding, found: Found) -> bool:
    return case.comes_of(holding.ours, found.value) or found.value == holding.kept


def _of_ours(case: Case, found: Found, holding: Holding | None) -> Verdict:
    """Nobody else wrote since the last look."""
    composed = case.compose(found.value if holding is None else holding.base)
    outdated = case.holding is not None and holding is None
    if composed.kept:
        return Verdict(found, composed, holding, new_base=outdated)
    if composed.value is None:
        return _release(case, found, composed, holding, outdated)
    claim = _claim(case, found, composed, holding)
    if case.same(composed.value, found.value):
        return Verdict(found, composed, _held_already(claim, holding, found.value), new_base=outdated)
    return Verdict(found, composed, holding, desired=composed.value, claim=claim, new_base=outdated)


def _release(case: Case, found: Found, composed: Composed, holding: Holding | None, outdated: bool) -> Verdict:
    if holding is None:
        return Verdict(found, composed, new_base=outdated)
    base = case.attainable(holding.base)
    if case.same(base, found.value):
        return Verdict(found, composed, new_base=True)
    return Verdict(found, composed, holding, desired=base)


def _of_foreign(case: Case, found: Found, holding: Holding) -> Verdict:
    """Someone else wrote: that value is the base, whatever becomes of the file."""
    composed = case.compose(found.value)
    based = msgspec.structs.replace(holding, base=found.value, ours=found.value)
    if composed.kept:
        return Verdict(found, composed, based, foreign=True, new_base=True)
    if composed.value is None:
        return Verdict(found, composed, foreign=True, new_base=True)
    claim = _claim(case, found, composed, based)
    if case.same(composed.value, found.value):
        return Verdict(found, composed, claim, foreign=True, new_base=True)
    lately = holding.put_right if case.monotonic_ns - holding.put_right_ns < FIGHT_WITHIN_NS else 0
    if lately >= _PATIENCE:
        why = f"degraded: contested by another writer, who set {found.value!s} again where {composed.value!s} is wanted"
        contested = Contested(found.path, found.inode, why, case.monotonic_ns)
        return Verdict(found, composed, contested=contested, foreign=True, new_base=True, yielded=True)
    tried = {"put_right": lately + 1, "put_right_ns": case.monotonic_ns}
    return Verdict(
        found,
        composed,
        msgspec.structs.replace(based, **tried),
        desired=composed.value,
        claim=msgspec.structs.replace(claim, **tried),
        foreign=True,
        new_base=True,
    )


def _of_contested(case: Case, found: Found, contested: Contested) -> Verdict:
    composed = case.compose(found.value)
    if composed.kept:
        return Verdict(found, composed, contested=contested)
    if composed.value is None:
        return Verdict(found, composed)
    claim = msgspec.structs.replace(
        _claim(case, found, composed, None), put_right=_PATIENCE, put_right_ns=case.monotonic_ns
    )
    if case.same(composed.value, found.value):
        return Verdict(found, composed, claim)
    if case.monotonic_ns - contested.since_ns < FORGIVEN_AFTER_NS:
        return Verdict(found, composed, contested=contested)
    again = msgspec.structs.replace(contested, since_ns=case.monotonic_ns)
    return Verdict(found, composed, contested=again, desired=composed.value, claim=claim)


def _claim(case: Case, found: Found, composed: Composed, holding: Holding | None) -> Holding:
    """The holding by the strategies that speak now; its ``ours`` is still what was found."""
    return Holding(
        found.path,
        found.inode,
        found.value if holding is None else holding.base,
        found.value,
        composed.who,
        case.monotonic_ns,
        composed.pod,
        case.heard,
        0 if holding is None else holding.put_right,
        0 if holding is None else holding.put_right_ns,
        kept=None if holding is None else holding.kept,
    )


def _held_already(claim: Holding, holding: Holding | None, value: Value) -> Holding:
    """``claim`` without a write: what is held stays held since then, and nothing new is made if nothing differs."""
    if holding is None:
        return claim
    kept = msgspec.structs.replace(claim, since_ns=holding.since_ns or claim.since_ns, ours=value)
    return holding if kept == holding else kept


def judge_shares(case: Case, shall_be_idle: bool, idle_is_ours: bool) -> Verdict:
    """The verdict on ``cpu_shares`` of a group whose ``cpu.idle`` is set, or will be by this tick's writes.

    The kernel makes them 3 then and locks them, and 1024 when it is cleared. So they are held along with an idle state
    of ours, and written after its end; with someone else's, a release leaves them.
    """
    found, holding = case.found, case.holding
    if found is None:
        return judge(case)
    if holding is not None and not holding.is_of(found):
        holding = None
    composed = case.compose(found.value if holding is None else holding.base)
    if shall_be_idle and not idle_is_ours and composed.value is None and not composed.kept:
        return Verdict(found, composed, new_base=True)
    held = holding or _claim(case, found, composed, None)
    along = msgspec.structs.replace(held, follows=True, by=composed.who or held.by)
    if shall_be_idle:
        return Verdict(found, composed, along)
    desired = held.base if composed.value is None else composed.value
    claim = None if composed.value is None else _claim(case, found, composed, held)
    return Verdict(found, composed, along, desired=desired, claim=claim)
