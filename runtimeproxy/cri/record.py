"""Which annotations of a sandbox hooks have changed, written down in the sandbox itself.

A proxy that starts anew finds a sandbox's annotations in the runtime, and not who set them: one that kubelet does not
send may be a hook's, or the user's who has removed it since. So a sandbox whose annotations were changed gets one more,
a list of their keys in JSON. The runtime keeps it; hook servers are not shown it. Invariant: what is not recorded is
not taken for a hook's.
"""

from __future__ import annotations

import json
from collections.abc import MutableMapping

from runtimeproxy.hooks.edits import ANNOTATIONS, KUBELET_PREFIX, Edits, Slot

RECORD = "runtimeproxy.koordinator.sh/edited-annotations"


def with_record(edits: Edits) -> Edits:
    """The edits of a sandbox, and their record if there is anything to record."""
    keys = sorted(slot.key for slot in edits if slot.field == ANNOTATIONS and slot.key != RECORD)
    return {**edits, Slot(ANNOTATIONS, RECORD): json.dumps(keys)} if keys else edits


def take_record(annotations: MutableMapping[str, str]) -> Edits:
    """The edits of a sandbox with these annotations, in the values that it has; the record is removed from them."""
    keys = _keys(annotations.pop(RECORD, "[]"))
    return {Slot(ANNOTATIONS, key): annotations.get(key) for key in keys}


def _keys(record: str) -> list[str]:
    """Of what may be anybody's writing: nothing in it raises, or reaches kubelet's own keys."""
    try:
        keys = json.loads(record)
    except (ValueError, RecursionError):
        return []
    found = keys if isinstance(keys, list) else []
    return [key for key in found if isinstance(key, str) and key.isprintable() and not key.startswith(KUBELET_PREFIX)]
