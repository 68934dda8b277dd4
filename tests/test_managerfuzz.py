"""What ``make fuzz-manager`` fails for: each of its bounds."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import replace

import pytest

from integration.managerfuzz import beside
from integration.managerfuzz.__main__ import LEAST_PERCENT, MOST_MIB, MOST_STALL_S, Beside, Row
from integration.managerfuzz.attacks import ATTACKS
from integration.managerfuzz.honest import probed

KEPT = Row(
    "a", MOST_STALL_S, LEAST_PERCENT, MOST_MIB, LEAST_PERCENT, LEAST_PERCENT, True, 0.1, "", Beside("another's", 2, 2)
)


def test_a_row_at_its_bounds_passes_none() -> None:
    assert KEPT.passed == []
    assert "<-" not in KEPT.text()


@pytest.mark.parametrize(
    ("row", "bound"),
    [
        (replace(KEPT, stall_s=MOST_STALL_S + 0.01), f"stall > {MOST_STALL_S:g} s"),
        (replace(KEPT, probes_percent=LEAST_PERCENT - 0.1), "probes < 99 %"),
        (replace(KEPT, most_mib=MOST_MIB + 1), "memory > 400 MiB"),
        (replace(KEPT, reviews_percent=LEAST_PERCENT - 0.1), "reviews < 99 %"),
        (replace(KEPT, reports_percent=LEAST_PERCENT - 0.1), "reports < 99 %"),
        (replace(KEPT, leads=False), "leadership lost"),
        (replace(KEPT, beside=Beside("another's", 2.01, 2)), "another's > 2 s"),
    ],
)
def test_a_bound_that_is_passed_is_named(row: Row, bound: str) -> None:
    assert row.passed == [bound]
    assert f"<- {bound}" in row.text()


@pytest.mark.parametrize(
    ("answer", "is_healthy"),
    [
        (b"", False),
        (b"HTTP/1.0 503 Service Unavailable\r\n\r\nok", False),
        (b"HTTP/1.0 20", False),
        (b"HTTP/1.0 200 OK\r\n\r\nok", True),
        (b"HTTP/1.1 200 OK\r\n\r\nok", True),
    ],
)
async def test_a_probe_is_answered_by_a_healthy_process_alone(answer: bytes, is_healthy: bool) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        assert await probed(server.sockets[0].getsockname()[1]) is is_healthy


async def test_a_probe_of_nobody_is_not_answered() -> None:
    with socket.socket() as bound:  # its port is taken, and nobody listens there
        bound.bind(("127.0.0.1", 0))
        assert not await probed(bound.getsockname()[1])


def test_what_is_looked_at_beside_an_attack_names_one() -> None:
    assert beside.FIGURES.keys() <= ATTACKS.keys()


async def test_the_longest_wait_counts_also_where_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "PATIENCE_S", 0.05)
    waits = iter([0.0, 3600.0])
    longest_s = await beside.longest_s(lambda: asyncio.sleep(next(waits, 0.0)), 1.0, time.monotonic() + 1.5)
    assert 0.05 <= longest_s < 1
