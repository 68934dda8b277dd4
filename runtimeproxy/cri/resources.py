"""Merges an UpdateContainerResources with the resources that the container has, and says which edits may be sent.

To the runtime 0 and "" mean "leave alone", so an update states only the fields that it carries. A hook server needs all
of the container's resources: it gets the last asserted ones with the request merged over them, and only its changes are
added to the request. The OOM score takes no part: a runtime sets it when it makes the container, and leaves it alone in
an update. Invariant: an update never brings back a value that neither kubelet nor a hook asked for now.
"""

from __future__ import annotations

from typing import Any

from runtimeproxy.hooks.edits import CPUSETS, RESOURCE_FIELDS, RESOURCE_SCALARS, Edits
from runtimeproxy.hooks.messages import apply_resource, flatten_resources

_UPDATED = frozenset(RESOURCE_FIELDS) - {"oom_score_adj"}


def merge_update(asserted: Any, update: Any) -> None:
    """Merges ``update`` into ``asserted`` as the runtime does, each a LinuxContainerResources of either protocol."""
    for slot, value in flatten_resources(update, _UPDATED).items():
        if value or slot.field not in RESOURCE_SCALARS:
            apply_resource(asserted, slot, value)


def meaningful(edits: Edits, update: Any) -> Edits:
    """Returns those ``edits`` of an update that mean something to the runtime.

    A scalar 0 or "" does not (only -1 lifts a quota), except for a CPU set or memory nodes that the request itself
    carries: there "" withdraws what kubelet asked for and leaves what the container has.
    """
    carried = flatten_resources(update)
    return {
        slot: value
        for slot, value in edits.items()
        if value or slot.field not in RESOURCE_SCALARS or (slot.field in CPUSETS and carried.get(slot))
    }
