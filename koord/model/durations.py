"""Go's durations ("5m", "1h30m", "1.5s"), read to the nanosecond and written as Go writes them ("5m0s").

Upstream's components read and write NodeMetric's durations this way, and a plain text compare tells theirs from ours.
"""

from __future__ import annotations

import re

_SECOND_NS = 10**9
_UNITS_NS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": _SECOND_NS}
_UNITS_NS |= {"m": 60 * _SECOND_NS, "h": 3600 * _SECOND_NS}
_PART = re.compile(rf"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)({'|'.join(_UNITS_NS)})", re.ASCII)
_DURATION = re.compile(f"(?:{_PART.pattern})+", re.ASCII)
_MOST_TEXT = 64
_MOST_NS = 2**63 - 1


def parse_ns(text: str) -> int | None:
    """Nanoseconds; None if ``text`` is no duration, or none of more than nothing that fits 64 bits."""
    if len(text) > _MOST_TEXT or not _DURATION.fullmatch(text):
        return None
    total_ns = 0
    for number, unit in _PART.findall(text):
        whole, _, fraction = number.partition(".")
        total_ns += int(whole + fraction) * _UNITS_NS[unit] // 10 ** len(fraction)
    return total_ns if 0 < total_ns <= _MOST_NS else None


def spell(duration_ns: int) -> str:
    """Writes ``duration_ns``, more than 0, as Go's ``Duration.String``."""
    if duration_ns < _SECOND_NS:
        unit = next(name for name in ("ms", "µs", "ns") if duration_ns >= _UNITS_NS[name])
        return _decimal(duration_ns, _UNITS_NS[unit]) + unit
    minutes, rest_ns = divmod(duration_ns, _UNITS_NS["m"])
    seconds = _decimal(rest_ns, _SECOND_NS) + "s"
    hours, minutes_of_hour = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes_of_hour}m{seconds}"
    return f"{minutes}m{seconds}" if minutes else seconds


def _decimal(amount: int, unit: int) -> str:
    """Writes ``amount`` in ``unit``, a power of ten, with no more digits than it takes."""
    whole, rest = divmod(amount, unit)
    digits = f"{rest:0{len(str(unit)) - 1}d}".rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)
