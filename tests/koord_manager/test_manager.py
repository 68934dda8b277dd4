"""How the process ends: what it leaves behind, and what it says."""

from __future__ import annotations

import asyncio
import errno
import importlib
import logging
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from koord.cluster import frame
from koord.cluster import program as component
from koord.cluster.frame import Frame
from koord.kube.client import Client
from koord.kube.recorder import EventRecorder
from koord.model.nodelink import LEASE_NAME
from koord.service import failures
from koord_manager import manager, program
from koord_manager.manager import Manager
from koord_manager.options import NAME, PROGRAM
from koord_manager.view import ClusterView
from tests.koord_manager.support import CONFIG
from tests.kube.server import Fault, Server
from tests.kube.support import client
from tests.support.cluster import CONFIG_MAPS, METRICS, NODES
from tests.support.waiting import HANG_S, until

LEASES = "/apis/coordination.k8s.io/v1", "leases"
QUIET = ("--feature-gates=WebhookFramework=false", "--metrics-addr=")
ALONE = "--enable-leader-election=false"


@dataclass
class Replica:
    frame: Frame
    manager: Manager

    async def run(self, stop: asyncio.Event) -> None:
        await self.frame.run(self.manager, stop)


def made(api: Client, *argv: str) -> Replica:
    options = PROGRAM.load(PROGRAM.parse([*QUIET, *argv]))
    frame = Frame(api, NAME, LEASE_NAME, options, {"HOSTNAME": "manager-a"})
    return Replica(frame, Manager(frame, options))


def holder(server: Server) -> str | None:
    leases = server.objects.get(LEASES, {})
    return next((str(lease["spec"]["holderIdentity"]) for lease in leases.values()), None)


def metrics(server: Server) -> int:
    root, _, plural = METRICS.rpartition("/")
    return len(server.objects.get((root, plural), {}))


class SlowServer(Server):
    """It takes a while for what it is to make."""

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            await asyncio.sleep(0.2)
        return await super()._serve(request)


class SleepyServer(Server):
    """It refuses to make the first NodeMetric for now. Meanwhile the manager's machine sleeps, and another leads."""

    slept_s = 0.0

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if (request.method, request.path) == ("POST", METRICS) and not self.slept_s:
            self.slept_s = 60.0
            ((key, lease),) = self.objects[LEASES].items()
            spec = {**lease["spec"], "holderIdentity": "manager-b", "leaseDurationSeconds": 3600}
            self.write(LEASES, key, {**lease, "spec": spec})
            self.faults.append(Fault("create", status=429, reason="TooManyRequests"))
        return await super()._serve(request)


async def test_who_led_until_he_slept_writes_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was refused while he led is not sent again, though nothing has yet told him that another leads."""
    server, stop, clock_gettime = SleepyServer(), asyncio.Event(), time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda clock: clock_gettime(clock) + server.slept_s)
    server.put(NODES, "", "n1")
    async with server.serving() as url, client(url) as api:
        running = asyncio.create_task(made(api).run(stop))
        await until(lambda: server.slept_s > 0)
        before = len(server.requests)
        await until(lambda: any(verb == "get" and "/leases/" in path for verb, path, *_ in server.requests[before:]))
        assert (holder(server), metrics(server)) == ("manager-b", 0)
        stop.set()
        await running


async def test_a_view_that_dies_takes_the_leader_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """From caches that nobody fills any more nothing is written, and the other replica leads at once."""
    dead, follow = asyncio.Event(), ClusterView.run

    async def run(view: ClusterView) -> None:
        following = asyncio.ensure_future(follow(view))
        try:
            await dead.wait()
        finally:
            following.cancel()
        raise RuntimeError("the view died")

    monkeypatch.setattr(ClusterView, "run", run)
    server = Server()
    server.put(NODES, "", "n1")
    async with server.serving() as url, client(url) as api:
        running = asyncio.create_task(made(api).run(asyncio.Event()))
        await until(lambda: bool(holder(server)) and metrics(server) == 1)
        dead.set()
        with pytest.raises(ExceptionGroup) as died:
            await running
        assert [str(error) for error in failures.each(died.value)] == ["the view died"]
        assert holder(server) == ""


@pytest.mark.parametrize("is_there", [True, False])
async def test_an_absent_policy_is_a_figure_once_it_is_known(is_there: bool) -> None:
    server, stop = Server(), asyncio.Event()
    server.put(NODES, "", "n1")
    if is_there:
        server.put(CONFIG_MAPS, CONFIG.namespace, CONFIG.name, data={})
    async with server.serving() as url, client(url) as api:
        replica = made(api, ALONE)
        absent: Callable[[], float] = replica.manager.metrics.policy_absent
        assert absent() == 0.0, "nobody knows yet"
        running = asyncio.create_task(replica.run(stop))
        await until(lambda: metrics(server) == 1)
        assert absent() == float(not is_there)
        stop.set()
        await running


@pytest.mark.parametrize("hangs", [False, True], ids=["written", "not answered"])
async def test_the_last_events_are_written_in_bounded_time(monkeypatch: pytest.MonkeyPatch, hangs: bool) -> None:
    """``stop`` comes with the first Event."""
    stop, record = asyncio.Event(), EventRecorder.record

    def recorded(*arguments: object) -> None:
        record(*arguments)  # type: ignore[arg-type]
        stop.set()

    monkeypatch.setattr(EventRecorder, "record", recorded)
    monkeypatch.setattr(frame, "_LAST_EVENTS_S", 0.3 if hangs else 10.0)
    server = SlowServer()
    server.put(CONFIG_MAPS, CONFIG.namespace, CONFIG.name, data={"colocation-config": "{bad"})
    server.faults += [Fault("create", hang=True)] * hangs
    async with server.serving() as url, client(url) as api:
        async with asyncio.timeout(HANG_S):
            await made(api, ALONE).run(stop)
    assert len(server.objects.get(("/api/v1", "events"), {})) == (not hangs)


async def test_a_port_that_is_in_use_is_said() -> None:
    server = Server()
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    async with taken, server.serving() as url, client(url) as api:
        with pytest.raises(ExceptionGroup) as ended:
            await made(api, f"--nodelink-endpoint=127.0.0.1:{port}").run(asyncio.Event())
    (error,) = failures.each(ended.value)
    assert isinstance(error, OSError)
    assert error.errno == errno.EADDRINUSE


@pytest.mark.parametrize("pem", ["", "nonsense", None])
async def test_an_authority_of_clients_that_is_none_lets_nobody_in(pem: str | None, tmp_path: Path) -> None:
    """Without one it would answer everybody."""
    if pem is not None:
        (tmp_path / "ca.crt").write_text(pem)
    server, why = Server(), "No such file" if pem is None else "webhook-client-ca-file = .*: holds no certificate"
    async with server.serving() as url, client(url) as api:
        with pytest.raises((OSError, ValueError), match=why):
            made(api, f"--webhook-client-ca-file={tmp_path}/ca.crt")


def listens(port: int) -> bool:
    with socket.socket() as client_socket:
        return client_socket.connect_ex(("127.0.0.1", port)) == 0


async def test_probes_have_an_address_of_their_own() -> None:
    """Who fills that of the metrics keeps no probe waiting."""
    server, stop = Server(), asyncio.Event()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    argv = (ALONE, "--metrics-addr=127.0.0.1:0", f"--health-probe-addr=127.0.0.1:{port}")
    async with server.serving() as url, client(url) as api, asyncio.TaskGroup() as group:
        group.create_task(made(api, *argv).run(stop))
        await until(lambda: listens(port))
        async with aiohttp.ClientSession() as session:
            for path, status in (("/healthz", 200), ("/metrics", 404)):
                async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                    assert answer.status == status
        stop.set()


def test_the_log_names_what_ended_it(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def run(*_: object) -> None:
        raise ExceptionGroup("outer", [ExceptionGroup("inner", [OSError("address already in use")])])

    monkeypatch.setattr(manager, "run", run)
    monkeypatch.setattr(program, "_set_up_log", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["koord-manager"])
    with caplog.at_level(logging.ERROR), pytest.raises(SystemExit) as ended:
        program.main()
    assert (ended.value.code, caplog.messages) == (1, ["address already in use"])


@pytest.mark.parametrize("name", [*component.STRANGERS, *program.STRANGERS])
def test_the_lines_that_strangers_cause_are_limited_by_loggers_that_there_are(name: str) -> None:
    module = importlib.import_module(name)
    assert name == "asyncio" or name in [
        each.name for each in vars(module).values() if isinstance(each, logging.Logger)
    ]
