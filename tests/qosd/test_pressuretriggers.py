"""Pressure triggers where the kernel has none: what is said of each, and that the others and the loop go on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from koord.host.cgroup import Tree
from koord.model.qos import KubeQoS
from qosd.model.snapshot import PressureTrigger
from qosd.pressuretriggers import PressureTriggers

BE = KubeQoS.BEST_EFFORT
NODE = PressureTrigger("memory", "some", 150_000, 1_000_000)
TIER = PressureTrigger("memory", "full", 50_000, 2_000_000, BE)
TIERS = {BE: "/kubepods/besteffort"}


@asynccontextmanager
async def pressure_triggers(
    tmp_path: Path, *triggers: PressureTrigger, version: int = 2
) -> AsyncIterator[PressureTriggers]:
    before = len(os.listdir("/proc/self/fd"))
    tree = Tree(version, tmp_path, {"memory": tmp_path / "memory"} if version == 1 else {}, proc=tmp_path / "proc")
    armed = PressureTriggers(asyncio.get_running_loop(), tree, lambda: None)
    armed.watch(triggers, {})
    try:
        yield armed
    finally:
        armed.close()
    assert len(os.listdir("/proc/self/fd")) == before


def _no_tier(tmp_path: Path) -> Mapping[KubeQoS, str]:
    return {}


def _no_file(tmp_path: Path) -> Mapping[KubeQoS, str]:
    return TIERS


def _plain_file(tmp_path: Path) -> Mapping[KubeQoS, str]:
    directory = tmp_path / "kubepods/besteffort"
    directory.mkdir(parents=True)
    (directory / "memory.pressure").touch()
    return TIERS


@pytest.mark.parametrize(
    ("prepare", "problem"),
    [
        (_no_tier, "the tier's cgroup is not known yet"),
        (_no_file, "{tmp_path}/kubepods/besteffort/memory.pressure: No such file or directory"),
        (_plain_file, "{tmp_path}/kubepods/besteffort: is not a pressure file: Operation not permitted"),
    ],
    ids=["no tier", "no file", "a plain file"],
)
async def test_what_cannot_be_armed_is_named(
    tmp_path: Path, prepare: Callable[[Path], Mapping[KubeQoS, str]], problem: str
) -> None:
    async with pressure_triggers(tmp_path, TIER) as armed:
        tiers = prepare(tmp_path)
        for _ in range(2):
            armed.arm(tiers)
            (sentence,) = armed.problems
            assert sentence == (
                "no urgent wake-up on full memory of tier BestEffort: 50000 us in 2000000 us: "
                + problem.format(tmp_path=tmp_path)
            )


async def test_each_has_a_problem_of_its_own(tmp_path: Path) -> None:
    async with pressure_triggers(tmp_path, NODE, TIER, NODE) as armed:
        armed.arm(TIERS)
        assert [sentence.partition(": ")[0] for sentence in armed.problems] == [
            "no urgent wake-up on some memory of the node",
            "no urgent wake-up on full memory of tier BestEffort",
        ]


async def test_without_triggers_nothing_is_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    async with pressure_triggers(tmp_path) as armed:
        armed.arm(TIERS)
        assert armed.problems == ()
        assert len(os.listdir("/proc/self/fd")) == before


async def test_triggers_are_watched_as_long_as_somebody_wants_them(tmp_path: Path) -> None:
    directory = tmp_path / "memory/kubepods/besteffort"
    directory.mkdir(parents=True)
    (directory / "memory.pressure_level").touch()
    order = directory / "cgroup.event_control"
    before = len(os.listdir("/proc/self/fd"))
    async with pressure_triggers(tmp_path, version=1) as armed:
        for _ in range(2):
            order.write_text("")
            armed.watch((NODE, TIER), TIERS)
            event = int(order.read_text().split()[0])
            assert [sentence.partition(": ")[0] for sentence in armed.problems] == [
                "no urgent wake-up on some memory of the node"
            ]
            order.write_text("")
            armed.watch((NODE, TIER), TIERS)
            assert order.read_text() == "", "what is armed stays so"
            armed.watch((), TIERS)
            assert armed.problems == ()
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(event)
            armed.arm(TIERS)
            assert (order.read_text(), len(os.listdir("/proc/self/fd")) - before) == ("", 1)  # the epoll


async def test_a_tick_that_ends_after_the_end_costs_nothing(tmp_path: Path) -> None:
    async with pressure_triggers(tmp_path, NODE) as armed:
        for _ in range(2):
            armed.close()
            armed.watch((NODE,), TIERS)
            assert len(armed.problems) == 1


async def test_a_cgroup_of_v1_that_is_removed_ends_its_trigger_and_another_takes_its_place(tmp_path: Path) -> None:
    """The kernel's part, the event, is written here by hand; memory.pressure_level and its control are plain files."""
    urged = asyncio.Event()
    directory = tmp_path / "memory/kubepods/besteffort"
    tree = Tree(1, tmp_path, {"memory": tmp_path / "memory"}, proc=tmp_path / "proc")
    armed = PressureTriggers(asyncio.get_running_loop(), tree, urged.set)
    armed.watch((TIER,), {})
    for _ in range(2):
        directory.mkdir(parents=True)
        for name in ("memory.pressure_level", "cgroup.event_control"):
            (directory / name).touch()
        armed.arm(TIERS)
        assert armed.problems == ()
        event = int((directory / "cgroup.event_control").read_text().split()[0])
        os.eventfd_write(event, 1)
        await asyncio.wait_for(urged.wait(), 1)
        urged.clear()
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()
        os.eventfd_write(event, 1)
        await asyncio.sleep(0.05)
        assert not urged.is_set()
        problems: tuple[str, ...] = armed.problems
        assert [problem.endswith("its cgroup is gone") for problem in problems] == [True]
    armed.close()
