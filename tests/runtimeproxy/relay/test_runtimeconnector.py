"""Clients that wait for a runtime which is missing: one look is for all, each is served in its turn or ends in time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from runtimeproxy.relay.runtimeconnector import Connecting, RuntimeConnector
from runtimeproxy.relay.server import RelayServer
from tests.runtimeproxy.relay.peers import Client, serving
from tests.runtimeproxy.relay.rig import VERSION, listening, passing, text
from tests.support.waiting import until

LONG_S = 3_600.0
DEADLINE_S = 20


class Counting(RuntimeConnector):
    """Counts how often the runtime was tried in vain; at the ``comes_at``-th time it begins to listen."""

    def __init__(self, path: Path, comes_at: int = 0, comes: Callable[[], None] = lambda: None) -> None:
        super().__init__(asyncio.get_running_loop(), str(path))
        self.missed = 0
        self._comes_at, self._comes = comes_at, comes

    def _connected(self) -> socket.socket:
        try:
            return super()._connected()
        except FileNotFoundError:
            self.missed += 1
            if self.missed == self._comes_at:
                self._comes()
            raise


async def accepted(listener: socket.socket, count: int) -> list[socket.socket]:
    loop = asyncio.get_running_loop()
    return [(await loop.sock_accept(listener))[0] for _ in range(count)]


def order_of_ends(waits: list[Connecting]) -> list[int]:
    """The numbers of those waits that have ended."""
    order: list[int] = []

    def note(number: int, _: Connecting) -> None:
        order.append(number)

    for number, wait in enumerate(waits):
        wait.add_done_callback(partial(note, number))
    return order


@pytest.mark.parametrize("count", [1, 300])  # 300 is more than the runtime's queue takes
async def test_all_who_wait_cost_what_one_costs_and_are_served_in_their_order(tmp_path: Path, count: int) -> None:
    listeners: list[socket.socket] = []
    runtime = Counting(tmp_path / "r", 4, lambda: listeners.append(listening(tmp_path / "r")))
    with ExitStack() as stack:
        async with asyncio.timeout(DEADLINE_S):
            waits = [runtime.connect(LONG_S) for _ in range(count)]
            order = order_of_ends(waits)
            await until(lambda: listeners)
            served = asyncio.create_task(accepted(stack.enter_context(listeners[0]), count))
            for sock in [*await asyncio.gather(*waits), *await served]:
                stack.enter_context(sock)
        assert runtime.missed == 4
        assert order == list(range(count))


async def test_each_ends_unserved_at_its_own_deadline(tmp_path: Path) -> None:
    runtime = Counting(tmp_path / "r")
    waits = [runtime.connect(within_s) for within_s in (0.06, 0.0, 0.03, LONG_S)]
    order = order_of_ends(waits)
    async with asyncio.timeout(DEADLINE_S):
        failures = await asyncio.gather(*waits[:3], return_exceptions=True)
        assert {type(failure) for failure in failures} == {FileNotFoundError}
        assert order == [1, 2, 0]
        with listening(tmp_path / "r"):
            (await waits[3]).close()


async def test_nothing_is_tried_for_those_who_gave_up(tmp_path: Path) -> None:
    runtime = Counting(tmp_path / "r")
    waits = [runtime.connect(LONG_S) for _ in range(3)]
    waits[0].cancel()
    runtime.give_up(waits[1], ConnectionAbortedError("gone"))
    with pytest.raises(ConnectionAbortedError):
        await waits[1]
    async with asyncio.timeout(DEADLINE_S):
        with listening(tmp_path / "r") as listener:
            (await waits[2]).close()
            (await asyncio.get_running_loop().sock_accept(listener))[0].close()
            with pytest.raises(BlockingIOError):
                listener.accept()


async def test_it_is_looked_for_again_after_all_have_given_up(tmp_path: Path) -> None:
    runtime = Counting(tmp_path / "r")
    async with asyncio.timeout(DEADLINE_S):
        for _ in range(2):
            with pytest.raises(FileNotFoundError):
                await runtime.connect(0.0)
        waiting: Connecting = runtime.connect(LONG_S)
        with listening(tmp_path / "r"):
            (await waiting).close()


async def _relay(path: Path, backend: Path, backend_wait_s: float) -> RelayServer:
    relay = RelayServer(asyncio.get_running_loop(), str(backend), passing(), backend_wait_s=backend_wait_s)
    relay.add_listener(listening(path))
    return relay


async def test_clients_that_came_before_the_runtime_are_served_by_it(tmp_path: Path) -> None:
    relay = await _relay(tmp_path / "p", tmp_path / "r", LONG_S)
    async with asyncio.timeout(DEADLINE_S):
        connecting = [asyncio.create_task(Client.connect(tmp_path / "p")) for _ in range(20)]
        await until(lambda: len(relay.connections) == 20)
        async with serving(tmp_path / "r"):
            for client in await asyncio.gather(*connecting):
                assert (await client.call(VERSION, text(9))).messages == [text(9)]
                await client.endpoint.close()
            await until(lambda: not relay.connections)
    assert relay.metrics.unserved_connections == 0
    relay.drain()


@pytest.mark.parametrize(("backend_wait_s", "leaves"), [(0.02, False), (LONG_S, True)])
async def test_who_is_late_and_who_leaves_is_counted_unserved(
    tmp_path: Path, backend_wait_s: float, leaves: bool
) -> None:
    relay = await _relay(tmp_path / "p", tmp_path / "r", backend_wait_s)
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(DEADLINE_S):
        with socket.socket(socket.AF_UNIX) as client:
            client.setblocking(False)
            client.connect(str(tmp_path / "p"))
            client.send(b"PRI * HTTP/2.0")  # what lies unread does not hide that the client has gone
            await until(lambda: relay.metrics.accepted_connections == 1)
            if not leaves:
                with pytest.raises(ConnectionError):
                    await loop.sock_recv(client, 1)
        await until(lambda: relay.metrics.unserved_connections == 1)
    assert not relay.connections
    relay.drain()
