"""Orders to the kernel: planned as shown, made in a thread of their own, one row in the journal each."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from koord.host.cgroup import Tree
from koord.host.files import Target, Value
from qosd.act.oneshots import MOST_REMEMBERED, MOST_UNDER_WAY, OneShotWriter
from qosd.decide.decision import Decision, OneShot, Stage
from qosd.decide.runner import Decisions, StrategyResult, StrategyStatus
from tests.qosd.act.rig import CountingWriter, Recorded

POD = "/kubepods/pod1"
RECLAIM = Target(POD, "memory.reclaim")


class Waiting(Executor):
    """Works when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], Any]] = []

    def submit(self, work: Callable[..., Any], /, *_: Any, **__: Any) -> Future[Any]:
        self.waiting.append(work)
        return Future()

    def work(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


class Rig:
    def __init__(self, root: Path, version: int = 2) -> None:
        self.writer = CountingWriter(Tree(version, root, {}))
        self.journal, self.thread = Recorded(), Waiting()
        self.orders = OneShotWriter(self.writer, self.journal, self.thread)
        for target in (RECLAIM, Target(POD, "memory.force_empty")):
            path = self.writer.path(target)
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("")

    def tick(self, *orders: OneShot) -> list[str]:
        """The results."""
        result = StrategyResult("toy", Stage.SPEC, StrategyStatus.ACTIVE, Decision("", one_shots=orders))
        decisions = Decisions(7, 1000, 2000, (result,))
        plan, again = self.orders.plan(decisions), self.orders.plan(decisions)
        assert plan == again
        outcomes = self.orders.apply(decisions, plan)
        assert tuple(outcome.write for outcome in outcomes) == plan.writes
        return [outcome.result for outcome in outcomes]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.orders.close()


def order(value: Value = 4096, target: Target = RECLAIM) -> OneShot:
    return OneShot(target, value, "memory lacks", pod="default/a")


def test_it_is_made_once_and_told_when_it_is_done(rig: Rig) -> None:
    assert rig.tick(order()) == ["started"]
    assert rig.journal.entries == []
    rig.thread.work()
    (entry,) = rig.journal.entries
    assert (entry.owner, entry.pod, entry.cgroup, entry.name, entry.after) == (
        "toy",
        "default/a",
        POD,
        RECLAIM.name,
        4096,
    )
    assert (entry.result, entry.why, entry.tick) == ("done", "memory lacks", 7)
    assert Path(entry.path).read_text() == "4096"
    assert rig.tick() == []


def test_one_under_way_is_not_begun_again(rig: Rig) -> None:
    assert (rig.tick(order()), rig.tick(order(8192))) == (["started"], [])
    rig.thread.work()
    assert rig.tick(order(8192)) == ["started"]


def test_of_two_orders_to_one_file_the_last_counts(rig: Rig) -> None:
    assert rig.tick(order(1), order(2)) == ["started"]
    rig.thread.work()
    assert [entry.after for entry in rig.journal.entries] == [2]


@pytest.mark.parametrize(
    ("target", "value", "result", "why"),
    [
        (Target(POD, "memory.high"), 4096, "refused", "is a value and no order"),
        (Target(POD, "memory.other"), 4096, "refused", "is no kernel file that Koord knows"),
        (RECLAIM, -1, "refused", "memory.reclaim: -1"),
        (RECLAIM, "all", "refused", "memory.reclaim: 'all'"),
        (Target("/gone", RECLAIM.name), 4096, "vanished", "No such file or directory"),
        (Target("/kubepods/../..", RECLAIM.name), 4096, "refused", "leaves"),
        (Target(POD, "memory.force_empty"), 0, "refused", "cannot be written on cgroup v2"),
    ],
)
def test_what_cannot_be_ordered_is_told(rig: Rig, target: Target, value: Value, result: str, why: str) -> None:
    rig.tick(order(value, target))
    rig.thread.work()
    (entry,) = rig.journal.entries
    assert entry.result == result
    assert why in entry.why


@pytest.mark.parametrize(
    ("number", "result"), [(errno.EAGAIN, "failed EAGAIN"), (errno.EIO, "failed EIO")], ids=["too little", "other"]
)
def test_the_kernel_refuses(rig: Rig, number: int, result: str) -> None:
    rig.writer.error = number
    rig.tick(order())
    rig.thread.work()
    assert rig.journal.results() == [result]
    assert rig.tick(order()) == ["started"], "the next one may be tried"


def test_there_is_an_end_to_what_waits(rig: Rig) -> None:
    orders = [order(1, Target(f"/kubepods/pod{number}", RECLAIM.name)) for number in range(MOST_UNDER_WAY + 2)]
    results = rig.tick(*orders)
    assert (results.count("started"), results.count("refused"), len(rig.thread.waiting)) == (64, 2, 64)


def test_what_the_newest_order_to_each_file_came_to_is_known(rig: Rig) -> None:
    assert rig.orders.ended == {}
    rig.tick(order(1), order(1, Target("/gone", RECLAIM.name)))
    rig.thread.work()
    before = rig.orders.ended
    rig.writer.error = errno.EAGAIN
    rig.tick(order(2))
    rig.thread.work()
    assert before == {RECLAIM: "done", Target("/gone", RECLAIM.name): "vanished"}, "and is not changed"
    assert rig.orders.ended == {RECLAIM: "failed EAGAIN", Target("/gone", RECLAIM.name): "vanished"}
    for number in range(MOST_REMEMBERED):
        rig.tick(order(1, Target(f"/kubepods/other{number}", RECLAIM.name)))
        rig.thread.work()
    assert (len(rig.orders.ended), RECLAIM in rig.orders.ended) == (MOST_REMEMBERED, False)


def test_on_v1_all_that_is_reclaimable_goes(tmp_path: Path) -> None:
    rig = Rig(tmp_path, version=1)
    assert rig.tick(order(0, Target(POD, "memory.force_empty"))) == ["started"]
    rig.thread.work()
    assert rig.journal.results() == ["done"]


def test_a_thread_of_its_own(rig: Rig, tmp_path: Path) -> None:
    """The tick does not wait; closing waits for nobody."""
    own = OneShotWriter(rig.writer, rig.journal)
    result = StrategyResult("toy", Stage.SPEC, StrategyStatus.ACTIVE, Decision("", one_shots=(order(),)))
    decisions = Decisions(1, 1, 1, (result,))
    (outcome,) = own.apply(decisions, own.plan(decisions))
    assert outcome.result == "started"
    own.close()
