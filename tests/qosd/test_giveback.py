"""What koord-qosd does for a time only ends with it, whoever notices: itself, its next start, systemd, kubelet."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from koord.host.files import Target
from koord.host.undo import UNKNOWN_BOOT, UndoRecord
from koord.host.writer import Writer
from qosd import assembly
from qosd.metrics import Metrics
from qosd.node import UNDO
from qosd.tickscheduler import TickReason
from tests.qosd.machine import Machine
from tests.support.forked import Forked, run_module

POD = "/kubepods/besteffort/pod1"
FREEZE, QUOTA = Target(POD, "cgroup.freeze"), Target(POD, "cpu_quota")
BOOT = "6f1d"


@pytest.fixture(params=[1, 2])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    """With a pod."""
    machine = Machine(tmp_path, request.param)
    machine.kubepods()
    machine.cgroups.make(POD)
    machine.cgroups.put(POD, {"freezer.state": "THAWED"} if request.param == 1 else {"cgroup.freeze": "0"})
    return machine


def begin(record: UndoRecord, writer: Writer) -> None:
    """The pod is frozen for a while, and its quota is to stay."""
    for target, value, lasting in ((FREEZE, 1, 0), (QUOTA, 50_000, None)):
        reading = writer.look(target)
        assert reading is not None
        record.remember(target, reading, value, lasting=lasting)
        writer.write(target, value)


def left_behind(machine: Machine, boot: str = BOOT) -> Path:
    """By a run that was killed; the record."""
    (machine.root / "run").mkdir()
    file = machine.root / "run" / UNDO
    with UndoRecord(file, boot) as record:
        begin(record, record.writer(machine.locator().tree))
    assert holds(machine) == (1, 50_000)
    return file


def holds(machine: Machine) -> tuple[object, object]:
    return machine.holds(POD, "cgroup.freeze"), machine.holds(POD, "cpu_quota")


async def give_back(machine: Machine, *flags: str) -> tuple[int, str]:
    """Exit code and what ``koord-qosd give-back`` says."""
    log = machine.root / "said"
    log.touch()
    arguments: Sequence[str] = ["give-back", *machine.flags(), *flags]
    process = await asyncio.to_thread(Forked, run_module, "qosd", arguments, dict(os.environ), log)
    return await process.wait(), log.read_text()


@pytest.mark.parametrize("flags", [(), ("--beside",)])
async def test_after_the_end_of_the_daemon(machine: Machine, flags: tuple[str, ...]) -> None:
    left_behind(machine)
    code, said = await give_back(machine, *flags)
    assert (code, holds(machine)) == (0, (0, 50_000)), said
    assert "done: back to its base: koord-qosd has ended, and the value was for a time only" in said
    assert (await give_back(machine, *flags))[0] == 0


@pytest.mark.parametrize(("flags", "frozen"), [((), 1), (("--beside",), 0)])
async def test_while_a_daemon_has_the_record(machine: Machine, flags: tuple[str, ...], frozen: int) -> None:
    """After the end of one, another may act: that one has seen to it. Before the end, the one that acts may hang."""
    with UndoRecord(left_behind(machine), BOOT):
        code, said = await give_back(machine, *flags)
    assert (code, holds(machine)) == (0, (frozen, 50_000)), said


async def test_nothing_to_do_and_what_cannot_be_done(machine: Machine) -> None:
    assert await give_back(machine) == (0, "")
    assert (await give_back(machine, "--no-such"))[0] == 2
    left_behind(machine)
    machine.put("proc/sys/kernel/random/boot_id", "another\n")
    assert (await give_back(machine))[0] == 0
    assert holds(machine) == (1, 50_000), "the record is of another boot, and so not of these cgroups"


@pytest.mark.parametrize("flags", [(), ("--beside",)])
@pytest.mark.parametrize(
    ("damaged", "frozen", "said"),
    [
        (lambda lines: [b"{", *lines[1:]], 1, "does not begin as an undo record"),
        (lambda lines: [lines[0].replace(b'"format":', b'"format":9'), *lines[1:]], 1, "format 9"),
        (lambda lines: [*lines, b"{", b""], 0, ":4: "),
    ],
)
async def test_a_record_that_cannot_be_read(
    machine: Machine, flags: tuple[str, ...], damaged: Callable[[list[bytes]], list[bytes]], frozen: int, said: str
) -> None:
    """What can be read of it is done. It stays where it is, for the next start."""
    file = left_behind(machine)
    file.write_bytes(b"\n".join(damaged(file.read_bytes().splitlines())) + b"\n")
    code, told = await give_back(machine, *flags)
    assert (code, holds(machine)) == (1, (frozen, 50_000)), told
    assert str(file) in told and said in told
    assert sorted(os.listdir(file.parent)) == [UNDO, f"{UNDO}.lock"]


async def test_a_kernel_that_does_not_tell_its_boot(machine: Machine) -> None:
    left_behind(machine, UNKNOWN_BOOT)
    (machine.root / "proc/sys/kernel/random/boot_id").unlink()
    code, said = await give_back(machine)
    assert (code, holds(machine)) == (0, (0, 50_000)), said


async def test_the_next_start_ends_it_without_runtime_or_kubelet(machine: Machine) -> None:
    left_behind(machine)
    node = assembly.assemble(machine.options(), Metrics(), machine.locator())
    try:
        assert holds(machine) == (0, 50_000)
        assert node.journal.flush()
        (entry,) = node.journal.query(file="cgroup.freeze")
        assert (entry.result, entry.before, entry.after) == ("done", 1, 0)
    finally:
        await node.close()


@pytest.mark.parametrize("is_dry", [False, True])
async def test_it_ends_on_the_way_out(machine: Machine, is_dry: bool) -> None:
    node = assembly.assemble(machine.options(dry_run=is_dry), Metrics(), machine.locator())
    node.start()
    await node.tick(TickReason.BEAT)
    await node.in_thread(lambda: begin(node.undo, node.writer))
    await node.end()
    assert holds(machine) == (int(is_dry), 50_000), "a dry run writes nothing"
    assert await node.tick(TickReason.URGENT) is None, "nobody freezes it again meanwhile"
    await node.close()
