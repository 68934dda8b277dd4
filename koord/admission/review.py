"""AdmissionReview in, AdmissionReview out: the wire form of the pod webhooks, for HTTP to carry.

The answer repeats the request's UID and its ``apiVersion``. What changes a pod goes as a JSON Patch in base64. A pod
that is refused gets 400 and a message that says what to write; a pod that a fault of the cluster's configuration keeps
out (a profile with a PriorityClass that does not exist) gets 403; what is no AdmissionReview of a pod gets 400.
What is in doubt (a profile that cannot be used, a pod whose CPU or memory counts twice, an amount that was probably not
meant) is a warning, which kubectl shows.

A pod of more than ``MAX_CONTAINERS`` is refused, since what it costs to judge grows with them. Nobody can change their
number, so an update of one that exists all the same is judged by everything else.

Pods of kube-system and of Koord's own namespace, mirrors of static pods, subresources, other resources and other
operations pass untouched.
A dry run needs no exception: nothing here has an effect beside the answer.

Invariant: each document has an answer; nothing raises.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from koord.admission import (
    documents,
    doubts,
    gates,
    jsonpatch,
    mutation,
    schedulerkeys,
    translation,
    validation,
)
from koord.admission.context import AdmissionContext
from koord.admission.documents import Document
from koord.admission.errors import AdmissionError, CrowdedError, UnreadableError
from koord.model.core import ObjectMeta
from koord.model.excerpt import shorten_list
from koord.model.quantity import QuantityError
from koord.model.schema import clip

API_VERSION = "admission.k8s.io/v1"
CREATE, UPDATE = "CREATE", "UPDATE"
MAX_CONTAINERS = 4096
"""Init containers among them. An API server stores 1.5 MiB of a pod, and of each container the managed fields and the
status alone are some hundreds of bytes."""
_REASONS = {400: "BadRequest", 403: "Forbidden"}
_MOST_WARNINGS = 5
"""An API server shows 4,096 bytes of a request's warnings."""


class Request(NamedTuple):
    """``request`` of an AdmissionReview, as far as it is looked at; ``resource`` is with its group, ``pods`` or
    ``apps/deployments``."""

    uid: str
    api_version: str
    operation: str
    resource: str
    subresource: str
    namespace: str
    object: Document
    old_object: Document
    user: str = ""
    groups: frozenset[str] = frozenset()


def mutate_pod(review: object, context: AdmissionContext) -> Document:
    """The answer to a pod that is created: what becomes of it."""

    def decide(request: Request) -> Document:
        if request.operation != CREATE or context.is_exempt(metadata := _metadata(request)):
            return allowed(request)
        pod = request.object
        _check_containers(documents.container_count(pod))
        mutated = mutation.mutate(pod, metadata.namespace, request.uid, context)
        return allowed(request, jsonpatch.diff(pod, mutated.pod), mutated.problems)

    return answer(review, "pods", "", decide)


def validate_pod(review: object, context: AdmissionContext) -> Document:
    """The answer to a pod that is created or updated: is it accepted? It is asked after all that changes the pod."""

    def decide(request: Request) -> Document:
        if request.operation not in (CREATE, UPDATE) or context.is_exempt(_metadata(request)):
            return allowed(request)
        request = _judgeable(request)
        old = documents.typed(request.old_object) if request.operation == UPDATE else None
        errors = validation.validate(
            documents.typed(request.object),
            old,
            may_change_sub_priority=context.is_on(gates.SKIP_VALIDATING_PRIORITY),
            equal_limits=context.is_on(gates.REQUIRE_EQUAL_CPU_LIMITS),
        )
        if not context.may_bind(request.user, request.groups):
            before = request.old_object if request.operation == UPDATE else None
            errors = (*errors, *schedulerkeys.errors(request.object, before))
        if errors:
            return refused(request, 400, validation.text(errors))
        return allowed(request, warnings=_warnings(request))

    return answer(review, "pods", "", decide)


def unknown_namespace(review: object, context: AdmissionContext) -> str | None:
    """The namespace of a pod that is created, if the context lacks its labels; None if nothing is to be looked up.

    Informers lag behind the API server: who creates a namespace and a pod in it at once is not to lose its profiles.
    """
    try:
        request = read(review)
        if (request.operation, request.resource, request.subresource) != (CREATE, "pods", ""):
            return None
        metadata = _metadata(request)
    except AdmissionError:
        return None
    is_known = metadata.namespace in context.namespaces
    return None if is_known or context.is_exempt(metadata) else metadata.namespace


def answer(review: object, resource: str, subresource: str, decide: Callable[[Request], Document]) -> Document:
    """What ``decide`` says of a request for ``resource``; any other passes, and an error becomes a refusal."""
    request = _envelope(review)
    try:
        request = read(review)
        if (request.resource, request.subresource) != (resource, subresource):
            return allowed(request)
        return decide(request)
    except AdmissionError as error:
        return refused(request, error.code, str(error))
    except RecursionError:
        return refused(request, UnreadableError.code, f"{resource} cannot be read: is nested too deeply")


def allowed(
    request: Request, patch: list[jsonpatch.Operation] | None = None, warnings: tuple[str, ...] = ()
) -> Document:
    """The object may pass, changed by ``patch`` if that is not empty."""
    response: Document = {"uid": request.uid, "allowed": True}
    if patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(patch)).decode()
    if warnings:
        response["warnings"] = list(warnings)
    return _review(request, response)


def refused(request: Request, code: int, message: str) -> Document:
    """The object may not pass; ``message`` goes to whoever sent it."""
    status = {"status": "Failure", "code": code, "reason": _REASONS[code], "message": message}
    return _review(request, {"uid": request.uid, "allowed": False, "status": status})


def read(review: object) -> Request:
    """The request in an AdmissionReview. Raises UnreadableError."""
    envelope = _envelope(review)
    if not isinstance(review, Mapping) or not isinstance(review.get("request"), Mapping):
        raise UnreadableError("AdmissionReview", "it has no request")
    request = review["request"]
    if not envelope.uid:
        raise UnreadableError("AdmissionReview", "request.uid is missing")
    resource = _object(request, "resource")
    group, name = _text(resource, "group"), _text(resource, "resource")
    user = _object(request, "userInfo")
    groups = user.get("groups")
    return envelope._replace(
        operation=_text(request, "operation"),
        resource=f"{group}/{name}" if group else name,
        subresource=_text(request, "subResource"),
        namespace=_text(request, "namespace"),
        object=_object(request, "object"),
        old_object=_object(request, "oldObject"),
        user=_text(user, "username"),
        groups=frozenset(each for each in groups if isinstance(each, str)) if isinstance(groups, list) else frozenset(),
    )


def _envelope(review: object) -> Request:
    """What an answer repeats of it, as far as that can be read."""
    document = review if isinstance(review, Mapping) else {}
    request = document.get("request")
    uid = request.get("uid") if isinstance(request, Mapping) else ""
    version = document.get("apiVersion")
    return Request(
        uid=uid if isinstance(uid, str) else "",
        api_version=version if isinstance(version, str) and version else API_VERSION,
        operation="",
        resource="",
        subresource="",
        namespace="",
        object={},
        old_object={},
    )


def _review(request: Request, response: Document) -> Document:
    return {"apiVersion": request.api_version, "kind": "AdmissionReview", "response": response}


def _metadata(request: Request) -> ObjectMeta:
    """The pod's, with the request's namespace where the pod has none. Raises UnreadableError if there is no pod."""
    if not request.object:
        raise UnreadableError("pod", "the request has none")
    metadata = documents.typed({"metadata": request.object.get("metadata")}).metadata
    return metadata if metadata.namespace else replace(metadata, namespace=request.namespace)


def _warnings(request: Request) -> tuple[str, ...]:
    """Of a pod that is created: native amounts beside translated ones, and what was probably not meant."""
    if request.operation != CREATE:
        return ()
    pod = documents.typed(request.object)
    try:
        double_counted = translation.double_counted(pod)
    except QuantityError as error:
        raise UnreadableError("pod", str(error)) from error
    found = [*([f"the pod {double_counted}"] if double_counted else []), *map(str, doubts.of_pod(pod))]
    return shorten_list(found, _MOST_WARNINGS, "more: koordctl lint lists them")


def _judgeable(request: Request) -> Request:
    """With as many containers as are judged. Raises CrowdedError."""
    pod, old = request.object, request.old_object
    count, old_count = documents.container_count(pod), documents.container_count(old)
    if count == old_count > MAX_CONTAINERS and request.operation == UPDATE:
        return request._replace(object=documents.without_containers(pod), old_object=documents.without_containers(old))
    _check_containers(max(count, old_count))
    return request


def _check_containers(count: int) -> None:
    """Raises CrowdedError."""
    if count > MAX_CONTAINERS:
        raise CrowdedError(count, MAX_CONTAINERS)


def _text(document: Mapping[str, Any], key: str) -> str:
    value = document.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UnreadableError("AdmissionReview", f"request: {key}: {clip(value)} is not a text")
    return value


def _object(document: Mapping[str, Any], key: str) -> Document:
    value = document.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UnreadableError("AdmissionReview", f"request.{key}: {clip(value)} is not an object")
    return value
