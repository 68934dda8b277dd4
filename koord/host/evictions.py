"""An eviction under way, as the undo record notes it: what a restart has to go on with, and counts as given."""

from __future__ import annotations

import msgspec

from koord.host.writer import Writer

EVICTION = "pod.eviction"
"""Stands for a row's name where an eviction is told: it is no value of a file."""


class NotedEviction(msgspec.Struct, frozen=True, tag="evicting"):
    """Pod ``pod`` (``namespace/name``), whose cgroup is ``cgroup``, is evicted for strategy ``owner``.

    ``attempts``: how often its containers have been stopped, or should have been. ``grace_s``: what its processes have
    to end by themselves. ``is_stopped``: the last attempt has stopped them all, so that whatever runs has begun since.
    ``gate``: the feature gate behind which it is done. ``at_ns``: when the last attempt began, or ended, by this boot's
    monotonic clock; 0 = a version that did not note it.
    """

    uid: str
    pod: str
    owner: str = msgspec.field(name="who")
    cgroup: str = msgspec.field(name="group")
    attempts: int = 1
    grace_s: int = 0
    is_stopped: bool = False
    gate: str = ""
    at_ns: int = 0

    @property
    def key(self) -> tuple[str]:
        return (self.uid,)

    @property
    def is_there(self) -> bool:
        """Whether the pod is, the list of pods tells."""
        return True

    def planned(self, writer: Writer) -> None:
        """A container that was stopped is kubelet's to start again."""

    def undo(self, writer: Writer) -> None:
        """It is not gone on with."""
