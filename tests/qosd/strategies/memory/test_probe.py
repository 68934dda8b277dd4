"""How much is reclaimed next, and when: the controller as a table, and against a model of a process and its kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.host.files import ROWS
from koord.model import formulas
from qosd.strategies.memory.probe import (
    FORMULAS,
    LEAST_BYTES,
    LONGEST_NS,
    MOST_BYTES,
    PERIODS_NS,
    SECOND_NS,
    STALL_BUDGET_US_PER_S,
    MemorySample,
    ReclaimBounds,
    ReclaimKind,
    ReclaimProbe,
    next_step,
)

MIB, PAGE, S = 1 << 20, 4096, SECOND_NS
IDLE = ReclaimBounds(ReclaimKind.IDLE, 16 * MIB, 16 * MIB)
MARK = ReclaimBounds(ReclaimKind.MARK, 950 * MIB, 930 * MIB)
CACHE = ReclaimBounds(ReclaimKind.CACHE, 100 * MIB, 100 * MIB)
OF_FILE_PAGES = ReclaimBounds(ReclaimKind.CACHE, 100 * MIB, 100 * MIB, is_of_file_pages=True)
BY_NAME = {formula.name: formula for formula in FORMULAS}
NOW = 1000 * S


def sample(
    charged_mib: float, reclaimable_mib: float | None = None, stall: float | None = 0.0, is_in_vain: bool = False
) -> MemorySample:
    charged = int(charged_mib * MIB)
    return MemorySample(charged, charged if reclaimable_mib is None else int(reclaimable_mib * MIB), stall, is_in_vain)


def taken(mib: float, refaulted_mib: float = 0, wait_s: int = 20, stall: float = 0.0) -> ReclaimProbe:
    return ReclaimProbe(NOW, wait_s * S, int(mib * MIB), refaulted_mib * MIB, stall)


@pytest.mark.parametrize(
    ("bounds", "probe", "at", "order", "wait_s"),
    [
        # idle: 1 %, less the closer the stall comes to the budget
        (IDLE, ReclaimProbe(), sample(1000), 10 * MIB, 20),
        (IDLE, ReclaimProbe(), sample(1000, stall=500), 5 * MIB, 20),
        (IDLE, ReclaimProbe(), sample(1000, stall=1000), None, 40),
        (IDLE, ReclaimProbe(), sample(1000, stall=None), None, 0),
        (IDLE, ReclaimProbe(), sample(10_000), MOST_BYTES, 20),
        (IDLE, ReclaimProbe(), sample(1000, reclaimable_mib=3), 3 * MIB, 20),
        (IDLE, ReclaimProbe(), sample(1000, reclaimable_mib=0), None, 0),  # anonymous memory without swap
        (IDLE, ReclaimProbe(), sample(99), None, 0),  # less than is worth an order
        (IDLE, ReclaimProbe(), sample(16), None, 0),
        (IDLE, ReclaimProbe(NOW + 1), sample(1000), None, 0),
        # felt: half of it came back, or the stall is beyond the budget
        (IDLE, taken(10, 5), sample(1000), 10 * MIB, 20),
        (IDLE, taken(10, 5.1), sample(1000), None, 40),
        (IDLE, taken(10, 5.1, 40), sample(1000), None, 80),
        (IDLE, taken(10, 5.1, 500), sample(1000), None, 600),
        (IDLE, taken(10, 5.1, 600), sample(1000), None, 600),
        (IDLE, taken(10, 0, 600), sample(1000, stall=2000), None, 600),
        # after a pause one step at the same pace, and faster again once it did not hurt
        (IDLE, taken(0, 0, 600), sample(1000), 10 * MIB, 600),
        (IDLE, taken(10, 1, 600), sample(1000), 10 * MIB, 300),
        (IDLE, taken(10, 1, 30), sample(1000), 10 * MIB, 20),
        # marks: above the high one down to the low one, in steps
        (MARK, ReclaimProbe(), sample(951), 21 * MIB, 5),
        (MARK, ReclaimProbe(), sample(950), None, 0),
        (MARK, ReclaimProbe(), sample(999), MOST_BYTES, 5),
        (MARK, ReclaimProbe(), sample(951, reclaimable_mib=2), 2 * MIB, 5),
        (MARK, taken(21, 20, 5), sample(951), None, 10),
        # it stalls because it is at its bound: a step is tried, and another one only if that has relieved it
        (MARK, ReclaimProbe(), sample(951, stall=5000), 21 * MIB, 5),
        (MARK, taken(21, 0, 5, stall=5000), sample(951, stall=4999), 21 * MIB, 5),
        (MARK, taken(21, 0, 5, stall=5000), sample(951, stall=5000), None, 10),
        (MARK, taken(21, 0, 5, stall=900), sample(951, stall=999), 21 * MIB, 5),
        (MARK, taken(21, 0, 5), sample(951, stall=1000), None, 10),
        (MARK, ReclaimProbe(), sample(951, stall=None), None, 0),
        # in vain: the kernel found less
        (IDLE, taken(10), sample(1000, is_in_vain=True), None, 40),
        (MARK, taken(21, 0, 5), sample(951, is_in_vain=True), None, 10),
        (CACHE, taken(30, 0, 5), sample(130, is_in_vain=True), None, 10),
        (CACHE, taken(0, 0, 10), sample(130, is_in_vain=True), 30 * MIB, 10),
        # a limit of file pages is a limit
        (CACHE, ReclaimProbe(), sample(130), 30 * MIB, 5),
        (CACHE, ReclaimProbe(), sample(130, stall=None), 30 * MIB, 5),
        (CACHE, taken(30, 30, 5), sample(130, stall=9000), 30 * MIB, 5),
        (CACHE, ReclaimProbe(), sample(100.5), None, 0),
        (OF_FILE_PAGES, ReclaimProbe(), sample(130), f"{30 * MIB} swappiness=0", 5),
    ],
)
def test_next(
    bounds: ReclaimBounds, probe: ReclaimProbe, at: MemorySample, order: int | str | None, wait_s: int
) -> None:
    step, after = next_step(bounds, probe, at, PAGE, NOW)
    assert (None if step is None else step.value) == order
    if wait_s:
        assert (after.due_ns - NOW, after.wait_ns) == (wait_s * S, wait_s * S)
    else:
        assert after is probe, "nothing is remembered of what did not happen"


MEMORY = st.integers(0, 1 << 42)


@given(
    st.builds(ReclaimBounds, st.sampled_from(ReclaimKind), MEMORY, MEMORY, st.booleans()),
    st.builds(
        ReclaimProbe, st.integers(0, 10**12), st.integers(0, LONGEST_NS), st.integers(0, MOST_BYTES), st.floats(0, 1e9)
    ),
    st.builds(MemorySample, MEMORY, MEMORY, st.none() | st.floats(0, 1e6), st.booleans()),
    st.integers(0, 10**12),
)
def test_what_no_step_does(bounds: ReclaimBounds, probe: ReclaimProbe, at: MemorySample, now_ns: int) -> None:
    step, after = next_step(bounds, probe, at, PAGE, now_ns)
    assert after.due_ns >= min(now_ns, probe.due_ns)
    assert after.wait_ns <= LONGEST_NS
    if step is None:
        return
    amount = step.amount_bytes
    assert LEAST_BYTES <= amount <= min(MOST_BYTES, at.reclaimable_bytes, at.charged_bytes - bounds.floor_bytes)
    assert amount % PAGE == 0 and at.charged_bytes > bounds.above_bytes and now_ns >= probe.due_ns
    assert after.due_ns >= now_ns + PERIODS_NS[bounds.kind]
    stall = at.stall_us_per_s
    assert bounds.kind is ReclaimKind.CACHE or stall is not None
    assert bounds.kind is not ReclaimKind.IDLE or (stall is not None and stall < STALL_BUDGET_US_PER_S)
    ROWS["memory.reclaim"].check(step.value, 2)
    assert formulas.recompute(step.inputs, BY_NAME) == step.value


@dataclass
class Plant:
    """A process on a kernel: ``hot`` pages are touched within seconds, the others when their second comes.

    The kernel reclaims what was not touched for longest, but for one page in so many, which it takes from anywhere. A
    page that comes back costs its task ``COST_US``; at the ``bound`` each that is new costs it ``DIRECT_US``. Pages are
    of a mebibyte, so that a run takes milliseconds.
    """

    COST_US, DIRECT_US = 20_000, 5_000
    hot: int
    cold: int
    growth_per_s: float = 0.0
    error: float = 0.1
    bound: int = 1 << 30
    chance: Random = field(default_factory=lambda: Random(7))

    def __post_init__(self) -> None:
        self.touched_s: dict[int, float] = dict.fromkeys(range(self.hot + self.cold), 0.0)
        self.gone: set[int] = set()
        self.stall_us = self.refaulted_mib = 0.0
        self.now_s, self.made = 0, float(len(self.touched_s))

    def reclaim(self, pages: int) -> None:
        by_age = sorted(self.touched_s, key=lambda page: self.touched_s[page])
        for _ in range(min(pages, len(by_age))):
            page = by_age.pop(self.chance.randrange(len(by_age)) if self.chance.random() < self.error else 0)
            del self.touched_s[page]
            self.gone.add(page)

    def run(self, hot: int | None = None) -> None:
        """One second."""
        self.now_s, self.stall_us, self.refaulted_mib = self.now_s + 1, 0.0, 0.0
        for page in range(self.hot if hot is None else hot):
            if self.chance.random() < 0.3:
                if page in self.gone:
                    self.gone.discard(page)
                    self.stall_us += self.COST_US
                    self.refaulted_mib += 1
                self.touched_s[page] = self.now_s
        self.made += self.growth_per_s
        for page in range(len(self.touched_s) + len(self.gone), int(self.made)):
            self.touched_s[page] = self.now_s
        over = len(self.touched_s) - self.bound
        if over > 0:
            self.stall_us += over * self.DIRECT_US
            self.reclaim(over)


@dataclass
class Controlled:
    """The plant under the controller: its stall is told as a mean over 10 s, its refaults every second."""

    plant: Plant
    bounds: ReclaimBounds
    probe: ReclaimProbe = field(default_factory=ReclaimProbe)
    stalls: list[float] = field(default_factory=list)
    orders: list[tuple[int, int]] = field(default_factory=list)
    told: float | None = None

    def run(self, seconds: int, hot: int | None = None) -> None:
        for _ in range(seconds):
            self.plant.run(hot)
            self.stalls.append(self.plant.stall_us)
            if self.plant.now_s % 10 == 0:
                self.told = sum(self.stalls[-10:]) / 10
            if self.probe.taken_bytes:
                self.probe = self.probe.with_refaults(self.plant.refaulted_mib * MIB)
            charged = len(self.plant.touched_s) * MIB
            at = MemorySample(charged, charged, self.told)
            step, self.probe = next_step(self.bounds, self.probe, at, PAGE, self.plant.now_s * S)
            if step is not None:
                self.orders.append((self.plant.now_s, step.amount_bytes))
                self.plant.reclaim(math.ceil(step.amount_bytes / MIB))

    def mean_stall(self, last_s: int) -> float:
        return sum(self.stalls[-last_s:]) / last_s


def test_cold_memory_goes_and_hot_memory_stays() -> None:
    """All that nobody touches is taken, little more, and the stall stays within the budget."""
    run = Controlled(Plant(hot=200, cold=800), IDLE)
    run.run(6000)
    left = len(run.plant.touched_s)
    assert 190 <= left <= 450, left
    assert run.mean_stall(6000) < STALL_BUDGET_US_PER_S


def test_a_working_set_is_probed_seldom_and_by_little() -> None:
    run = Controlled(Plant(hot=1000, cold=0), IDLE)
    run.run(3600)
    assert len(run.orders) < 30
    gaps = [after - before for (before, _), (after, _) in zip(run.orders, run.orders[1:], strict=False)]
    assert gaps[-1] >= 600, "ten minutes between two probes in the end"
    assert run.mean_stall(1800) < STALL_BUDGET_US_PER_S


def test_who_becomes_cold_is_found_and_who_becomes_hot_again_is_left() -> None:
    run = Controlled(Plant(hot=600, cold=0), IDLE)
    run.run(1800)
    run.run(6000, hot=100)
    idle = len(run.plant.touched_s)
    assert idle < 400, "what was hot is cold now"
    run.run(1200, hot=600)
    assert len(run.plant.touched_s) > 550, "it has come back"
    before = len(run.orders)
    run.run(1200, hot=600)
    assert len(run.orders) - before <= 4


@pytest.mark.parametrize("cold", [500, 800])
def test_above_its_mark_a_container_does_not_come_to_its_bound(cold: int) -> None:
    """Page cache grows by 3 MiB a second below a bound of 1000 MiB, which it has reached at first, or not yet."""
    alone = Plant(200, cold, 3.0, error=0.01, bound=1000)
    stalls = 0.0
    for _ in range(600):
        alone.run()
        stalls += alone.stall_us
    run = Controlled(Plant(200, cold, 3.0, error=0.01, bound=1000), MARK)
    run.run(600)
    assert stalls / 600 > 5 * STALL_BUDGET_US_PER_S, "the kernel alone lets who allocates look for pages"
    assert run.mean_stall(500) < STALL_BUDGET_US_PER_S
    assert 920 <= len(run.plant.touched_s) <= 970


def test_who_needs_all_of_its_bound_is_left_alone_above_the_mark() -> None:
    """990 MiB in use of 1000: each step comes back at once."""
    run = Controlled(Plant(hot=990, cold=0, bound=1000), MARK)
    run.run(3600)
    assert len(run.orders) < 15


def test_steps_of_any_kind_are_bounded_in_a_minute() -> None:
    for bounds in (IDLE, MARK, CACHE):
        probe, asked = ReclaimProbe(), 0
        for second in range(60):
            step, probe = next_step(bounds, probe, sample(4000), PAGE, second * S)
            asked += step.amount_bytes if step is not None else 0
        assert asked <= 60 // (PERIODS_NS[bounds.kind] // S) * MOST_BYTES, bounds.kind
