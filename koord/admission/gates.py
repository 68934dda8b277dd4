"""Feature gates of admission: names and defaults of Koordinator's manager, and ``RequireEqualCPULimits``, ours.

By ``koord.model.featuregates``' rules a gate's own name counts before ``AllAlpha`` and ``AllBeta``, and those before
the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from koord.model.featuregates import Gate

DISABLE_EXTENDED_RESOURCE_SPEC = "DisableExtendedResourceSpec"
SKIP_MUTATING_RESOURCES = "ColocationProfileSkipMutatingResources"
REQUIRE_EQUAL_CPU_LIMITS = "RequireEqualCPULimits"
DISABLE_DEFAULT_QUOTA, PARENTS_TAKE_PODS = "DisableDefaultQuota", "SupportParentQuotaSubmitPod"
QUOTA_KEYS_MAY_DIFFER, MULTI_QUOTA_TREE = "ElasticQuotaEnableUpdateResourceKey", "MultiQuotaTree"
SKIP_VALIDATING_PRIORITY = "ColocationProfileSkipValidatingPriority"

GATES: Mapping[str, Gate] = MappingProxyType({
    DISABLE_EXTENDED_RESOURCE_SPEC: Gate(False, "leave the annotation extended-resource-spec unwritten"),
    DISABLE_DEFAULT_QUOTA: Gate(False, "pods are in the quota that their label names alone"),
    MULTI_QUOTA_TREE: Gate(False, "pods of a quota tree go to the nodes of the tree's profile"),
    QUOTA_KEYS_MAY_DIFFER: Gate(False, "let a quota's maximum name less resources than its parent's"),
    REQUIRE_EQUAL_CPU_LIMITS: Gate(False, "refuse LSE and LSR pods whose CPU limits are not their requests"),
    SKIP_MUTATING_RESOURCES: Gate(False, "leave CPU and memory of pods that a profile matches as they are"),
    PARENTS_TAKE_PODS: Gate(False, "let pods be in quotas that are parents"),
    SKIP_VALIDATING_PRIORITY: Gate(False, "let the label koordinator.sh/priority of a pod change"),
})  # fmt: skip
"""By name."""
