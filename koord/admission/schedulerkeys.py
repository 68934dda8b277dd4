"""Annotations of a pod by which its node gives it CPUs and limits: what they say is not a tenant's to write.

The scheduler says which CPUs are a pod's (``resource-status``). The webhook says which batch and mid amounts its spec
has (``extended-resource-spec``). A tenant who writes the first takes a node's CPUs from all others; one who writes the
second, or removes it, has other limits than those that his quota was charged with.

Invariant: an update is judged by what it changes. Fails with TranslationError for an amount in the spec that is none.
"""

from __future__ import annotations

from collections.abc import Mapping

from koord.admission import extendedspec
from koord.admission.validation import ErrorType, FieldError
from koord.model.annotations.pod import KEYS
from koord.model.core import Pod
from koord.model.problem import Problem

RESOURCE_STATUS = KEYS["resource_status"].name
ADMINISTRATORS = "system:masters"
"""The group that may do all that an API server allows at all."""


def scheduler_users(namespace: str) -> tuple[str, ...]:
    """Returns the users that write these annotations in an installation in ``namespace``, by default."""
    return f"system:serviceaccount:{namespace}:koord-scheduler", "system:kube-scheduler"


def errors(pod: Pod, old: Pod | None = None) -> tuple[FieldError, ...]:
    """Returns what a user who is no scheduler may not do to a pod that is created, or by an update of ``old``."""
    found = []
    now, before = pod.metadata.annotations, {} if old is None else old.metadata.annotations
    if now.get(RESOURCE_STATUS) != before.get(RESOURCE_STATUS):
        found.append(_forbidden(RESOURCE_STATUS, "the scheduler writes it", before))
    spec = now.get(extendedspec.ANNOTATION)
    if spec != before.get(extendedspec.ANNOTATION) and spec != extendedspec.text(pod.spec):
        found.append(_forbidden(extendedspec.ANNOTATION, "it says what the pod's resources say", before))
    return tuple(found)


def _forbidden(annotation: str, why: str, before: Mapping[str, str]) -> FieldError:
    told = "keep it as it is" if annotation in before else "leave it out"
    return FieldError(Problem(f"annotations.{annotation}", f"{why}: {told}"), ErrorType.FORBIDDEN)
