"""The process that judges large reviews, with little time for each and a judge who never ends in some namespaces."""

from __future__ import annotations

import contextlib
import signal
from typing import Any

from koord.model.admissionreview import AdmissionRequest, AdmissionResponse
from koord_manager.webhooks import reviewprocess
from koord_manager.webhooks.judges import judge

ENDLESS, DEAF = "endless", "deaf"
PROGRAM = __name__
LITTLE_S = 0.2


def _judge(path: str, request: AdmissionRequest, *rest: Any) -> AdmissionResponse:
    namespace = request.namespace
    if namespace == DEAF:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPROF})
    while namespace in (ENDLESS, DEAF):
        with contextlib.suppress(Exception):
            sum(range(1000))
    return judge(path, request, *rest)


if __name__ == "__main__":
    vars(reviewprocess)["judge"] = _judge
    reviewprocess.CPU_S = LITTLE_S
    reviewprocess.KILLED_S = 1.0
    reviewprocess.main()
