"""The webhook of ``slo-controller-config``: a ConfigMap that no node could follow is not stored.

It is judged as it would be merged (``koord.sloconfig.checks``), and only for what a change makes wrong. The
message is in the form that upstream's clients parse, one line for each violation. Of keys and fields that nothing reads
a warning says so. Any other ConfigMap passes, and so does a deletion: the defaults apply then.
"""

from __future__ import annotations

from collections.abc import Mapping

from koord.admission import documents
from koord.admission.answering import answers
from koord.model.admissionreview import CREATE, UPDATE, AdmissionRequest, AdmissionResponse
from koord.sloconfig import checks
from koord.sloconfig.checks import Nodes
from koord.sloconfig.loading import load, texts, unknown_messages


@answers("configmaps")
def validate_config_map(
    request: AdmissionRequest, namespace: str, name: str, nodes: Nodes, names_required: bool = False
) -> AdmissionResponse:
    """Judges the ConfigMap of the policy. ``nodes``: name and labels of those that exist."""
    if request.operation not in (CREATE, UPDATE) or request.namespace != namespace:
        return AdmissionResponse()
    config_map = documents.parse(request.object, "ConfigMap")
    metadata = config_map.get("metadata")
    if not isinstance(metadata, Mapping) or metadata.get("name") != name:
        return AdmissionResponse()
    data, old = texts(config_map.get("data")), None
    if request.operation == UPDATE:
        old = texts(documents.parse(request.old_object, "ConfigMap").get("data"))
    violations = checks.check(data, nodes, names_required=names_required, old=old)
    if violations:
        return AdmissionResponse(code=400, message="\n".join(each.upstream_form() for each in violations))
    return AdmissionResponse(warnings=unknown_messages(load(data).unknown))
