"""Pressure triggers on this machine's kernel: PSI of a cgroup, memory.pressure_level of v1, and a cgroup that goes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from integration.harness.cgroups import hierarchies
from koord.host import pressuretrigger
from koord.host.cgroup import Tree, detect
from koord.model.qos import KubeQoS
from qosd.model.snapshot import PressureTrigger
from qosd.pressuretriggers import PressureTriggers
from qosd.tickscheduler import TickReason, TickScheduler

BE = KubeQoS.BEST_EFFORT
CPU = PressureTrigger("cpu", "some", 50_000, 500_000, BE)
MEMORY = PressureTrigger("memory", "some", 50_000, 500_000, BE)
LONGEST_S = 15.0
BUSY = """
import os, time
open(os.environ["PROCS"], "w").write("0")
end = time.time() + 9
while time.time() < end:
    pass
"""
CACHE_BYTES = 64 << 20
LIMIT_BYTES = 24 << 20


@pytest.fixture
def tier() -> Iterator[str]:
    """The name of a cgroup of this test; nothing of it is left."""
    name = f"/koordtest-trigger-{os.getpid()}"
    yield name
    for mount in ("unified", "memory"):
        directory = _directory(mount, name)
        if directory.is_dir():
            directory.rmdir()


def _directory(mount: str, cgroup: str) -> Path:
    return hierarchies()[mount] / cgroup.lstrip("/")


def tree() -> Tree:
    return detect(Path("/sys/fs/cgroup"), Path("/proc/self/mountinfo").read_text())


@contextmanager
def large_file(path: Path) -> Iterator[Path]:
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


@asynccontextmanager
async def armed(tier: str, trigger: PressureTrigger, urge: Callable[[], None]) -> AsyncIterator[PressureTriggers]:
    pressure_triggers = PressureTriggers(asyncio.get_running_loop(), tree(), urge)
    try:
        pressure_triggers.watch((trigger,), {BE: tier})
        yield pressure_triggers
    finally:
        pressure_triggers.close()


@contextmanager
def busy(cgroup: Path) -> Iterator[None]:
    """Twice as many tasks as CPUs, for nine seconds at most."""
    environ = {**os.environ, "PROCS": str(cgroup / "cgroup.procs")}
    tasks = [subprocess.Popen([sys.executable, "-c", BUSY], env=environ) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for task in tasks:
            task.kill()
            task.wait()


async def test_tasks_that_wait_make_an_urgent_tick(tier: str) -> None:
    """From the kernel to the tick: the next beat is a minute away."""
    cgroup = _directory("unified", tier)
    cgroup.mkdir()
    scheduler, ticks = TickScheduler(60), list[tuple[float, TickReason]]()

    async def tick(reason: TickReason) -> None:
        ticks.append((time.monotonic(), reason))

    async with armed(tier, CPU, scheduler.urge) as pressure_triggers:
        assert pressure_triggers.problems == ()
        running = asyncio.create_task(scheduler.run(tick))
        await asyncio.sleep(0.5)
        with busy(cgroup):
            began_s = time.monotonic()
            while len(ticks) < 2 and time.monotonic() < began_s + LONGEST_S:  # noqa: ASYNC110 - ticks are a list
                await asyncio.sleep(0.02)
        running.cancel()
    assert [reason for _, reason in ticks][:2] == [TickReason.BEAT, TickReason.URGENT]


async def test_a_tier_that_goes_and_comes_again_has_its_trigger_again(tier: str) -> None:
    cgroup, urged = _directory("unified", tier), asyncio.Event()
    cgroup.mkdir()
    async with armed(tier, CPU, urged.set) as pressure_triggers:
        cgroup.rmdir()
        for _ in range(100):
            if pressure_triggers.problems:
                break
            await asyncio.sleep(0.05)
        assert pressure_triggers.problems[0].endswith("its cgroup is gone")
        used_ns = time.thread_time_ns()
        await asyncio.sleep(1.0)
        assert time.thread_time_ns() - used_ns < 200_000_000, "what ended is not heard again and again"
        pressure_triggers.arm({BE: tier})
        assert "No such file or directory" in pressure_triggers.problems[0]
        cgroup.mkdir()
        pressure_triggers.arm({BE: tier})
        assert pressure_triggers.problems == ()
        with busy(cgroup):
            await asyncio.wait_for(urged.wait(), LONGEST_S)


async def test_memory_of_a_tier_without_psi(tier: str) -> None:
    """The page cache of a file that does not fit is reclaimed again and again."""
    cgroup, urged = _directory("memory", tier), asyncio.Event()
    cgroup.mkdir()
    (cgroup / "memory.limit_in_bytes").write_text(str(LIMIT_BYTES))
    with large_file(Path(f"/var/tmp{tier}")) as file:
        order = f"echo $$ > {cgroup}/cgroup.procs && head -c {CACHE_BYTES} /dev/zero > {file} && cat {file} > /dev/null"
        async with armed(tier, MEMORY, urged.set) as pressure_triggers:
            assert pressure_triggers.problems == ()
            await asyncio.sleep(0.2)
            urged.clear()
            process = await asyncio.create_subprocess_exec("sh", "-c", order)
            await asyncio.wait_for(urged.wait(), LONGEST_S)
            assert await process.wait() == 0
    (cgroup / "memory.force_empty").write_text("0")


@pytest.mark.parametrize(
    ("stall_us", "window_us"), [(1, 100_000_000), (3_000_000, 2_000_000)], ids=["too long a window", "more than it"]
)
def test_what_the_kernel_refuses_is_an_error_that_says_what(tier: str, stall_us: int, window_us: int) -> None:
    cgroup = _directory("unified", tier)
    cgroup.mkdir()
    with pytest.raises(OSError, match=f"{stall_us} us in {window_us} us: Invalid argument") as refused:
        pressuretrigger.psi(cgroup / "cpu.pressure", "some", stall_us, window_us)
    assert str(refused.value.filename) == str(cgroup / "cpu.pressure")
