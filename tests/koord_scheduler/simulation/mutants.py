"""Small faults of the scheduler, each of which the simulation must find, and in what kind of life it is to do so.

One is left out that about one of three runs of 9,000 steps finds: that a promise which ends wakes nobody
(``Nominations.remove`` without ``ended``). A pod that was promised a node has mostly woken for it, and when it leaves
such a node others try that by itself (``ParkedPods.leave_room``); what is left are pods that get another node, or go,
between the first and the last of their victims.
"""

from __future__ import annotations

from koord.scheduling.gangs import Gangs
from koord.scheduling.parkedpods import ParkedPods
from koord.scheduling.queue import SchedulingQueue
from koord.scheduling.state import ClusterState
from koord_scheduler.binding import Binder
from koord_scheduler.bindingcycle import BindingCycle
from koord_scheduler.podstatus import PodStatusWriter
from koord_scheduler.roommaking import RoomMaker
from koord_scheduler.view import ClusterView
from koord_scheduler.volumewriter import VolumeWriter
from koord_scheduler.window import RequestWindow
from tests.koord_scheduler.simulation.kinds import (
    ANYTHING,
    BINDINGS,
    GANGS,
    NEIGHBOURS,
    NODES,
    PREEMPTION,
    TERMS,
    VOLUMES,
    WAITING,
    Kind,
)
from tests.support.mutants import Mutant

MUTANTS: tuple[tuple[Kind, Mutant], ...] = (
    (BINDINGS, Mutant("an answer that is lost is a refusal", Binder, "_bind",
                      "if outcome is not Outcome.REFUSED:", "if True:")),
    (BINDINGS, Mutant("what may arrive late is forgotten", Binder, "_bind", "if over_s <= now_s():", "if True:")),
    (NODES, Mutant("a node that has gone is bound to", Binder, "_send", "if not is_wanted():", "if False:")),
    (TERMS, Mutant("a term ends before what it has sent", Binder, "_bind", "to_its_end(self", "(self")),
    (TERMS, Mutant("a term ends before what may arrive late", Binder, "over", "if left_s > 0:", "if False:")),
    (BINDINGS, Mutant("a refused pod keeps its room", BindingCycle, "_forget",
                      "self._view.state.forget(pod.uid)", "pass")),
    (BINDINGS, Mutant("a refused pod is forgotten", BindingCycle, "fail", "self._view.came_back(queued)", "pass")),
    (PREEMPTION, Mutant("a pod that leaves is no event", ClusterView, "_remove", "self.queue.note(", "str(")),
    (NODES, Mutant("a node is no event", ClusterView, "_take_node", "objects_version != version",
                   "objects_version < 0")),
    (NEIGHBOURS, Mutant("a confirmation is no event", ClusterView, "_put_placed", "was_assumed is ", "True or ")),
    (TERMS, Mutant("assumptions survive their term", ClusterView, "take_back", "self.state.forget(uid)", "pass")),
    (TERMS, Mutant("pods of a term are lost", ClusterView, "take_back", "self._put(pod)", "pass")),
    (ANYTHING, Mutant("a replaced pod stays", ClusterView, "_take_pod", " or event.is_replaced", "")),
    (BINDINGS, Mutant("terminating pods hold nothing", ClusterView, "_put", "if info.is_finished:",
                      "if info.is_finished or info.is_terminating:")),
    (BINDINGS, Mutant("ports are not given back", ClusterState, "_count_port", "rows.get(row, 0) + sign", "1")),
    (BINDINGS, Mutant("an assumption counts nothing", ClusterState, "_count",
                      "self.requested.add(row, pod.counted, sign)",
                      "pod.uid in self._assumed or self.requested.add(row, pod.counted, sign)")),
    (PREEMPTION, Mutant("promised room wakes anybody", ParkedPods, "_first",
                        "chain(promised, others)", "iter(group.pods)")),
    (WAITING, Mutant("nothing is parked for too long", ParkedPods, "add", "self._since.push(queued, now_s)",
                     "self._since.push(queued, now_s + 1e6)")),
    (BINDINGS, Mutant("a pod that errors is not tried again", SchedulingQueue, "fail",
                      "queued.backoff_until_s, ", "1e9, ")),
    (PREEMPTION, Mutant("victims go for nobody", RoomMaker, "_delete", "if pod.uid not in self._view.queue:",
                        "if False:")),
    (ANYTHING, Mutant("a pod is not told why it waits", PodStatusWriter, "unscheduled",
                      "await self._patch(pod, status)", "1")),
    (BINDINGS, Mutant("a place in the window is lost", RequestWindow, "_leave", "self.under_way -= 1", "pass")),
    (VOLUMES, Mutant("a selection taken back is waited for", VolumeWriter, "_bound", "if claim is None or not (",
                     "if not (1 or")),
    (GANGS, Mutant("a gang starts with one member too few", Gangs, "_needed", "return settings.min_member",
                   "return settings.min_member - 1")),
    (GANGS, Mutant("a gang that is complete is not tried", Gangs, "released", "if not held or", "if held or")),
    (GANGS, Mutant("a gang is forgotten with its PodGroup", Gangs, "remove_pod_group",
                   "gang.pod_group = gang.of_group = None", "self._gangs.pop(key)")),
)  # fmt: skip
