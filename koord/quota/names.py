"""What ElasticQuotas and pods say of quotas in labels and annotations, and the quotas that there always are.

Source: Koordinator, apis/extension/elastic_quota.go.
"""

from __future__ import annotations

_PREFIX = "quota.scheduling.koordinator.sh/"

LABEL_NAME = f"{_PREFIX}name"
"""On a pod: its quota."""
LABEL_PREEMPTIBLE = f"{_PREFIX}preemptible"
"""On a pod: ``false``: it does not leave for others of its quota, and counts within the quota's minimum."""

LABEL_PARENT, LABEL_IS_PARENT = f"{_PREFIX}parent", f"{_PREFIX}is-parent"
LABEL_LENDS = f"{_PREFIX}allow-lent-resource"
LABEL_TREE, LABEL_IS_ROOT = f"{_PREFIX}tree-id", f"{_PREFIX}is-root"
LABEL_IGNORES_DEFAULT_TREE = f"{_PREFIX}ignore-default-tree"
LABEL_PROFILE, LABEL_FORCE = f"{_PREFIX}profile", f"{_PREFIX}allow-force-update"

ANNOTATION_WEIGHT, ANNOTATION_NAMESPACES = f"{_PREFIX}shared-weight", f"{_PREFIX}namespaces"
ANNOTATION_TOTAL = f"{_PREFIX}total-resource"
ANNOTATION_UNSCHEDULABLE = f"{_PREFIX}unschedulable-resource"
ANNOTATION_STRICT_KEYS = f"{_PREFIX}max-strict-check-resource-keys"
ANNOTATION_RESOURCE_KEYS, ANNOTATION_ADMISSION = f"{_PREFIX}resource-keys", f"{_PREFIX}admission"

ANNOTATION_RUNTIME, ANNOTATION_REQUEST = f"{_PREFIX}runtime", f"{_PREFIX}request"
ANNOTATION_CHILD_REQUEST = f"{_PREFIX}child-request"
ANNOTATION_GUARANTEED, ANNOTATION_ALLOCATED = f"{_PREFIX}guaranteed", f"{_PREFIX}allocated"
ANNOTATION_FIXED_REQUEST = f"{_PREFIX}non-preemptible-request"
ANNOTATION_FIXED_USED = f"{_PREFIX}non-preemptible-used"

ROOT, SYSTEM, DEFAULT = "koordinator-root-quota", "koordinator-system-quota", "koordinator-default-quota"
