"""Amounts as people read them: CPU in thousandths, memory in the largest binary unit, two decimals."""

from __future__ import annotations

_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def cpu(milli: int) -> str:
    return f"{milli}m"


def memory(amount_bytes: int) -> str:
    """Rounded, so it is for reading only."""
    power = min(max(0, (abs(amount_bytes).bit_length() - 1) // 10), len(_SUFFIXES) - 1)
    if power == 0:
        return str(amount_bytes)
    shown = f"{amount_bytes / (1 << 10 * power):.2f}".rstrip("0").rstrip(".")
    return f"{shown}{_SUFFIXES[power]}"
