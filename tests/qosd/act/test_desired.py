"""The acts that an actor follows: the same objects cost nothing, what comes to the same is nothing new."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from koord.host.placement import Membership
from koord.host.sched import SLICE
from koord.host.taskattributes import TaskAttribute
from koord.host.undo import UndoRecord
from qosd.act.actuator import Actuator
from qosd.act.desired import DesiredActs
from qosd.decide.decision import Acts, Decision, Stage
from qosd.decide.runner import Decisions, StrategyResult, StrategyStatus
from tests.fakes.resctrl import ResctrlNode
from tests.qosd.act.rig import BOOT, Recorded
from tests.support.opened import opened

BOX, CAR = Membership("/box", "BE", "BE pods"), Membership("/car", "LS", "LS pods")
SLICES = TaskAttribute(SLICE, "/box", 3000, "BE pods")
FOLLOWED = (BOX, SLICES)


def decisions(undecided: str = "", **acts: Acts) -> Decisions:
    results = tuple(
        StrategyResult(name, Stage.SPEC, StrategyStatus.ACTIVE, Decision("", acts=said), decided=name != undecided)
        for name, said in acts.items()
    )
    return Decisions(1, 1, 1, results)


def test_each_actor_sees_its_own_kind_by_strategy() -> None:
    said = decisions(a=(BOX, SLICES), b=(), c=(SLICES, CAR), d=(SLICES,))
    assert DesiredActs(Membership).now(said).acts == {"a": (BOX,), "c": (CAR,)}
    assert DesiredActs(TaskAttribute).now(said).acts == {"a": (SLICES,), "c": (SLICES,), "d": (SLICES,)}
    assert list(said.acts(TaskAttribute)) == [("a", SLICES), ("c", SLICES), ("d", SLICES)]


@pytest.mark.parametrize(
    ("then", "is_new"),
    [
        ({"a": FOLLOWED}, False),
        ({"a": FOLLOWED, "b": ()}, False),
        ({"a": (Membership("/box", "BE", "BE pods"), SLICES)}, False),
        ({"a": (BOX,)}, False),
        ({"a": (BOX, CAR)}, True),
        ({"a": (SLICES,)}, True),
        ({"b": FOLLOWED}, True),
        ({"a": FOLLOWED, "b": (CAR,)}, True),
        ({}, True),
        ({"a": FOLLOWED, "undecided": "a"}, True),
    ],
)
def test_what_is_new_to_the_actor_of_memberships(then: dict[str, Any], is_new: bool) -> None:
    followed = DesiredActs(Membership).now(decisions(a=FOLLOWED))
    now = followed.now(decisions(**then))
    assert now.are(followed) is not is_new


def test_before_the_first_tick_everything_is_new() -> None:
    nothing = DesiredActs(Membership)
    assert not nothing.now(decisions()).are(nothing)


def test_the_very_same_acts_are_looked_at_once() -> None:
    followed = DesiredActs(Membership).now(decisions(a=FOLLOWED, b=(CAR,)))
    assert followed.now(decisions(a=FOLLOWED, b=followed.returned["b"])) is followed


class Tide(Struct, frozen=True):
    """An act that nobody carries out."""

    why: str = "the moon"


def test_an_act_that_no_actor_follows_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = ResctrlNode(tmp_path)
    node.start("/box")
    actuator = Actuator(node.writer, opened(UndoRecord(tmp_path / "undo", BOOT)), Recorded())
    for results in (("done",), ()):
        assert actuator.tick(decisions(sea=(Tide(), BOX), lake=(Tide(),))).results == results
    assert caplog.messages == ["strategy sea: no actor follows a Tide, so it is ignored"]
