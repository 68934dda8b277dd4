"""Says of a file that another writer fights for why it is left alone, and whether it is enforced above."""

from __future__ import annotations

from koord.host.files import Target
from koord.host.reconcile.state import FREE
from qosd.decide.runner import StrategyStatus
from qosd.report import TickReport
from qosd.strategies.enforcement import Enforcement, NotEnforced, bound_above


def sentence(report: TickReport, target: Target) -> str:
    """Returns why the file is left alone, for people; "" for one that is not contested."""
    state = report.files.states.get(target, FREE)
    return f"{state.contested}; {_above(report, target)}" if state.is_contested else ""


def _above(report: TickReport, target: Target) -> str:
    snapshot = report.snapshot
    result = next((each for each in report.decisions.results if each.name == Enforcement.name), None)
    if snapshot is None or result is None or target not in snapshot.files:
        return "enforced one level up from the next tick on, if it can be"
    if result.state is StrategyStatus.DISABLED:
        return f"not enforced one level up: {result.name} is {result.sentence}"
    try:
        bound = bound_above(snapshot, target)
    except NotEnforced as error:
        return f"not enforced one level up: {error}"
    return f"enforced one level up: {bound.target.cgroup}/{bound.target.name} is at most {bound.value}"
