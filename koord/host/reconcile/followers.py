"""Files whose value depends on what becomes of another file of their cgroup, which is called their leader here.

    shares           follow ``cpu.idle``: the kernel makes them 3, and locks them, while that is 1
    limits of swap   stay as the runtime made them while a limit of memory is wanted; v1's grows with that limit
    burst            is at most the quota: the kernel refuses any other

Pure. Invariant: leaders are planned before their followers, in the order of ``with_partners``, so the transitions that
are made by then tell what becomes of each leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from koord.host.files import Target, Value
from koord.host.order import BURST, IDLE, MEMORY, QUOTA, SHARES, SWAP
from koord.host.reconcile.state import FileState
from koord.host.reconcile.step import Observed, Transition, step, step_shares
from koord.host.reconcile.wanted import Wanted, within_quota
from koord.model.cfs import UNLIMITED
from koord.model.formulas import FORMULA, Inputs

SWAPS = (SWAP, "memory.swap.max")
"""The limits of swap: v1 has the first, v2 the second."""
_FOLLOWERS: Mapping[str, tuple[str, ...]] = {IDLE: (SHARES,), MEMORY: SWAPS, QUOTA: (BURST,)}
_LEADERS = {follower: leader for leader, followers in _FOLLOWERS.items() for follower in followers}
SELDOM = (*SWAPS, BURST)
"""Followers that are looked at only where a value is wanted of them, where they are held, and where they may hinder."""
Transitions = Mapping[Target, Transition]


def with_partners(targets: Iterable[Target]) -> dict[Target, None]:
    """Returns ``targets`` with the leader and the followers of each, followers last."""
    ordered: dict[Target, None] = {}
    last: dict[Target, None] = {}
    for target in targets:
        leader = _LEADERS.get(target.name)
        ordered[target if leader is None else Target(target.cgroup, leader)] = None
        last.update((Target(target.cgroup, name), None) for name in _FOLLOWERS.get(leader or target.name, ()))
    return ordered | last


def may_hinder(target: Target, transitions: Transitions) -> bool:
    """Would the kernel refuse the leader's write because of the value that ``target`` has?

    True of a burst whose quota is to be lowered, and of v1's limit of memory with swap where that of memory is to grow.
    """
    if target.name == SWAP:
        memory = transitions.get(Target(target.cgroup, MEMORY))
        if memory is None or memory.reading is None or not isinstance(memory.write, int):
            return False
        return isinstance(memory.reading.value, int) and _is_more(memory.write, memory.reading.value)
    quota = transitions.get(Target(target.cgroup, QUOTA)) if target.name == BURST else None
    if quota is None or quota.reading is None or not isinstance(quota.write, int) or quota.write < 0:
        return False
    before = quota.reading.value
    return isinstance(before, int) and (before < 0 or quota.write < before)


def step_beside_idle(target: Target, observed: Observed, transitions: Transitions) -> Transition:
    """Returns the transition of a file; that of shares depends on what becomes of ``cpu.idle``."""
    idle = transitions.get(Target(target.cgroup, IDLE)) if target.name == SHARES else None
    if idle is None or idle.reading is None:
        return step(observed)
    is_idle = idle.reading.value == 1
    shall_be = (idle.reading.value if idle.write is None else idle.write) == 1
    is_ours = (idle.state if idle.write is None else idle.after).is_held
    return step_shares(observed, shall_be, is_ours) if is_idle or shall_be else step(observed)


def burst_beside_quota(target: Target, wanted: Wanted, burst_us: Value | None, transitions: Transitions) -> Wanted:
    """Returns what is wanted of a burst that would be ``burst_us``, bounded by what becomes of the quota.

    The kernel refuses a burst above the quota, and a quota below the burst, also where another writer made one of them.
    So a burst that no strategy wants is lowered for the strategy that lowers the quota, and comes back with the quota.
    """
    leader = transitions.get(Target(target.cgroup, QUOTA))
    if leader is None or leader.reading is None:
        return wanted
    quota_us = leader.reading.value if leader.write is None else leader.write
    if wanted.value is None and not wanted.keep:
        by = leader.wanted.by or leader.state.by
        instead = Wanted(None, by, leader.wanted.why, pod=leader.wanted.pod, refused=wanted.refused)
        bounded = within_quota(instead, burst_us, quota_us)
        return wanted if bounded is instead else _lasting_along(bounded, burst_us, leader.wanted.lasting)
    return _lasting_along(within_quota(wanted, burst_us, quota_us), burst_us, leader.wanted.lasting)


def _lasting_along(burst: Wanted, burst_us: Value | None, lasting_us: Value | None) -> Wanted:
    """Returns a burst of ``burst_us``, lowered because of a temporary quota, with what it is beside the lasting one."""
    if lasting_us is None or burst.value in (None, burst_us):
        return burst
    return replace(burst, lasting=within_quota(Wanted(burst_us), burst_us, lasting_us).value)


def swap_beside_memory(
    target: Target, wanted: Wanted, actual: Value | None, state: FileState, transitions: Transitions
) -> Wanted:
    """Returns what is wanted of a limit of swap, which holds ``actual`` and has ``state``.

    It stays as the runtime made it for as long as a strategy wants a limit of memory. But v1 limits memory and swap
    together, and takes no limit of memory above that: so this one grows with it, and follows it back after that.
    """
    memory = transitions.get(Target(target.cgroup, MEMORY))
    if wanted.value is not None:
        return wanted
    if memory is None:  # nothing tells what becomes of it
        return replace(wanted, keep=True)
    if memory.wanted.value is None and not memory.wanted.keep:
        return wanted
    cause, why = memory.wanted, "the runtime made it for the memory limit"
    limit = cause.value
    if target.name == SWAP and isinstance(limit, int) and isinstance(actual, int):
        follows = state.is_held and memory.reading is not None and actual == memory.reading.value
        if _is_more(limit, actual) or follows:
            why = "memory with swap is limited to what memory is, as the runtime makes it"
            given: Inputs = {FORMULA: "given", "value": limit}
            return Wanted(limit, cause.by, why, given, cause.pod, refused=wanted.refused)
    return Wanted(None, cause.by, why, pod=cause.pod, keep=True, refused=wanted.refused)


def _is_more(limit: int, than: int) -> bool:
    """Of two limits, of which -1 is none."""
    return than != UNLIMITED and (limit == UNLIMITED or limit > than)
