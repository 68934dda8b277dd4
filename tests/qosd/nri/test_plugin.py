"""Attached, and attached again: whatever order runtime and qosd start, end and restart in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from koord.pb.nri import api_pb2 as nri
from qosd.metrics import Metrics
from qosd.model.besteffort import NO_LIMITS
from qosd.model.policy import HostFacts
from qosd.nri.plugin import NRIPlugin, Patience
from qosd.nri.service import Hooks
from tests.qosd.contexts import policy
from tests.qosd.nri.containers import container, lsr, said
from tests.qosd.nri.runtimes import Runtime
from tests.support.waiting import HANG_S


class Daemon:
    """A plugin with the front-end state that qosd keeps for it: it acts while it is attached."""

    def __init__(self, socket: Path, patience: Patience) -> None:
        self.heard: list[bool] = []
        self.told = asyncio.Event()
        hooks = Hooks(lambda: (policy(HostFacts()), NO_LIMITS), Metrics(), lambda: self.heard[-1], lambda target: "")
        self.plugin = NRIPlugin(socket, hooks, self._attached, patience=patience)

    def _attached(self, attached: bool) -> None:
        self.heard.append(attached)
        self.told.set()

    async def hears(self, *heard: bool) -> None:
        async with asyncio.timeout(HANG_S):
            while self.heard != list(heard):
                self.told.clear()
                await self.told.wait()


IMPATIENT = Patience(pause_s=0.05, answer_s=0.1)


@asynccontextmanager
async def running(socket: Path, patience: Patience | None = None) -> AsyncIterator[Daemon]:
    daemon = Daemon(socket, patience or Patience())
    task = asyncio.create_task(daemon.plugin.run())
    try:
        yield daemon
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_socket_that_appears_is_noticed_and_not_polled(tmp_path: Path) -> None:
    socket = tmp_path / "run" / "nri" / "nri.sock"
    async with running(socket) as daemon:
        await asyncio.sleep(0.05)
        assert daemon.plugin.status.failure == f"there is no {socket} (yet)"
        async with Runtime(socket).listening() as runtime:
            attached = await runtime.plugin()
            registered = await attached.registered
            assert (registered.plugin_name, registered.plugin_idx) == ("koord-qosd", "10")
            await attached.configured()
            assert daemon.heard == [True]
            assert daemon.plugin.runtime == "containerd v2, NRI v0.12.0"


async def test_the_runtime_restarts_and_is_edited_again(tmp_path: Path) -> None:
    socket = tmp_path / "nri.sock"
    create = nri.CreateContainerRequest(pod=lsr(), container=container(lsr()))
    async with running(socket) as daemon:
        for life in (1, 2, 3):
            async with Runtime(socket).listening() as runtime:
                attached = await runtime.plugin()
                await attached.configured()
                answer = await attached.call("CreateContainer", create, nri.CreateContainerResponse)
                assert said(answer.adjust.linux.resources) == {"cpus": "2-3"}
            await daemon.hears(*([True, False] * life))
        assert daemon.plugin.status.attachments == 3


async def test_containers_that_ran_before_are_updated_because_it_acts_by_then(tmp_path: Path) -> None:
    async with Runtime(tmp_path / "nri.sock").listening() as runtime, running(runtime.path):
        attached = await runtime.plugin()
        await attached.configured(synchronize=False)
        before = nri.SynchronizeRequest(pods=[lsr()], containers=[container(lsr())])
        answer = await attached.call("Synchronize", before, nri.SynchronizeResponse)
        assert [each.container_id for each in answer.update] == ["c1"]


async def test_a_dead_runtimes_socket_is_tried_again(tmp_path: Path) -> None:
    socket = tmp_path / "nri.sock"
    async with Runtime(socket).listening():
        socket.rename(tmp_path / "kept")
    (tmp_path / "kept").rename(socket)  # nobody listens on it any more
    async with running(socket, IMPATIENT) as daemon:
        await asyncio.sleep(0.02)
        assert "refused" in daemon.plugin.status.failure
        async with Runtime(socket).listening() as runtime:
            await (await runtime.plugin()).configured()
            await daemon.hears(True)


async def test_a_runtime_that_registers_but_never_configures_is_left(tmp_path: Path) -> None:
    async with Runtime(tmp_path / "nri.sock").listening() as runtime, running(runtime.path, IMPATIENT) as daemon:
        first = await runtime.plugin()
        await asyncio.wait_for(first.gone.wait(), 5)
        assert "not configured within 0.1 s" in daemon.plugin.status.failure
        await (await runtime.plugin()).configured()
        assert daemon.heard == [True]


async def test_it_says_once_what_keeps_failing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "nri.sock").write_text("not a socket")
    with caplog.at_level(logging.INFO, "qosd"):
        async with running(tmp_path / "nri.sock", IMPATIENT):
            await asyncio.sleep(0.3)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"{tmp_path}/nri.sock" in caplog.text


async def test_ending_lets_go(tmp_path: Path) -> None:
    async with Runtime(tmp_path / "nri.sock").listening() as runtime:
        async with running(runtime.path) as daemon:
            attached = await runtime.plugin()
            await attached.configured()
        await asyncio.wait_for(attached.gone.wait(), 5)
        assert daemon.heard == [True, False]
        assert daemon.plugin.runtime == ""
