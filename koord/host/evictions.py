"""An eviction under way, as the undo record notes it: after a restart it goes on, and counts as given."""

from __future__ import annotations

import msgspec

from koord.host.writer import Writer

EVICTION = "pod.eviction"
"""The name of an eviction where others have a row's name: it is no value of a file."""


class NotedEviction(msgspec.Struct, frozen=True, tag="evicting"):
    """Pod ``pod`` (``namespace/name``), whose cgroup is ``cgroup``, is evicted for strategy ``owner``.

    ``attempts``: how often Koord has stopped its containers, or has tried to. ``grace_s``: the seconds that its
    processes have to end by themselves. ``is_stopped``: the last attempt has stopped them all, so what runs now began
    after it. ``gate``: the feature gate of the eviction. ``at_ns``: when the last attempt began, or ended, by this
    boot's monotonic clock; 0 = a version that did not note it.
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
        """The list of pods tells whether the pod is still there."""
        return True

    def planned(self, writer: Writer) -> None:
        """Nothing is to be put back: kubelet starts the container that was stopped."""

    def undo(self, writer: Writer) -> None:
        """The eviction does not go on."""
