"""Which files to look at in this tick: those of whose state something is new, and a few of the others in turn.

    an opinion differs from the last one acted on · a file was written by somebody (``touched``) · an attempt is due
    again · a file left by an earlier run, when one more strategy has decided · the longest unseen of all held files,
    as many as it takes to see each every ``RECHECK_S``

Invariants: ``peek`` changes nothing, so that a dry run and the tick see the same; ``commit`` makes good what was
looked at. A tick at which nothing is new costs as many looks as there are held files, over ``RECHECK_S``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import msgspec

from koord.host.files import Target
from koord.host.order import IDLE, MEMORY, SHARES, SWAP
from qosd.act.retry import Retry
from qosd.decide.decision import Cap, Opinion, Scale, Set
from qosd.decide.frame import NO_OPINIONS, Decisions, Opinions

RECHECK_S = 50.0
SWAPS = (SWAP, "memory.swap.max")
"""Which of them there is depends on the cgroup version."""
_MAX_TOUCHED = 16_384
"""Touches kept between two ticks; what is beyond is found by the recheck."""
_S = 1_000_000_000


class Due(msgspec.Struct, frozen=True):
    """What is to be looked at. ``changed``: there is something new to decide about these files.

    ``seen``: paths of those that may be as they were. ``opinions`` are by strategy; ``touched``: how many touches are
    among the reasons.
    """

    changed: tuple[Target, ...]
    seen: Mapping[Target, str]
    opinions: Mapping[str, Opinions]
    touched: int


class Agenda:
    """The bookkeeping of one actuator. ``touched`` may be called from any thread, the rest from one at a time."""

    def __init__(self, known: Mapping[Target, str]) -> None:
        """``known``: paths by target of what an earlier run held, looked at first and until someone speaks of it."""
        self.retries: dict[Target, Retry] = {}
        self._opinions: Mapping[str, Opinions] = {}
        self._undecided: frozenset[str] | None = None
        self._adopted = set(known)
        self._paths: dict[str, tuple[Target, ...]] = {}
        self._path_of: dict[Target, str] = {}
        self._rotation: dict[Target, None] = {}
        self._seen_ns: int | None = None
        self._owed = 0.0
        self._due_ns = 0
        self._touched: list[str] = []
        for target, path in known.items():
            self.follow(target, path)

    def touched(self, path: str) -> None:
        """Somebody, perhaps this process, wrote the file at ``path``, or its directory was made or removed."""
        if path in self._paths and len(self._touched) < _MAX_TOUCHED:
            self._touched.append(path)

    def follows(self, path: str) -> bool:
        """Is the file at ``path`` looked at? From any thread."""
        return path in self._paths

    def follow(self, target: Target, path: str) -> None:
        """Look at ``target``, whose file is ``path``, in turn and when that is touched."""
        self._rotation.setdefault(target)
        if self._path_of.get(target) != path:
            self._unlist(target)
            self._path_of[target] = path
            self._paths[path] = (*self._paths.get(path, ()), target)

    def leave(self, target: Target) -> None:
        """Not any more."""
        self._rotation.pop(target, None)
        self._adopted.discard(target)
        self._unlist(target)

    def claimed(self, target: Target) -> None:
        """A strategy of this run has spoken of ``target``."""
        self._adopted.discard(target)

    def unclaimed(self, target: Target) -> None:
        """Not before one more strategy has decided."""
        self._adopted.add(target)

    def peek(self, decisions: Decisions) -> Due:
        """What is to be looked at now."""
        opinions = {turn.name: turn.opinions for turn in decisions.turns}
        touched = len(self._touched)
        chosen: dict[Target, None] = {}
        for name in {**self._opinions, **opinions}:
            old, new = self._opinions.get(name, NO_OPINIONS), opinions.get(name, NO_OPINIONS)
            chosen.update(dict.fromkeys(_differing(old, new)))
        if _undecided(decisions) != self._undecided:
            chosen.update(dict.fromkeys(self._adopted))
        if decisions.monotonic_ns >= self._due_ns:
            chosen.update((target, None) for target, retry in self.retries.items() if self._is_due(retry, decisions))
        seen = dict.fromkeys(target for path in self._touched[:touched] for target in self._paths.get(path, ()))
        seen.update(dict.fromkeys(islice(self._rotation, int(self._debt(decisions)))))
        paths = {target: self._path_of[target] for target in seen if target not in chosen and target in self._path_of}
        return Due(tuple(chosen), paths, opinions, touched)

    def commit(self, decisions: Decisions, due: Due, looked_at: Iterable[Target]) -> None:
        """What ``peek`` gave, and whatever else is among ``looked_at``, has been looked at and acted on."""
        self._owed = self._debt(decisions) % 1.0
        self._seen_ns = decisions.monotonic_ns
        self._opinions = due.opinions
        self._undecided = _undecided(decisions)
        del self._touched[: due.touched]
        for target in (*due.seen, *looked_at):
            if target in self._rotation:
                del self._rotation[target]
                self._rotation[target] = None

    def put_off(self, target: Target, retry: Retry | None) -> None:
        """Note when to try ``target`` again; None: nothing is in its way."""
        if retry is None:
            self.retries.pop(target, None)
        else:
            self.retries[target] = retry
            self._due_ns = min(self._due_ns, retry.due_ns)

    def settle(self) -> None:
        """After all ``put_off`` of a tick: when the next attempt is due."""
        self._due_ns = min((retry.due_ns for retry in self.retries.values()), default=1 << 63)

    def _debt(self, decisions: Decisions) -> float:
        """How many files are to be looked at in turn by now, to see each in ``RECHECK_S``."""
        if self._seen_ns is None:
            return 0.0
        elapsed_s = max(0, decisions.monotonic_ns - self._seen_ns) / _S
        return min(float(len(self._rotation)), self._owed + len(self._rotation) * elapsed_s / RECHECK_S)

    @staticmethod
    def _is_due(retry: Retry, decisions: Decisions) -> bool:
        return retry.due_ns <= decisions.monotonic_ns

    def _unlist(self, target: Target) -> None:
        path = self._path_of.pop(target, None)
        if path is None:
            return
        rest = tuple(other for other in self._paths[path] if other != target)
        if rest:
            self._paths[path] = rest
        else:
            del self._paths[path]


def _undecided(decisions: Decisions) -> frozenset[str]:
    return frozenset(turn.name for turn in decisions.turns if not turn.decided)


def _differing(old: Opinions, new: Opinions) -> Iterator[Target]:
    """The files on which the opinion is another; other words for the same are none."""
    if old is new:
        return
    for target, opinion in new.items():
        before = old.get(target)
        if before is not opinion and (before is None or _effect(before) != _effect(opinion)):
            yield target
    for target in old:
        if target not in new:
            yield target


def _effect(opinion: Opinion) -> tuple[type[Opinion], object]:
    if isinstance(opinion, Set | Cap):
        return type(opinion), opinion.value
    return type(opinion), opinion.factor if isinstance(opinion, Scale) else None


def with_partners(targets: Iterable[Target]) -> dict[Target, None]:
    """Where one file of a group follows another, both are looked at, the one that follows last.

    The shares follow ``cpu.idle``, and the limits of swap that of memory.
    """
    ordered: dict[Target, None] = {}
    last: dict[Target, None] = {}
    for target in targets:
        if target.name in (IDLE, SHARES):
            ordered[Target(target.group, IDLE)] = None
            last[Target(target.group, SHARES)] = None
        elif target.name == MEMORY or target.name in SWAPS:
            ordered[Target(target.group, MEMORY)] = None
            last.update((Target(target.group, name), None) for name in SWAPS)
        else:
            ordered[target] = None
    return ordered | last
