"""What a node says of itself on its NodeMetric beside the figures: which policy it follows, and what it holds by it.

Who uninstalls waits for it: once the generation is that of the NodeSLO that disables everything and no file is held,
the node is as it was found. Both are of one moment, so the generation is never ahead of what has been done by it.
"""

from __future__ import annotations

from typing import Any

import msgspec

ANNOTATION = "koord.sh/node-state"
UNINSTALLED = "koord.sh/uninstalled"
"""Of a NodeSLO: the agent of its node is about to go for good, and takes along what it keeps there."""


class NodeState(msgspec.Struct, frozen=True, rename="camel"):
    """``held_files``: kernel files that hold a value by a strategy. What hooks gave containers ends with these.

    ``slo_generation``: of the NodeSLO in force; 0: there is none.
    """

    held_files: int
    slo_generation: int = msgspec.field(name="nodeSLOGeneration")

    def encoded(self) -> str:
        return msgspec.json.encode(self).decode()

    def is_urgent_after(self, written: NodeState | None) -> bool:
        """Does somebody wait for it? Else it may go with the next report."""
        if written is None or written.slo_generation != self.slo_generation:
            return True
        return self.held_files == 0 < written.held_files


def decoded(text: str | None) -> NodeState | None:
    """None where there is none, or one that nobody here wrote."""
    try:
        return None if text is None else msgspec.json.decode(text, type=NodeState)
    except ValueError:
        return None


def mark(uninstalled: str | None) -> dict[str, Any]:
    """The merge patch of a NodeSLO that sets ``UNINSTALLED``, or removes it (None)."""
    return {"metadata": {"annotations": {UNINSTALLED: uninstalled}}}
