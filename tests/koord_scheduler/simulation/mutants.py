"""Small faults of the scheduler, each of which the simulation must find."""

from __future__ import annotations

from koord.scheduling.queue import SchedulingQueue
from koord.scheduling.state import ClusterState
from koord_scheduler.podstatus import PodStatusWriter
from koord_scheduler.view import ClusterView
from koord_scheduler.window import RequestWindow
from tests.support.mutants import Mutant

MUTANTS = (
    Mutant("a pod that leaves is no event", ClusterView, "_remove", "self.queue.note(", "str("),
    Mutant("a replaced pod stays", ClusterView, "_take_pod", " or event.is_replaced", ""),
    Mutant("terminating pods hold nothing", ClusterView, "_put", "if info.is_finished:",
           "if info.is_finished or info.is_terminating:"),
    Mutant("ports are not given back", ClusterState, "_count_port", "rows.get(row, 0) + sign", "1"),
    Mutant("an assumption counts nothing", ClusterState, "_count", "self.requested.add(row, pod.counted, sign)",
           "pod.uid in self._assumed or self.requested.add(row, pod.counted, sign)"),
    Mutant("a pod that errors is not tried again", SchedulingQueue, "fail", "queued.backoff_until_s, ", "1e9, "),
    Mutant("a pod is not told why it waits", PodStatusWriter, "unscheduled", "await self._patch(pod, status)", "1"),
    Mutant("a place in the window is lost", RequestWindow, "_leave", "self.under_way -= 1", "pass"),
)  # fmt: skip
