"""Repeats the edits of a sandbox in the ``sandbox_config`` of each of its containers.

kubelet computes that configuration anew for every container, without our edits, and the runtime takes the container's
cgroup and class from it. Of a sandbox that was made under a predecessor there is the runtime's copy: its cgroup parent
(kubelet never changes that, so a different one is an edit), and the annotations that are recorded in it as edited
(``record``). cri-o shows a systemd parent in its short form, which is no edit. Invariant: a request without
``sandbox_config`` gets one only if this proxy moved the sandbox itself.
"""

from __future__ import annotations

from runtimeproxy.cri.fields import SANDBOX_OF_CREATE
from runtimeproxy.cri.objectcache import PodEntry
from runtimeproxy.cri.transcribe import PodFields
from runtimeproxy.hooks.cgroupparents import components
from runtimeproxy.hooks.edits import CGROUP_PARENT, Edits, Value, changes
from runtimeproxy.hooks.messages import POD, layout, read

_NOTHING: tuple[Edits, Edits] = {}, {}
_SENT = layout(SANDBOX_OF_CREATE)


def repeats(message: bytes, has_config: bool, entry: PodEntry | None) -> tuple[Edits, Edits]:
    """Returns what to change in the ``sandbox_config`` of a CreateContainerRequest, and what those fields are now."""
    if entry is None or not (entry.edits or entry.rebuilt) or (entry.rebuilt and not has_config):
        return _NOTHING
    done = {slot: value for slot, value in entry.edits.items() if slot.field in SANDBOX_OF_CREATE}
    if not (done or entry.rebuilt):
        return _NOTHING
    sent = read(message, _SENT)
    if entry.rebuilt:
        done |= _moved(entry.request, sent)
    return changes(done, sent), sent


def _moved(runtime: bytes, sent: Edits) -> Edits:
    """Returns the cgroup parent that the runtime's copy has, if it is not the one that kubelet sends."""
    held = read(runtime, POD.request_layout, (CGROUP_PARENT,))
    return {slot: value for slot, value in held.items() if not _same_parent(value, sent.get(slot))}


def _same_parent(runtime: Value, kubelet: Value | None) -> bool:
    return runtime == kubelet or (
        kubelet is not None and components(str(runtime)) == components(str(kubelet)) is not None
    )


def pod_as_sent(configs: list[bytes], entry: PodEntry | None, again: Edits) -> PodFields:
    """Returns the pod for a hook server, with this container: kubelet's newest view and our edits of the sandbox.

    ``configs``: the occurrences of ``sandbox_config`` in the request, which does not repeat the runtime handler.
    """
    if not configs:
        return PodFields.of_request(entry.request if entry else b"")
    edits = entry.edits | again if entry and entry.edits else again
    return PodFields.of_config(b"".join(configs), []).edited(edits)
