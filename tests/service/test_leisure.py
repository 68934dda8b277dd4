"""Work that is put off: together, in order, and whatever one piece of it does."""

from __future__ import annotations

import asyncio

import pytest

from koord.service import leisure
from koord.service.leisure import Leisure


def fail(number: int) -> None:
    raise ValueError(number)


async def test_it_is_done_later_in_the_order_in_which_it_came() -> None:
    done: list[int] = []
    later = Leisure(asyncio.get_running_loop())
    for number in range(3):
        later(done.append, number)
    await asyncio.sleep(0)
    assert done == []
    ended = asyncio.Event()
    later(ended.set)
    await asyncio.wait_for(ended.wait(), 5)
    assert done == [0, 1, 2]


async def test_what_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []
    later = Leisure(asyncio.get_running_loop())
    later(fail, 1)
    later(done.append, 2)
    later.flush()
    assert (done, "could not be done" in caplog.text) == ([2], True)
    later.flush()
    assert done == [2]


async def test_what_comes_while_it_is_done_is_put_off_again() -> None:
    done: list[int] = []
    later = Leisure(asyncio.get_running_loop())
    later(later, done.append, 1)
    later.flush()
    assert done == []
    later.flush()
    assert done == [1]


async def test_no_more_than_so_much_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leisure, "MOST", 3)
    done: list[int] = []
    later = Leisure(asyncio.get_running_loop())
    for number in range(4):
        later(done.append, number)
    assert done == [0, 1, 2]
    later.flush()
    assert done == [0, 1, 2, 3]
