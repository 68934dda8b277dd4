"""Hook messages to pod contexts, and edits to answers, in the two forms that callers understand.

Our own proxy reads presence: it gets a *sparse* answer, only what was decided, explicit zeros and empties included.
Any other caller is Koordinator's proxy, which takes an absent ``oom_score_adj`` for 0 and an absent ``cpuset_cpus``
for "clear it": it gets an *echo*, the whole request with the edits applied.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from operator import attrgetter

from koord.host.originals import ContainerKey
from koord.model.annotations import pod as table
from koord.model.crifields import SCALARS, Field
from koord.model.lattice import Value
from koord.pb.hooks import api_pb2 as hooks
from qosd.hooks import normalization, resctrl
from qosd.hooks.edits import Edits
from qosd.hooks.originals import RequestedResources
from qosd.model.pod import HookStage, Resources, RuntimeRequest

LABELS = tuple(table.LABELS)
ANNOTATIONS = (*table.ANNOTATIONS, resctrl.ANNOTATION)
OF_CONTAINER = (normalization.ANNOTATION,)
"""The keys that a hook may look at: contexts that are made here have no others."""
_VALUES = attrgetter(*[field.value for field in SCALARS])


def _known(texts: Mapping[str, str], keys: tuple[str, ...]) -> dict[str, str]:
    return {key: texts[key] for key in keys if key in texts}


def values_of(message: hooks.LinuxContainerResources) -> dict[Field, Value]:
    """Returns the value of each field; 0 and "" where the message has none."""
    return dict(zip(SCALARS, _VALUES(message), strict=True))


def resources_of(message: hooks.LinuxContainerResources) -> Resources:
    """Returns what kubelet requested, as far as hooks compute with it."""
    return Resources.of(values_of(message))


def requested(message: hooks.LinuxContainerResources) -> RequestedResources:
    """Returns what kubelet requested, as far as it can be edited."""
    return RequestedResources(values_of(message), dict(message.unified), message.memory_swap_limit_in_bytes)


def key_of(request: hooks.ContainerResourceHookRequest) -> ContainerKey:
    """Returns the key of the container that is about to be made, or updated."""
    return ContainerKey(request.pod_meta.uid, request.container_meta.name, request.container_meta.attempt)


def sandbox_request(request: hooks.PodSandboxHookRequest, stage: HookStage) -> RuntimeRequest:
    return RuntimeRequest(
        stage=stage,
        namespace=request.pod_meta.namespace,
        name=request.pod_meta.name,
        uid=request.pod_meta.uid,
        labels=_known(request.labels, LABELS),
        annotations=_known(request.annotations, ANNOTATIONS),
        cgroup_parent=request.cgroup_parent,
        requested=resources_of(request.resources),
    )


def container_request(request: hooks.ContainerResourceHookRequest, stage: HookStage) -> RuntimeRequest:
    return RuntimeRequest(
        stage=stage,
        namespace=request.pod_meta.namespace,
        name=request.pod_meta.name,
        uid=request.pod_meta.uid,
        labels=_known(request.pod_labels, LABELS),
        annotations=_known(request.pod_annotations, ANNOTATIONS),
        cgroup_parent=request.pod_cgroup_parent,
        requested=resources_of(request.container_resources),
        container=request.container_meta.name,
        container_annotations=_known(request.container_annotations, OF_CONTAINER),
        pod_shares=request.pod_resources.cpu_shares or None,
    )


def sparse_sandbox(edits: Edits) -> hooks.PodSandboxHookResponse:
    answer = hooks.PodSandboxHookResponse()
    apply(edits, answer.resources, answer.annotations)
    return answer


def echo_sandbox(request: hooks.PodSandboxHookRequest, edits: Edits) -> hooks.PodSandboxHookResponse:
    answer = hooks.PodSandboxHookResponse(
        labels=request.labels,
        annotations=request.annotations,
        cgroup_parent=request.cgroup_parent,
    )
    if request.HasField("resources"):
        answer.resources.CopyFrom(request.resources)
    apply(edits, answer.resources, answer.annotations)
    return answer


def sparse_container(edits: Edits) -> hooks.ContainerResourceHookResponse:
    answer = hooks.ContainerResourceHookResponse()
    apply(edits, answer.container_resources, answer.container_annotations)
    return answer


def echo_container(request: hooks.ContainerResourceHookRequest, edits: Edits) -> hooks.ContainerResourceHookResponse:
    answer = hooks.ContainerResourceHookResponse(
        container_annotations=request.container_annotations,
        pod_cgroup_parent=request.pod_cgroup_parent,
        container_envs=request.container_envs,
    )
    if request.HasField("container_resources"):
        answer.container_resources.CopyFrom(request.container_resources)
    apply(edits, answer.container_resources, answer.container_annotations)
    return answer


def apply(edits: Edits, resources: hooks.LinuxContainerResources, annotations: MutableMapping[str, str]) -> None:
    """Sets every edited field of an answer, an explicit 0 or "" included; without an edit it stays as it is."""
    for edit in edits.items:
        if edit.field.path:
            edit.field.put(resources, edit.value)
        elif edit.field is Field.UNIFIED:
            resources.unified[edit.key] = str(edit.value)
        else:
            annotations[edit.key] = str(edit.value)
