"""What was done to a sandbox, repeated in the ``sandbox_config`` of each of its containers.

kubelet computes that configuration anew for every container, without our edits, and the runtime takes the container's
cgroup and class from it. Of a sandbox that was made under a predecessor only the runtime's copy is known: its cgroup
parent, which kubelet never changes, and annotations that kubelet does not send at all are taken for edits; where both
have an annotation, kubelet's is newer and wins. Invariant: a request without ``sandbox_config`` gets one only if this
proxy moved the sandbox itself.
"""

from __future__ import annotations

from koord.pb.cri import api_pb2 as cri
from koord.pb.hooks import api_pb2 as hooks
from runtimeproxy.cri.codec import decode, pod_request
from runtimeproxy.cri.fields import SANDBOX_OF_CREATE
from runtimeproxy.cri.store import PodEntry
from runtimeproxy.hooks.edits import ANNOTATIONS, CGROUP_PARENT, Edits, Slot, changes
from runtimeproxy.hooks.guards import KUBELET_PREFIX
from runtimeproxy.hooks.messages import POD, apply, flatten


def repeats(request: cri.CreateContainerRequest, entry: PodEntry | None) -> tuple[Edits, Edits]:
    """What to change in the request's ``sandbox_config``, and what the fields in question are there now."""
    if entry is None:
        return {}, {}
    done = entry.edits
    if entry.rebuilt:
        done = _differing(decode(hooks.PodSandboxHookRequest, entry.request), request)
    done = {slot: value for slot, value in done.items() if slot.field in SANDBOX_OF_CREATE}
    if not done:
        return {}, {}
    sent = flatten(pod_request(request.sandbox_config, ""), POD, SANDBOX_OF_CREATE)
    return changes(done, sent), sent


def _differing(runtime: hooks.PodSandboxHookRequest, request: cri.CreateContainerRequest) -> Edits:
    if not request.HasField("sandbox_config"):
        return {}
    sent = request.sandbox_config
    edits: Edits = {Slot(ANNOTATIONS, key): value for key, value in runtime.annotations.items()
                    if key not in sent.annotations and not key.startswith(KUBELET_PREFIX)}
    if runtime.cgroup_parent:
        edits[Slot(CGROUP_PARENT)] = runtime.cgroup_parent
    return edits


def pod_as_sent(request: cri.CreateContainerRequest, entry: PodEntry | None,
                again: Edits) -> hooks.PodSandboxHookRequest:
    """The pod as a hook server shall see it with this container: kubelet's newest view and our edits of the sandbox."""
    known = decode(hooks.PodSandboxHookRequest, entry.request) if entry else hooks.PodSandboxHookRequest()
    if not request.HasField("sandbox_config"):
        return known
    pod = pod_request(request.sandbox_config, known.runtime_handler)
    apply(pod, POD, (entry.edits if entry else {}) | again)
    return pod
