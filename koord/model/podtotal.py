"""The amount of a whole pod from those of its containers, as kubelet and the scheduler sum them.

The larger of the containers' sum and the largest moment of initialisation: sidecars (init containers with restartPolicy
Always) add to the sum and to every init container after them (k8s.io/component-helpers, PodRequests).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Role(StrEnum):
    """When a container of a pod runs."""

    MAIN = "main"
    SIDECAR = "sidecar"
    """From its turn among the init containers to the pod's end."""
    INIT = "init"
    """Alone, before all main containers."""


def total(amounts: Iterable[tuple[Role, int]]) -> int:
    """Sums up ``amounts`` in the order of the pod's spec, init containers and sidecars first."""
    main = sidecars = peak = 0
    for role, amount in amounts:
        if role is Role.MAIN:
            main += amount
        elif role is Role.SIDECAR:
            sidecars += amount
        else:
            peak = max(peak, sidecars + amount)
    return max(main + sidecars, peak)
