"""Decides about a gang: takes all members that wait with the one whose turn it is, and has all placed, or none.

Between the first decision and the last nothing else runs, so no gang ever waits for another one with a node in its
hand. What follows is as for any pod: each member is bound by itself. Where a binding is refused, the members that are
bound stay so, since nothing unbinds a pod; the room of the others is kept from lesser pods, and they are tried again
together, up to the minimum (`koord.scheduling.gangs`).

A gang for which there is no room waits for any event that may help any of its members, and no shorter than the backoff:
a try costs as much as placing them. Its turn comes as that of a pod does, within the queue's bound, and before all that
came later or are less important; but no room is kept for it while it waits. So small pods may starve a large gang that
preempts nobody, as they may starve a large pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

from koord.model.gang import GangKey
from koord.scheduling import gangplacement
from koord.scheduling.gangplacement import GroupPlacement, Member, PlacedMember
from koord.scheduling.gangpreemption import LEAVING, GroupPreemption, GroupPreemptor
from koord.scheduling.plugin import GANG, PluginError
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.queuedpod import QueuedPod
from koord_scheduler.bindingcycle import BindingCycle
from koord_scheduler.decisions import Decisions
from koord_scheduler.extenders import Extenders
from koord_scheduler.metrics import Result, SchedulingMetrics
from koord_scheduler.podstatus import FAILED, UNSCHEDULABLE, PodReporter
from koord_scheduler.roommaking import RoomMaker
from koord_scheduler.view import ClusterView

_Work = Coroutine[Any, Any, None]


class GangCycle:
    """``binding``: carries decisions out."""

    def __init__(
        self,
        view: ClusterView,
        binding: BindingCycle,
        reporter: PodReporter,
        room_maker: RoomMaker,
        metrics: SchedulingMetrics,
        decisions: Decisions,
        extenders: Extenders,
        monotonic_s: Callable[[], float],
    ) -> None:
        self._view, self._binding, self._reporter, self._room_maker = view, binding, reporter, room_maker
        self._metrics, self._decisions, self._extenders = metrics, decisions, extenders
        self._monotonic_s = monotonic_s

    def decide(self, queued: QueuedPod) -> list[_Work] | None:
        """Decides about the gang of a pod that was popped; returns what carries the decision out. None: the pod is to
        be decided about by itself.
        """
        gangs, queue = self._view.gangs, self._view.queue
        key = gangs.of(queued.pod.uid)
        if key is None:
            return None
        since_s, now_s = queued.entered_s, self._monotonic_s()
        if gangs.why_not(key):
            queue.put_back(queued, since_s)
            return []
        needs = {gang: count for gang, count in gangs.needs(key).items() if count}
        if not needs:
            return None
        taken = {queued.pod.uid: queued}
        for pod in gangs.candidates(key):
            if pod.uid not in taken and (other := queue.take(pod.uid, now_s)) is not None:
                taken[pod.uid] = other
        return self._decide(key, list(taken.values()), needs)

    def _decide(self, key: GangKey, taken: list[QueuedPod], needs: Mapping[GangKey, int]) -> list[_Work]:
        begun_s = self._monotonic_s()
        taken.sort(key=lambda each: (-each.pod.priority, each.added_s, each.pod.name))
        by_uid = {each.pod.uid: each for each in taken}
        members = [Member(each.pod, self._view.gangs.of(each.pod.uid) or key) for each in taken]
        if any(self._extenders.deciding_about(each.pod) for each in taken):
            return self._failed(taken, f"an extender has a say in members of gang {key}, which are placed at once")
        if lacking := self._view.gangs.lacking(key):
            return self._rejected(key, members, by_uid, needs, GroupPlacement(short=dict(needs), lacking=lacking))
        holder = self._binding.holder()
        try:
            found = gangplacement.place(self._view.state, self._view.framework_of, members, needs, holder)
        except PluginError as error:
            return self._failed(taken, str(error))
        self._metrics.gang_decided(self._monotonic_s() - begun_s, len(members), is_whole=found.is_whole)
        if found.is_whole:
            return self._placed(found.placed, by_uid)
        return self._rejected(key, members, by_uid, needs, found)

    def _placed(self, placed: Sequence[PlacedMember], by_uid: dict[str, QueuedPod]) -> list[_Work]:
        """The members count on their nodes and are bound; those beyond the minimum are tried by themselves."""
        state, now_s, work = self._view.state, self._monotonic_s(), list[_Work]()
        for (pod, _), placement, volumes in placed:
            queued = by_uid.pop(pod.uid)
            self._metrics.decided(0.0, len(state.table), placement.feasible_count)
            self._decisions.made(queued, placement, self._view.framework_of(pod), now_s)
            row = state.table.row(placement.node)
            assert row is not None
            self._view.queue.placed(queued, row)
            work.append(self._binding.carry_out(queued, volumes))
        for queued in by_uid.values():
            self._view.queue.put_back(queued, now_s)
        return work

    def _failed(self, taken: Iterable[QueuedPod], why: str) -> list[_Work]:
        """Something went wrong that has nothing to do with nodes."""
        return [self._binding.fail(each, FAILED, why) for each in taken]

    def _rejected(
        self,
        key: GangKey,
        members: Sequence[Member],
        by_uid: Mapping[str, QueuedPod],
        needs: Mapping[GangKey, int],
        found: GroupPlacement,
    ) -> list[_Work]:
        """The gang waits, with what it lacks said in full of one member, and shortly of the others."""
        now_s, queue, nominations = self._monotonic_s(), self._view.queue, self._view.state.nominations
        first = found.unplaced[0] if found.unplaced else members[0]
        preemption, why_not = (None, "") if found.lacking else self._preemption(members, needs)
        for uid, queued in by_uid.items():
            diagnosis = found.diagnoses.get(uid)
            queue.park(queued, frozenset((GANG, *(diagnosis.plugins if diagnosis else ()))), now_s)
            self._metrics.tried(queued, Result.UNSCHEDULABLE, now_s)
            if preemption is not None and uid in preemption.nodes:
                nominations.put(queued.pod, preemption.nodes[uid])
            elif why_not != LEAVING:
                nominations.remove(uid)
        told = dict.fromkeys(by_uid, f"waits for room for {_counted(needs)} at once")
        told[first.pod.uid] = shortage(found, needs, first)
        if why_not and why_not != LEAVING:
            told[first.pod.uid] += f" preemption: {why_not}."
        nodes = {} if preemption is None else preemption.nodes
        work = [self._tell(first.pod, told, nodes, is_first=True)]
        if others := [each.pod for each in members if each.pod.uid != first.pod.uid]:
            work.append(self._tell_others(others, told, nodes))
        if preemption is not None:
            self._metrics.preempted(len(preemption.victims))
            by_node = {node: by_uid[uid].pod for uid, node in preemption.nodes.items()}
            work.append(self._room_maker.make_room(by_node, preemption.victims))
        return work

    def _preemption(
        self, members: Sequence[Member], needs: Mapping[GangKey, int]
    ) -> tuple[GroupPreemption | None, str]:
        """Returns what makes room for the whole group, or why nothing does."""
        profiles = {each.pod.spec.scheduler_name: self._view.profile_of(each.pod) for each in members}
        if not all(each.coscheduling is not None and each.coscheduling.is_preempting for each in profiles.values()):
            return None, "gangs preempt nobody, as enablePreemption is not set"
        state, view = self._view.state, self._view
        preemptor = GroupPreemptor(state, view.gangs, view.framework_of, view.current_budgets())
        if why_not := preemptor.why_not(members):
            return None, why_not
        try:
            preemption = preemptor.choose(members, needs, self._binding.holder())
        except PluginError as error:
            return None, str(error)
        return preemption, "" if preemption else "nobody may leave whose leaving makes room for all of them"

    async def _tell_others(self, pods: Iterable[PodInfo], told: Mapping[str, str], nodes: Mapping[str, str]) -> None:
        for pod in pods:
            await self._tell(pod, told, nodes, is_first=False)

    async def _tell(self, pod: PodInfo, told: Mapping[str, str], nodes: Mapping[str, str], *, is_first: bool) -> None:
        nominated = nodes.get(pod.uid, self._view.state.nominations.node_of(pod.uid) or "")
        if is_first:
            await self._reporter.tell(pod, UNSCHEDULABLE, told[pod.uid], nominated)
        else:
            await self._reporter.condition(pod, UNSCHEDULABLE, told[pod.uid], nominated)
            await asyncio.sleep(0)


def shortage(found: GroupPlacement, needs: Mapping[GangKey, int], first: Member) -> str:
    """Says what the group lacks; ``first``: the member that found no node first."""
    diagnosis = found.diagnoses.get(first.pod.uid)
    lacking = "; ".join(found.lacking.values()) or "; ".join(
        f"gang {gang} needs room for {needs[gang]} members at once, and there is room for {needs[gang] - count}"
        for gang, count in found.short.items()
    )
    return f"{diagnosis.message} {lacking}." if diagnosis is not None else f"{lacking}."


def _counted(needs: Mapping[GangKey, int]) -> str:
    return " and ".join(f"{count} members of gang {gang}" for gang, count in needs.items())
