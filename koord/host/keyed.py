"""Values that are one line of a file: of one block device (``MAJ:MIN``), or of one resource of a resctrl group.

The target's qualifier names the line. One write changes one line and leaves the others alone. The rules of ``spelling``
hold; a device without a line has the kernel's default.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from koord.host.spelling import INT64_MAX, At, Exact, number, words_at
from koord.model.cfs import UNLIMITED
from koord.model.lattice import Lattice, Numbers, Value

_DEFAULT = "default"
_OFF = "NO_"


@dataclass(frozen=True, slots=True)
class DeviceLimit(Exact):
    """The limit of one device (``MAJ:MIN``): on v1 a line of the file (0 lifts it), on v2 ``v2_key`` of ``io.max``."""

    v2_key: str

    @property
    def lattice(self) -> Lattice | None:
        return Numbers(1)

    def parse(self, text: str, at: At) -> Value:
        words = words_at(text, at.qualifier)
        if at.version == 2:
            words = [word.partition("=")[2] for word in words if word.startswith(self.v2_key + "=")]
        return UNLIMITED if not words or words[0] == "max" else int(words[0])

    def format(self, value: Value, at: At) -> str:
        if at.version == 1:
            return f"{at.qualifier} {0 if value == UNLIMITED else value}"
        return f"{at.qualifier} {self.v2_key}={'max' if value == UNLIMITED else value}"

    def refusal(self, value: Value, at: At) -> str:
        return "" if value == UNLIMITED or 1 <= number(value) <= INT64_MAX else "is neither positive nor -1 (unlimited)"


@dataclass(frozen=True, slots=True)
class DeviceWeight(Exact):
    """The weight of one device, or without a device the cgroup's own (line ``default``).

    A device without a line has the value ``default``: it has the cgroup's own weight, also after that changes. Writing
    ``default`` removes the line (ioc_weight_write and bfq_io_set_weight in the kernel).
    """

    low: int
    high: int
    default: int = 100

    @property
    def lattice(self) -> Lattice | None:
        return Numbers(self.low)

    def parse(self, text: str, at: At) -> Value:
        if not text.strip():
            raise ValueError("is empty")
        if at.qualifier:
            own = words_at(text, at.qualifier)
            return int(own[0]) if own else _DEFAULT
        words = words_at(text, _DEFAULT)
        bare = text.split(maxsplit=1)[0]
        return int(words[0]) if words else int(bare) if bare.isdigit() else self.default

    def format(self, value: Value, at: At) -> str:
        return f"{at.qualifier or _DEFAULT} {value}"

    def refusal(self, value: Value, at: At) -> str:
        if value == _DEFAULT and at.qualifier:
            return ""
        return "" if self.low <= number(value) <= self.high else f"is not in {self.low}..{self.high}"


@dataclass(frozen=True, slots=True)
class SchedFeature(Exact):
    """One feature of the scheduler, the qualifier: on (1) or off (0). The file lists all, those that are off as NO_…"""

    def parse(self, text: str, at: At) -> Value:
        words = text.split()
        if at.qualifier in words:
            return 1
        if _OFF + at.qualifier in words:
            return 0
        raise ValueError(f"has no feature {at.qualifier}")

    def format(self, value: Value, at: At) -> str:
        return at.qualifier if value == 1 else _OFF + at.qualifier

    def refusal(self, value: Value, at: At) -> str:
        return "" if number(value) in (0, 1) else "is not in 0..1"


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    """``key=value`` words of one device, such as io.cost.qos; "" when it has none. ``off`` is what clears them."""

    off: str

    @property
    def lattice(self) -> Lattice | None:
        return None

    def parse(self, text: str, at: At) -> Value:
        return " ".join(words_at(text, at.qualifier))

    def format(self, value: Value, at: At) -> str:
        return f"{at.qualifier} {value or self.off}"

    def refusal(self, value: Value, at: At) -> str:
        return "" if all("=" in word for word in str(value).split()) else "is not words of key=value"

    def same(self, desired: Value, actual: Value, page_bytes: int, version: int) -> bool:
        """Every setting wished for is there; the kernel shows others besides, and ``95.00`` for 95."""
        found = dict(_settings(str(actual)))
        return all(found.get(key) == wanted for key, wanted in _settings(str(desired) or self.off))


def _settings(text: str) -> Iterator[tuple[str, str | float]]:
    for word in text.split():
        key, _, setting = word.partition("=")
        try:
            yield key, float(setting)
        except ValueError:
            yield key, setting


@dataclass(frozen=True, slots=True)
class SchemataLine(Exact):
    """One resource's line of a resctrl group (``0=3f;1=3f``); qualifier ``<group>/<resource>``, hex in lower case."""

    def parse(self, text: str, at: At) -> Value:
        resource = at.qualifier.rpartition("/")[2]
        for line in text.splitlines():
            name, colon, domains = line.strip().partition(":")
            if colon and name.strip() == resource:
                return _domains(domains)
        raise ValueError(f"has no line {resource}")

    def format(self, value: Value, at: At) -> str:
        return f"{at.qualifier.rpartition('/')[2]}:{_domains(str(value))}\n"

    def refusal(self, value: Value, at: At) -> str:
        try:
            return "" if _domains(str(value)) else "names no domain"
        except ValueError:
            return "is not domains such as 0=3f;1=3f"


def _domains(text: str) -> str:
    found = {}
    for item in text.split(";"):
        domain, equals, setting = item.partition("=")
        if not equals or not setting.strip():
            raise ValueError(f"has {item!r} where domain=setting should stand")
        found[int(domain)] = setting.strip().lower().lstrip("0") or "0"
    return ";".join(f"{domain}={found[domain]}" for domain in sorted(found))
