"""The reasons of Kubernetes Events about evictions, by which ``koordctl`` finds them; the names are upstream's."""

from __future__ import annotations

EVICTED = "evictPodSuccess"
"""A pod was evicted by Koord; the message says why."""
NOT_EVICTED = "evictPodFail"
"""A pod was to be evicted and is still there; the message says why to both."""
EVICTED_BY_KUBELET = "Evicted"
PREEMPTED = "Preempted"
"""A scheduler took a pod off its node for one of higher priority; the message says for which."""
TAINT_MANAGER_EVICTION = "TaintManagerEviction"
"""A pod does not tolerate a NoExecute taint of its node, or does so again: the message says that it stays."""
TAINT_MANAGER_CANCELS = "Cancelling deletion"
"""How the message begins that says so."""
EVICTIONS = (EVICTED, EVICTED_BY_KUBELET, PREEMPTED, TAINT_MANAGER_EVICTION)
FAILED_SCHEDULING = "FailedScheduling"
"""A scheduler found no node for a pod; the message says why."""
