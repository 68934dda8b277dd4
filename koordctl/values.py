"""Writes numbers as people read them; programs get them as they are."""

from __future__ import annotations

from collections.abc import Sequence

from koord.model.crifields import CPUSETS

_UNITS = (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))
_BARS = "▁▂▃▄▅▆▇█"
NONE = "-"


def human(unit: str, name: str, text: str | None) -> str:
    """Writes a kernel value: ``4Gi``, ``none`` for no limit, ``all`` for the parent's whole CPU set, ``-`` for None."""
    if text is None:
        return NONE
    if text == "-1" and unit in ("bytes", "us"):
        return "none"
    if text == "" and name in CPUSETS:
        return "all"
    if unit == "bytes" and text.isdigit():
        for suffix, size in _UNITS:
            if int(text) >= size and int(text) % size == 0:
                return f"{int(text) // size}{suffix}"
    return text


def amount(unit: str, value: float) -> str:
    """Writes a measured value with three digits: ``1.25``, ``3.1Gi``, ``12.5%``."""
    if unit.startswith("bytes"):
        for suffix, size in _UNITS:
            if abs(value) >= size:
                return f"{value / size:.1f}{suffix}{unit.removeprefix('bytes')}"
        return f"{value:.0f}{unit.removeprefix('bytes')}"
    if unit == "percent":
        return f"{value:.1f}%"
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:.3g}"


def age(seconds: float) -> str:
    """Writes a duration: ``0.4 s``, ``12 s``, ``3 min``, ``2.5 h``, ``4 d``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} d"


def sparkline(values: Sequence[float], width: int, full: float = 0.0) -> str:
    """Draws the last ``width`` values as bars from 0 (or a negative least) to ``full``, by default the greatest."""
    shown = values[-width:] if width > 0 else ()
    if not shown:
        return ""
    low, high = min(0.0, *shown), full or max(shown)
    shares = [min((value - low) / (high - low), 1.0) if high > low else 0.0 for value in shown]
    return "".join(_BARS[round(share * (len(_BARS) - 1))] for share in shares)
