"""Records, in a sandbox's own annotations, which of them hooks have changed.

A proxy that starts anew finds a sandbox's annotations in the runtime, but not their authors: one that kubelet does not
send may be a hook's, or one that the user has removed since. So a sandbox whose annotations were changed gets one more,
a list of their keys in JSON. The runtime keeps it; hook servers are not shown it. Invariant: an annotation that is not
recorded is not taken for a hook's.
"""

from __future__ import annotations

import json
from collections.abc import MutableMapping

from runtimeproxy.hooks.edits import ANNOTATIONS, KUBELET_PREFIX, Edits, Slot

RECORD = "runtimeproxy.koordinator.sh/edited-annotations"


def with_record(edits: Edits) -> Edits:
    """Returns the edits of a sandbox, and their record if there is anything to record."""
    keys = sorted(slot.key for slot in edits if slot.field == ANNOTATIONS and slot.key != RECORD)
    return {**edits, Slot(ANNOTATIONS, RECORD): json.dumps(keys)} if keys else edits


def take_record(annotations: MutableMapping[str, str]) -> Edits:
    """Returns the edits of a sandbox with these annotations, in its values; removes the record from them."""
    keys = _keys(annotations.pop(RECORD, "[]"))
    return {Slot(ANNOTATIONS, key): annotations.get(key) for key in keys}


def _keys(record: str) -> list[str]:
    """Returns keys from a text that any user may have written: nothing in it raises, or reaches kubelet's own keys."""
    try:
        keys = json.loads(record)
    except (ValueError, RecursionError):
        return []
    found = keys if isinstance(keys, list) else []
    return [key for key in found if isinstance(key, str) and key.isprintable() and not key.startswith(KUBELET_PREFIX)]
