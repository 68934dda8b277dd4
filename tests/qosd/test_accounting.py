"""What a tick's writes are counted as: attempts by kind and result, with the time that they took."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from koord.host.files import Target
from koord.host.reconcile.plan import Outcome, PlannedWrite
from koord.host.undo import UndoError
from koord.model.lattice import Value
from qosd.accounting import account_writes
from qosd.act.plan import TickResult
from qosd.decide.decision import Opinion
from qosd.metrics import Metrics
from tests.qosd.act.rig import CPUS, QUOTA, SHARES, Rig


def outcome(name: str, result: str, took_s: float | None) -> Outcome:
    value: Value = 1
    return Outcome(PlannedWrite(Target("/a", name), "/a", value, value, True, "hooks", "why"), result, took_s=took_s)


@pytest.mark.parametrize(
    ("name", "result", "took_s", "counted"),
    [
        ("cpu_quota", "done", 0.001, {("cgroup", "done"): 1}),
        ("io.max.rbps@253:0", "failed EINVAL", 0.001, {("cgroup", "failed"): 1}),
        ("memory.high", "vanished", 0.001, {("cgroup", "failed"): 1}),
        ("resctrl.schemata@LS/L3", "done", 0.001, {("resctrl", "done"): 1}),
        ("vm.min_free_kbytes", "done", 0.001, {("other", "done"): 1}),
        ("pod.eviction", "done", 0.001, {("other", "done"): 1}),
        ("cpu_quota", "refused", None, {}),
        ("cpu_quota", "yielded", None, {}),
    ],
)
def test_kinds_and_results(name: str, result: str, took_s: float | None, counted: dict[tuple[str, str], int]) -> None:
    metrics = Metrics()
    account_writes(metrics, TickResult((outcome(name, result, took_s),)))
    assert metrics.writes == {result: 1}
    assert {labels: sum(times.counts) for labels, times in metrics.write_seconds.items()} == counted


def test_attempts_are_timed_and_what_was_not_tried_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise UndoError(errno.ENOSPC, "undo record: No space left on device", "/run/undo")

    rig = Rig(tmp_path)
    rig.make()
    rig.say("hooks", (QUOTA, Opinion.set(50_000, "half a CPU")))
    (done,) = rig.tick().outcomes
    assert (done.result, done.took_s is not None and done.took_s > 0) == ("done", True)
    rig.writer.error = errno.EINVAL
    rig.say("hooks", (SHARES, Opinion.set(512, "half a CPU")))
    took = {each.result: each.took_s is not None for each in rig.tick().outcomes}
    assert took and set(took.values()) == {True}
    rig.say("hooks", (CPUS, Opinion.set("0", "one CPU")))
    with monkeypatch.context() as patch:
        patch.setattr(rig.undo, "remember", full)
        refused = [each for each in rig.tick().outcomes if each.write.target == CPUS]
    assert [(each.result, each.took_s) for each in refused] == [("refused", None)]
