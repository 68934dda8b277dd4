"""What is kept of decisions, and what the flags of debugging log of them."""

from __future__ import annotations

import logging

import pytest

from koord.scheduling.framework import Placement
from koord_scheduler import decisions
from koord_scheduler.decisions import Decisions
from tests.koord_scheduler.rig import Rig, running
from tests.scheduling.clusters import node, pod
from tests.scheduling.test_queue import Rig as QueueRig


def prepare(rig: Rig) -> None:
    rig.node("n1").node("n2", "2").node("n3", "8", unschedulable=True)


async def test_a_decision_is_kept_with_its_best_nodes() -> None:
    async with running(prepare, best_count=3) as rig:
        await rig.lead()
        rig.pod()
        await rig.placed("p")
        stored = rig.stored()
        assert stored is not None
        decision = rig.scheduler.decisions.get(stored["metadata"]["uid"])
        assert decision is not None
        assert (decision.placement.feasible_count, decision.node_count, decision.tries) == (2, 3, 1)
        assert [each.node for each in decision.placement.best] == ["n1", "n2"]
        assert decision.placement.best[0].total > decision.placement.best[1].total


def test_old_decisions_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "MOST", 10)
    kept, rig = Decisions(), QueueRig(node("n1"))
    for index in range(100):
        rig.put(pod(f"p{index}"))
        queued = rig.queue.pop(float(index))
        assert queued is not None
        kept.made(queued, Placement("n1", 1), rig.framework, float(index))
        assert len(kept._by_uid) == min(index + 1, 10)
    assert all(kept.get(f"p{number}") is not None for number in range(90, 100))
    assert kept.get("p89") is None


@pytest.mark.parametrize("is_on", [True, False])
async def test_the_flags_of_debugging(caplog: pytest.LogCaptureFixture, is_on: bool) -> None:
    caplog.set_level(logging.INFO, "koord_scheduler.decisions")
    flags = Decisions(2, True) if is_on else Decisions()
    async with running(prepare, best_count=3, decisions=flags) as rig:
        await rig.lead()
        rig.pod()
        await rig.placed("p")
        rig.pod("q", cpu="3").pod("alone", cpu="3")
        await rig.placed("q")
    if not is_on:
        assert caplog.messages == []
        return
    assert "pod default/p: node n3 is rejected by NodeUnschedulable: node(s) were unschedulable" in caplog.messages
    assert "pod default/q: node n2 is rejected by NodeResourcesFit: Insufficient cpu" in caplog.messages
    assert "the best nodes for pod default/q: n1 alone will do" in caplog.messages
    table = next(each for each in caplog.messages if each.startswith("the best nodes for pod default/p:\n"))
    lines = table.splitlines()
    assert lines[1].startswith("| # | Pod | Node | Score | TaintToleration |")
    assert [line.split(" | ")[:3] for line in lines[3:]] == [["| 0", "default/p", "n1"], ["| 1", "default/p", "n2"]]
