"""The webhooks of ElasticQuotas: what one that is created gets, and whether it may be created, changed or deleted so.

A quota gets a parent, its parent's tree and a weight for each resource of its maximum. It is judged by itself and by
what is above, beside and below it (``quotatree``). The three quotas that there always are cannot be deleted, and the
root's and the system's cannot be changed.

Invariant: an update is judged by what it changes: what koord-scheduler writes on each quota is no reason to refuse it.
A dry run needs no exception: nothing here has an effect beside the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from koord.admission import documents, gates, jsonpatch, quotatree
from koord.admission.answering import answers
from koord.admission.context import AdmissionContext
from koord.admission.documents import Document
from koord.admission.errors import AdmissionError, UnreadableError
from koord.admission.quotatree import Judged, PodsIn, QuotaTree
from koord.model import core
from koord.model.admissionreview import CREATE, DELETE, UPDATE, AdmissionRequest, AdmissionResponse
from koord.model.core import ObjectMeta
from koord.model.elasticquota import GROUP, ElasticQuota
from koord.model.problem import Problem
from koord.model.readable import shorten_list
from koord.quota import names, spec
from koord.quota.spec import QuotaSpec, text

RESOURCE = f"{GROUP}/elasticquotas"
_KIND = "ElasticQuota"
_PROTECTED = (names.ROOT, names.SYSTEM, names.DEFAULT)
_FIXED = (names.ROOT, names.SYSTEM)
_WEIGHT = f"metadata.annotations[{names.ANNOTATION_WEIGHT}]"
_STRICT = f"metadata.annotations[{names.ANNOTATION_STRICT_KEYS}]"
_MOST_PROBLEMS = 10


class WholeQuota(NamedTuple):
    """An object that is judged, and what of it cannot be read."""

    document: ElasticQuota
    quota: QuotaSpec
    problems: tuple[Problem, ...]

    @property
    def said(self) -> tuple[object, ...]:
        """All that its rules look at and koord-scheduler never writes."""
        annotations, labels = self.document.metadata.annotations, self.document.metadata.labels
        texts = [annotations.get(key) for key in (names.ANNOTATION_WEIGHT, names.ANNOTATION_NAMESPACES)]
        flags = [labels.get(key) for key in (names.LABEL_IS_PARENT, names.LABEL_IS_ROOT)]
        return self.quota.parent, self.quota.tree, self.document.spec, *texts, *flags


@answers(RESOURCE)
def mutate_quota(request: AdmissionRequest, context: AdmissionContext) -> AdmissionResponse:
    """Completes a quota that is created."""
    if request.operation != CREATE:
        return AdmissionResponse()
    quota = read(request.object, request).document
    if quota.metadata.name == names.ROOT:
        return AdmissionResponse()
    document = documents.parse(request.object, _KIND)
    return AdmissionResponse(jsonpatch.diff(document, completed(document, quota, context.quotas)))


@answers(RESOURCE)
def validate_quota(request: AdmissionRequest, context: AdmissionContext, pods_in: PodsIn) -> AdmissionResponse:
    """Judges a quota that is created, updated or deleted. ``pods_in``: of pods that have not ended."""
    if request.operation == DELETE:
        found = _deletion(read(request.old_object, request).quota, context.quotas, pods_in)
    elif request.operation == CREATE:
        found = _written(read(request.object, request), None, context, pods_in)
    elif request.operation == UPDATE:
        after, before = read(request.object, request), read(request.old_object, request)
        if after.said == before.said:
            return AdmissionResponse()
        found = _update(after, before, context, pods_in)
    else:
        return AdmissionResponse()
    problems = [str(each) for each in found]
    if not problems:
        return AdmissionResponse()
    shown = shorten_list(problems, _MOST_PROBLEMS, "more")
    return AdmissionResponse(code=400, message=f"{_KIND} cannot be as it is: {'; '.join(shown)}")


def completed(document: Document, quota: ElasticQuota, quotas: QuotaTree) -> Document:
    """Returns the document with its parent, its tree and its weights. Raises AdmissionError."""
    changed, metadata = documents.copy(document), quota.metadata
    parent = metadata.labels.get(names.LABEL_PARENT) or names.ROOT
    labels = {names.LABEL_PARENT: parent}
    if names.LABEL_TREE not in metadata.labels and parent != names.ROOT:
        found = quotas.quotas.get(parent)
        if found is None:
            raise AdmissionError(f"metadata.labels[{names.LABEL_PARENT}]: {parent!r} does not exist")
        if found.tree:
            labels[names.LABEL_TREE] = found.tree
    documents.editable(changed, "metadata", "labels").update(labels)
    weight = _weight(metadata, documents.member(document, "spec", "max"))
    documents.editable(changed, "metadata", "annotations")[names.ANNOTATION_WEIGHT] = weight
    return changed


def _weight(metadata: ObjectMeta, maximum: Mapping[str, Any]) -> str:
    """Returns the annotation with the keys of the maximum; as it is, if it has them. Raises AdmissionError."""
    stated = metadata.annotations.get(names.ANNOTATION_WEIGHT)
    weights: dict[str, Any] = {}
    if stated:
        try:
            weights = msgspec.json.decode(stated, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise AdmissionError(f"{_WEIGHT}: cannot be read: {error}") from error
        if weights.keys() == maximum.keys():
            return stated
    found = {resource: weights.get(resource, amount) for resource, amount in sorted(maximum.items())}
    return msgspec.json.encode(found).decode()


def read(sent: msgspec.Raw, request: AdmissionRequest) -> WholeQuota:
    """Returns the object that was sent, with the request's namespace where it has none. Raises UnreadableError."""
    if not sent:
        raise UnreadableError(_KIND, "the request has none")
    try:
        quota = core.read(ElasticQuota, sent)
    except ValueError as error:
        raise UnreadableError(_KIND, str(error)) from error
    if not quota.metadata.namespace:
        metadata = msgspec.structs.replace(quota.metadata, namespace=request.namespace)
        quota = msgspec.structs.replace(quota, metadata=metadata)
    return WholeQuota(quota, *spec.of(quota))


def _update(after: WholeQuota, before: WholeQuota, context: AdmissionContext, pods_in: PodsIn) -> Iterator[Problem]:
    if after.quota.name in _FIXED:
        yield Problem("metadata.name", f"{after.quota.name} cannot be changed")
        return
    yield from _written(after, before.quota, context, pods_in)


def _written(
    after: WholeQuota, before: QuotaSpec | None, context: AdmissionContext, pods_in: PodsIn
) -> Iterator[Problem]:
    quota, labels = after.quota, after.document.metadata.labels
    yield from quotatree.taken(quota, context.quotas)
    yield from after.problems
    yield from _within(quota)
    yield from _in_use(after.document, quota)
    is_forced = labels.get(names.LABEL_FORCE) == "true"
    judged = Judged(quota, before, is_forced, context.is_on(gates.QUOTA_KEYS_MAY_DIFFER))
    yield from quotatree.broken(judged, context.quotas, pods_in)


def _deletion(quota: QuotaSpec, quotas: QuotaTree, pods_in: PodsIn) -> Iterator[Problem]:
    name = quota.name
    if name in _PROTECTED:
        yield Problem("metadata.name", f"{name} cannot be deleted")
        return
    counting = quotas.quotas.get(name)
    if counting is not None and counting.namespace != quota.namespace:
        return
    if children := quotas.children.get(name):
        yield Problem("metadata.name", f"{name} is the parent of {quotatree.some(children)}")
    if pods := pods_in(name, ()):
        yield Problem("metadata.name", f"pods are in {name}: {quotatree.some(pods)}")


def _within(quota: QuotaSpec) -> Iterator[Problem]:
    for resource, least in sorted(quota.minimum.items()):
        most = quota.maximum.get(resource)
        if most is None:
            yield Problem(f"spec.min[{resource}]", f"{text(resource, least)} has no maximum in spec.max")
        elif least > most:
            amounts = f"{text(resource, least)} is more than spec.max[{resource}], {text(resource, most)}"
            yield Problem(f"spec.min[{resource}]", amounts)


def _in_use(quota: ElasticQuota, maximum: QuotaSpec) -> Iterator[Problem]:
    """What is used of the resources whose maximum must be enough for it."""
    stated = quota.metadata.annotations.get(names.ANNOTATION_STRICT_KEYS)
    if not stated:
        return
    try:
        keys: Iterable[str] = msgspec.json.decode(stated, type=list[str])
    except (msgspec.DecodeError, RecursionError) as error:
        yield Problem(_STRICT, f"cannot be read: {error}")
        return
    for resource in keys:
        if resource not in quota.status.used:
            continue
        try:
            used = spec.units(resource, quota.status.used[resource])
        except ValueError as error:
            yield Problem(f"status.used[{resource}]", str(error))
            continue
        most = maximum.maximum.get(resource)
        if most is None or most < used:
            amount = "nothing" if most is None else text(resource, most)
            yield Problem(f"spec.max[{resource}]", f"{amount} is less than what is used, {text(resource, used)}")
