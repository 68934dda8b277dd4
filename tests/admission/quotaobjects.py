"""ElasticQuotas as an API server has them, and the reviews that it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from koord.admission import AdmissionContext, mutate_quota, validate_quota
from koord.admission.quotas import RESOURCE
from koord.admission.quotatree import QuotaTree, tree
from koord.model import core
from koord.model.admissionreview import AdmissionRequest, AdmissionResponse
from koord.model.elasticquota import ElasticQuota
from koord.quota import spec

PREFIX = "quota.scheduling.koordinator.sh/"
Document = dict[str, Any]


def quota(
    name: str,
    low: str | Mapping[str, Any] = "0",
    high: str | Mapping[str, Any] = "100",
    namespace: str = "teams",
    annotations: Mapping[str, str] | None = None,
    used: Mapping[str, Any] | None = None,
    created: str | None = None,
    **labels: str,
) -> Document:
    """``low``, ``high``: of CPU where they are text; ``labels``, ``annotations``: without their prefix."""
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "creationTimestamp": created,
            "labels": {f"{PREFIX}{key.replace('_', '-')}": value for key, value in labels.items()},
            "annotations": {f"{PREFIX}{key}": value for key, value in (annotations or {}).items()},
        },
        "spec": {
            "min": {"cpu": low} if isinstance(low, str) else dict(low),
            "max": {"cpu": high} if isinstance(high, str) else dict(high),
        },
        "status": {"used": dict(used or {})},
    }


def parent(name: str, *amounts: Any, **more: Any) -> Document:
    return quota(name, *amounts, **{"is_parent": "true", **more})


def tree_of(*documents: Document) -> QuotaTree:
    found = []
    for document in documents:
        read = core.read(ElasticQuota, msgspec.json.encode(document))
        found.append(((read.metadata.creation_timestamp or "", read.metadata.namespace), spec.of(read)[0]))
    return tree(found)


def request(operation: str, new: Document | None, old: Document | None = None, **more: Any) -> AdmissionRequest:
    return AdmissionRequest("u", operation, RESOURCE, "", "teams", _sent(new), _sent(old), **more)


def _sent(document: Document | None) -> msgspec.Raw:
    return msgspec.Raw(b"" if document is None else msgspec.json.encode(document))


def judged(
    operation: str,
    new: Document | None,
    old: Document | None = None,
    others: tuple[Document, ...] = (),
    pods: Mapping[str, tuple[str, ...]] | None = None,
    gates: Mapping[str, bool] | None = None,
) -> AdmissionResponse:
    """``pods``: by the quota that they name, or the namespace that they are in."""
    found = pods or {}

    def pods_in(name: str, namespaces: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(pod for each in dict.fromkeys((name, *namespaces)) for pod in found.get(each, ()))

    context = AdmissionContext(quotas=tree_of(*others), feature_gates=gates or {})
    return validate_quota(request(operation, new, old), context, pods_in)


def completed(new: Document, *others: Document) -> AdmissionResponse:
    return mutate_quota(request("CREATE", new), AdmissionContext(quotas=tree_of(*others)))
