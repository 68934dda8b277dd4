"""The webhooks of pods: what becomes of one that is created, and whether one that is created or updated is accepted.

A pod that is refused gets 400 and a message that says what to write; a pod that a fault of the cluster's configuration
keeps out (a profile with a PriorityClass that does not exist) gets 403. What is in doubt (a profile that cannot be
used, a pod whose CPU or memory counts twice, an amount that was probably not meant) is a warning, which kubectl shows.

A pod of more than ``MAX_CONTAINERS`` is refused, since what it costs to judge grows with them. Nobody can change their
number, so an update of one that exists all the same is judged by everything else.

Pods of kube-system and of Koord's own namespace, mirrors of static pods, subresources, other resources and other
operations pass untouched. A dry run needs no exception: nothing here has an effect beside the answer.
Fails with UnknownNamespace, where the API server has to be asked first.
"""

from __future__ import annotations

from msgspec.structs import replace

from koord.admission import (
    documents,
    doubts,
    gates,
    jsonpatch,
    mutation,
    podquota,
    schedulerkeys,
    translation,
    validation,
)
from koord.admission.answering import answers
from koord.admission.context import AdmissionContext
from koord.admission.errors import CrowdedError, UnknownNamespace, UnreadableError
from koord.model.admissionreview import CREATE, UPDATE, AdmissionRequest, AdmissionResponse
from koord.model.core import ObjectMeta, Pod
from koord.model.quantity import QuantityError
from koord.model.readable import shorten_list

MAX_CONTAINERS = 4096
"""Init containers among them. An API server stores 1.5 MiB of a pod, and of each container the managed fields and the
status alone are some hundreds of bytes."""
_MOST_WARNINGS = 5
"""An API server shows 4,096 bytes of a request's warnings."""


@answers("pods")
def mutate_pod(request: AdmissionRequest, context: AdmissionContext) -> AdmissionResponse:
    """Changes a pod that is created. Raises UnknownNamespace."""
    if request.operation != CREATE or (pod := _judged(request, context)) is None:
        return AdmissionResponse()
    namespace = pod.metadata.namespace
    if namespace not in context.namespaces:
        raise UnknownNamespace(namespace)
    _check_containers(_container_count(pod))
    document = documents.parse(request.object, "pod")
    mutated = mutation.mutate(document, pod, request.uid, context)
    return AdmissionResponse(jsonpatch.diff(document, mutated.pod), mutated.problems)


@answers("pods")
def validate_pod(request: AdmissionRequest, context: AdmissionContext) -> AdmissionResponse:
    """Judges a pod that is created or updated, after everything that changes the pod."""
    if request.operation not in (CREATE, UPDATE) or (pod := _judged(request, context)) is None:
        return AdmissionResponse()
    old = documents.read(request.old_object) if request.operation == UPDATE else None
    pod, old = _judgeable(pod, old)
    errors = validation.validate(
        pod,
        old,
        may_change_sub_priority=context.is_on(gates.SKIP_VALIDATING_PRIORITY),
        equal_limits=context.is_on(gates.REQUIRE_EQUAL_CPU_LIMITS),
    )
    if not context.may_bind(request.user, request.groups):
        errors = (*errors, *schedulerkeys.errors(pod, old))
    errors = (*errors, *podquota.errors(pod, old, context))
    if errors:
        return AdmissionResponse(code=400, message=validation.text(errors))
    return AdmissionResponse(warnings=_warnings(pod) if old is None else ())


def _judged(request: AdmissionRequest, context: AdmissionContext) -> Pod | None:
    """The pod, with the request's namespace where it has none; None if it is left alone. Raises UnreadableError.

    One that is left alone may be unreadable but for its metadata.
    """
    if not request.object:
        raise UnreadableError("pod", "the request has none")
    try:
        pod = documents.read(request.object)
    except UnreadableError:
        if context.is_exempt(_placed(documents.read_metadata(request.object), request)):
            return None
        raise
    metadata = _placed(pod.metadata, request)
    return None if context.is_exempt(metadata) else replace(pod, metadata=metadata)


def _placed(metadata: ObjectMeta, request: AdmissionRequest) -> ObjectMeta:
    return metadata if metadata.namespace else replace(metadata, namespace=request.namespace)


def _warnings(pod: Pod) -> tuple[str, ...]:
    """Returns the warnings about a created pod: native amounts beside translated ones, and probable mistakes."""
    try:
        double_counted = translation.double_counted(pod)
    except QuantityError as error:
        raise UnreadableError("pod", str(error)) from error
    found = [*([f"the pod {double_counted}"] if double_counted else []), *map(str, doubts.of_pod(pod))]
    return shorten_list(found, _MOST_WARNINGS, "more: koordctl lint lists them")


def _judgeable(pod: Pod, old: Pod | None) -> tuple[Pod, Pod | None]:
    """Both with as many containers as are judged. Raises CrowdedError."""
    count, old_count = _container_count(pod), 0 if old is None else _container_count(old)
    if old is not None and count == old_count > MAX_CONTAINERS:
        return _without_containers(pod), _without_containers(old)
    _check_containers(max(count, old_count))
    return pod, old


def _container_count(pod: Pod) -> int:
    return len(pod.spec.init_containers) + len(pod.spec.containers)


def _without_containers(pod: Pod) -> Pod:
    return replace(pod, spec=replace(pod.spec, init_containers=(), containers=()))


def _check_containers(count: int) -> None:
    """Raises CrowdedError."""
    if count > MAX_CONTAINERS:
        raise CrowdedError(count, MAX_CONTAINERS)
