"""Orders that are refused, and what cannot be noted."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import structs

from qosd.act.evictor import EvictionFailed
from tests.qosd.act.evictor.rig import WEB, Rig, settled, start, web
from tests.qosd.podviews import view


async def test_orders_for_a_pod_that_is_busy_are_refused_without_a_row() -> None:
    rig = Rig()
    await rig.follow(web("a"))
    await rig.order()
    assert start(rig.evictor, [("cpu", WEB)], 2) == (("refused", "is under way"),)
    await rig.script.end()
    assert start(rig.evictor, [("cpu", WEB)], 3) == (
        ("refused", "its containers have been stopped, and none has been started since"),
    )
    assert (len(rig.script.orders), rig.journal.results) == (1, ["stopping", "done"])


async def test_what_cannot_be_noted_is_not_stopped_and_told_once() -> None:
    rig = Rig()
    rig.notes.full = True
    pods = (web("a"), view("other"))
    for tick in range(3):
        rig.evictor.follow(pods)
        ((result, detail),) = start(rig.evictor, [("memory", WEB)], tick)
        assert result == "refused"
        assert "cannot be noted: [Errno 28] undo record: No space left on device: '/run/undo'" in detail
    await settled()
    assert (rig.script.orders, dict(rig.evictor.under_way), rig.journal.results) == ([], {}, ["refused"])
    await rig.follow()
    assert await rig.order() == "refused"
    assert rig.journal.results == ["refused"] * 2, "the reason is told anew of a pod that has been away"
    rig.notes.full = False
    assert await rig.order() == "started"


async def test_a_second_attempt_that_cannot_be_noted_leaves_the_first() -> None:
    rig = Rig()
    await rig.order()
    await rig.script.end(error=EvictionFailed("no"))
    rig.clock.advance(10)
    before = rig.evictor.under_way
    rig.notes.full = True
    assert await rig.order() == "refused"
    assert rig.evictor.under_way is before
    assert rig.notes.evictions[0].attempts == 1


async def test_an_end_that_cannot_be_noted_is_an_end(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    await rig.order()
    rig.notes.full = True
    await rig.script.end()
    await rig.follow()
    assert rig.phase is None
    assert caplog.text.count("the undo record says of the eviction of web what it said before") == 2


async def test_without_a_runtime_every_order_is_refused() -> None:
    rig = Rig(has_executor=False)
    expected = ("refused", "no runtime endpoint is configured, so nobody can stop containers")
    other = structs.replace(WEB, uid="other")
    assert start(rig.evictor, [("memory", WEB), ("cpu", other)], 1) == (expected, expected)
    assert (rig.notes.evictions, dict(rig.evictor.under_way), rig.journal.results) == ((), {}, ["refused"] * 2)


async def test_orders_after_the_end_are_refused() -> None:
    rig = Rig()
    await rig.evictor.close()
    assert await rig.order() == "refused"
    assert rig.notes.evictions == ()


def test_orders_to_a_loop_that_is_closed_are_refused() -> None:
    async def made() -> Rig:
        return Rig()

    rig = asyncio.run(made())
    assert start(rig.evictor, [("memory", WEB)], 1) == (("refused", "koord-qosd is about to end"),)
    assert (rig.notes.evictions, dict(rig.evictor.under_way)) == ((), {})
