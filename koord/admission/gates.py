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
SKIP_VALIDATING_PRIORITY = "ColocationProfileSkipValidatingPriority"

GATES: Mapping[str, Gate] = MappingProxyType({
    DISABLE_EXTENDED_RESOURCE_SPEC: Gate(False, "leave the annotation extended-resource-spec unwritten"),
    REQUIRE_EQUAL_CPU_LIMITS: Gate(False, "refuse LSE and LSR pods whose CPU limits are not their requests"),
    SKIP_MUTATING_RESOURCES: Gate(False, "leave CPU and memory of pods that a profile matches as they are"),
    SKIP_VALIDATING_PRIORITY: Gate(False, "let the label koordinator.sh/priority of a pod change"),
})  # fmt: skip
"""By name."""
