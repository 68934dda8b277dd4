"""How Koordinator's proxy merges: field by field, in plain proto3, where an absent field reads as zero.

Two directions with different rules: a hook's answer over what the proxy has, and an UpdateContainerResources of
kubelet's over what the proxy remembers. ``resources`` are LinuxContainerResources of any protocol. Invariant: only the
ten known fields are looked at, which is how the proxy loses what it does not know.
"""

from __future__ import annotations

from typing import Any

POSITIVE = ("cpu_period", "cpu_shares", "memory_limit_in_bytes", "memory_swap_limit_in_bytes")
CPUSETS = ("cpuset_cpus", "cpuset_mems")
SCALARS = (*POSITIVE, "cpu_quota", "oom_score_adj", *CPUSETS)
OOM_SCORE_ADJ = range(-1000, 1001)


def answer_over_known(known: Any, answer: Any) -> None:
    """A hook's answer over request or memory: an unset ``oom_score_adj`` resets, an unset CPU set clears."""
    _take_amounts(known, answer)
    if answer.oom_score_adj in OOM_SCORE_ADJ:
        known.oom_score_adj = answer.oom_score_adj
    for name in CPUSETS:
        setattr(known, name, getattr(answer, name))


def update_over_known(known: Any, update: Any) -> None:
    """kubelet's update over memory: ``oom_score_adj`` and hugepage limits never count."""
    _take_amounts(known, update)
    for name in CPUSETS:
        if getattr(update, name):
            setattr(known, name, getattr(update, name))


def copied(source: Any, target: Any) -> Any:
    """``target``, an empty message of the other protocol, with the ten fields; zero becomes absent."""
    for name in SCALARS:
        if getattr(source, name):
            setattr(target, name, getattr(source, name))
    for limit in source.hugepage_limits:
        target.hugepage_limits.add(page_size=limit.page_size, limit=limit.limit)
    for key, value in source.unified.items():
        target.unified[key] = value
    return target


def _take_amounts(known: Any, newer: Any) -> None:
    for name in POSITIVE:
        if getattr(newer, name) > 0:
            setattr(known, name, getattr(newer, name))
    if newer.cpu_quota != 0:
        known.cpu_quota = newer.cpu_quota
    for key, value in newer.unified.items():
        known.unified[key] = value
