"""What a node says of itself on its NodeMetric beside the figures: which policy it follows, and what it holds by it.

Who uninstalls waits for it: first until the generation is that of the NodeSLO that disables everything and no file is
held by it; then, once the agent has read that it goes for good, until none is held for any pod, and the node is as it
was found. All figures are of one moment, so none is ahead of what has been done.
"""

from __future__ import annotations

from typing import Any

import msgspec

ANNOTATION = "koord.sh/node-state"
UNINSTALLED = "koord.sh/uninstalled"
"""Of a NodeSLO: the agent of its node is about to go for good, and takes along what it keeps there."""


class NodeState(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """``held_files``: kernel files that hold a value by a strategy.

    ``slo_generation``: of the NodeSLO in force; 0: there is none. ``is_dismissed``: the agent has read that it goes for
    good, and edits no pod any more; None: it is not the cluster's to dismiss, but a unit of the host. ``pod_files``:
    once it is dismissed, the files that still hold what the hooks gave to pods.
    """

    held_files: int
    slo_generation: int = msgspec.field(name="nodeSLOGeneration")
    is_dismissed: bool | None = None
    pod_files: int = 0

    def encoded(self) -> str:
        return msgspec.json.encode(self).decode()

    def is_urgent_after(self, written: NodeState | None) -> bool:
        """Returns whether a program waits for it. Else it may go with the next report."""
        if written is None or written.slo_generation != self.slo_generation:
            return True
        if written.is_dismissed != self.is_dismissed:
            return True
        return (self.held_files == 0 < written.held_files) or (self.pod_files == 0 < written.pod_files)


def decoded(text: str | None) -> NodeState | None:
    """Returns the state; None where there is none, or one that koord-qosd did not write."""
    try:
        return None if text is None else msgspec.json.decode(text, type=NodeState)
    except ValueError:
        return None


def mark(uninstalled: str | None) -> dict[str, Any]:
    """The merge patch of a NodeSLO that sets ``UNINSTALLED``, or removes it (None)."""
    return {"metadata": {"annotations": {UNINSTALLED: uninstalled}}}
