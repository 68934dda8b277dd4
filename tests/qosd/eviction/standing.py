"""What may stand from step to step: bounds, freezes, nothing at all without a pod list, and rehearsals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from koord.host.files import Target
from qosd.decide.decision import Opinion
from qosd.decide.rehearsal import Rehearsed
from qosd.decide.reliefstate import Relief
from qosd.model.snapshot import NodeSnapshot
from tests.fakes.clock import S
from tests.qosd.eviction.choice import CALM_S, FREEZE_S, MEMORY_FLOOR, MOST, Choice, Episode, Frozen, Key
from tests.qosd.eviction.demands import Demand
from tests.qosd.eviction.modelpods import Pod


class Violation(AssertionError):
    """A rule was broken."""


def knows_pods(at: NodeSnapshot) -> bool:
    return at.ages_s.get("pods", 91) <= 90


class Standing(Choice):
    """``everybody``: the pods that there are or were, by UID. ``counts``: what was checked, and what decided."""

    def __init__(self, everybody: Mapping[str, Pod], counts: Counter[str]) -> None:
        self.everybody, self.counts = everybody, counts
        self.restarted()

    def restarted(self) -> None:
        """The daemon begins anew."""
        self.started_ns: int | None = None
        self.evicted_ns: list[int] = []
        self.rounds_ns: dict[str, int] = {}
        self.was_rehearsal = False
        self.opinions: Mapping[Target, Opinion] = {}
        self.forget()

    def forget(self) -> None:
        """All but how often pods were evicted lately."""
        self.episodes: dict[Key, Episode] = {}
        self.frozen: dict[str, Frozen] = {}
        self.pending: frozenset[str] = frozenset()
        self.settled_ns = 0
        self.rehearsed: set[str] = set()

    # what stands

    def check_opinions(self, at: NodeSnapshot, relief: Relief) -> None:
        """Bounds are of demands that last, or of pods that were evicted and run again; none is below the floors."""
        floors = {"cpu_quota": 1000, "memory.high": MEMORY_FLOOR, "cgroup.freeze": 1}
        for target, opinion in relief.opinions.items():
            assert isinstance(opinion.value, int)
            if opinion.value < floors[target.name]:
                raise Violation(f"{target} is bounded to {opinion.value}")
            uid = opinion.pod.removeprefix("default/")
            if uid not in self.views:
                raise Violation(f"{target} of a pod that is gone is bounded")
            is_again = " was evicted and runs again" in opinion.why
            if is_again and at.evictions.get(uid) is None:
                raise Violation(f"{target} is held at the floor, and {uid} was not evicted")
            if not is_again and not self.episodes:
                raise Violation(f"{target} is bounded, and nobody has lacked anything for {CALM_S} s")
            self.counts["pods held at the floor"] += is_again

    def check_freezes(self, at: NodeSnapshot, relief: Relief) -> None:
        now_ns = at.monotonic_ns
        standing = {
            opinion.pod.removeprefix("default/")
            for target, opinion in relief.opinions.items()
            if target.name == "cgroup.freeze"
        }
        for uid in standing:
            frozen = self.frozen.get(uid)
            if frozen is None or now_ns - frozen.since_ns >= FREEZE_S * S:
                raise Violation(f"{uid} is frozen for too long, or nobody knows since when: {frozen}")
        for uid, each in self.frozen.items():
            if knows_pods(at) and each.over_ns is None and uid not in standing:
                raise Violation(f"{uid} was thawed before it was killed: {at.evictions.get(uid)}")
            self.counts["thaws of pods that were killed first"] += each.over_ns == now_ns and uid in at.evictions

    def check_stillness(self, at: NodeSnapshot, stated: Sequence[Demand], relief: Relief) -> None:
        """Checks a step without a pod list: it chooses no pod, sets no new bound and lowers none.

        A bound that ends with its demand may have hidden another one, which then shows: as high, or higher.
        """
        if relief.evictions or relief.one_shots or stated:
            raise Violation("somebody is made to give, and nobody knows which pods run")
        for target, opinion in relief.opinions.items():
            earlier = self.opinions.get(target)
            assert isinstance(opinion.value, int)
            if earlier is None or not isinstance(earlier.value, int) or opinion.value < earlier.value:
                raise Violation(f"{target} is held anew, and nobody knows which pods run: {opinion}")
        for each in self.frozen.values():
            if each.over_ns is None and at.monotonic_ns - each.since_ns >= FREEZE_S * S:
                each.over_ns = at.monotonic_ns
        self.counts["steps without a pod list in force"] += 1

    # rehearsals

    def check_rehearsal(self, at: NodeSnapshot, relief: Relief) -> None:
        if relief.opinions or relief.one_shots or relief.evictions:
            raise Violation("a dry run does something")
        acts = [act for act in relief.acts if isinstance(act, Rehearsed)]
        self.counts["steps that were rehearsed"] += len(acts)
        named = {act.pod: act for act in acts if act.target.name == "pod.eviction"}
        if len(named) != sum(act.target.name == "pod.eviction" for act in acts):
            raise Violation(f"a dry run names a pod twice: {named}")
        for pod, act in named.items():
            if pod not in self.rehearsed:
                strategy = act.why.partition(":")[0]
                self.rounds_ns["cpu" if "cpu" in strategy.lower() else "memory"] = at.monotonic_ns
                self.evicted_ns.append(at.monotonic_ns)
        if len(self.evicted_ns) > MOST:
            raise Violation(f"{len(self.evicted_ns)} evictions within a minute, some of them rehearsed")
        self.rehearsed = set(named)
