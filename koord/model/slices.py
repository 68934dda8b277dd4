"""systemd spells a slice's parents in its name: ``a-b.slice`` lies in ``a.slice`` (systemd.slice(5))."""

from __future__ import annotations

SLICE = ".slice"


def ancestry(name: str) -> list[str]:
    """The directories from the root to the slice: ``a-b-c.slice`` gives ``a.slice``, ``a-b.slice``, ``a-b-c.slice``."""
    parts = name.removesuffix(SLICE).split("-")
    return ["-".join(parts[:count]) + SLICE for count in range(1, len(parts) + 1)]
