"""Counts and logs decisions of the front ends (hooks and NRI) after they are answered, and the writes of a tick."""

from __future__ import annotations

import logging

from koord.host.files import UnknownRow, row
from koord.host.reconcile.plan import DONE
from qosd.act.plan import TickResult
from qosd.hooks.edits import Edits
from qosd.metrics import Metrics
from qosd.model.pod import PodContext

_log = logging.getLogger(__name__)


def account(metrics: Metrics, pod: PodContext, edits: Edits, caller: str, *, acts: bool = True) -> None:
    """Counts one decision of ``caller``. ``acts`` False: another front end edits, so this one answered no edits."""
    for problem in edits.problems:
        _log.warning("%s: %s", pod, problem)
    metrics.pod_problems[pod.stage.value] += len(edits.problems)
    for edit in edits.items:
        metrics.hook_edits[edit.hook, edit.field.value] += 1
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s: %s: %s = %r: %s", pod, edit.hook, edit.name, edit.value, edit.why)
    result = "edited" if edits.items else "unchanged" if acts else "yielded"
    metrics.hook_calls[pod.stage.value, caller, result] += 1


def account_writes(metrics: Metrics, result: TickResult) -> None:
    """Counts the acts of a tick by result, and how long its writes took."""
    for outcome in result.outcomes:
        metrics.writes[outcome.result] += 1
        if outcome.took_s is not None:
            done = "done" if outcome.result == DONE else "failed"
            metrics.write_seconds[_kind(outcome.write.target.name), done].observe(outcome.took_s)


def _kind(name: str) -> str:
    """Returns the kind of kernel file of the row ``name``, as ``write_seconds`` labels it."""
    try:
        system = row(name).system
    except UnknownRow:
        return "other"
    return "cgroup" if system is None else "resctrl" if system[0] == "resctrl" else "other"
