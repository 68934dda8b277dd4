"""How kernels spell values: one class per form of file content, from text to a canonical value and back.

The canonical value is CRI's: numbers with -1 for "no limit", shares rather than weights, CPU sets as the kernel lists
them. Invariant: ``parse(format(value)) == value`` for every value that ``limits`` admits (a page multiple, where the
kernel rounds), and ``format(parse(text))`` writes back what was read. Everything fails with a plain ValueError whose
text is a reason; ``KernelFile`` adds which file and which value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from koord.host.weights import Weights
from koord.model import cpuset
from koord.model.cfs import MAX_SHARES, MIN_SHARES, UNLIMITED
from koord.model.lattice import CPUSets, Lattice, Numbers, Value

IDLE_SHARES = 3
INT64_MAX = 0x7FFFFFFFFFFFFFFF
UNLIMITED_FROM_BYTES = 0x7FFFFFFFFFFF0000
"""What v1 prints for "no limit" is LONG_MAX rounded down to a page, of 4 to 64 KiB."""
_OF_FILE_PAGES = " swappiness=0"
_FILE_PAGES = re.compile(rf"[1-9][0-9]{{0,18}}{_OF_FILE_PAGES}", re.ASCII)


class At(NamedTuple):
    """Where a text stands: cgroup ``version``, the target's ``qualifier`` (a device), and the node's weights."""

    version: int
    qualifier: str = ""
    weights: Weights = Weights.LINEAR


class Spelling(Protocol):
    @property
    def lattice(self) -> Lattice | None:
        """How its values compare; None where they have no order."""
        ...

    def parse(self, text: str, at: At) -> Value: ...
    def format(self, value: Value, at: At) -> str: ...
    def refusal(self, value: Value, at: At) -> str:
        """Why the kernel would refuse ``value``; "" if it would not."""
        ...

    def same(self, desired: Value, actual: Value, page_bytes: int, version: int) -> bool:
        """Does a file that was parsed as ``actual`` already say ``desired``?"""
        ...


def number(value: Value) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("is not a whole number")
    return value


def words_at(text: str, qualifier: str) -> list[str]:
    """The words after ``qualifier`` in the line that begins with it and says something; [] if no line does."""
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == qualifier:
            return words[1:]
    return []


class Exact:
    """Two values are the same only if they are equal, and they have no order."""

    @property
    def lattice(self) -> Lattice | None:
        return None

    def same(self, desired: Value, actual: Value, page_bytes: int, version: int) -> bool:
        return desired == actual


@dataclass(frozen=True, slots=True)
class Integer(Exact):
    """A number in ``low..high``; with ``unlimited`` also -1, v2's ``max``. ``v2_word``: the index of the number among
    v2's words."""

    low: int = 0
    high: int = INT64_MAX
    unlimited: bool = False
    v2_word: int = 0

    @property
    def lattice(self) -> Lattice | None:
        """Where -1 is a number of the range, it cannot be "no limit" as well."""
        return Numbers(self.low) if self.low >= 0 else None

    def parse(self, text: str, at: At) -> Value:
        words, index = text.split(), self.v2_word if at.version == 2 else 0
        if index >= len(words):
            raise ValueError(f"has no word {index + 1}")
        word = words[index]
        return UNLIMITED if self.unlimited and word == "max" else int(word)

    def format(self, value: Value, at: At) -> str:
        return "max" if self.unlimited and value == UNLIMITED and at.version == 2 else str(value)

    def refusal(self, value: Value, at: At) -> str:
        if (self.unlimited and value == UNLIMITED) or self.low <= number(value) <= self.high:
            return ""
        return f"is not in {self.low}..{self.high}" + (" and not -1 (unlimited)" if self.unlimited else "")


@dataclass(frozen=True, slots=True)
class Bytes(Integer):
    """A size, which kernels round down to whole pages. -1 is "no limit", however the kernel shows that."""

    unlimited: bool = True

    def parse(self, text: str, at: At) -> Value:
        return _without_limit(Integer.parse(self, text, at))

    def format(self, value: Value, at: At) -> str:
        return Integer.format(self, _without_limit(value), at)

    def same(self, desired: Value, actual: Value, page_bytes: int, version: int) -> bool:
        wanted, found = number(_without_limit(desired)), number(actual)
        return wanted == found or (wanted >= 0 and wanted // page_bytes * page_bytes == found)


def _without_limit(value: Value) -> Value:
    return UNLIMITED if isinstance(value, int) and value >= UNLIMITED_FROM_BYTES else value


@dataclass(frozen=True, slots=True)
class Reclaim(Bytes):
    """How much is to be reclaimed, or, as the text ``N swappiness=0`` (Linux 6.11), how much from file pages alone."""

    def parse(self, text: str, at: At) -> Value:
        return text if _FILE_PAGES.fullmatch(text) else Bytes.parse(self, text, at)

    def format(self, value: Value, at: At) -> str:
        return value if isinstance(value, str) else Bytes.format(self, value, at)

    def refusal(self, value: Value, at: At) -> str:
        if not isinstance(value, str):
            return Bytes.refusal(self, value, at)
        return "" if _FILE_PAGES.fullmatch(value) else "is neither a number of bytes nor one with swappiness=0"

    def same(self, desired: Value, actual: Value, page_bytes: int, version: int) -> bool:
        return desired == actual


def file_pages(amount_bytes: int) -> str:
    """Returns the order to reclaim so much from file pages alone."""
    return f"{amount_bytes}{_OF_FILE_PAGES}"


@dataclass(frozen=True, slots=True)
class Shares:
    """``cpu.shares``, which v2 keeps as a weight. Of an idle cgroup v1 shows 3 and v2 the weight 0: the same."""

    @property
    def lattice(self) -> Lattice | None:
        return Numbers(MIN_SHARES)

    def parse(self, text: str, at: At) -> Value:
        shown = int(text)
        if at.version == 1:
            return shown
        return at.weights.shares(shown) if shown else IDLE_SHARES

    def format(self, value: Value, at: At) -> str:
        return str(at.weights.weight(number(value))) if at.version == 2 else str(value)

    def refusal(self, value: Value, at: At) -> str:
        return "" if MIN_SHARES <= number(value) <= MAX_SHARES else f"is not in {MIN_SHARES}..{MAX_SHARES}"

    def same(self, desired: Value, actual: Value, page_bytes: int, version: int) -> bool:
        """On v2 also where ``actual`` is the weight that either mapping gives for ``desired``."""
        wanted, found = number(desired), number(actual)
        if wanted == found or version == 1:
            return wanted == found
        return any(found == read.shares(made.weight(wanted)) for read in Weights for made in Weights)


@dataclass(frozen=True, slots=True)
class CPUList(Exact):
    """A list of CPUs or memory nodes. "" is the parent's; the kernel wants a newline for it, not nothing."""

    @property
    def lattice(self) -> Lattice | None:
        return CPUSets()

    def parse(self, text: str, at: At) -> Value:
        return str(cpuset.parse(text))

    def format(self, value: Value, at: At) -> str:
        return str(cpuset.parse(str(value))) or "\n"

    def refusal(self, value: Value, at: At) -> str:
        try:
            cpuset.parse(str(value))
        except ValueError:
            return "is not a list such as 0-3,8"
        return ""

    def same(self, desired: Value, actual: Value, page_bytes: int, version: int) -> bool:
        return cpuset.parse(str(desired)) == cpuset.parse(str(actual))


@dataclass(frozen=True, slots=True)
class Word(Exact):
    """One of ``choices``; with none given any word. What follows the word is the kernel's comment on it."""

    choices: tuple[str, ...] = ()

    def parse(self, text: str, at: At) -> Value:
        return text.split(maxsplit=1)[0] if text.strip() else ""

    def format(self, value: Value, at: At) -> str:
        return str(value)

    def refusal(self, value: Value, at: At) -> str:
        return "" if not self.choices or value in self.choices else f"is none of {', '.join(self.choices)}"


@dataclass(frozen=True, slots=True)
class Freezer(Exact):
    """1 = the tasks stand still, or are about to; 0 = they run. v1 has words for it, and one for "about to"."""

    def parse(self, text: str, at: At) -> Value:
        word = text.strip()
        states = {"0": 0, "1": 1} if at.version == 2 else {"THAWED": 0, "FREEZING": 1, "FROZEN": 1}
        if word not in states:
            raise ValueError(f"is none of {', '.join(states)}")
        return states[word]

    def format(self, value: Value, at: At) -> str:
        if at.version == 2:
            return str(value)
        return "FROZEN" if value == 1 else "THAWED"

    def refusal(self, value: Value, at: At) -> str:
        return "" if number(value) in (0, 1) else "is not in 0..1"


@dataclass(frozen=True, slots=True)
class Text(Exact):
    """A file of statistics, kept as it is: collectors have parsers of their own."""

    def parse(self, text: str, at: At) -> Value:
        return text.strip()

    def format(self, value: Value, at: At) -> str:
        return str(value)

    def refusal(self, value: Value, at: At) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class Counter(Exact):
    """A v1 file of one number that is the line ``v2_key`` of a v2 file, there in a unit ``v2_scale`` times as big."""

    v2_key: str
    v2_scale: int = 1

    def parse(self, text: str, at: At) -> Value:
        if at.version == 1:
            return int(text)
        words = words_at(text, self.v2_key)
        if not words:
            raise ValueError(f"has no line {self.v2_key}")
        return int(words[0]) * self.v2_scale

    def format(self, value: Value, at: At) -> str:
        return str(value)

    def refusal(self, value: Value, at: At) -> str:
        return ""
