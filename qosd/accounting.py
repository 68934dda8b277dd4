"""What is counted and logged of a front end's decision, after its answer: the same for hooks and NRI."""

from __future__ import annotations

import logging

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
