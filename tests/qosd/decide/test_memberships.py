"""Memberships from a strategy through the frame to the tasks (emulated): frozen, failed, switched off, on again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from koord.host.undo import UndoRecord
from qosd.act.actuator import Actuator
from qosd.decide.decision import Decision
from qosd.decide.runner import StrategyResult, StrategyStates, StrategyStatus, decide_all
from qosd.model.snapshot import NodeSnapshot
from qosd.strategies.resctrl import ResctrlGroups
from tests.fakes.clock import S
from tests.fakes.resctrl import ResctrlNode
from tests.qosd.act.rig import BOOT, Recorded
from tests.qosd.contexts import V2, policy
from tests.qosd.podviews import snapshot, view
from tests.support.opened import opened

SPEC = {"resourceQOSStrategy": {"beClass": {"resctrlQOS": {"enable": True}}}}


class Breakable(ResctrlGroups):
    """``broken``: it raises."""

    broken = False

    def decide(self, snapshot: NodeSnapshot, memory: Any) -> tuple[Decision, Any]:
        if self.broken:
            raise ZeroDivisionError("no CPU")
        return super().decide(snapshot, memory)


class Node:
    """A BE pod with two containers, from snapshot to tasks."""

    def __init__(self, root: Path) -> None:
        self.world = ResctrlNode(root)
        self.strategy, self.memories = Breakable(), dict[str, Any]()
        self.actuator = Actuator(self.world.writer, opened(UndoRecord(root / "undo", BOOT)), Recorded())
        self.pod = view("p", "BE", "BestEffort", containers=[("a", "CONTAINER_RUNNING"), ("b", "CONTAINER_CREATED")])
        self.tasks = {task for one in self.pod.containers for task in self.world.start(one.cgroup, 2)}
        self.picture = snapshot(policy(V2, SPEC), self.pod)
        self.ticks = 0

    def tick(self, *off: str, age_s: float = 0.0) -> StrategyResult:
        self.ticks += 1
        now = replace(self.picture, monotonic_ns=self.ticks * S, ages_s={"pods": age_s})
        memories: StrategyStates = self.memories
        decisions, after = decide_all(now, (self.strategy,), memories, off)
        self.memories = dict(after)
        self.actuator.tick(decisions)
        return decisions.results[0]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    assert node.tick().state is StrategyStatus.ACTIVE
    assert node.world.members("BE") == node.tasks
    return node


def test_a_stale_input_leaves_them_where_they_are(node: Node) -> None:
    before = node.tick().decision.acts
    result = node.tick(age_s=1000.0)
    assert (result.state, result.decision.acts) == (StrategyStatus.FROZEN, before)
    assert result.decision.acts is before
    assert node.world.members("BE") == node.tasks


def test_so_does_an_error(node: Node) -> None:
    node.strategy.broken = True
    assert node.tick().state is StrategyStatus.FAILED
    assert node.world.members("BE") == node.tasks


def test_switched_off_and_on_again(node: Node) -> None:
    result = node.tick("resctrl")
    assert (result.state, result.decision.acts) == (StrategyStatus.DISABLED, ())
    assert node.world.members() == node.tasks
    node.tick()
    assert node.world.members("BE") == node.tasks


def test_the_spec_turns_the_class_off(node: Node) -> None:
    node.picture = snapshot(policy(V2), node.pod)
    node.tick()
    assert node.world.members() == node.tasks
