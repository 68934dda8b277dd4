"""What admission does to pods and nodes, as functions of a document and of one frozen view of the cluster.

``mutate_pod``, ``validate_pod``, ``mutate_node_status``, ``validate_node`` and ``validate_config_map`` take an
AdmissionReview and return its answer; HTTP, TLS and the informers that make the ``AdmissionContext`` are the manager's.
``omission`` finds pods that no webhook has seen, ``lint_profiles`` and ``lint_pod`` what is probably meant otherwise.
"""

from __future__ import annotations

from koord.model.admission.configmap import validate_config_map
from koord.model.admission.context import AdmissionContext
from koord.model.admission.errors import AdmissionError
from koord.model.admission.extendedspec import annotate
from koord.model.admission.jsonpatch import diff
from koord.model.admission.lint import Finding, lint_pod, lint_profiles
from koord.model.admission.mutation import Mutation, apply, mutate
from koord.model.admission.nodelabels import validate_node
from koord.model.admission.nodestatus import amplify, mutate_node_status
from koord.model.admission.priorityclasses import PriorityClassObject
from koord.model.admission.profiles import matches
from koord.model.admission.review import mutate_pod, unknown_namespace, validate_pod
from koord.model.admission.strategicmerge import PatchError, merge
from koord.model.admission.translation import translate
from koord.model.admission.unmutated import omission
from koord.model.admission.validation import ErrorType, FieldError, validate

__all__ = [
    "AdmissionContext",
    "AdmissionError",
    "ErrorType",
    "FieldError",
    "Finding",
    "Mutation",
    "PatchError",
    "PriorityClassObject",
    "amplify",
    "annotate",
    "apply",
    "diff",
    "lint_pod",
    "lint_profiles",
    "matches",
    "merge",
    "mutate",
    "mutate_node_status",
    "mutate_pod",
    "omission",
    "translate",
    "unknown_namespace",
    "validate",
    "validate_config_map",
    "validate_node",
    "validate_pod",
]
