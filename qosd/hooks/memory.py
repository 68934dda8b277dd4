"""Memory QoS in the files of pods and containers: protection, throttling, background reclaim, order of OOM kills.

Files that CRI's ``unified`` carries (``memory.min``, ``memory.low`` and, of containers only, ``memory.high``; cgroup
v2) a container has from its creation. The reconciler alone gives the others: files that need not be there, each where
this kernel has it, on either cgroup version. Values and levels are Koordinator's, with one change: a group kill that is
not asked for (``oomKillGroup: 0``) is no opinion, because kubelet has the runtime switch it on for containers, and that
is not ours to take away.
"""

from __future__ import annotations

from collections.abc import Iterator

from koord.model.cfs import UNLIMITED
from koord.model.crifields import Field
from koord.model.formulas import FORMULA, Inputs
from qosd.hooks import memoryqos
from qosd.hooks.edits import Edit, Edits
from qosd.hooks.memoryqos import MemoryCase
from qosd.model.besteffort import BestEffortLimits
from qosd.model.pod import CALL_STAGES, PodContext
from qosd.model.policy import EffectivePolicy

MIN, LOW, HIGH = "memory.min", "memory.low", "memory.high"
WMARK_RATIO, WMARK_SCALE, WMARK_MIN_ADJ = "memory.wmark_ratio", "memory.wmark_scale_factor", "memory.wmark_min_adj"
PRIORITY, USE_PRIORITY, OOM_GROUP = "memory.priority", "memory.use_priority_oom", "memory.oom.group"
CACHE_ENABLE, CACHE_SIZE, CACHE_SYNC = (f"memory.pagecache_limit.{each}" for each in ("enable", "size", "sync"))
ROWS: frozenset[str] = frozenset(
    {MIN, LOW, HIGH, WMARK_RATIO, WMARK_SCALE, WMARK_MIN_ADJ, PRIORITY, USE_PRIORITY, OOM_GROUP}
    | {CACHE_ENABLE, CACHE_SIZE, CACHE_SYNC}
)
_MAINLINE_V2 = frozenset({MIN, LOW, HIGH})
_NOTHING: frozenset[str] = frozenset()


def decide(pod: PodContext, policy: EffectivePolicy, limits: BestEffortLimits) -> Edits:
    files = _files(pod, policy)
    case = memoryqos.of(pod, policy) if files else None
    if case is None:
        return Edits()
    return Edits(tuple([edit for edit in _edits(case, pod, policy) if edit.key in files]))


def _files(pod: PodContext, policy: EffectivePolicy) -> frozenset[str]:
    """Returns the files that can be edited at this stage, on this kernel."""
    always = _MAINLINE_V2 if policy.host.cgroup_version == 2 else _NOTHING
    return always if pod.stage in CALL_STAGES else always | (policy.host.files or _NOTHING)


def _edits(case: MemoryCase, pod: PodContext, policy: EffectivePolicy) -> Iterator[Edit]:
    settings = case.settings
    if (minimum := case.min_bytes) is not None:
        yield _protection(case, MIN, minimum, settings.min_limit_percent, 0)
    if (low := case.low_bytes) is not None:
        yield _protection(case, LOW, low, settings.low_limit_percent, case.min_bytes or 0)
    if pod.is_container and (high := case.high_bytes(policy)) is not None:
        yield _throttling(case, high, policy)
    for file, setting in (
        (WMARK_RATIO, settings.wmark_ratio),
        (WMARK_SCALE, settings.wmark_scale_permill),
        (WMARK_MIN_ADJ, settings.wmark_min_adj),
        (PRIORITY, settings.priority),
        (USE_PRIORITY, settings.priority_enable),
        (OOM_GROUP, settings.oom_kill_group or None),
    ):
        if setting is not None:
            yield _edit(case, file, setting)
    if not pod.is_container:
        yield from _page_cache(case)


def _page_cache(case: MemoryCase) -> Iterator[Edit]:
    size = case.page_cache_bytes
    if size is not None:
        yield _edit(case, CACHE_SIZE, size)
        yield _edit(case, CACHE_SYNC, int(bool(case.settings.page_cache_reclaim_sync)))
        yield _edit(case, CACHE_ENABLE, int(case.limits_page_cache))


def _edit(case: MemoryCase, file: str, value: int) -> Edit:
    return Edit(Field.UNIFIED, str(value), case.source, key=file)


def _protection(case: MemoryCase, file: str, value: int, percent: int | None, floor: int) -> Edit:
    computed: Inputs = {
        FORMULA: "memory_share",
        "request_bytes": case.request_bytes or 0,
        "percent": percent,
        "floor_bytes": floor,
    }
    why = f"{percent} % of the memory request {case.request_bytes}, {case.source}"
    return Edit(Field.UNIFIED, str(value), why, key=file, computed=computed)


def _throttling(case: MemoryCase, high: int, policy: EffectivePolicy) -> Edit:
    percent = case.settings.throttling_percent
    why = f"throttling from {percent} % between request and limit on, {case.source}"
    if high == UNLIMITED:
        return Edit(Field.UNIFIED, "max", why, key=HIGH)
    computed: Inputs = {
        FORMULA: "memory_high",
        "request_bytes": case.request_bytes,
        "ceiling_bytes": case.ceiling_bytes(policy),
        "percent": percent,
        "page_bytes": policy.host.page_bytes,
        "floor_bytes": case.floor_bytes,
    }
    return Edit(Field.UNIFIED, str(high), why, key=HIGH, computed=computed)
