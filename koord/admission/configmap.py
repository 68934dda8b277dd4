"""The webhook of ``slo-controller-config``: a ConfigMap that no node could follow is not stored.

It is judged as it would be merged (``koord.sloconfig.checks``), and only for what a change makes wrong. The
message is in the form that upstream's clients parse, one line for each violation. Of keys and fields that nothing reads
a warning says so. Any other ConfigMap passes, and so does a deletion: the defaults apply then.
"""

from __future__ import annotations

from collections.abc import Mapping

from koord.admission import review
from koord.admission.documents import Document
from koord.sloconfig import checks
from koord.sloconfig.checks import Nodes
from koord.sloconfig.loading import load, texts, unknown_messages


def validate_config_map(
    document: object, namespace: str, name: str, nodes: Nodes, names_required: bool = False
) -> Document:
    """The answer to an AdmissionReview. ``nodes``: name and labels of those that exist."""

    def decide(request: review.Request) -> Document:
        metadata = request.object.get("metadata")
        is_ours = isinstance(metadata, Mapping) and (request.namespace, metadata.get("name")) == (namespace, name)
        if not is_ours or request.operation not in (review.CREATE, review.UPDATE):
            return review.allowed(request)
        data = texts(request.object.get("data"))
        old = texts(request.old_object.get("data")) if request.operation == review.UPDATE else None
        violations = checks.check(data, nodes, names_required=names_required, old=old)
        if not violations:
            return review.allowed(request, warnings=unknown_messages(load(data).unknown))
        return review.refused(request, 400, "\n".join(each.upstream_form() for each in violations))

    return review.answer(document, "configmaps", "", decide)
