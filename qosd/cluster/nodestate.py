"""The node's state (``koord.model.nodestate``) as a tick has left it.

Both figures are of one tick, so the generation is never ahead of what has been done by it.
"""

from __future__ import annotations

from koord.host.reconcile.state import FileState
from koord.model.nodestate import NodeState
from qosd.report import TickReport
from qosd.strategies.reconciler import HookReconciler


def of(report: TickReport) -> NodeState | None:
    """None before the first tick."""
    if report.snapshot is None:
        return None
    held = sum(map(_is_held_by_strategy, report.files.states.values()))
    return NodeState(held, report.snapshot.rules.slo_generation)


def _is_held_by_strategy(state: FileState) -> bool:
    """What an earlier run has left counts by whom that run noted."""
    if not state.is_held:
        return False
    speakers = {name for _, name in state.speakers} or set(state.by.split(", "))
    return speakers != {HookReconciler.name}
