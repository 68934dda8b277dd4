"""What is counted and logged: of a front end's decision after its answer, hooks and NRI alike; of a tick's writes."""

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
    """Count one decision of ``caller``; ``acts`` False: another front end edits, so this one answered nothing."""
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
    """Count what a tick's acts came to, and how long writes took."""
    for outcome in result.outcomes:
        metrics.writes[outcome.result] += 1
        if outcome.took_s is not None:
            done = "done" if outcome.result == DONE else "failed"
            metrics.write_seconds[_kind(outcome.write.target.name), done].observe(outcome.took_s)


def _kind(name: str) -> str:
    """Of the kernel file of a row."""
    try:
        system = row(name).system
    except UnknownRow:
        return "other"
    return "cgroup" if system is None else "resctrl" if system[0] == "resctrl" else "other"
