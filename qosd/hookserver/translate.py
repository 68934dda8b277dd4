"""Hook messages to pod contexts, and edits to answers, in the two forms that callers understand.

Our own proxy reads presence: it gets a *sparse* answer, only what was decided, explicit zeros and empties included.
Any other caller is Koordinator's proxy, which takes an absent ``oom_score_adj`` for 0 and an absent ``cpuset_cpus``
for "clear it": it gets an *echo*, the whole request with the edits applied.
"""

from __future__ import annotations

from koord.pb.hooks import api_pb2 as hooks
from qosd.hooks.context import Request, Stage
from qosd.hooks.edits import NUMBERS, Edits, Field, Resources


def resources_of(message: hooks.LinuxContainerResources) -> Resources:
    """What was asked; proto3's 0 means "not asked"."""
    return Resources(
        cpu_period_us=message.cpu_period or None,
        cpu_quota_us=message.cpu_quota or None,
        memory_limit_bytes=message.memory_limit_in_bytes or None,
    )


def sandbox_request(request: hooks.PodSandboxHookRequest, stage: Stage) -> Request:
    return Request(
        stage=stage,
        namespace=request.pod_meta.namespace,
        name=request.pod_meta.name,
        uid=request.pod_meta.uid,
        labels=dict(request.labels),
        annotations=dict(request.annotations),
        cgroup_parent=request.cgroup_parent,
        asked=resources_of(request.resources),
    )


def container_request(request: hooks.ContainerResourceHookRequest, stage: Stage) -> Request:
    return Request(
        stage=stage,
        namespace=request.pod_meta.namespace,
        name=request.pod_meta.name,
        uid=request.pod_meta.uid,
        labels=dict(request.pod_labels),
        annotations=dict(request.pod_annotations),
        cgroup_parent=request.pod_cgroup_parent,
        asked=resources_of(request.container_resources),
        container=request.container_meta.name,
        container_annotations=dict(request.container_annotations),
    )


def sparse_sandbox(edits: Edits) -> hooks.PodSandboxHookResponse:
    answer = hooks.PodSandboxHookResponse(annotations=_annotations(edits))
    if has_resources(edits):
        apply(edits, answer.resources)
    return answer


def echo_sandbox(request: hooks.PodSandboxHookRequest, edits: Edits) -> hooks.PodSandboxHookResponse:
    answer = hooks.PodSandboxHookResponse(
        labels=request.labels,
        annotations={**request.annotations, **_annotations(edits)},
        cgroup_parent=request.cgroup_parent,
    )
    if request.HasField("resources"):
        answer.resources.CopyFrom(request.resources)
    if has_resources(edits):
        apply(edits, answer.resources)
    return answer


def sparse_container(edits: Edits) -> hooks.ContainerResourceHookResponse:
    answer = hooks.ContainerResourceHookResponse(container_annotations=_annotations(edits))
    if has_resources(edits):
        apply(edits, answer.container_resources)
    return answer


def echo_container(request: hooks.ContainerResourceHookRequest, edits: Edits) -> hooks.ContainerResourceHookResponse:
    answer = hooks.ContainerResourceHookResponse(
        container_annotations={**request.container_annotations, **_annotations(edits)},
        pod_cgroup_parent=request.pod_cgroup_parent,
        container_envs=request.container_envs,
    )
    if request.HasField("container_resources"):
        answer.container_resources.CopyFrom(request.container_resources)
    if has_resources(edits):
        apply(edits, answer.container_resources)
    return answer


def has_resources(edits: Edits) -> bool:
    return any(edit.field is not Field.ANNOTATION for edit in edits.items)


def apply(edits: Edits, resources: hooks.LinuxContainerResources) -> None:
    """Set every edited field of ``resources``, an explicit 0 or "" included."""
    for edit in edits.items:
        if edit.field is Field.UNIFIED:
            resources.unified[edit.key] = str(edit.value)
        elif edit.field is Field.CPUSET_CPUS:
            resources.cpuset_cpus = str(edit.value)
        elif edit.field in NUMBERS:
            setattr(resources, edit.field.value, int(edit.value))


def _annotations(edits: Edits) -> dict[str, str]:
    return {edit.key: str(edit.value) for edit in edits.of(Field.ANNOTATION)}
