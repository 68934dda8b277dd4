"""What a node says of its policy and of what it holds, and who is waiting for that."""

from __future__ import annotations

import json

import pytest

from koord.host.files import Target
from koord.host.reconcile.state import FileState, Phase
from koord.model import nodestate
from koord.model.nodestate import NodeState
from qosd.act.filereport import FileReport
from qosd.cluster.nodestate import of
from qosd.report import TickReport
from tests.qosd.cluster.history import History

HELD, CONTESTED, FREE = Phase.HELD, Phase.CONTESTED, Phase.FREE


def tick_report(history: History | None, *states: FileState, is_dismissed: bool | None = None) -> TickReport:
    by_target = {Target(f"/kubepods/{number}", "cpu.shares"): state for number, state in enumerate(states)}
    files = FileReport(by_target, {}, {}, "", {}, None)
    snapshot = None if history is None else history.snapshot()
    return TickReport((files,), {}, snapshot, is_dismissed=is_dismissed)


@pytest.mark.parametrize(
    ("states", "held"),
    [
        ([], 0),
        ([FileState(HELD, by="hooks", speakers=((0, "hooks"),))], 0),
        ([FileState(HELD, by="cpuBurst", speakers=((2, "cpuBurst"),))], 1),
        ([FileState(HELD, by="hooks, cpuBurst", speakers=((0, "hooks"), (2, "cpuBurst")))], 1),
        ([FileState(CONTESTED, by="cpuBurst", speakers=((2, "cpuBurst"),)), FileState(FREE)], 0),
        ([FileState(HELD, by="memoryQOS", adopted=True), FileState(HELD, by="hooks", adopted=True)], 1),
        ([FileState(HELD, by="hooks, cpuBurst", adopted=True)], 1),
    ],
    ids=["none", "hooks", "strategy", "both", "left alone", "of an earlier run", "of an earlier run, both"],
)
def test_files_that_strategies_hold(states: list[FileState], held: int) -> None:
    history = History()
    history.with_slo_generation(7)
    assert of(tick_report(history, *states)) == NodeState(held, 7)


@pytest.mark.parametrize(("is_dismissed", "pod_files"), [(None, 0), (False, 0), (True, 1)])
def test_files_of_pods_count_once_the_agent_goes(is_dismissed: bool | None, pod_files: int) -> None:
    states = [FileState(HELD, by="hooks", adopted=True), FileState(HELD, by="memoryQOS", adopted=True)]
    found = of(tick_report(History(), *states, FileState(FREE), is_dismissed=is_dismissed))
    assert found == NodeState(1, 0, is_dismissed, pod_files)


def test_before_the_first_tick_nobody_knows() -> None:
    assert of(tick_report(None)) is None


def test_the_annotation() -> None:
    state = NodeState(held_files=3, slo_generation=7)
    assert json.loads(state.encoded()) == {"heldFiles": 3, "nodeSLOGeneration": 7}
    assert nodestate.decoded(state.encoded()) == state


@pytest.mark.parametrize("text", [None, "", "{}", "null", '{"heldFiles":"3","nodeSLOGeneration":7}', "{"])
def test_what_is_no_state_counts_as_none(text: str | None) -> None:
    assert nodestate.decoded(text) is None


@pytest.mark.parametrize(
    ("written", "now", "is_urgent"),
    [
        (None, NodeState(3, 1), True),
        (NodeState(3, 1), NodeState(3, 1), False),
        (NodeState(3, 1), NodeState(2, 1), False),
        (NodeState(3, 1), NodeState(0, 1), True),
        (NodeState(0, 1), NodeState(3, 1), False),
        (NodeState(0, 1), NodeState(0, 1), False),
        (NodeState(3, 1), NodeState(3, 2), True),
        (NodeState(0, 2), NodeState(0, 0), True),
        (NodeState(0, 1, False), NodeState(0, 1, True, 3), True),
        (NodeState(0, 1, True, 3), NodeState(0, 1, True, 2), False),
        (NodeState(0, 1, True, 3), NodeState(0, 1, True), True),
    ],
    ids=str,
)
def test_who_waits(written: NodeState | None, now: NodeState, is_urgent: bool) -> None:
    """Somebody does for another generation, and for the last file."""
    assert now.is_urgent_after(written) is is_urgent
