"""The ledger that watches the other tests objects to what it must, and to nothing else."""

from __future__ import annotations

import re

import pytest

from tests.runtimeproxy.relay.ledger import PREFACE, End, Ledger, LedgerError, Link
from tests.runtimeproxy.relay.raw import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    SETTINGS,
    frame,
    headers,
    rst_stream,
    window_update,
)

Said = tuple[End, bytes]
OPEN = (End.CLIENT, headers(1, "/a/b"))
SMALL_WINDOW = (End.RUNTIME, frame(SETTINGS, 0, 0, b"\0\4" + (10).to_bytes(4, "big")))
SMALL_FRAMES = (End.RUNTIME, frame(SETTINGS, 0, 0, b"\0\5" + (20_000).to_bytes(4, "big")))
ACKED = (End.CLIENT, frame(SETTINGS, ACK))


def data(size: int, stream: int = 1, flags: int = 0) -> Said:
    return End.CLIENT, frame(DATA, flags, stream, bytes(size))


def fed(*said: Said) -> Link:
    link = Link("link")
    link.feed(End.CLIENT, PREFACE)
    for end, piece in said:
        link.feed(end, piece)
    return link


violations = [
    pytest.param([OPEN, *[data(16_384)] * 4], "exceeds its window of 16383", id="stream window"),
    pytest.param(
        [OPEN, (End.RUNTIME, window_update(1, 9)), *[data(16_384)] * 4], "connection window", id="connection window"
    ),
    pytest.param([OPEN, SMALL_WINDOW, ACKED, data(11)], "exceeds its window of 10", id="window lowered by SETTINGS"),
    pytest.param([(End.RUNTIME, window_update(0, 2**31 - 1))], "over 2^31-1", id="window too large"),
    pytest.param([(End.RUNTIME, window_update(0, 0))], "increment must be", id="no increment"),
    pytest.param([OPEN, data(16_385)], "16384 are allowed", id="frame too large"),
    pytest.param([ACKED], "never sent", id="ACK of nothing"),
    pytest.param([OPEN, data(0, flags=END_STREAM), data(0)], "already ended", id="DATA after END_STREAM"),
    pytest.param([OPEN, (End.CLIENT, rst_stream(1)), data(0)], "already ended", id="DATA after RST_STREAM"),
    pytest.param(
        [(End.CLIENT, frame(HEADERS, 0, 1)), (End.CLIENT, frame(PING, 0, 0, bytes(8)))], "header block", id="in a block"
    ),
    pytest.param([(End.CLIENT, frame(CONTINUATION, END_HEADERS, 1))], "header block", id="CONTINUATION alone"),
]


@pytest.mark.parametrize(("said", "complaint"), violations)
def test_it_objects(said: list[Said], complaint: str) -> None:
    *before, last = said
    link = fed(*before)
    with pytest.raises(LedgerError, match=re.escape(complaint)):
        link.feed(*last)


allowed = [
    pytest.param([OPEN, SMALL_WINDOW, data(1_000)], id="old window before the ACK"),
    pytest.param([OPEN, SMALL_FRAMES, ACKED, data(20_000)], id="new frame size after the ACK"),
    pytest.param([OPEN, *[data(16_384)] * 3, SMALL_WINDOW, ACKED], id="a window below zero is nobody's fault"),
    pytest.param([OPEN, (End.RUNTIME, rst_stream(1)), data(5)], id="DATA that crossed a reset"),
]


@pytest.mark.parametrize("said", allowed)
def test_it_does_not_object(said: list[Said]) -> None:
    fed(*said)


def test_frames_may_come_in_any_pieces() -> None:
    link = Link("link")
    for octet in PREFACE + OPEN[1] + data(100)[1]:
        link.feed(End.CLIENT, bytes([octet]))
    assert link.senders[End.CLIENT].connection == 65_435


def balanced(near_credit: int, far_credit: int, owed_bytes: int = 0, held_bytes: int | None = None) -> list[str]:
    """The books after 30,000 bytes each way, of which the ends gave so much back to whom they heard."""
    ledger = Ledger()
    for link, credit in ((ledger.near, near_credit), (ledger.far, far_credit)):
        link.feed(End.CLIENT, PREFACE + OPEN[1])
        for end in End:
            for _ in range(3):
                link.feed(end, frame(DATA, 0, 1, bytes(10_000)))
        link.feed(End.RUNTIME, window_update(0, credit))
        link.feed(End.CLIENT, window_update(0, credit))
    return ledger.settled(owed_bytes=owed_bytes, held={} if held_bytes is None else {1: held_bytes})


@pytest.mark.parametrize(
    ("near", "far", "owed", "held", "wrong"),
    [
        (30_000, 30_000, 0, None, ""),
        (29_000, 29_000, 1_000, None, ""),
        (29_000, 29_000, 999, None, "leaked"),
        (29_000, 29_000, 1_001, None, "invented"),
        (30_001, 30_001, 0, None, "invented"),
        (30_000, 30_001, 0, None, "runtime may send"),
        (30_000, 29_999, 0, None, "runtime may send"),
        (30_000, 30_000, 0, 30_000, ""),
        (30_000, 30_000, 0, 29_999, "stream 1"),
        (30_000, 30_000, 0, 30_001, "stream 1"),
    ],
)
def test_what_is_out_of_balance(near: int, far: int, owed: int, held: int | None, wrong: str) -> None:
    complaints = balanced(near, far, owed, held)
    assert (wrong in " ".join(complaints)) if wrong else not complaints
