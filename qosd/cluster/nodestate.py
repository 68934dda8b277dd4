"""The node's state (``koord.model.nodestate``) as a tick has left it.

All figures are of one tick, so none is ahead of the writes.
"""

from __future__ import annotations

from koord.host.reconcile.state import FileState
from koord.model.nodestate import NodeState
from qosd.report import TickReport
from qosd.strategies.reconciler import HookReconciler


def of(report: TickReport) -> NodeState | None:
    """Returns the state after ``report``; None before the first tick."""
    if report.snapshot is None:
        return None
    held = [state for state in report.files.states.values() if state.is_held]
    by_strategy = sum(map(_is_held_by_strategy, held))
    pod_files = len(held) - by_strategy if report.is_dismissed else 0
    return NodeState(by_strategy, report.snapshot.policy.slo_generation, report.is_dismissed, pod_files)


def _is_held_by_strategy(state: FileState) -> bool:
    """Returns whether a strategy holds the file; one that an earlier run left counts by the strategies noted then."""
    speakers = {name for _, name in state.speakers} or set(state.by.split(", "))
    return speakers != {HookReconciler.name}
