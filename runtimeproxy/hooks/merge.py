"""Finds the edits in a hook server's answer, given the request that it saw.

Two kinds of servers speak the same wire. One that declares presence states exactly its edits: a field that it sets
counts, zeros included, a field that it leaves out is untouched, and its removed_* lists delete. Any other (koordlet)
answers in plain proto3 with an echo of the whole request, so only a difference is an opinion, and a zero or a missing
entry is none: it may as well be an answer that fills in two fields only. One exception, for the container's CPU set and
memory nodes: koordlet drops kubelet's set of a BestEffort container by echoing everything else and leaving it empty.

Pure. Invariant: applying the result to ``request`` changes every slot named in it.
"""

from __future__ import annotations

from collections.abc import Mapping

from runtimeproxy.hooks.edits import CPUSETS, HUGEPAGE_LIMITS, RESOURCE_INTS, Edits, Slot, Value, changes, value

SIGNED = ("cpu_quota", "oom_score_adj")  # a negative value of the others is no opinion of a server without presence


def wanted_edits(request: Mapping[Slot, Value], answer: Edits, removals: Edits, *, presence: bool) -> Edits:
    """Returns the edits in an answer. ``request``: as the server was shown it; ``removals``: the keys it deletes."""
    if presence:
        return changes(answer | removals, request)
    opinions = {slot: new for slot, new in answer.items() if _is_opinion(slot, new)}
    edits = changes(opinions, request)
    if _echoes(request, opinions):
        edits |= changes({Slot(field): "" for field in CPUSETS if Slot(field) not in opinions}, request)
    return edits


def _is_opinion(slot: Slot, new: Value) -> bool:
    if slot.field in CPUSETS or slot.field == HUGEPAGE_LIMITS:
        return bool(new)
    if slot.field in RESOURCE_INTS and isinstance(new, int):
        return new != 0 if slot.field in SIGNED else new > 0
    return True


def _echoes(request: Mapping[Slot, Value], answer: Edits) -> bool:
    """Returns whether the answer repeats the container's resources: nothing is missing, and something is equal."""
    sent = [slot for slot in map(Slot, RESOURCE_INTS) if value(request, slot)]
    return all(slot in answer for slot in sent) and any(answer[slot] == request[slot] for slot in sent)
