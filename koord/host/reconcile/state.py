"""All that is known of one kernel file between two ticks, in one frozen object, and the table of them.

Invariant: nothing about a file is kept anywhere else. What the table keeps besides the states (which targets share a
path, in which order they were last seen, when the next retry is due) follows from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import islice
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from koord.host.files import Target, Value
from koord.host.writer import Reading

Speakers = tuple[tuple[int, str], ...]
"""(stage, strategy) of each opinion on a file that is followed."""
Look = tuple[int, bytes]
"""Inode and content of a file."""
NEVER_NS = 1 << 63
_MOST_S = 60
_S = 1_000_000_000


class Phase(StrEnum):
    """``HELD``: Koord's value is there. ``CONTESTED``: another writer fights for the file, so it is left alone."""

    FREE = "free"
    HELD = "held"
    CONTESTED = "contested"


class Retry(msgspec.Struct, frozen=True):
    """The file could not be brought to ``value``: that is not tried again before ``due_ns`` (monotonic)."""

    value: Value | None
    failures: int
    due_ns: int
    why: str


class FileState(msgspec.Struct, frozen=True):
    """One file. Only ``retry`` says something of a FREE one.

    ``base`` is what another writer wrote last, ``written`` what Koord wrote or found there (of a CONTESTED file: what
    it would write), ``systemd_value`` what systemd was told last: systemd may write that again at any time, for reasons
    of its own. ``since_ns``: monotonic, since when it is in its phase; 0 = not known. ``follows``: the value changes
    with another file's, and may be anything. ``adopted``: an earlier run left it, and no strategy of this run has
    decided on it yet, or a write did not read back: the record tells at the next look which of its values the file has.
    ``restored_times``: how often in a row another writer's value was put right, each soon after the last;
    ``restored_same_times``: how often in a row it was the same value, ``restored_value``. ``contested``: why the file
    is left alone. ``good``: the look at the file in good order. ``lasting``: for a temporary value, what is written
    when Koord ends.
    """

    phase: Phase = Phase.FREE
    path: str = ""
    inode: int = 0
    base: Value = 0
    written: Value = 0
    by: str = ""
    since_ns: int = 0
    pod: str = ""
    speakers: Speakers = ()
    restored_times: int = 0
    restored_ns: int = 0
    follows: bool = False
    adopted: bool = False
    systemd_value: Value | None = None
    contested: str = ""
    retry: Retry | None = None
    good: Look | None = None
    restored_same_times: int = 0
    restored_value: Value = 0
    lasting: Value | None = None

    @property
    def is_held(self) -> bool:
        return self.phase is Phase.HELD

    @property
    def is_contested(self) -> bool:
        return self.phase is Phase.CONTESTED

    def is_of(self, reading: Reading) -> bool:
        """Is it this very file?"""
        return (self.path, self.inode) == (reading.path, reading.inode)

    def delayed(self, value: Value | None, now_ns: int, why: str) -> FileState:
        """The state after one more failed attempt at ``value``."""
        failures = 1 if self.retry is None else self.retry.failures + 1
        return replace(self, retry=Retry(value, failures, now_ns + backoff_ns(failures), why))


FREE = FileState()


def backoff_ns(failures: int) -> int:
    """1, 2, 4, … 60 seconds after that many failures."""
    return int(min(_MOST_S, 2 ** min(failures - 1, 10))) * _S


class FileStates(Mapping[Target, FileState]):
    """The states of all files that have one. ``at`` may be called from any thread."""

    def __init__(self, states: Mapping[Target, FileState]) -> None:
        self._states: dict[Target, FileState] = {}
        self._at: dict[str, tuple[Target, ...]] = {}
        self._in_turn: dict[Target, None] = {}
        self._due_ns = NEVER_NS
        self._frozen: Mapping[Target, FileState] | None = None
        for target, state in states.items():
            self.put(target, state)

    def __getitem__(self, target: Target) -> FileState:
        return self._states[target]

    def __iter__(self) -> Iterator[Target]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def frozen(self) -> Mapping[Target, FileState]:
        """All states as they are now, for the thread that changes them; the same mapping until one is changed."""
        if self._frozen is None:
            self._frozen = MappingProxyType(self._states.copy())
        return self._frozen

    def put(self, target: Target, state: FileState) -> None:
        """Replaces the state of ``target``; a FREE file without a retry has none."""
        before = self._states.get(target, FREE)
        if state is before:
            return
        self._frozen = None
        if state.phase is Phase.FREE and state.retry is None:
            self._states.pop(target, None)
        else:
            self._states[target] = state
        if state.retry is not None:
            self._due_ns = min(self._due_ns, state.retry.due_ns)
        self._list(target, _watched(before), _watched(state))

    def _list(self, target: Target, before: str, after: str) -> None:
        if before == after:
            return
        if before:
            others = tuple(other for other in self._at[before] if other != target)
            if others:
                self._at[before] = others
            else:
                del self._at[before]
        if after:
            self._at[after] = (*self._at.get(after, ()), target)
            self._in_turn.setdefault(target)
        else:
            self._in_turn.pop(target, None)

    def at(self, path: str) -> tuple[Target, ...]:
        """The held and contested files at ``path``."""
        return self._at.get(path, ())

    @property
    def watched(self) -> int:
        """How many files are held or contested."""
        return len(self._in_turn)

    def longest_unseen(self, count: int) -> Iterator[Target]:
        """Returns the ``count`` held and contested files that were not seen for longest."""
        return islice(self._in_turn, count)

    def seen(self, target: Target) -> None:
        """The file was looked at now."""
        if target in self._in_turn:
            del self._in_turn[target]
            self._in_turn[target] = None

    def due(self, now_ns: int) -> list[Target]:
        """The files whose retry is due."""
        if now_ns < self._due_ns:
            return []
        waiting = [(target, state.retry.due_ns) for target, state in self._states.items() if state.retry is not None]
        self._due_ns = min((due_ns for _, due_ns in waiting), default=NEVER_NS)
        return [target for target, due_ns in waiting if due_ns <= now_ns]


def _watched(state: FileState) -> str:
    """The path at which changes by others matter; "" for a FREE file."""
    return "" if state.phase is Phase.FREE else state.path
