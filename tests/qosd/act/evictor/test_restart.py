"""What an earlier run of the daemon left."""

from __future__ import annotations

import pytest
from msgspec import structs

from koord.host.evictions import NotedEviction
from qosd.act.evictioncase import REMEMBERED_S
from qosd.act.evictor import AT_ONCE
from qosd.model.snapshot import EvictionPhase
from tests.fakes.clock import S
from tests.qosd.act.evictor.rig import FAILED, GROUP, RESTARTED, STOPPED, STOPPING, WEB, Rig, settled, start, web
from tests.qosd.podviews import view

LEFT = NotedEviction("web", "default/web", "memory", GROUP, attempts=3, grace_s=3, at_ns=990 * S)


async def test_what_an_earlier_run_left_is_executed_again_with_its_attempts() -> None:
    rig = Rig(LEFT)
    state = rig.evictor.under_way["web"]
    assert (state.phase, state.attempts) == (STOPPING, 3)
    assert start(rig.evictor, [("memory", WEB)], 1) == (("refused", "is under way"),)
    rig.clock.advance(5)
    await rig.follow(web("a"))
    ((order),) = rig.script.orders
    assert (order.uid, order.cgroup, order.grace_s) == ("web", GROUP, 3)
    state = rig.evictor.under_way["web"]
    assert (state.attempts, state.since_ns, state.retry_ns) == (3, 1005 * S, 1045 * S)
    await rig.follow(web("a"))
    assert len(rig.script.orders) == 1
    await rig.script.end()
    await rig.follow(web("a"))
    assert rig.phase is STOPPED
    await rig.follow()
    assert rig.notes.evictions == ()
    assert [(each.owner, each.tick, each.result) for each in rig.journal.entries] == [
        ("memory", 0, "stopping"),
        ("memory", 0, "done"),
        ("memory", 0, "vanished"),
    ]
    assert rig.journal.entries[0].why == "the containers are being stopped (attempt 3): an earlier run had begun it"


OLD_NS, LATELY_NS, UNKNOWN_NS = (1000 - REMEMBERED_S) * S, (1001 - REMEMBERED_S) * S, 0


@pytest.mark.parametrize(
    ("at_ns", "is_stopped", "phase", "result"),
    [
        (OLD_NS, False, None, "ended"),
        (OLD_NS, True, None, "ended"),
        (UNKNOWN_NS, False, None, "ended"),
        (LATELY_NS, False, STOPPING, "stopping"),
        (LATELY_NS, True, RESTARTED, "restarted"),
    ],
)
async def test_what_an_earlier_run_left_long_ago_is_forgotten(
    at_ns: int, is_stopped: bool, phase: EvictionPhase | None, result: str
) -> None:
    """Whatever was short then, nobody has said since that it is."""
    left = structs.replace(LEFT, at_ns=at_ns, is_stopped=is_stopped)
    rig = Rig(left)
    await rig.follow(web("a"))
    assert (rig.phase, rig.journal.results) == (phase, [result])
    assert (len(rig.script.orders), rig.notes.evictions) == (phase is STOPPING, () if phase is None else (left,))


async def test_what_nobody_could_see_for_long_after_a_start_is_forgotten() -> None:
    rig = Rig(LEFT)
    rig.clock.advance(REMEMBERED_S)
    await rig.follow(web("a"))
    assert (rig.phase, rig.script.orders, rig.notes.evictions) == (None, [], ())


async def test_attempts_of_an_earlier_run_count_since_their_end() -> None:
    rig = Rig(structs.replace(LEFT, at_ns=LATELY_NS, is_stopped=True))
    await rig.follow(web())
    rig.clock.advance(1)
    await rig.follow(web())
    assert (rig.phase, rig.journal.results, rig.notes.evictions) == (None, ["ended"], ())


async def test_a_pod_that_went_in_between_is_forgotten() -> None:
    rig = Rig(LEFT)
    await rig.follow(view("other"))
    assert (rig.script.orders, rig.phase, rig.notes.evictions) == ([], None, ())
    assert rig.journal.results == ["vanished"]


async def test_what_an_earlier_run_had_stopped_is_not_stopped_again() -> None:
    """kubelet started it again while nobody looked: that is no reason to stop it."""
    rig = Rig(structs.replace(LEFT, is_stopped=True))
    assert rig.phase is STOPPED
    await rig.follow(web("a"))
    assert (rig.phase, rig.script.orders) == (RESTARTED, [])
    assert await rig.order() == "refused"
    rig.clock.advance(40)
    assert await rig.order() == "started"
    assert rig.notes.evictions == (structs.replace(LEFT, attempts=4, at_ns=1040 * S),)


async def test_what_an_earlier_run_left_fails_without_a_runtime() -> None:
    rig = Rig(LEFT, has_executor=False)
    await rig.follow(web("a"))
    assert (rig.phase, rig.journal.results) == (FAILED, ["failed"])
    assert rig.notes.evictions == (LEFT,)


async def test_the_next_run_counts_what_this_one_began_by_the_same_gate() -> None:
    rig = Rig(structs.replace(LEFT, gate="BECPUEvict"))
    await rig.follow(web("a"))
    assert rig.script.orders[0].gate == "BECPUEvict"
    await rig.script.end()
    assert rig.evictor.report.counts == {"BECPUEvict": 1}


async def test_the_end_of_the_daemon_leaves_the_notes() -> None:
    rig = Rig()
    orders = [("memory", structs.replace(WEB, uid=f"web{n}")) for n in range(AT_ONCE + 1)]
    start(rig.evictor, orders, 1)
    await settled()
    start(rig.evictor, [("memory", WEB)], 1)  # handed over, and not begun
    await rig.evictor.close()
    await settled()
    assert len(rig.notes.evictions) == AT_ONCE + 2
    assert not any(each.is_stopped for each in rig.notes.evictions)
    assert rig.journal.results == ["stopping"] * (AT_ONCE + 2)
    await rig.follow()
    assert len(rig.notes.evictions) == AT_ONCE + 2, "what has not ended is not ended by a late tick"
