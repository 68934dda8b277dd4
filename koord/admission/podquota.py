"""What a pod's quota asks of it: not to be in a quota that is a parent, and to go to the nodes of its quota's tree.

Invariants: an update is judged by what it changes; a pod that had no place before gets none by its tree, which only
takes nodes away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koord.admission import documents, gates
from koord.admission.context import AdmissionContext
from koord.admission.documents import Document
from koord.admission.validation import ErrorType, FieldError
from koord.model.core import Pod
from koord.model.problem import Problem
from koord.model.selector import LabelSelector, Operator
from koord.quota import names

_EXPRESSIONS, _FIELDS = "matchExpressions", "matchFields"
_REQUIRED, _TERMS = "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"


def errors(pod: Pod, old: Pod | None, context: AdmissionContext) -> tuple[FieldError, ...]:
    """Returns what is wrong with the quota of a pod that is created, or with an update of ``old``."""
    found, name = [], _quota_of(pod, context)
    if old is not None:
        now, before = (each.metadata.labels.get(names.LABEL_PREEMPTIBLE) for each in (pod, old))
        if now != before:
            kept = "leave it out" if before is None else f"keep {before!r}"
            problem = Problem(f"labels.{names.LABEL_PREEMPTIBLE}", f"field is immutable: {kept}")
            found.append(FieldError(problem, ErrorType.IMMUTABLE, now or ""))
        if name == _quota_of(old, context):
            return tuple(found)
    quota = context.quotas.quotas.get(name)
    if quota is not None and quota.is_parent and not context.is_on(gates.PARENTS_TAKE_PODS):
        why = f"ElasticQuota {name} is a parent, and takes no pods: write the name of one below it"
        found.append(FieldError(Problem(f"labels.{names.LABEL_NAME}", why), ErrorType.FORBIDDEN))
    return tuple(found)


def confine(pod: Document, namespace: str, context: AdmissionContext) -> Document:
    """Returns the pod with the nodes that its quota's tree has, if that has a profile."""
    labels = documents.member(pod, "metadata", "labels")
    quota = context.quotas.quotas.get(_name_for(labels, namespace, context))
    selector = None if quota is None or not quota.tree else context.pools.get(quota.tree)
    wanted = [] if selector is None else _requirements(selector)
    if not wanted:
        return pod
    changed = documents.copy(pod)
    required = documents.editable(changed, "spec", "affinity", "nodeAffinity", _REQUIRED)
    if not required.get(_TERMS):
        required[_TERMS] = [{_EXPRESSIONS: wanted}]
        return changed
    for term in required[_TERMS]:
        if term.get(_EXPRESSIONS) or term.get(_FIELDS):  # one that is empty selects no node
            has = term.get(_EXPRESSIONS) or []
            term[_EXPRESSIONS] = [*has, *(each for each in wanted if each not in has)]
    return changed


def _quota_of(pod: Pod, context: AdmissionContext) -> str:
    return _name_for(pod.metadata.labels, pod.metadata.namespace, context)


def _name_for(labels: Mapping[str, str], namespace: str, context: AdmissionContext) -> str:
    return context.quotas.name_for(labels, namespace, not context.is_on(gates.DISABLE_DEFAULT_QUOTA))


def _requirements(selector: LabelSelector) -> list[dict[str, Any]]:
    """Returns the selector as a term of a node affinity has it."""
    found: list[dict[str, Any]] = [
        {"key": key, "operator": Operator.IN.value, "values": [value]}
        for key, value in sorted(selector.match_labels.items())
    ]
    for each in selector.match_expressions:
        values = {"values": list(each.values)} if each.values else {}
        found.append({"key": each.key, "operator": each.operator, **values})
    return found
