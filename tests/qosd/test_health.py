"""Alive, ready, and the watchdog that is fed only while ticks end."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from koord.service.notify import Notifier
from qosd.health import Health, feed_watchdog


@pytest.mark.parametrize(
    ("now_s", "ended_s", "pods_age_s", "alive", "ready"),
    [
        (1, None, None, "ok", "no tick has ended yet"),
        (1, 0.5, None, "ok", "the pods are not known yet"),
        (1, 0.5, 121.0, "ok", "the pods are 121 s old"),
        (1, 0.5, 1.0, "ok", "ok"),
        (20, None, None, "ok", "no tick has ended yet"),
        (21, None, None, "no tick has ended for 21 s", "no tick has ended for 21 s"),
        (100, 95.0, 1.0, "ok", "ok"),
        (100, 79.0, 1.0, "no tick has ended for 21 s", "no tick has ended for 21 s"),
    ],
)
def test_pages(now_s: float, ended_s: float | None, pods_age_s: float | None, alive: str, ready: str) -> None:
    clock = 0.0
    health = Health(1.0, lambda: ended_s, lambda: pods_age_s, lambda: clock)
    clock = now_s
    for page, said in ((health.alive(), alive), (health.ready(), ready)):
        assert page.status == (200 if said == "ok" else 503)
        assert page.body.decode().startswith(said)


class Manager:
    """A service manager's notification socket."""

    def __init__(self, address: Path) -> None:
        self.notifier = Notifier(str(address))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(str(address))

    def heard(self) -> list[bytes]:
        """What has come since the last call."""
        messages = []
        while True:
            try:
                messages.append(self._socket.recv(4096))
            except BlockingIOError:
                return messages

    def close(self) -> None:
        self._socket.close()


async def test_the_watchdog_is_fed_only_while_ticks_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager, ended_s, now_s = Manager(tmp_path / "notify"), 100.0, 100.0
    health = Health(1.0, lambda: ended_s, lambda: 0.0, lambda: now_s)
    feeding = asyncio.create_task(feed_watchdog(manager.notifier, health.stuck, 0.01))
    await asyncio.sleep(0.05)
    assert set(manager.heard()) == {b"WATCHDOG=1"}

    now_s = 121.0
    await asyncio.sleep(0.02)
    manager.heard()
    await asyncio.sleep(0.05)
    assert manager.heard() == []
    assert [record.message for record in caplog.records] == ["the watchdog is not fed: no tick has ended for 21 s"]

    ended_s = 120.5
    await asyncio.sleep(0.05)
    assert set(manager.heard()) == {b"WATCHDOG=1"}
    feeding.cancel()
    manager.close()
