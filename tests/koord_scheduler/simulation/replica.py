"""A process of koord-scheduler with an election of its own, and the books of what it was told and has decided.

The books are kept beside the scheduler's own state, by the events that it takes and the requests that it sends: each
decision is looked at with the oracle, and none may be forgotten while its binding may be carried out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from koord.kube.client import CallLimits, Client
from koord.kube.errors import APIError
from koord.kube.kind import Key, PartialObject
from koord.kube.lease import Election, Identity, Term
from koord.kube.recorder import EventRecorder, EventType, Subject
from koord.kube.stream import ObjectEvent
from koord.model.gang import GangKey, MatchPolicy, key_of
from koord.model.quantity import QuantityError
from koord.model.scheduling.koordinator import PodGroup
from koord.model.scheduling.pods import Node, Pod
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.preemption import DISRUPTED
from koord.scheduling.queuedpod import QueuedPod
from koord_scheduler.pluginargs import CoschedulingSettings
from koord_scheduler.profiles import Profile
from koord_scheduler.scheduler import Scheduler
from koord_scheduler.view import ClusterView
from tests.koord_scheduler.simulation.apiserver import LEASES, PODS, APIServer, Call, Sender
from tests.scheduling.oracle import Oracle

SECOND = "second-scheduler"
"""A profile whose pods do not preempt."""
EPOCH_S = 1_790_000_000.0
LEASE = Key("koord", "koord-scheduler")
LEASES_ROOT = LEASES.removesuffix("/leases")
_LEAST_PRIORITY = -(1 << 31)
_ONE_CALL = CallLimits(tries=1, timeout_s=3.0)


class Violation(AssertionError):
    """A rule is broken."""


class _Recorder(EventRecorder):
    """Counts."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts

    def record(self, subject: Subject, type: EventType, reason: str, message: str) -> None:
        self._counts[f"events {reason}"] += 1


@dataclass(slots=True)
class Decision:
    """What this replica decided and its cluster has not told it yet. ``calls``: the bindings that it sent."""

    pod: PodInfo
    node: str
    calls: list[Call]

    def may_hold(self, server: APIServer) -> bool:
        """Returns whether the pod is on the node by a binding of these, or may be yet."""
        pod = server.get(PODS, (self.pod.namespace, self.pod.name))
        if pod is None or pod["metadata"]["uid"] != self.pod.uid or self.pod.is_finished:
            return False
        if pod["spec"].get("nodeName", self.node) not in ("", self.node):
            return False
        return any(not isinstance(call.result, APIError) for call in self.calls)

    @property
    def is_carried_out(self) -> bool:
        return any(call.carried_out and not isinstance(call.result, APIError) for call in self.calls)


class _View(ClusterView):
    """Tells the books of what it takes before it takes it."""

    books: Books

    def _take_pod_group(self, event: ObjectEvent[PodGroup]) -> None:
        self.books.check_gang()
        super()._take_pod_group(event)

    def _take_node(self, event: ObjectEvent[Node]) -> None:
        self.books.take_node(event)
        super()._take_node(event)

    def _take_pod(self, event: ObjectEvent[Pod]) -> None:
        self.books.take_pod(event)
        super()._take_pod(event)

    def _take_namespace(self, event: ObjectEvent[PartialObject]) -> None:
        self.books.take_namespace(event)
        super()._take_namespace(event)


class Books:
    """``nodes``, ``placed``, ``namespaces``: as the replica was told. ``decisions``: those of its term, by uid;
    ``former``: those of terms that are over, of any replica.
    """

    def __init__(self, view: ClusterView, server: APIServer, former: dict[str, Decision], counts: Counter[str]) -> None:
        self._view, self._server, self._former, self._counts = view, server, former, counts
        self.nodes: dict[str, Node] = {}
        self.placed: dict[str, tuple[PodInfo, str]] = {}
        self.namespaces: dict[str, dict[str, str]] = {}
        self.decisions: dict[str, Decision] = {}
        self._waiting: dict[str, int] = {}
        self._preemptors: dict[str, list[Key]] = {}
        self._victims: set[str] = set()
        self._gang: GangKey | None = None
        self._together: set[str] = set()
        self._members_before: set[str] = set()

    def take_node(self, event: ObjectEvent[Node]) -> None:
        if event.after is None:
            self.nodes.pop(event.key.name, None)
        else:
            self.nodes[event.key.name] = event.after

    def take_namespace(self, event: ObjectEvent[PartialObject]) -> None:
        if event.after is None:
            self.namespaces.pop(event.key.name, None)
        else:
            self.namespaces[event.key.name] = dict(event.after.metadata.labels)

    def take_pod(self, event: ObjectEvent[Pod]) -> None:
        self.check_gang()
        before, after = event.before, event.after
        if before is not None and (after is None or event.is_replaced):
            for mapping in (self.placed, self.decisions, self._waiting):
                cast(dict[str, Any], mapping).pop(before.metadata.uid, None)
        if after is None:
            return
        uid = after.metadata.uid
        self._waiting[uid] = after.spec.priority or 0
        try:
            info = PodInfo.of(after)
        except QuantityError:
            self.decisions.pop(uid, None)
            return
        if info.is_finished:
            self.placed.pop(uid, None)
            self.decisions.pop(uid, None)
        elif after.spec.node_name:
            self.placed[uid] = info, after.spec.node_name
            self.decisions.pop(uid, None)
            del self._waiting[uid]
        elif uid in self.decisions:
            self.decisions[uid].pod = info

    def decided(self, pod: PodInfo, node: str) -> None:
        """Raises Violation unless the node will do, by what was told and what was decided before."""
        if node not in self.nodes:
            raise Violation(f"pod {pod.name} is placed on node {node}, which is not there")
        if pod.uid in self.placed or pod.is_terminating or pod.spec.scheduling_gates:
            raise Violation(f"pod {pod.name} is placed on {node} and was not to be placed")
        self._counts["decisions"] += 1
        counted = dict(self.placed)
        for uid, each in self.decisions.items():
            if uid not in counted and (self._view.state.is_assumed(uid) or each.may_hold(self._server)):
                counted[uid] = each.pod, each.node
        counted.pop(pod.uid, None)
        reasons = Oracle(self.nodes, counted, self.namespaces).reasons(pod, node)
        if reasons:
            raise Violation(f"pod {pod.name} is placed on {node}: {reasons}")
        self._check_former(pod, node, counted)
        known = self.decisions.get(pod.uid)
        if known is not None and known.may_hold(self._server):
            raise Violation(f"pod {pod.name} is placed on {node}, and may be bound to {known.node}")
        key = key_of(pod.pod.metadata)
        if key != self._gang:
            self.check_gang()
        if key is not None:
            self._gang = key
            self._members_before = self._members_before if self._together else self._placed_members(key)
            self._together.add(pod.uid)
        self.decisions[pod.uid] = Decision(pod, node, [])

    def _placed_members(self, key: GangKey) -> set[str]:
        """Returns the members of the gang that are on a node by what was told and decided."""
        held = {uid: each.pod for uid, each in self.decisions.items() if self._view.state.is_assumed(uid)}
        told = {uid: pod for uid, (pod, _) in self.placed.items() if not pod.is_terminating}
        return {uid for uid, pod in {**held, **told}.items() if key_of(pod.pod.metadata) == key}

    def check_gang(self) -> None:
        """Raises Violation if a part of a gang was placed that had not started. Of decisions between two events."""
        together, key, before = self._together, self._gang, self._members_before
        self._together, self._gang = set(), None
        gang = None if key is None else self._view.gangs.get(key)
        if not together or key is None or gang is None or gang.settings is None:
            return
        self._counts["members placed beyond a start" if before else "gangs placed"] += 1
        settings = gang.settings
        if len(before) + len(together) >= settings.min_member:
            return
        is_whole = bool(before) or bool(gang.succeeded)
        if settings.match_policy is MatchPolicy.WAITING_AND_RUNNING or not is_whole:
            raise Violation(f"gang {key} needs {settings.min_member}, had {sorted(before)} and got {sorted(together)}")

    def _check_former(self, pod: PodInfo, node: str, counted: dict[str, tuple[PodInfo, str]]) -> None:
        """Raises Violation where what another leader has sent is still to be carried out, and there is room for one of
        both. What was carried out already, and this replica is not told yet, is counted.
        """
        others = {
            uid: each
            for uid, each in self._former.items()
            if each.node == node and uid not in counted and uid != pod.uid and each.may_hold(self._server)
        }
        placed = {uid: (each.pod, node) for uid, each in others.items()}
        if others and Oracle(self.nodes, {**counted, **placed}, self.namespaces).reasons(pod, node):
            if any(not each.is_carried_out for each in others.values()):
                raise Violation(f"pod {pod.name} is placed on {node}, and {sorted(others)} may yet be bound to it")
            self._counts["decisions that miss a former leader's"] += 1

    def begin_term(self) -> None:
        """Raises Violation where what another leader has sent is still to be carried out."""
        for uid, each in self._former.items():
            if each.may_hold(self._server) and not each.is_carried_out:
                raise Violation(f"a term begins, and {uid} may yet be bound to {each.node}")

    def end_term(self) -> None:
        self._former |= self.decisions
        self.decisions.clear()

    def sent_bind(self, call: Call, uid: str, node: str) -> None:
        if node not in self.nodes:
            raise Violation(f"a binding to node {node} is sent, which has gone")
        decision = self.decisions.get(uid)
        if decision is None:
            return  # the cluster has told what became of the pod
        if decision.node != node:
            raise Violation(f"pod {decision.pod.name} was placed on {decision.node} and is bound to {node}")
        if any(other.is_awaited for other in decision.calls):
            raise Violation(f"pod {decision.pod.name} is bound twice at a time")
        decision.calls.append(call)

    def sent_disruption(self, uid: str, message: str) -> None:
        """The pod says for whom it is to leave; several may want that."""
        self._preemptors.setdefault(uid, []).append(Key(*message.rpartition(" ")[2].split("/")))

    def sent_delete(self, uid: str, priority: int) -> None:
        if uid in self._victims:
            return  # it is sent again, since no answer came
        self._victims.add(uid)
        if priority >= max(map(self._priority, self._preemptors[uid])):
            raise Violation(f"a pod of priority {priority} is preempted, for whom of {self._preemptors[uid]}?")

    def _priority(self, key: Key) -> int:
        """Returns that of a pod that waits; less than any of one that does not."""
        pod = self._view.pods.objects.get(key)
        if pod is None or self._view.state.is_assumed(pod.metadata.uid):
            return _LEAST_PRIORITY
        return self._waiting.get(pod.metadata.uid, _LEAST_PRIORITY)

    def check_kept(self) -> None:
        """Raises Violation if a decision was forgotten that a binding may carry out."""
        self.check_gang()
        for uid, each in self.decisions.items():
            if not self._view.state.is_assumed(uid) and each.may_hold(self._server):
                raise Violation(f"pod {each.pod.name} is forgotten, and may be bound to {each.node}")


class Replica:
    """``tick_s``: how far the clock of its decisions goes each time that it is read: they take time."""

    def __init__(
        self,
        name: str,
        server: APIServer,
        former: dict[str, Decision],
        counts: Counter[str],
        seed: int,
        tick_s: float,
    ) -> None:
        self.name, self._server, self.counts = name, server, counts
        self._tick_s, self._ticks_s = tick_s, 0.0
        self.sender = Sender(name, self._sent)
        loop = server.loop
        client = Client(server.transport(self.sender), CallLimits())
        preempting = CoschedulingSettings(is_preempting=True)
        profiles = (Profile(coscheduling=preempting), Profile(SECOND, preemption=None))
        self.view = _View(client, profiles, self._monotonic_s, seed)
        self.books = self.view.books = Books(self.view, server, former, counts)
        self.election = Election(
            client.with_limits(_ONE_CALL), LEASE, Identity(name), clock=loop.time, wall_s=lambda: EPOCH_S + loop.time()
        )
        leaders = client.guarded(self.election.check)
        self.scheduler = Scheduler(
            leaders, self.view, _Recorder(counts), self._monotonic_s, lambda: EPOCH_S + loop.time()
        )
        self._watch_decisions()
        self._following = loop.create_task(self.view.run())
        self._leading = loop.create_task(self._lead())
        self.is_leading = self.is_ending = False

    @property
    def failure(self) -> BaseException | None:
        """What the process fails with."""
        for task in (self._following, self._leading):
            if task.done() and not task.cancelled():
                return task.exception() or RuntimeError("a task of the process has ended")
        return None

    @property
    def is_over(self) -> bool:
        return self._following.done() and self._leading.done()

    def end(self) -> None:
        """SIGTERM: the leader's work ends first, and its Lease is released."""
        self.is_ending = True
        self._leading.cancel()
        self._leading.add_done_callback(lambda _: self._following.cancel())

    def kill(self) -> None:
        """All that it knows is lost. What it has sent is under way."""
        self.sender.is_alive = False
        self._leading.cancel()
        self._following.cancel()
        for call in self._server.calls:
            if call.sender is self.sender:
                call.answer.cancel()

    def _monotonic_s(self) -> float:
        self._ticks_s += self._tick_s
        return self._server.loop.time() + self._ticks_s

    async def _lead(self) -> None:
        await self.view.synced()
        await self.election.run(self._lead_for)

    async def _lead_for(self, _: Term) -> None:
        self.counts["terms"] += 1
        self.books.begin_term()
        self.is_leading = True
        try:
            await self.scheduler.run()
        finally:
            self.is_leading = False
            self.books.end_term()

    def _watch_decisions(self) -> None:
        queue, placed = self.view.queue, self.view.queue.placed

        def observed(queued: QueuedPod, row: int) -> None:
            self.books.decided(queued.pod, self.view.state.table.name(row))
            placed(queued, row)

        setattr(queue, "placed", observed)  # noqa: B010 - the one place that each decision comes by

    def _sent(self, call: Call) -> None:
        """Raises Violation where a write is sent that must not be."""
        request = call.request
        if request.method == "GET" or request.path.startswith(LEASES_ROOT):
            return
        holder = (self._server.get(LEASES, (LEASE.namespace, LEASE.name)) or {"spec": {}})["spec"].get("holderIdentity")
        if holder != self.name:
            raise Violation(f"{self.name} sends {request.method} {request.path} while {holder or 'nobody'} leads")
        body: Any = msgspec.json.decode(request.body or b"{}")
        if call.is_bind:
            self.counts["bindings sent"] += 1
            self.books.sent_bind(call, body["metadata"]["uid"], body["target"]["name"])
        elif request.path.endswith("/status"):
            for each in body["status"].get("conditions", ()):
                if each["type"] == DISRUPTED:
                    self.books.sent_disruption(body["metadata"]["uid"], each["message"])
        elif request.method == "DELETE":
            *_, namespace, _, name = request.path.split("/")
            pod = self._server.get(PODS, (namespace, name))
            if pod is not None and pod["metadata"]["uid"] == body["preconditions"]["uid"]:
                self.counts["preemptions"] += 1
                self.books.sent_delete(pod["metadata"]["uid"], pod["spec"].get("priority") or 0)
