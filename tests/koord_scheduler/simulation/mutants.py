"""Small faults of the scheduler, each of which the simulation must find."""

from __future__ import annotations

from koord.scheduling.nominations import Nominations
from koord.scheduling.queue import SchedulingQueue
from koord.scheduling.state import ClusterState
from koord_scheduler.binding import Binder
from koord_scheduler.bindingcycle import BindingCycle
from koord_scheduler.podstatus import PodStatusWriter
from koord_scheduler.view import ClusterView
from koord_scheduler.volumewriter import VolumeWriter
from koord_scheduler.window import RequestWindow
from tests.support.mutants import Mutant

MUTANTS = (
    Mutant("an answer that is lost is a refusal", Binder, "_bind", "if outcome is not Outcome.REFUSED:", "if True:"),
    Mutant("a node that has gone is bound to", Binder, "_send", "if is_wanted():", "if True:"),
    Mutant("a term ends before what it has sent", Binder, "_bind", "_to_its_end(self", "(self"),
    Mutant("a refused pod keeps its room", BindingCycle, "_forget", "self._view.state.forget(pod.uid)", "pass"),
    Mutant("a pod that leaves is no event", ClusterView, "_remove", "self.queue.note(", "str("),
    Mutant("a node is no event", ClusterView, "_take_node", "objects_version != version", "objects_version < 0"),
    Mutant("a confirmation is no event", ClusterView, "_put_placed", "was_assumed is ", "True or "),
    Mutant("a replaced pod stays", ClusterView, "_take_pod", " or event.is_replaced", ""),
    Mutant("terminating pods hold nothing", ClusterView, "_put", "if info.is_finished:",
           "if info.is_finished or info.is_terminating:"),
    Mutant("ports are not given back", ClusterState, "_count_port", "rows.get(row, 0) + sign", "1"),
    Mutant("an assumption counts nothing", ClusterState, "_count", "self.requested.add(row, pod.counted, sign)",
           "pod.uid in self._assumed or self.requested.add(row, pod.counted, sign)"),
    Mutant("a promise that ends wakes nobody", Nominations, "remove", "self.ended(node)", "pass"),
    Mutant("nothing is parked for too long", SchedulingQueue, "park", "self._parked.push(queued, now_s)",
           "self._parked.push(queued, now_s + 1e6)"),
    Mutant("a pod that errors is not tried again", SchedulingQueue, "fail", "queued.backoff_until_s, ", "1e9, "),
    Mutant("a pod is not told why it waits", PodStatusWriter, "unscheduled", "await self._patch(pod, status)", "1"),
    Mutant("a place in the window is lost", RequestWindow, "_leave", "self.under_way -= 1", "pass"),
    Mutant("a selection taken back is waited for", VolumeWriter, "_bound", "if claim is None or not (", "if not (1 or"),
)  # fmt: skip
