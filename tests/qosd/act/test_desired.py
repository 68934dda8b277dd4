"""The acts that an actor follows: the same objects cost nothing, what comes to the same is nothing new."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from koord.host.placement import Membership
from koord.host.resctrlgroup import ResctrlGroup
from koord.host.undo import UndoRecord
from qosd.act.actuator import Actuator
from qosd.act.desired import DesiredActs
from qosd.decide.decision import Acts, Decision, Stage
from qosd.decide.runner import Decisions, State, StrategyResult
from tests.fakes.resctrl import ResctrlNode
from tests.qosd.act.rig import BOOT, Recorded
from tests.support.opened import opened

BOX, CAR = Membership("/box", "BE", "BE pods"), Membership("/car", "LS", "LS pods")
TOYS = ResctrlGroup("toys", "toys need cache")
FOLLOWED = (BOX, TOYS)


def decisions(undecided: str = "", **acts: Acts) -> Decisions:
    results = tuple(
        StrategyResult(name, Stage.SPEC, State.ACTIVE, Decision("", acts=said), decided=name != undecided)
        for name, said in acts.items()
    )
    return Decisions(1, 1, 1, results)


def test_each_actor_sees_its_own_kind_by_strategy() -> None:
    said = decisions(a=(BOX, TOYS), b=(), c=(TOYS, CAR), d=(TOYS,))
    assert DesiredActs(Membership).now(said).acts == {"a": (BOX,), "c": (CAR,)}
    assert DesiredActs(ResctrlGroup).now(said).acts == {"a": (TOYS,), "c": (TOYS,), "d": (TOYS,)}
    assert list(said.acts(ResctrlGroup)) == [("a", TOYS), ("c", TOYS), ("d", TOYS)]


@pytest.mark.parametrize(
    ("then", "is_new"),
    [
        ({"a": FOLLOWED}, False),
        ({"a": FOLLOWED, "b": ()}, False),
        ({"a": (Membership("/box", "BE", "BE pods"), TOYS)}, False),
        ({"a": (BOX,)}, False),
        ({"a": (BOX, CAR)}, True),
        ({"a": (TOYS,)}, True),
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
    actuator = Actuator(ResctrlNode(tmp_path).writer, opened(UndoRecord(tmp_path / "undo", BOOT)), Recorded())
    for _ in range(2):
        assert actuator.tick(decisions(sea=(Tide(), TOYS), lake=(Tide(),))).results in (("done",), ())
    assert caplog.messages == ["strategy sea: no actor follows a Tide, so it is ignored"]
