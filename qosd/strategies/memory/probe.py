"""Decides how much memory of a cgroup is reclaimed next, and when: by small steps, and long pauses if a step hurts.

    idle      1 % of the usage every 20 s, less the closer the cgroup's memory stall comes to the budget
    mark      what is above the low mark once usage is above the high one, every 5 s
    cache     file pages above their limit, every 5 s

A step hurts if half of what it took came back as refaults, or if tasks stall for memory beyond the budget; it is in
vain if the kernel found less to take. Then the next step waits twice as long, up to ten minutes; each good step halves
the pause. A cgroup above its mark may stall because it is at its bound, and the step relieves it: there a stall counts
only if it is no less than before the last step. A limit of file pages is kept whatever stalls, and waits only after a
step in vain. A step takes at most ``MOST_BYTES``, and at least ``LEAST_BYTES``.

Pure. Invariants: a step takes nothing below the floor, and no more than could be freed (without swap, anonymous memory
cannot be); while the stall is unknown only limits of file pages are kept.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from koord.host.spelling import file_pages
from koord.model.formulas import FORMULA, Formula, Inputs, number
from koord.model.lattice import Value

SECOND_NS = 1_000_000_000
STALL_BUDGET_US_PER_S = 1000
"""A thousandth of the time: less cannot be told from the stalls of a healthy container."""
MOST_BYTES = 64 << 20
"""The kernel works on that for some ten milliseconds."""
LEAST_BYTES = 1 << 20
LONGEST_NS = 600 * SECOND_NS
_IDLE_PERMILLE = 10


class ReclaimKind(StrEnum):
    """Why a cgroup is reclaimed."""

    IDLE = "idle"
    MARK = "mark"
    CACHE = "cache"


PERIODS_NS = {ReclaimKind.IDLE: 20 * SECOND_NS, ReclaimKind.MARK: 5 * SECOND_NS, ReclaimKind.CACHE: 5 * SECOND_NS}
"""A pod's stall is measured every 10 s: after 20 s it is of the time after the step."""


class ReclaimBounds(msgspec.Struct, frozen=True):
    """A cgroup is reclaimed while it has more than ``above_bytes``, and never below ``floor_bytes``.

    ``is_of_file_pages``: anonymous memory stays, if there is swap.
    """

    kind: ReclaimKind
    above_bytes: int
    floor_bytes: int
    is_of_file_pages: bool = False


class MemorySample(msgspec.Struct, frozen=True):
    """A cgroup at one instant. ``charged_bytes``: of the kind of memory that the bounds concern.

    ``reclaimable_bytes``: what the kernel could free at most. ``stall_us_per_s`` None: unknown. ``is_in_vain``: the
    last step took less than it was to take.
    """

    charged_bytes: int
    reclaimable_bytes: int
    stall_us_per_s: float | None
    is_in_vain: bool = False


class ReclaimProbe(msgspec.Struct, frozen=True):
    """The memory of a cgroup's steps. ``taken_bytes``: by the last step; ``refaulted_bytes``: read back since.

    ``due_ns``: the next step is taken no earlier, ``wait_ns`` after the last. ``stall_us_per_s``: before the last.
    """

    due_ns: int = 0
    wait_ns: int = 0
    taken_bytes: int = 0
    refaulted_bytes: float = 0.0
    stall_us_per_s: float = 0.0

    def with_refaults(self, refaulted_bytes: float) -> ReclaimProbe:
        return msgspec.structs.replace(self, refaulted_bytes=self.refaulted_bytes + refaulted_bytes)


class ReclaimStep(msgspec.Struct, frozen=True):
    """``value``: the value to write; ``inputs``: of the formula that made it."""

    value: Value
    amount_bytes: int
    inputs: Inputs


def next_step(
    bounds: ReclaimBounds, probe: ReclaimProbe, sample: MemorySample, page_bytes: int, now_ns: int
) -> tuple[ReclaimStep | None, ReclaimProbe]:
    """Returns the step that is due now, None if there is none, and the new memory of steps."""
    is_limit = bounds.kind is ReclaimKind.CACHE
    is_blind = sample.stall_us_per_s is None and not is_limit
    if now_ns < probe.due_ns or sample.charged_bytes <= bounds.above_bytes or is_blind:
        return None, probe
    period_ns = PERIODS_NS[bounds.kind]
    is_in_vain = sample.is_in_vain and probe.taken_bytes > 0
    if is_in_vain or (not is_limit and _hurts(bounds.kind, probe, sample)):
        wait_ns = min(LONGEST_NS, 2 * max(probe.wait_ns, period_ns))
        return None, ReclaimProbe(now_ns + wait_ns, wait_ns)
    step = _step(bounds, sample, page_bytes)
    if step is None:
        return None, probe
    wait_ns = max(period_ns, probe.wait_ns // 2 if probe.taken_bytes else probe.wait_ns)
    stall = sample.stall_us_per_s or 0.0
    return step, ReclaimProbe(now_ns + wait_ns, wait_ns, step.amount_bytes, stall_us_per_s=stall)


def _hurts(kind: ReclaimKind, probe: ReclaimProbe, sample: MemorySample) -> bool:
    stall = sample.stall_us_per_s or 0.0
    is_relieved = kind is ReclaimKind.MARK and (not probe.taken_bytes or stall < probe.stall_us_per_s)
    is_strained = stall >= STALL_BUDGET_US_PER_S and not is_relieved
    return is_strained or 0 < probe.taken_bytes < 2 * probe.refaulted_bytes


def _step(bounds: ReclaimBounds, sample: MemorySample, page_bytes: int) -> ReclaimStep | None:
    inputs: Inputs = {
        FORMULA: f"memory_{bounds.kind}",
        "charged_bytes": sample.charged_bytes,
        "floor_bytes": bounds.floor_bytes,
        "most_bytes": min(MOST_BYTES, sample.reclaimable_bytes),
        "page_bytes": page_bytes,
        "file_pages_alone": int(bounds.is_of_file_pages),
    }
    if bounds.kind is ReclaimKind.IDLE:
        room_us = STALL_BUDGET_US_PER_S - int(sample.stall_us_per_s or 0)
        inputs = {**inputs, "permille": _IDLE_PERMILLE, "room_us": room_us, "budget_us": STALL_BUDGET_US_PER_S}
    amount = _amount(inputs)
    return ReclaimStep(_order(inputs), amount, inputs) if amount >= LEAST_BYTES else None


def _amount(inputs: Inputs) -> int:
    charged, page = number(inputs, "charged_bytes"), number(inputs, "page_bytes")
    amount = min(charged - number(inputs, "floor_bytes"), number(inputs, "most_bytes"))
    if "permille" in inputs:
        permille, room, budget = (number(inputs, name) for name in ("permille", "room_us", "budget_us"))
        amount = min(amount, charged * permille * room // (1000 * budget))
    return max(0, amount) // page * page


def _order(inputs: Inputs) -> Value:
    amount = _amount(inputs)
    return file_pages(amount) if number(inputs, "file_pages_alone", 0) else amount


_ABOVE = "charged_bytes - floor_bytes, at most most_bytes, down to a multiple of page_bytes"
FORMULAS = (
    Formula(
        f"memory_{ReclaimKind.IDLE}", f"charged_bytes * permille / 1000 * room_us / budget_us, at most {_ABOVE}", _order
    ),
    Formula(f"memory_{ReclaimKind.MARK}", _ABOVE, _order),
    Formula(f"memory_{ReclaimKind.CACHE}", _ABOVE, _order),
)
