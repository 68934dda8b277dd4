"""The webhook of Nodes: no node gets labels by which two entries of one key of ``slo-controller-config`` match it.

The ConfigMap does not say which of the two counts. A change is refused that brings such a conflict
about; one that was there before forbids no change of other labels. A Node that is created passes with a warning,
as with Koordinator: kubelet, which makes it, would only try again and again.

Invariant: only labels are looked at, so a status, a taint or an annotation never waits for this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koord.admission import documents
from koord.admission.answering import answers
from koord.model.admissionreview import CREATE, UPDATE, AdmissionRequest, AdmissionResponse
from koord.sloconfig import checks
from koord.sloconfig.checks import Violation
from koord.sloconfig.config import SLOConfig


@answers("nodes")
def validate_node(request: AdmissionRequest, config: SLOConfig) -> AdmissionResponse:
    """Judges the labels of a Node. ``config``: the policy in force."""
    if request.operation not in (CREATE, UPDATE):
        return AdmissionResponse()
    violations = _violations(config, documents.parse(request.object, "node"))
    if request.operation == CREATE:
        return AdmissionResponse(warnings=[str(each.problem) for each in violations])
    before = frozenset(_violations(config, documents.parse(request.old_object, "node")))
    brought = [each for each in violations if each not in before]
    if not brought:
        return AdmissionResponse()
    return AdmissionResponse(code=400, message="\n".join(each.upstream_form() for each in brought))


def _violations(config: SLOConfig, node: Mapping[str, Any]) -> list[Violation]:
    """Returns the conflicts by a Node's labels. Labels that are no texts are skipped: the API server refuses them
    itself.
    """
    metadata = node.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    labels, name = metadata.get("labels"), metadata.get("name")
    texts = {key: text for key, text in labels.items() if isinstance(text, str)} if isinstance(labels, Mapping) else {}
    return checks.check_node(config, name if isinstance(name, str) else "", texts)
