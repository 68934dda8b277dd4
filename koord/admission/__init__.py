"""What admission does to pods and nodes, as functions of a document and of one frozen view of the cluster.

``mutate_pod``, ``validate_pod``, ``mutate_quota``, ``validate_quota``, ``mutate_node_status``, ``validate_node`` and
``validate_config_map`` take the request of an AdmissionReview and return its response; HTTP, TLS and the informers that
make the ``AdmissionContext`` are the manager's. ``missing_mutations`` finds pods that no webhook has seen,
``lint_profiles`` and ``lint_pod`` what is probably meant otherwise.
"""

from __future__ import annotations

from koord.admission.configmap import validate_config_map
from koord.admission.context import AdmissionContext
from koord.admission.errors import AdmissionError, UnknownNamespace
from koord.admission.extendedspec import annotate
from koord.admission.jsonpatch import diff
from koord.admission.lint import ObjectProblem, lint_pod, lint_profiles
from koord.admission.mutation import Mutation, apply, mutate
from koord.admission.nodelabels import validate_node
from koord.admission.nodestatus import amplify, mutate_node_status
from koord.admission.pods import mutate_pod, validate_pod
from koord.admission.priorityclasses import PriorityClassObject
from koord.admission.profiles import matches
from koord.admission.quotas import mutate_quota, validate_quota
from koord.admission.quotatree import PodsIn
from koord.admission.strategicmerge import PatchError, merge
from koord.admission.translation import translate
from koord.admission.unmutated import missing_mutations
from koord.admission.validation import ErrorType, FieldError, validate

__all__ = [
    "AdmissionContext",
    "AdmissionError",
    "ErrorType",
    "FieldError",
    "Mutation",
    "ObjectProblem",
    "PatchError",
    "PodsIn",
    "PriorityClassObject",
    "UnknownNamespace",
    "amplify",
    "annotate",
    "apply",
    "diff",
    "lint_pod",
    "lint_profiles",
    "matches",
    "merge",
    "missing_mutations",
    "mutate",
    "mutate_node_status",
    "mutate_pod",
    "mutate_quota",
    "translate",
    "validate",
    "validate_config_map",
    "validate_node",
    "validate_pod",
    "validate_quota",
]
