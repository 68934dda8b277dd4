"""The evictor's report: the evictions under way, and how many have come about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from koord.host.evictions import EVICTION
from koord.host.files import Target
from qosd.act.actor import ActReport, ExplainedAct
from qosd.decide.decision import Eviction
from qosd.decide.runner import Decisions
from qosd.model.snapshot import EvictionState, PodView

RECENT_S = 300
RUNNING, STOPPED = "running", "stopped"
"""The values of an eviction, as if it were a write."""
_S = 1_000_000_000


class EvictionCount(msgspec.Struct, frozen=True):
    """The number of evictions that came about, the last at ``last_ns`` by the monotonic clock."""

    count: int
    last_ns: int


_NO_COUNT = EvictionCount(0, 0)
RecentCounts = Mapping[tuple[str, str], EvictionCount]
"""By feature gate and pod (``namespace/name``)."""


class EvictionReport(ActReport, frozen=True, eq=False):
    """``under_way``: evictions by the pod's UID. ``counts``: of those that have come about since the start, by feature
    gate; ``recent_counts``: by gate and pod, while the last one of the pod is not older than ``RECENT_S``."""

    under_way: Mapping[str, EvictionState]
    counts: Mapping[str, int] = MappingProxyType({})
    recent_counts: RecentCounts = MappingProxyType({})

    def counting(self, eviction: Eviction, now_ns: int) -> EvictionReport:
        """Returns the report with one more eviction counted, and without counts that are no longer recent."""
        key, since_ns = (eviction.gate, eviction.pod), now_ns - RECENT_S * _S
        recent = {each: count for each, count in self.recent_counts.items() if count.last_ns >= since_ns}
        before = recent.get(key, _NO_COUNT)
        counts = {**self.counts, eviction.gate: self.counts.get(eviction.gate, 0) + 1}
        recent[key] = EvictionCount(before.count + 1, now_ns)
        return EvictionReport(self.under_way, MappingProxyType(counts), MappingProxyType(recent))

    def of_pod(self, decisions: Decisions, pod: PodView) -> Iterable[ExplainedAct]:
        state = self.under_way.get(pod.uid)
        if state is not None:
            why = f"{state.why} (attempt {state.attempts}){f': {state.problem}' if state.problem else ''}"
            age_s = max(0.0, (decisions.monotonic_ns - state.since_ns) / 1e9)
            target = Target(pod.cgroup, EVICTION)
            yield ExplainedAct(target, pod.cgroup, state.owner, STOPPED, why, state.phase, pod.key, age_s)
