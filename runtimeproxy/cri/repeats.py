"""What was done to a sandbox, repeated in the ``sandbox_config`` of each of its containers.

kubelet computes that configuration anew for every container, without our edits, and the runtime takes the container's
cgroup and class from it. Of a sandbox that was made under a predecessor only the runtime's copy is known: its cgroup
parent, which kubelet never changes, and annotations that kubelet does not send at all are taken for edits; where both
have an annotation, kubelet's is newer and wins. cri-o shows a systemd parent in its short form, which is no edit.
Invariant: a request without ``sandbox_config`` gets one only if this proxy moved the sandbox itself.
"""

from __future__ import annotations

from runtimeproxy.cri.fields import SANDBOX_OF_CREATE
from runtimeproxy.cri.store import PodEntry
from runtimeproxy.cri.transcribe import Pod
from runtimeproxy.hooks.edits import ANNOTATIONS, Edits, Slot, Value, changes
from runtimeproxy.hooks.guards import KUBELET_PREFIX, components
from runtimeproxy.hooks.messages import POD, layout, read

_NOTHING: tuple[Edits, Edits] = {}, {}
_SENT = layout(SANDBOX_OF_CREATE)


def repeats(message: bytes, has_config: bool, entry: PodEntry | None) -> tuple[Edits, Edits]:
    """What to change in the ``sandbox_config`` of a CreateContainerRequest, and what its fields in question are now."""
    if entry is None or not (entry.edits or entry.rebuilt):
        return _NOTHING
    done = entry.edits
    sent: Edits | None = None
    if entry.rebuilt:
        sent = read(message, _SENT)
        done = _differing(entry.request, sent) if has_config else {}
    done = {slot: value for slot, value in done.items() if slot.field in SANDBOX_OF_CREATE}
    if not done:
        return _NOTHING
    sent = read(message, _SENT) if sent is None else sent
    return changes(done, sent), sent


def _differing(runtime: bytes, sent: Edits) -> Edits:
    """What the runtime's copy has that kubelet does not send."""
    held = read(runtime, POD.asked, SANDBOX_OF_CREATE)
    return {
        slot: value
        for slot, value in held.items()
        if (_is_added(slot, sent) if slot.field == ANNOTATIONS else not _same_parent(value, sent.get(slot)))
    }


def _is_added(slot: Slot, sent: Edits) -> bool:
    return slot not in sent and not slot.key.startswith(KUBELET_PREFIX)


def _same_parent(held: Value, sent: Value | None) -> bool:
    return held == sent or (sent is not None and components(str(held)) == components(str(sent)) is not None)


def pod_as_sent(configs: list[bytes], entry: PodEntry | None, again: Edits) -> Pod:
    """The pod as a hook server shall see it with this container: kubelet's newest view and our edits of the sandbox.

    ``configs``: the occurrences of ``sandbox_config`` in the request, which does not repeat the runtime handler.
    """
    if not configs:
        return Pod.of_request(entry.request if entry else b"")
    edits = entry.edits | again if entry and entry.edits else again
    return Pod.of_config(b"".join(configs), []).edited(edits)
