"""Who brings an eviction about: the protocol that the container runtime's side and the API server's side have alike."""

from __future__ import annotations

from typing import Protocol

from qosd.decide.decision import Eviction


class EvictionFailed(Exception):
    """Something of the pod is left; the message says which containers, and why."""


class EvictionRefused(EvictionFailed):
    """Somebody who may do so forbids it, a PodDisruptionBudget above all: nothing has been done to the pod."""


class Executor(Protocol):
    """Brings an eviction about. ``evict`` raises EvictionFailed, and may be called again for the same pod."""

    async def evict(self, eviction: Eviction) -> None: ...
