"""The reasons of Kubernetes Events about evictions, by which ``koordctl`` finds them; the names are upstream's."""

from __future__ import annotations

EVICTED = "evictPodSuccess"
"""A pod was evicted by Koord; the message says why."""
NOT_EVICTED = "evictPodFail"
"""A pod was to be evicted and is still there; the message says why to both."""
EVICTED_BY_KUBELET = "Evicted"
EVICTIONS = (EVICTED, EVICTED_BY_KUBELET)
