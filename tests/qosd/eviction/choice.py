"""Who may be made to give for a demand, what each has, and in which order they come: the oracle's own words for it.

Written from Koordinator's order of victims and from what the pages promise of owners, lost work and what is never a
victim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from msgspec import structs

from qosd.model.metric import Scope
from qosd.model.snapshot import EvictionPhase, NodeSnapshot, PodView
from qosd.sense.node import NodeRow
from qosd.sense.usage import USAGE
from tests.fakes.clock import S
from tests.qosd.eviction.demands import (
    EVICT,
    FREEZE,
    RECLAIM,
    THROTTLE,
    Demand,
    band_of,
    is_live,
    number_of,
    oldest_ns,
)
from tests.qosd.eviction.modelpods import MIB, Pod
from tests.qosd.eviction.world import AT_ONCE

CALM_S, FREEZE_S, STOP_S, THAW_S, MINUTE_S, MOST = 30, 10, 2, 2, 60, 10
WAIT_S = {RECLAIM: 2, THROTTLE: 5, FREEZE: 5, EVICT: 0}
COOL_S = {"cpu": 20, "memory": 4}
CPU_FLOOR, MEMORY_FLOOR, LEAST_PART, GROWTH_S, LATE_S, PATIENCE_S = 100, 16 << 20, 8, 10, 30, 30
_POD = USAGE[Scope.POD]
Owner = tuple[str, ...]
Key = tuple[str, str, str]


@dataclass
class Episode:
    """Of one demand, since it was stated first."""

    stated_ns: int
    step: int = 0
    sampled_ns: int = 0
    wait_ns: int = 0
    gives: Mapping[str, int] = field(default_factory=dict)
    throttled: dict[str, int] = field(default_factory=dict)
    """CPU that a pod had before, by UID."""
    bounded: set[str] = field(default_factory=set)
    """Whose bounds may show later, when a lower one of another demand is over."""


@dataclass(frozen=True)
class Candidate:
    uid: str
    view: PodView
    pod: Pod
    amount: int
    ratio: float
    worked_s: float


@dataclass
class Frozen:
    key: Key
    since_ns: int
    used_milli: int
    over_ns: int | None = None


class Choice:
    """``views``: the pods that live, by UID. ``pending``: those that go already. ``spared``: of the last question, how
    many pods one rule alone has spared, by its name."""

    everybody: Mapping[str, Pod]
    views: Mapping[str, PodView]
    pending: frozenset[str]
    episodes: dict[Key, Episode]
    frozen: dict[str, Frozen]
    spared: Counter[str]

    # amounts

    def usage(self, uid: str, resource: str, at: NodeSnapshot) -> int | None:
        cgroup = self.everybody[uid].cgroup
        if resource == "memory":
            used = at.value(_POD.memory_usage_bytes, cgroup)
            return None if used is None else int(used)
        cores = at.value(_POD.cpu_usage_cores, cgroup)
        return None if cores is None else max(round(cores * 1000), self.held(uid, at))

    def held(self, uid: str, at: NodeSnapshot) -> int:
        """What it used before its CPU was held down."""
        held = [each.throttled.get(uid, 0) for each in self.episodes.values()]
        frozen = self.frozen.get(uid)
        sampled_ns = oldest_ns(at, *(["usage"] if "usage" in at.ages_s else []))
        if frozen is not None and (frozen.over_ns is None or sampled_ns < frozen.over_ns + THAW_S * S):
            held.append(frozen.used_milli)
        return max(held, default=0)

    def request(self, uid: str, extended_resource: str) -> int:
        pod = self.everybody[uid]
        unit = 1 if extended_resource.endswith("cpu") else 1 << 20
        return pod.request * unit if pod.kind and f"/{pod.kind}-" in extended_resource else 0

    def amount(self, uid: str, demand: Demand, at: NodeSnapshot) -> int | None:
        if demand.extended_resource:
            return self.request(uid, demand.extended_resource)
        return self.usage(uid, demand.resource, at)

    @staticmethod
    def belongs_to(pod: Pod, view: PodView, demand: Demand, at: NodeSnapshot) -> bool:
        """Class, band and priority."""
        told = view.priority
        if demand.gate.startswith("BE"):
            return pod.qos == "BE"
        thresholds = at.policy.slo.thresholds
        assert thresholds is not None
        is_ledger = "Allocatable" in demand.gate
        most = (
            thresholds.allocatable_evict_priority_threshold
            if is_ledger
            else thresholds.evict_enabled_priority_threshold
        )
        if told is None or most is None or number_of(pod, told) > most:
            return False
        return not is_ledger or f"/{band_of(pod, told).removeprefix('koord-')}-" in demand.extended_resource

    def may_go(self, uid: str, demand: Demand, at: NodeSnapshot, spared: Counter[str]) -> bool:
        """May it be made to give for this demand? ``spared``: by which rule alone it is not."""
        pod, view = self.everybody[uid], self.views[uid]
        eviction = at.evictions.get(uid)
        is_resting = eviction is not None and (
            eviction.phase is EvictionPhase.STOPPED or at.monotonic_ns < eviction.retry_ns
        )
        policy = {
            "pods that go already": uid not in self.waited_for(demand, at),
            "pods that were evicted lately": not is_resting,
            "pods without a sample": self.usage(uid, demand.resource, at) is not None,
            **self.victim_rules(pod, view, demand, at),
        }
        broken = [name for name, is_kept in policy.items() if not is_kept]
        if len(broken) == 1:
            spared[broken[0]] += 1
        return not broken and (self.amount(uid, demand, at) or 0) > 0

    def waited_for(self, demand: Demand, at: NodeSnapshot) -> frozenset[str]:
        """Who goes already and is not chosen: in an emergency who goes in time, else whoever is on the way out."""
        return self.pending if demand.left_s is None else self.giving(demand, at)

    def giving(self, demand: Demand, at: NodeSnapshot) -> frozenset[str]:
        """Of those on the way out who gives before the demand would go on without them."""
        return frozenset([uid for uid in self.pending if self._gives_in_time(uid, demand, at)])

    def _gives_in_time(self, uid: str, demand: Demand, at: NodeSnapshot) -> bool:
        eviction, by_s = at.evictions.get(uid), self.views[uid].facts.deletion_unix_s
        if by_s is None or (eviction is not None and eviction.phase is EvictionPhase.STOPPING):
            return True
        rest_ns = by_s * S - at.wall_ns
        if demand.left_s is None:
            return rest_ns <= PATIENCE_S * S
        return 0 < rest_ns <= demand.left_s * S

    def victim_rules(self, pod: Pod, view: PodView, demand: Demand, at: NodeSnapshot) -> dict[str, bool]:
        """By whom it spares: may the pod be made to give at all?"""
        policy = pod.annotations.get("koordinator.sh/eviction-policy")
        is_willing = policy is None or (isinstance(policy, list) and demand.gate in policy)
        is_opted = not demand.gate.startswith("BE")
        is_labelled = pod.labels.get("koordinator.sh/eviction-enabled") == "true"
        is_virtual = view.facts.runtime_class.startswith("kata") or view.facts.runtime_class == "sized"
        return {
            "pods whose priority nobody has confirmed": view.priority is not None
            and (not is_opted or at.ages_s.get("kubelet", 91) <= 90),
            "SYSTEM pods": pod.qos != "SYSTEM",
            "Kata pods": not is_virtual,
            "static pods": pod.source == "api",
            "pods that forbid it": is_willing,
            "pods that are not labelled": is_labelled or not is_opted,
            "pods above the threshold": self.belongs_to(pod, view, demand, at),
        }

    def evictable_bytes(self, gate: str, at: NodeSnapshot) -> int:
        """What all pods have together that may be evicted by the gate, now or later."""
        demand, amount = Demand(gate, "memory", 1), 0
        for view in at.pods:
            pod = self.everybody[view.uid]
            used = self.usage(view.uid, "memory", at)
            if used is not None and all(self.victim_rules(pod, view, demand, at).values()):
                kernel = MIB if at.policy.host.cgroup_version == 2 else 0
                amount += used + kernel if is_live(view) else 0
        return amount

    def candidates(self, demand: Demand, at: NodeSnapshot) -> list[Candidate]:
        spared: Counter[str] = Counter()
        found = []
        for uid, view in self.views.items():
            if self.may_go(uid, demand, at, spared):
                pod, amount = self.everybody[uid], self.amount(uid, demand, at)
                assert amount is not None
                used = self.usage(uid, demand.resource, at) or 0
                request = (
                    self.request(uid, demand.extended_resource)
                    if demand.extended_resource
                    else self.plain_request(uid, demand)
                )
                ratio = used / request if request > 0 else (float("inf") if used else 0.0)
                worked_s = at.value(_POD.cpu_seconds, pod.cgroup) or 0.0
                found.append(Candidate(uid, view, pod, amount, ratio, worked_s))
        self.spared = spared
        return found

    def plain_request(self, uid: str, demand: Demand) -> int:
        return self.everybody[uid].request * (1 if demand.resource == "cpu" else 1 << 20)

    # order

    def chosen(
        self,
        demand: Demand,
        able: Iterable[Candidate],
        need: int,
        at: NodeSnapshot,
        taken: Counter[Owner],
        floor: int = 0,
    ) -> list[tuple[Candidate, int]]:
        """Who gives, and how much: the order of upstream; of equals whose owner has lost fewest, who worked least."""
        left, owners, found = list(able), Counter(taken), []
        while left and need > 0:
            best = left[0]
            for each in left[1:]:
                if self.place(demand, each, need, owners) < self.place(demand, best, need, owners):
                    best = each
            left.remove(best)
            part = min(best.amount - floor, need)
            if part > 0:
                found.append((best, part))
                need -= part
                owners[self.owner(best)] += 1
        return found

    @staticmethod
    def place(demand: Demand, each: Candidate, need: int, owners: Mapping[Owner, int]) -> tuple[object, ...]:
        told = each.view.priority
        assert told is not None
        number, labels, annotations = number_of(each.pod, told), each.pod.labels, each.pod.annotations
        covers = min(each.amount, need)
        same = (owners.get(Choice.owner(each), 0), each.worked_s)
        if demand.gate == "BECPUEvict":
            return number, -each.ratio, *same, each.uid
        last = (-each.amount, f"default/{each.pod.name}", each.uid)
        if demand.gate == "BEMemoryEvict":
            return number, -covers, *same, *last
        label = labels.get("koordinator.sh/priority")
        sub = number if label is None else int(label)
        first = int(str(annotations.get("koordinator.sh/eviction-priority", 0)))
        return first, number, sub, -covers, *same, *last

    @staticmethod
    def owner(each: Candidate) -> Owner:
        return Choice.owner_of(each.view)

    @staticmethod
    def owner_of(view: PodView) -> Owner:
        owner = view.facts.owner
        return (view.uid,) if owner is None else (view.namespace, owner.kind, owner.name)

    @staticmethod
    def without_owner(each: Candidate) -> Candidate:
        facts = structs.replace(each.view.facts, owner=None)
        return replace(each, view=structs.replace(each.view, facts=facts))

    @staticmethod
    def runs(view: PodView) -> bool:
        return any(each.state == "CONTAINER_RUNNING" and not each.is_sandbox for each in view.containers)

    def reclaimable(self, each: Candidate, at: NodeSnapshot) -> int:
        used = self.usage(each.uid, "memory", at) or 0
        swap = at.value(NodeRow.swap_free_bytes) or 0
        return int(at.value(AT_ONCE, each.pod.cgroup) or 0) + min(used, int(swap))

    @staticmethod
    def grows(each: Candidate, need: int, at: NodeSnapshot) -> bool:
        metric = _POD.memory_usage_bytes
        found = next((by for window, by in at.windows.items() if window.metric is metric), {})
        aggregate = found.get(each.pod.cgroup)
        return aggregate is not None and aggregate.slope_per_s * GROWTH_S * LEAST_PART >= need
