"""Does background reclaim and page-cache limits where the kernel has no files for them: by writes to
``memory.reclaim``.

Vendor kernels reclaim a cgroup by themselves (``memory.wmark_ratio``, ``memory.pagecache_limit.*``; the hook ``memory``
writes them). Elsewhere, on cgroup v2 from Linux 5.19 on, the same settings are the work of this strategy:

    wmarkRatio > 0    a best-effort pod is probed for idle memory; a container of any class is brought back to its low
                      mark when it is above the high one
    pageCacheLimit…   a pod's file pages above the limit are reclaimed, where the kernel can be told to take these alone
                      (Linux 6.11) or can take nothing else (no swap)

``probe`` decides how much and when. A container whose class does not enable background reclaim, or whose usage is below
its mark, is left alone. A tick makes at most ``MOST_ORDERS`` writes. Without pressure files (PSI) a step that hurts
cannot be told, so only the limits of file pages are kept then. The sentence says what this node cannot do.

Invariants: pure; no sample counts twice; a tick without a write returns the same decision. Pods in virtual machines
are left alone: their memory is the guest's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import ClassVar

import msgspec

from koord.host.files import Target
from koord.model.formulas import Formula
from koord.model.memory_qos_messages import WITHOUT_FILE_PAGES, WITHOUT_PSI, can_take_file_pages, without_reclaim
from koord.model.qos import QoSClass
from qosd.decide.decision import Decision, OneShot, Stage, Strategy
from qosd.decide.reliefsteps import MEMORY_FLOOR_BYTES
from qosd.hooks import memoryqos
from qosd.hooks.memory import CACHE_SIZE, WMARK_RATIO
from qosd.model.metric import Metric, Scope
from qosd.model.policy import EffectivePolicy
from qosd.model.snapshot import PODS_MAX_AGE_S, NodeSnapshot, PodView, is_kata, live, running_containers
from qosd.sense.pressure import PRESSURE
from qosd.sense.stalls import STALLS
from qosd.sense.usage import USAGE
from qosd.strategies.memory.probe import (
    FORMULAS,
    SECOND_NS,
    STALL_BUDGET_US_PER_S,
    MemorySample,
    ReclaimBounds,
    ReclaimKind,
    ReclaimProbe,
    ReclaimStep,
    next_step,
)
from qosd.strategies.memory.tiers import HOOK
from qosd.strategies.perpod import count, of_each
from qosd.strategies.reconciler import container_cgroup, pod_cgroup

RECLAIM = "memory.reclaim"
MOST_ORDERS = 4
LESS_THAN_ORDERED = "failed EAGAIN"
"""The result of a write of which the kernel could reclaim only a part."""
_NEW = ReclaimProbe()
_STALLS: Mapping[Scope, tuple[Metric, ...]] = {
    Scope.POD: (PRESSURE[Scope.POD].memory_pressure_some_us_per_s,),
    Scope.CONTAINER: (
        STALLS[Scope.CONTAINER].memory_stall_some_us_per_s,
        PRESSURE[Scope.CONTAINER].memory_pressure_some_us_per_s,
    ),
}
"""The metrics of a scope, the most frequent one first."""


class Watched(msgspec.Struct, frozen=True):
    """A cgroup that is reclaimed within ``bounds``. ``key``: names it among all that are. ``why``: for people."""

    key: str
    cgroup: str
    scope: Scope
    bounds: ReclaimBounds
    why: str
    pod: str


_ByUid = Mapping[str, tuple[PodView, tuple[Watched, ...]]]


@dataclass(frozen=True, slots=True)
class ReclaimMemo:
    """The findings and the objects that they were made from. ``policy``: the parts that memory QoS depends on.

    ``standing``: the decision without a write.
    """

    policy: tuple[object, ...]
    has_psi: bool
    pods: tuple[PodView, ...]
    by_uid: _ByUid
    watched: tuple[Watched, ...]
    standing: Decision
    probes: Mapping[str, ReclaimProbe]
    sampled_ns: int = 0


class MemoryReclaim(Strategy[ReclaimMemo]):
    """The strategy ``memoryReclaim``, on with the hook ``memory``."""

    name: ClassVar[str] = "memoryReclaim"
    stage: ClassVar[Stage] = Stage.RELIEF
    gate: ClassVar[str] = memoryqos.GATE
    rows: ClassVar[frozenset[str]] = frozenset()
    needs: ClassVar[Mapping[str, float]] = MappingProxyType({"pods": PODS_MAX_AGE_S, "usage": 5.0, "pressure": 30.0})
    formulas: ClassVar[tuple[Formula, ...]] = FORMULAS

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        return snapshot.policy.enabled(HOOK)

    def decide(self, snapshot: NodeSnapshot, last: ReclaimMemo | None) -> tuple[Decision, ReclaimMemo]:
        memo = _followed(snapshot, last)
        if not memo.watched or memo.sampled_ns == snapshot.sampled_ns:
            return memo.standing, memo
        one_shots, probes = _one_shots(snapshot, memo)
        decision = msgspec.structs.replace(memo.standing, one_shots=one_shots) if one_shots else memo.standing
        return decision, replace(memo, probes=probes, sampled_ns=snapshot.sampled_ns)


def _followed(snapshot: NodeSnapshot, last: ReclaimMemo | None) -> ReclaimMemo:
    policy, pods, has_psi = snapshot.policy, snapshot.pods, "pressure" not in snapshot.absent
    memory_policy = memoryqos.policy_of(policy)
    is_same = last is not None and last.has_psi is has_psi and memoryqos.is_same(last.policy, memory_policy)
    if last is not None and is_same and last.pods is pods:
        return last
    known = last.by_uid if last is not None and is_same else {}
    by_uid = of_each(pods, known, partial(of_pod, policy=policy, has_psi=has_psi))
    watched = tuple([each for _, every in by_uid.values() for each in every])
    standing = Decision(_sentence(policy, has_psi, watched))
    if last is not None and last.standing == standing:
        standing = last.standing
    probes = {} if last is None else {each.key: last.probes[each.key] for each in watched if each.key in last.probes}
    return ReclaimMemo(
        memory_policy, has_psi, pods, by_uid, watched, standing, probes, 0 if last is None else last.sampled_ns
    )


def _one_shots(snapshot: NodeSnapshot, memo: ReclaimMemo) -> tuple[tuple[OneShot, ...], Mapping[str, ReclaimProbe]]:
    """Returns the writes of this tick, at most one for a cgroup, and the probes; the same mapping if none changed."""
    one_shots: dict[str, OneShot] = {}
    new: dict[str, ReclaimProbe] = {}
    elapsed_s = (snapshot.sampled_ns - memo.sampled_ns) / SECOND_NS if memo.sampled_ns else 0.0
    host = snapshot.policy.host
    for watched in memo.watched:
        before = memo.probes.get(watched.key, _NEW)
        probe = _felt(snapshot, watched, before, elapsed_s)
        sample = _sample(snapshot, watched) if snapshot.monotonic_ns >= probe.due_ns else None
        if sample is not None and len(one_shots) < MOST_ORDERS and watched.cgroup not in one_shots:
            step, probe = next_step(watched.bounds, probe, sample, host.page_bytes, snapshot.monotonic_ns)
            if step is not None:
                one_shots[watched.cgroup] = _one_shot(watched, sample, step)
        if probe is not before:
            new[watched.key] = probe
    return tuple(one_shots.values()), {**memo.probes, **new} if new else memo.probes


def _felt(snapshot: NodeSnapshot, watched: Watched, probe: ReclaimProbe, elapsed_s: float) -> ReclaimProbe:
    """Returns ``probe`` with the memory that was read back since the sample before."""
    if not probe.taken_bytes:
        return probe
    refaults = snapshot.value(USAGE[watched.scope].memory_refaults_per_s, watched.cgroup)
    return probe.with_refaults(refaults * snapshot.policy.host.page_bytes * elapsed_s) if refaults else probe


def _sample(snapshot: NodeSnapshot, watched: Watched) -> MemorySample | None:
    """Returns the cgroup's sample; None if it is within its bounds, or without a measurement."""
    row, cgroup = USAGE[watched.scope], watched.cgroup
    charged = snapshot.value(row.memory_with_page_cache_bytes, cgroup)
    if charged is None or charged <= watched.bounds.above_bytes:
        return None
    without = snapshot.value(row.memory_usage_bytes, cgroup)
    if without is None:
        return None
    file_bytes = int(charged - without)
    is_of_cache = watched.bounds.kind is ReclaimKind.CACHE
    can_swap = snapshot.policy.host.swap_total_bytes > 0 and not is_of_cache
    stalls = (snapshot.value(metric, cgroup) for metric in _STALLS[watched.scope])
    return MemorySample(
        charged_bytes=file_bytes if is_of_cache else int(charged),
        reclaimable_bytes=int(charged) if can_swap else file_bytes,
        stall_us_per_s=next((stall for stall in stalls if stall is not None), None),
        is_in_vain=snapshot.one_shots.get(Target(cgroup, RECLAIM)) == LESS_THAN_ORDERED,
    )


def _one_shot(watched: Watched, sample: MemorySample, step: ReclaimStep) -> OneShot:
    stall = "" if sample.stall_us_per_s is None else f", memory stall {sample.stall_us_per_s:.0f} us/s"
    budget = "" if watched.bounds.kind is ReclaimKind.CACHE else f" of at most {STALL_BUDGET_US_PER_S}"
    why = f"{watched.why}: {sample.charged_bytes} bytes{stall}{budget}"
    return OneShot(Target(watched.cgroup, RECLAIM), step.value, why, step.inputs, watched.pod)


def of_pod(pod: PodView, policy: EffectivePolicy, has_psi: bool) -> tuple[Watched, ...]:
    """Returns the cgroups of one pod that are reclaimed."""
    files = policy.host.files or ()
    if RECLAIM not in files or not pod.cgroup or not live(pod) or is_kata(pod, policy.node):
        return ()
    return (*_by_marks(pod, policy, has_psi and WMARK_RATIO not in files), *_by_cache(pod, policy))


def _by_marks(pod: PodView, policy: EffectivePolicy, is_ours: bool) -> Iterator[Watched]:
    case = memoryqos.of(pod_cgroup(pod), policy) if is_ours else None
    if case is None or not case.settings.wmark_ratio:
        return
    if pod.context.treated_as(policy.node.derivation) is QoSClass.BE:
        floor = max(case.floor_bytes, MEMORY_FLOOR_BYTES)
        why = f"memory that a best-effort pod does not use is probed for, {case.source}"
        yield _watched(pod, pod.cgroup, Scope.POD, ReclaimBounds(ReclaimKind.IDLE, floor, floor), why)
    for container in running_containers(pod):
        of_container = memoryqos.of(container_cgroup(pod, container, policy.node), policy)
        marks = of_container.marks(policy) if of_container is not None else None
        if marks is not None:
            why = f"above {case.settings.wmark_ratio} % of its bound, which is {marks.high} bytes, {case.source}"
            yield _watched(
                pod, container.cgroup, Scope.CONTAINER, ReclaimBounds(ReclaimKind.MARK, marks.high, marks.low), why
            )


def _by_cache(pod: PodView, policy: EffectivePolicy) -> Iterator[Watched]:
    case = memoryqos.of(pod_cgroup(pod), policy) if CACHE_SIZE not in (policy.host.files or ()) else None
    limit = case.page_cache_bytes if case is not None and case.limits_page_cache else 0
    if case is None or not limit or not _can_take_file_pages(policy):
        return
    why = f"file pages above the page-cache limit of {limit} bytes, {case.source}"
    yield _watched(
        pod,
        pod.cgroup,
        Scope.POD,
        ReclaimBounds(ReclaimKind.CACHE, limit, limit, policy.host.swap_total_bytes > 0),
        why,
    )


def _watched(pod: PodView, cgroup: str, scope: Scope, bounds: ReclaimBounds, why: str) -> Watched:
    return Watched(f"{cgroup}: {bounds.kind}", cgroup, scope, bounds, why, pod.key)


def _can_take_file_pages(policy: EffectivePolicy) -> bool:
    return can_take_file_pages(policy.host.kernel, policy.host.swap_total_bytes)


def _sentence(policy: EffectivePolicy, has_psi: bool, watched: tuple[Watched, ...]) -> str:
    files = policy.host.files
    if files is None:
        return f"whether this kernel has {RECLAIM} is not known before kubelet has made its cgroups"
    if RECLAIM not in files:
        own = " and ".join(row for row in (WMARK_RATIO, CACHE_SIZE) if row in files)
        version = policy.host.cgroup_version
        return without_reclaim(version, f"the kernel's own {own}") if own else without_reclaim(version)
    counts = {kind: sum(each.bounds.kind is kind for each in watched) for kind in ReclaimKind}
    marked = count(counts[ReclaimKind.MARK], "container")
    parts = [f"idle memory is looked for in {count(counts[ReclaimKind.IDLE], 'pod')}, {marked} below a mark"]
    if WMARK_RATIO in files:
        parts = [f"background reclaim is the kernel's own ({WMARK_RATIO})"]
    elif not has_psi:
        parts = [WITHOUT_PSI]
    parts.append(f"page-cache limits of {count(counts[ReclaimKind.CACHE], 'pod')}")
    if not _can_take_file_pages(policy):
        parts.append(WITHOUT_FILE_PAGES)
    return "; ".join(parts)
