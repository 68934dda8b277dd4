"""Reads numbers from the kernel's "key value" files (``memory.stat``, ``cpu.stat``), at the least cost per read.

The order of the keys never changes while a kernel runs, so the places of the wanted keys are learnt once and then only
confirmed. Invariants: a number is never taken from another key; if the order does change, it is learnt anew; a line
that cannot be read leaves only its own key without a number.
"""

from __future__ import annotations

from collections.abc import Sequence


class FlatKeys:
    """Reads ``required`` and then ``optional`` keys of one kind of file; an absent optional key counts ``absent``."""

    __slots__ = ("_absent", "_count", "_from_end", "_keys", "_places", "_required")

    def __init__(self, required: Sequence[bytes], optional: Sequence[bytes] = (), absent: int = 0) -> None:
        self._keys = (*required, *optional)
        self._required, self._absent = len(required), absent
        self._places: tuple[tuple[int, bytes], ...] = ()
        self._count, self._from_end = 0, False

    def numbers(self, text: bytes) -> list[int] | None:
        """Returns the keys' numbers in order; None if a required key or its number is missing."""
        try:
            found = self._known(text)
        except (ValueError, IndexError):
            found = None
        return self._learn(text) if found is None else found

    def _known(self, text: bytes) -> list[int] | None:
        if not self._places:
            return None
        words = text.rsplit(None, self._count) if self._from_end else text.split(None, self._count)
        found = []
        for place, key in self._places:
            if place < 0:
                found.append(self._absent)
            elif words[place] == key:
                found.append(int(words[place + 1]))
            else:
                return None
        return found

    def _learn(self, text: bytes) -> list[int] | None:
        """Learns the places of the keys, counted from the end of the text that is nearer to all of them."""
        at: dict[bytes, tuple[int, int]] = {}
        count = 0
        for line in text.splitlines():
            words = line.split()
            if len(words) == 2 and words[1].isdigit():
                at[words[0]] = count, int(words[1])
            count += len(words)
        if any(key not in at for key in self._keys[: self._required]):
            return None
        present = [at[key][0] for key in self._keys if key in at]
        head, skipped = max(present, default=-2) + 2, min(present, default=count)
        self._from_end = count - skipped < head
        if not self._from_end:
            skipped = 0
        self._count = count - skipped if self._from_end else head
        rest = 1 if skipped else 0  # what rsplit leaves whole comes first
        self._places = tuple((at[key][0] - skipped + rest if key in at else -1, key) for key in self._keys)
        return [at[key][1] if key in at else self._absent for key in self._keys]
