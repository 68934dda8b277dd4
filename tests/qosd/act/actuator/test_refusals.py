"""A write that the kernel or the undo record refuses is tried again; an opinion that makes no sense is refused."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from koord.host.files import Target, Value
from koord.host.undo import UndoError
from tests.qosd.act.rig import CPUS, IDLE, POD, QUOTA, SHARES, Rig, wants


def test_a_write_that_the_kernel_refuses_is_tried_again_with_back_off(rig: Rig) -> None:
    rig.writer.error = errno.EINVAL
    rig.say("hooks", (QUOTA, wants(5000)))
    tried: list[Any] = []
    for second in range(1, 20):
        rig.tick()
        if len(rig.writer.tried) > len(tried):
            tried.append(second)
    assert tried == [1, 2, 4, 8, 16]
    assert rig.journal.results() == ["failed EINVAL"] * 5
    assert rig.actuator.files.report.owned == {}
    assert rig.undo.entries == ()


def test_another_value_is_tried_at_once(rig: Rig) -> None:
    rig.writer.error = errno.EINVAL
    rig.say("hooks", (QUOTA, wants(5000)))
    for _ in range(4):
        rig.tick()
    rig.say("hooks", (QUOTA, wants(6000)))
    rig.tick()
    assert rig.writer.tried[-1] == (QUOTA, 6000)


def test_a_file_that_this_kernel_lacks_is_told_once(rig: Rig) -> None:
    rig.path(IDLE).unlink()
    rig.say("hooks", (IDLE, wants(1)))
    for _ in range(1200):
        rig.tick()
    assert rig.journal.results() == ["unsupported"]
    rig.put(IDLE, "0\n")
    rig.tick(seconds=600)
    assert rig.holds(IDLE) == 1


def test_without_undo_record_nothing_is_written(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise UndoError(errno.ENOSPC, "undo record: No space left on device", "/run/undo")

    rig.say("hooks", (QUOTA, wants(5000)))
    with monkeypatch.context() as patch:
        patch.setattr(rig.undo, "remember", full)
        rig.tick()
    assert (rig.holds(QUOTA), rig.journal.results(), rig.writer.tried) == (-1, ["refused"], [])
    rig.tick()
    assert rig.holds(QUOTA) == 5000


def test_an_unreadable_file_costs_itself_only(rig: Rig) -> None:
    rig.put(QUOTA, "soon\n")
    rig.say("hooks", (QUOTA, wants(5000)), (SHARES, wants(2)))
    for _ in range(4):
        rig.tick()
    assert rig.holds(SHARES) == 2
    assert rig.journal.results().count("unreadable") == 3


def test_a_base_that_cannot_be_looked_into_costs_itself_only(tmp_path: Path) -> None:
    rig = Rig(tmp_path, 2)
    rig.put(CPUS, "\n")
    rig.put(QUOTA, "max 100000\n")
    rig.say("hooks", (CPUS, wants("0-1")), (QUOTA, wants(5000)))
    rig.tick()
    (rig.path(CPUS).parent / "cgroup.events").mkdir()  # reading it is refused: are there processes?
    rig.say("hooks")
    rig.tick()
    assert (rig.holds(CPUS), rig.holds(QUOTA), rig.actuator.files.report.owned) == ("", -1, {})


@pytest.mark.parametrize(
    ("target", "value"),
    [(SHARES, 1), (CPUS, "many"), (Target(POD, "memory.nothing"), 1), (Target("/../etc", "cpu_quota"), 5000)],
)
def test_a_senseless_opinion_changes_nothing(rig: Rig, target: Target, value: Value) -> None:
    rig.say("hooks", (target, wants(value)))
    rig.tick()
    rig.tick(seconds=60)
    assert (rig.writer.tried, rig.actuator.files.refusals) == ([], 1)
    assert list(rig.actuator.files.report.refused) == [target]
    rig.say("hooks")
    rig.tick()
    assert rig.actuator.files.report.refused == {}


def test_two_strategies_at_one_stage(rig: Rig) -> None:
    rig.say("hosts", (CPUS, wants("1")))
    rig.tick()
    rig.say("hooks", (CPUS, wants("0")))
    rig.tick()
    rig.tick()
    assert rig.holds(CPUS) == "1", "the first owner stays"
    assert rig.actuator.files.refusals == 1
    rig.say("hosts")
    rig.tick()
    assert rig.holds(CPUS) == "0"


def test_what_reads_back_otherwise_is_no_success(rig: Rig) -> None:
    path = rig.path(QUOTA)

    def write_other(target: object, value: object) -> None:
        path.write_text("7000\n")

    rig.writer.write = write_other  # type: ignore[method-assign]
    rig.say("hooks", (QUOTA, wants(5000)))
    rig.tick()
    assert rig.journal.results() == ["failed readback"]
    del rig.writer.write
    rig.tick()
    assert rig.holds(QUOTA) == 5000
    rig.say("hooks")
    rig.tick()
    assert rig.holds(QUOTA) == -1
