"""What a cgroup uses, on both cgroup versions: first sight, rates, resets, and directories that come and go."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from qosd.sense.meters import REFRESH_TICKS
from qosd.sense.usage import UsageGauge
from tests.qosd.sense.trees import MEMORY, World

GROUP = "/kubepods/podx/c"
NAN = math.nan
MEMORY_FIGURES = (1203.0, 1260.0, 950.0)


def meter(world: World, phase: int = 0) -> UsageGauge:
    return UsageGauge(world.tree, GROUP, world.files, world.clock, phase)


def same(row: tuple[float, ...] | None, *expected: float) -> bool:
    """Of the columns with history."""
    return row is not None and list(row[: len(expected)]) == pytest.approx(list(expected), nan_ok=True)


def test_a_cgroup_that_is_not_there(world: World) -> None:
    assert meter(world).sample() is None


def test_the_first_sight_has_no_rate(world: World) -> None:
    world.usage(GROUP, 5_000_000, MEMORY, charged=1000)
    assert same(meter(world).sample(), NAN, NAN, NAN, *MEMORY_FIGURES, NAN, NAN)


@pytest.mark.parametrize(
    ("throttled", "ratio", "us_per_s"),
    [("10 1 1000", 0.0, 0.0), ("20 6 51000", 0.5, 25_000.0), ("30 1 1000", 0.0, 0.0), ("5 0 0", NAN, NAN)],
)
def test_rates(world: World, throttled: str, ratio: float, us_per_s: float) -> None:
    world.usage(GROUP, 5_000_000, MEMORY, charged=1000, throttled="10 1 1000")
    one = meter(world)
    one.sample()
    world.clock.advance(2)
    memory = MEMORY | {"active_file": 107, "workingset_refault_anon": 4, "workingset_refault_file": 6, "pgmajfault": 30}
    world.usage(GROUP, 8_000_000, memory, charged=1100, throttled=throttled)
    assert same(one.sample(), 1.5, ratio, us_per_s, 1203, 1360, 1050, 5.0, 15.0)


def test_nothing_happened(world: World) -> None:
    world.usage(GROUP, 5_000_000, MEMORY, charged=1000, throttled="10 1 1000")
    one = meter(world)
    one.sample()
    world.clock.advance(1)
    assert same(one.sample(), 0.0, 0.0, 0.0, *MEMORY_FIGURES, NAN, NAN), "memory.stat was not read a second time"


DIRTY = {1: ("dirty", "writeback"), 2: ("file_dirty", "file_writeback")}
"""How memory.stat names the file pages that have to be written first, by cgroup version."""


@pytest.mark.parametrize(
    ("moved", "charged", "unreclaimable", "reclaimable"),
    [
        ({}, 1260, {1: 1203, 2: 1203}, {1: 57, 2: 57}),
        ({}, 1300, {1: 1203, 2: 1243}, {1: 57, 2: 57}),  # kernel memory that stays; v1 does not tell what of it does
        ({"slab_reclaimable": 40}, 1300, {1: 1203, 2: 1203}, {1: 57, 2: 97}),  # dentries and inodes
        ({"slab_reclaimable": 90_000}, 91_260, {1: 1203, 2: 1203}, {1: 57, 2: 90_057}),
        ({"swapcached": 200}, 1260, {1: 1003, 2: 1003}, {1: 257, 2: 257}),
        ({"dirty": 30, "writeback": 20}, 1260, {1: 1203, 2: 1203}, {1: 7, 2: 7}),  # they are written, then taken back
        ({"dirty": 300}, 1260, {1: 1203, 2: 1203}, {1: 0, 2: 0}),
        ({"unevictable": 103}, 1360, {1: 1303, 2: 1303}, {1: 57, 2: 57}),
        ({"active_file": 1000}, 1260, {1: 1203, 2: 210}, {1: 1050, 2: 1050}),  # charged between two reads
        ({"active_file": 3000}, 1260, {1: 1203, 2: 0}, {1: 3050, 2: 3050}),
    ],
)
def test_what_the_kernel_can_take_back(
    world: World,
    moved: Mapping[str, int],
    charged: int,
    unreclaimable: Mapping[int, int],
    reclaimable: Mapping[int, int],
) -> None:
    names = dict(zip(("dirty", "writeback"), DIRTY[world.version], strict=True))
    stat = MEMORY | {names.get(key, key): value for key, value in moved.items()}
    world.usage(GROUP, 5_500_000, stat, charged=charged)
    row = meter(world).sample()
    assert row is not None and row.cpu_seconds == 5.5
    figures = (row.memory_unreclaimable_bytes, row.memory_reclaimable_bytes)
    assert figures == (unreclaimable[world.version], reclaimable[world.version])


def test_without_its_charge_v2_does_not_tell_what_stays(world: World) -> None:
    world.usage(GROUP, 5_500_000, MEMORY)
    world.path(GROUP, "memory.usage_in_bytes" if world.version == 1 else "memory.current").unlink()
    row = meter(world).sample()
    assert row is not None and row.memory_reclaimable_bytes == 57
    assert same((row.memory_unreclaimable_bytes,), 1203 if world.version == 1 else NAN)


@pytest.mark.parametrize("elapsed_s", [0, -1])
def test_a_clock_that_does_not_advance_drops_the_rates(world: World, elapsed_s: int) -> None:
    world.usage(GROUP, 5_000_000, MEMORY, charged=1000)
    one = meter(world)
    one.sample()
    world.clock.advance(elapsed_s)
    world.usage(GROUP, 6_000_000, MEMORY, charged=1000, throttled="1 1 1")
    row = one.sample()
    assert row is not None and math.isnan(row[0]) and row[3] == 1203


def test_a_counter_that_fell_is_a_new_base(world: World) -> None:
    world.usage(GROUP, 5_000_000, MEMORY, charged=1000)
    one = meter(world)
    one.sample()
    rates = []
    for cpu_us in (1_000_000, 2_000_000):
        world.clock.advance(1)
        world.usage(GROUP, cpu_us, MEMORY, charged=1000)
        row = one.sample()
        rates.append(row[0] if row else None)
    assert rates == pytest.approx([NAN, 1.0], nan_ok=True)


def test_a_cgroup_made_anew_starts_afresh_even_if_its_counters_are_higher(world: World) -> None:
    world.usage(GROUP, 5_000_000, MEMORY, charged=1000)
    one = meter(world)
    one.sample()
    for name in ("cgroup",):
        shutil.move(world.root / name, world.root / "old")
    world.files.close()  # the kernel's own files end by themselves
    world.clock.advance(1)
    world.usage(GROUP, 9_000_000, MEMORY, charged=2000)
    assert same(one.sample(), NAN, NAN, NAN, 1203, 1260, 1950, NAN, NAN)


def test_a_cgroup_that_goes_and_comes_back(world: World) -> None:
    world.usage(GROUP, 5_000_000, MEMORY, charged=1000)
    one = meter(world)
    one.sample()
    shutil.rmtree(world.root / "cgroup")
    world.files.close()
    assert [one.sample() for _ in range(3)] == [None] * 3
    world.usage(GROUP, 9_000_000, MEMORY, charged=1000)
    assert same(one.sample(), NAN, NAN, NAN, *MEMORY_FIGURES, NAN, NAN)


def test_without_memory_files_the_cpu_is_there(world: World) -> None:
    world.usage(GROUP, 5_000_000, MEMORY)
    world.path(GROUP, "memory.stat").unlink()
    world.path(GROUP, "memory.usage_in_bytes" if world.version == 1 else "memory.current").unlink()
    one = meter(world)
    one.sample()
    world.clock.advance(1)
    world.usage(GROUP, 6_000_000, MEMORY, charged=1000)
    assert same(one.sample(), 1.0, 0.0, 0.0, *MEMORY_FIGURES, NAN, NAN)


def test_a_memory_stat_without_its_keys_has_no_figures(world: World) -> None:
    world.usage(GROUP, 5_000_000, {}, charged=1000)
    assert same(meter(world).sample(), NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN)


@pytest.mark.parametrize("phase", range(REFRESH_TICKS))
def test_what_moved_at_the_same_charge_is_seen_within_the_refresh(world: World, phase: int) -> None:
    world.usage(GROUP, 5_000_000, MEMORY, charged=1000)
    one = meter(world, phase)
    one.sample()
    world.usage(GROUP, 5_000_000, MEMORY | {"active_anon": 250, "active_file": 0}, charged=1000)
    seen = [row[3] for _ in range(REFRESH_TICKS) if (row := one.sample())]
    assert seen[-1] == 1253


def refaulting(world: World, one: UsageGauge, seconds: int, **per_s: int) -> list[float]:
    """The refaults of each second of a container that reads pages back at a constant charge."""
    rates = []
    for second in range(seconds):
        moved = {key: second * pages for key, pages in per_s.items()}
        without = {key: value for key, value in MEMORY.items() if not key.startswith("workingset")}
        world.usage(GROUP, 5_000_000 + second, without | moved, charged=1000)
        row = one.sample()
        rates.append(row[6] if row else NAN)
        world.clock.advance(1)
    return rates


@pytest.mark.parametrize("phase", range(REFRESH_TICKS))
@pytest.mark.parametrize(
    "per_s",
    [
        {"workingset_refault_anon": 400, "workingset_refault_file": 600},
        {"workingset_refault": 1000},  # kernels before 5.9
        {"workingset_refault_file": 1000},
    ],
)
def test_thrashing_at_the_limit_is_seen_in_every_sample(world: World, per_s: dict[str, int], phase: int) -> None:
    rates = refaulting(world, meter(world, phase), 4 * REFRESH_TICKS, **per_s)
    assert not any(rate == 0 for rate in rates), "no sample is not 0"
    assert rates[2 * REFRESH_TICKS :] == [1000.0] * 2 * REFRESH_TICKS


def test_a_kernel_that_counts_no_refaults_has_no_sample_of_them(world: World) -> None:
    assert all(math.isnan(rate) for rate in refaulting(world, meter(world), 3 * REFRESH_TICKS))


def test_a_kernel_that_counts_no_major_faults_has_no_sample_of_them(world: World) -> None:
    without = {key: value for key, value in MEMORY.items() if key != "pgmajfault"}
    one = meter(world)
    for second in range(3 * REFRESH_TICKS):
        world.usage(GROUP, second, without, charged=1000)
        row = one.sample()
        world.clock.advance(1)
    assert row is not None and math.isnan(row[7]) and not math.isnan(row[6])


def test_a_quota_that_came_later_is_seen_within_the_refresh(tmp_path: Path) -> None:
    world = World(tmp_path, 1)
    world.usage(GROUP, 0, MEMORY)
    one = meter(world)
    ratios = []
    for second in range(1, 2 * REFRESH_TICKS):
        world.clock.advance(1)
        world.usage(GROUP, second * 1000, MEMORY, throttled=f"{10 * second} {5 * second} 0")
        row = one.sample()
        ratios.append(row[1] if row else None)
    assert ratios[-REFRESH_TICKS:] == [0.5] * REFRESH_TICKS


def test_the_descriptors_are_those_of_the_paths(world: World) -> None:
    world.usage(GROUP, 5_000_000, MEMORY, charged=1000)
    one = meter(world)
    one.sample()
    assert len(world.files) == len(one.paths)
    world.files.drop(one.paths)
    assert len(world.files) == 0
