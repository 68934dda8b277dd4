"""Amounts in sentences that people read: ``482.1 MiB``, ``1.25 CPUs``. Rounded, so nothing computes with them."""

from __future__ import annotations

_UNITS = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def memory(amount_bytes: int) -> str:
    """Writes bytes in the largest unit of which there is at least one."""
    for unit, size in _UNITS:
        if abs(amount_bytes) >= size:
            shown = f"{amount_bytes / size:.1f}".removesuffix(".0")
            return f"{shown} {unit}"
    return "1 byte" if amount_bytes == 1 else f"{amount_bytes} bytes"


def cpus(amount_milli: int) -> str:
    """Writes CPUs: ``1 CPU``, ``0.25 CPUs``, ``0.005 CPUs``."""
    return "1 CPU" if amount_milli == 1000 else f"{amount_milli / 1000:g} CPUs"
