"""Messages about memory QoS: what a kernel lacks, and what Koord does instead.

koord-qosd says it of its own work, ``koordctl doctor`` of a node before koord-qosd runs there.
"""

from __future__ import annotations

SOFT_LIMIT = "memory.soft_limit_in_bytes"
WITHOUT_PSI = "no background reclaim: without pressure files (PSI) nobody can tell whether it hurts"
WITHOUT_FILE_PAGES = "no page-cache limit is kept: with swap, file pages alone are reclaimed from Linux 6.11 on"
FILE_PAGES_SINCE = (6, 11)
"""From here on every kernel's ``memory.reclaim`` takes ``swappiness=0``; some had it before, and are not asked."""


def can_take_file_pages(kernel: tuple[int, int] | None, swap_bytes: int) -> bool:
    """Returns whether ``memory.reclaim`` can take file pages alone: it takes such an order, or there is no swap."""
    return not swap_bytes or (kernel or (0, 0)) >= FILE_PAGES_SINCE


def without_reclaim(cgroup_version: int, instead: str = "neither background reclaim nor page-cache limits") -> str:
    """Says that there is no ``memory.reclaim``; ``instead``: what there is all the same."""
    who = "cgroup v1" if cgroup_version == 1 else "this kernel, before Linux 5.19,"
    return f"{who} has no memory.reclaim: {instead}"


def without_protection(stand_in: str) -> str:
    """Mainline's v1; ``stand_in``: what stands in for ``memory.low``, "" = nothing."""
    instead = "nothing stands in for them"
    if stand_in:
        instead = f"{stand_in} stands in for memory.low, nothing for memory.min"
    return f"cgroup v1 has no memory.min and no memory.low: {instead}"
