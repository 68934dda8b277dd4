"""Works out the next quota of each container, once a round (a second), and between rounds if its base has changed.

Pure. Invariants: a burst that did not change is the same object as before; its quota is between base and ceiling,
however these move; a container at its base without tokens to count has no burst. Between two rounds a quota moves with
its base only, and no token is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

import msgspec

from koord.host.reconcile.state import FREE, FileState
from koord.model.formulas import FORMULA, Inputs
from qosd.decide.decision import Opinion
from qosd.model.metric import Scope
from qosd.model.snapshot import NodeSnapshot
from qosd.sense.usage import USAGE
from qosd.strategies.burst import steps
from qosd.strategies.burst.bucket import Bucket
from qosd.strategies.burst.candidates import BurstCandidate, BurstPlan, PodCandidates
from qosd.strategies.burst.sharepool import PoolState, SharePool, share_pool
from qosd.strategies.burst.steps import Operation

_THROTTLED = USAGE[Scope.CONTAINER].cpu_throttled_ratio
_USED = USAGE[Scope.CONTAINER].cpu_usage_cores
_NO_SAMPLES: Mapping[str, float] = MappingProxyType({})
_UNKNOWN_USAGE_PERCENT = 100


class Burst(msgspec.Struct, frozen=True, eq=False):
    """A container's current quota, from ``base_us``; ``opinion`` None: the quota is the base."""

    base_us: int
    quota_us: int
    opinion: Opinion | None = None
    bucket: Bucket | None = None

    @property
    def more_us(self) -> int:
        return self.quota_us - self.base_us


Bursts = Mapping[str, Burst]
"""By container id."""
NO_BURSTS: Bursts = MappingProxyType({})


class Round:
    """``before``: the bursts after the last round, ``elapsed_ns`` ago; None: there was no round since the start.

    ``is_whole``: this is a round, and not a look between two rounds.
    """

    def __init__(
        self, snapshot: NodeSnapshot, plan: BurstPlan, before: Bursts | None, elapsed_ns: int, is_whole: bool
    ) -> None:
        self._snapshot, self._plan, self._elapsed_ns, self._is_whole = snapshot, plan, elapsed_ns, is_whole
        self._before, self._is_first = NO_BURSTS if before is None else before, before is None
        self._throttled = snapshot.values.get(_THROTTLED, _NO_SAMPLES)
        self._used = snapshot.values.get(_USED, _NO_SAMPLES)

    @cached_property
    def pool(self) -> SharePool:
        """The pool of shared CPUs, worked out only if a burst depends on it."""
        return share_pool(self._snapshot, self._plan.pool_percent)

    def bursts(self) -> Bursts:
        """Returns the bursts of the plan's containers; the mapping from before if nothing changed."""
        after: dict[str, Burst] = {}
        changed = False
        for _, pod in self._plan.eligible:
            for each in pod.containers:
                before = self._before.get(each.id)
                is_quiet = before is None and not self._throttled.get(each.quota.cgroup)
                if is_quiet and not pod.settings.has_bucket and not self._is_first:
                    continue
                now = self._next(pod, each, before)
                changed |= now is not before
                if now is not None:
                    after[each.id] = now
        return after if changed or len(after) != len(self._before) else self._before

    def _next(self, pod: PodCandidates, candidate: BurstCandidate, before: Burst | None) -> Burst | None:
        """Returns the container's burst; None if it has none."""
        state, settings = self._snapshot.files.get(candidate.quota, FREE), pod.settings
        base_us = _base_us(candidate, state)
        if base_us <= 0:
            return None
        most_us = steps.ceiling_us(base_us, settings.quota_percent)
        previous_us = self._previous_us(pod, before, state, base_us)
        bucket = self._bucket(pod, candidate, before, base_us)
        ratio = self._throttled.get(candidate.quota.cgroup)
        operation = self._operation(pod, ratio, bucket, state, previous_us, base_us)
        quota_us = steps.next_us(previous_us, operation.value, base_us, most_us)
        if quota_us == base_us and bucket is None:
            return None
        if before is not None and (before.base_us, before.quota_us) == (base_us, quota_us):
            return before if before.bucket is bucket else msgspec.structs.replace(before, bucket=bucket)
        if quota_us == base_us:
            return Burst(base_us, quota_us, bucket=bucket)
        why = self._why(operation, bucket, before)
        inputs = self._inputs(previous_us, operation, base_us, most_us, ratio, bucket)
        return Burst(base_us, quota_us, Opinion.at_least(quota_us, why, inputs, pod.key), bucket)

    def _operation(
        self,
        pod: PodCandidates,
        ratio: float | None,
        bucket: Bucket | None,
        state: FileState,
        previous_us: int,
        base_us: int,
    ) -> Operation:
        if pod.raises and (state.is_contested or not self._is_whole):
            return Operation.REMAIN
        does_pool_matter = pod.raises and (ratio or previous_us > base_us)  # at its base, nothing shrinks
        pool = self.pool.state if does_pool_matter else PoolState.UNKNOWN
        wish = steps.operation(pod.raises, bucket is None or bucket.allows, ratio, pool)
        is_bounded = wish is Operation.UP and self._is_bounded(pod, state, previous_us)
        return Operation.REMAIN if is_bounded else wish

    def _previous_us(self, pod: PodCandidates, before: Burst | None, state: FileState, base_us: int) -> int:
        """Returns the quota until now, scaled to the current base; at the first round what an earlier run left."""
        if before is not None:
            return before.quota_us * base_us // before.base_us
        is_left = self._is_first and state.is_held and state.adopted and pod.raises
        return max(base_us, state.written) if is_left and isinstance(state.written, int) else base_us

    def _bucket(
        self, pod: PodCandidates, candidate: BurstCandidate, before: Burst | None, base_us: int
    ) -> Bucket | None:
        settings = pod.settings
        if not settings.has_bucket:
            return None
        bucket = None if before is None else before.bucket
        if bucket is None or not bucket.is_made_by(settings.period_s, settings.quota_percent):
            return Bucket.of(candidate.id, settings.period_s, settings.quota_percent)
        if not self._is_whole:
            return bucket
        used_cores = self._used.get(candidate.quota.cgroup)
        if used_cores is None:
            return bucket.after(_UNKNOWN_USAGE_PERCENT, self._elapsed_ns)
        return bucket.after(int(used_cores * 100 * candidate.period_us / base_us), self._elapsed_ns)

    def _is_bounded(self, pod: PodCandidates, state: FileState, previous_us: int) -> bool:
        """Does the file hold less than the burst wanted, or does another writer fight for the pod's quota?"""
        of_pod = FREE if pod.quota is None else self._snapshot.files.get(pod.quota, FREE)
        if of_pod.is_contested:
            return True
        return state.is_held and isinstance(state.written, int) and 0 <= state.written < previous_us

    def _why(self, operation: Operation, bucket: Bucket | None, before: Burst | None) -> str:
        if operation is Operation.UP:
            return f"its quota throttles it and the share pool is {self.pool.state}: a fifth more"
        if operation is Operation.REMAIN:
            return "as an earlier run left it" if before is None else "the burst goes along with its quota"
        if bucket is not None and not bucket.allows:
            return "its burst tokens are used up: a fifth less"
        return f"the share pool is {self.pool.state}: a fifth less"

    def _inputs(
        self,
        previous_us: int,
        operation: Operation,
        base_us: int,
        most_us: int,
        ratio: float | None,
        bucket: Bucket | None,
    ) -> Inputs:
        pool = self.pool
        fed: dict[str, int | str | float | None] = {
            FORMULA: steps.QUOTA_FORMULA,
            "previous_us": previous_us,
            "change_percent": operation.value,
            "base_us": base_us,
            "ceiling_us": most_us,
            "throttled_ratio": ratio,
            "share_pool_used_percent": pool.used_percent,
            "share_pool_threshold_percent": pool.threshold_percent,
        }
        return fed if bucket is None else {**fed, "tokens_percent_s": bucket.tokens_percent_s}


def _base_us(candidate: BurstCandidate, state: FileState) -> int:
    """Returns the quota without a burst: the hooks', else the base of the file. 0 or less: there is none."""
    if candidate.is_set or not (state.is_held and isinstance(state.base, int)):
        return candidate.base_us
    return state.base
