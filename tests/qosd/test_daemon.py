"""The process as systemd starts it: ready only when it serves, reloadable, and gone without a trace of error."""

from __future__ import annotations

import asyncio
import fcntl
import json
import mmap
import os
import re
import signal
import socket
import stat
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from koord.host.undo import UndoError, UndoRecord
from koord.http2 import blocking
from koord.model import nodestate
from koord.pb.hooks import api_pb2 as hooks
from koord.pb.koord import inspect_pb2 as inspect
from koord.service.config import ConfigError
from koord.service.lines import LineWriter
from qosd import daemon as daemon_module
from qosd.node import UNDO
from tests.koordctl.runs import koordctl
from tests.kube.server import Server
from tests.qosd.contexts import EXTENDED, QOS, extended
from tests.qosd.machine import Machine
from tests.support.forked import Forked, run_module

Found = TypeVar("Found")
Start = Callable[[Sequence[str], Mapping[str, str], Path], Awaitable[Process | Forked]]
PATIENCE_S = 10.0  # of the test, not a promise
READY, RELOADING, STOPPING, WATCHDOG = b"READY=1", b"RELOADING=1", b"STOPPING=1", b"WATCHDOG=1"
CLUSTER = ("--kubeconfig", "/nonexistent")


@dataclass
class Daemon:
    """A koord-qosd that runs, and the service manager that it notifies."""

    machine: Machine
    process: Process | Forked
    manager: socket.socket
    log: Path

    async def notified(self) -> bytes:
        """The next state change."""
        async with asyncio.timeout(PATIENCE_S):
            return await asyncio.get_running_loop().sock_recv(self.manager, 4096)

    async def create(self) -> hooks.ContainerResourceHookResponse:
        """A hook call."""
        path = "/runtime.v1alpha1.RuntimeHookService/PreCreateContainerHook"
        request = hooks.ContainerResourceHookRequest().SerializeToString()
        answer = await asyncio.to_thread(blocking.call, str(self.machine.root / "h.sock"), path, request, 5.0)
        return hooks.ContainerResourceHookResponse.FromString(answer)

    async def node(self) -> inspect.GetNodeResponse:
        request = inspect.GetNodeRequest().SerializeToString()
        path = "/koord.node.v1.NodeInspect/GetNode"
        answer = await asyncio.to_thread(blocking.call, str(self.machine.root / "i.sock"), path, request, 5.0)
        return inspect.GetNodeResponse.FromString(answer)

    async def page(self, path: str) -> str:
        """A status page, head and all."""
        reader, writer = await asyncio.open_unix_connection(self.machine.root / "m.sock")
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        try:
            return (await asyncio.wait_for(reader.read(), PATIENCE_S)).decode()
        finally:
            writer.close()

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send the signal; the exit code."""
        self.process.send_signal(number)
        async with asyncio.timeout(PATIENCE_S):
            return await self.process.wait()

    def said(self) -> str:
        return self.log.read_text()

    async def says(self, what: str, times: int = 1) -> bool:
        return self.said().count(what) >= times

    async def cpus(self) -> str:
        """The CPU set that a container would get."""
        return (await self.create()).container_resources.cpuset_cpus

    async def page_with(self, path: str, what: str) -> str:
        """The page if it has that, else ""."""
        page = await self.page(path)
        return page if what in page else ""

    async def decided(self, cgroup: str) -> bool:
        """Has the batch pod's container its quota?"""
        return self.machine.holds(cgroup, "cpu_quota") == 50_000


async def execute(flags: Sequence[str], environ: Mapping[str, str], log: Path) -> Process:
    with log.open("ab") as out:
        return await asyncio.create_subprocess_exec(sys.executable, "-m", "qosd", *flags, stderr=out, env=environ)


async def fork(flags: Sequence[str], environ: Mapping[str, str], log: Path) -> Forked:
    return await asyncio.to_thread(Forked, run_module, "qosd", flags, environ, log)


async def spawn(
    machine: Machine, log: Path, flags: Sequence[str], environ: Mapping[str, str], start: Start = fork
) -> Process | Forked:
    return await start([*machine.flags(), *flags], {"PATH": "/usr/bin:/bin", **environ}, log)


@asynccontextmanager
async def running(machine: Machine, *flags: str, start: Start = fork, **environ: str) -> AsyncIterator[Daemon]:
    """qosd after its READY=1."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        address = machine.root / "notify.sock"
        address.unlink(missing_ok=True)
        manager.bind(str(address))
        manager.setblocking(False)
        log = machine.root / "qosd.log"
        process = await spawn(machine, log, flags, {"NOTIFY_SOCKET": str(address), **environ}, start)
        try:
            daemon = Daemon(machine, process, manager, log)
            assert (await daemon.notified()).startswith(READY), log.read_text()
            yield daemon
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def ends(machine: Machine, *flags: str, **environ: str) -> tuple[int | None, str]:
    """(exit code, log) of a qosd that ends by itself."""
    log = machine.root / "ended.log"
    process = await spawn(machine, log, flags, environ)
    try:
        await asyncio.wait_for(process.wait(), PATIENCE_S)
    except TimeoutError:
        process.kill()
        await process.wait()
    return process.returncode, log.read_text()


async def until(ask: Callable[[], Awaitable[Found]]) -> Found:
    """What ``ask`` answers as soon as that is something."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if found := await ask():
                return found
            await asyncio.sleep(0.02)


async def health_at(port: int) -> str:
    """The health page; "" if nobody serves it."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return ""
    writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
    try:
        return (await asyncio.wait_for(reader.read(), PATIENCE_S)).decode()
    finally:
        writer.close()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.kubepods()
    return made


def batch_pod(machine: Machine) -> str:
    """A BE pod with half a CPU; its container's cgroup."""
    spec = json.dumps(extended("main", request="500", limit="500", memory="64Mi"))
    sandbox = machine.runtime.pod("job", "/besteffort", labels={QOS: "BE"}, annotations={EXTENDED: spec})
    container = machine.runtime.container(sandbox, "main")
    machine.runtime.start(container)
    return machine.runtime.cgroup(container)


class TestWhatCannotStart:
    @pytest.mark.parametrize(
        ("flags", "code", "said"),
        [
            (["--log-level", "loud"], 2, "--log-level"),
            (["--config", "/nonexistent/qosd.yaml"], 2, "/nonexistent/qosd.yaml: does not exist"),
            (["--tick-interval", "0"], 2, "must be more than 0"),
            (["--sys-root", "/nonexistent"], 1, "sys-root = '/nonexistent'"),
            (
                ["--metrics-endpoint", "0.0.0.0:9"], 1,
                "metrics-endpoint = '0.0.0.0:9': is reached from other machines: give --metrics-token-file or",
            ),
            (["--metrics-endpoint", "m.sock"], 1, "metrics-endpoint = 'm.sock': must be unix:///path or host:port"),
            (["--metrics-token-file", "/nonexistent"], 1, "metrics-token-file = '/nonexistent': cannot be read"),
            (["--node-name", "Node_1"], 2, "must be a Node's name"),
        ],
    )  # fmt: skip
    async def test_it_says_why(self, machine: Machine, flags: list[str], code: int, said: str) -> None:
        ended, log = await ends(machine, *flags)
        assert (ended, said in log) == (code, True), log
        assert "Traceback" not in log
        assert not (machine.root / "hookserver.d").exists()

    @pytest.mark.parametrize(
        ("variable", "value"), [("WATCHDOG_USEC", "soon"), ("WATCHDOG_USEC", "-1"), ("NOTIFY_SOCKET", "relative")]
    )
    async def test_a_service_manager_that_talks_nonsense(self, machine: Machine, variable: str, value: str) -> None:
        ended, log = await ends(machine, **{variable: value})
        assert (ended, f"{variable}='{value}'" in log) == (1, True), log
        assert "Traceback" not in log

    @pytest.mark.parametrize(
        ("flags", "said"),
        [
            (("--dry-run",), "the undo record is in use by a running koord-qosd"),
            (("--run-dir", "{root}/other"), "another process listens on it: '{root}/h.sock'"),
            (("--run-dir", "{root}/other", "--hook-socket", "{root}/other.sock"), "listens on it: '{root}/i.sock'"),
        ],
    )
    async def test_a_second_one_leaves_the_first_alone(
        self, machine: Machine, flags: tuple[str, ...], said: str
    ) -> None:
        async with running(machine) as first:
            ended, log = await ends(machine, *(flag.format(root=machine.root) for flag in flags))
            assert (ended, said.format(root=machine.root) in log) == (1, True), log
            assert "Traceback" not in log
            await first.create()
            assert (machine.root / "hookserver.d" / "koord-qosd.json").exists()

    async def test_a_node_that_could_not_have_that_name(self, machine: Machine) -> None:
        ended, log = await ends(machine, "--kubeconfig", "/nonexistent", NODE_NAME="Node_1")
        assert (ended, "node-name = 'Node_1': cannot be a Node's name" in log) == (1, True), log

    async def test_a_socket_left_by_a_killed_one_is_taken_over(self, machine: Machine) -> None:
        async with running(machine) as killed:
            await killed.end(signal.SIGKILL)
            assert (machine.root / "h.sock").exists()
        async with running(machine) as daemon:
            await daemon.create()


class TestWhatDoesNotKeepItFromServing:
    async def test_a_hook_server_directory_that_refuses(self, machine: Machine) -> None:
        machine.put("hookserver.d", "not a directory")
        async with running(machine) as daemon:
            await daemon.create()
            assert await daemon.end() == 0
            assert "no runtime proxy will find the hooks" in daemon.said()

    async def test_a_metrics_port_that_is_taken_is_used_when_it_is_free(self, machine: Machine) -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            endpoint = f"127.0.0.1:{other.getsockname()[1]}"
            async with running(machine, "--metrics-endpoint", endpoint) as daemon:
                await daemon.create()
                assert f"no status pages at {endpoint} yet" in daemon.said()
                port = other.getsockname()[1]
                other.close()
                assert "200 OK" in await until(lambda: health_at(port))

    async def test_no_runtime_and_no_kubelet(self, machine: Machine) -> None:
        async with running(machine, "--kubelet-endpoint", "http://127.0.0.1:1") as daemon:
            await daemon.create()
            assert "200 OK" in await daemon.page("/healthz")
            ready = await daemon.page("/readyz")
            assert "503" in ready
            assert re.search(r"no tick has ended yet|neither the runtime nor kubelet has answered", ready)

    async def test_directories_that_cannot_be_made(self, machine: Machine) -> None:
        machine.put("a-file", "")
        refused = f"{machine.root}/a-file/koord"
        async with running(machine, "--run-dir", refused, "--state-dir", refused) as daemon:
            await daemon.create()
            warnings = list((await daemon.node()).warnings)
            assert any(line.startswith("no kernel file is written: ") for line in warnings), warnings
            assert any(line.startswith("journal: ") for line in warnings), warnings
            assert await daemon.end() == 0
            assert "Traceback" not in daemon.said()

    async def test_a_tick_that_hangs(self, machine: Machine) -> None:
        """As a read from a broken device may: hooks and health pages are answered all the same."""
        (machine.root / "proc/stat").unlink()
        os.mkfifo(machine.root / "proc/stat")
        async with running(machine) as daemon:
            await daemon.create()
            assert "no tick has ended yet" in await daemon.page("/readyz")
            descriptor = await asyncio.to_thread(os.open, machine.root / "proc/stat", os.O_WRONLY)
            os.close(descriptor)  # it ends, with nothing read
            assert await daemon.end() == 0


class TestCluster:
    @pytest.mark.parametrize("package", ["aiohttp", "httptools"])
    async def test_without_the_packages_that_it_takes_it_does_not_start(
        self, machine: Machine, monkeypatch: pytest.MonkeyPatch, package: str
    ) -> None:
        monkeypatch.setattr(daemon_module, "find_spec", lambda name: None if name == package else object())
        options = machine.options(kubeconfig="/etc/kubernetes/kubelet.conf")
        with pytest.raises(ConfigError, match=rf"kubeconfig = '/etc/kubernetes/kubelet.conf': takes .* {package}"):
            await daemon_module.run(options, {}, LineWriter(2, lambda missing: ""))

    async def test_one_that_is_not_there_keeps_nothing_from_being_served(self, machine: Machine) -> None:
        """Neither a configuration that kubelet has yet to write, nor a server that is away."""
        machine.put("kubeconfig", json.dumps(kubeconfig("http://127.0.0.1:1")))
        for file in ("absent", "kubeconfig"):
            async with running(machine, "--kubeconfig", f"{machine.root}/{file}", "--node-name", "n1") as daemon:
                await daemon.create()
                await until(lambda daemon=daemon: daemon.says("nodeslos: "))  # type: ignore[misc]
                assert "200 OK" in await daemon.page("/healthz")
                page = await daemon.page("/metrics")
                assert "koord_qosd_cluster_reachable 0.0" in page
                assert "koord_qosd_cluster_silence_seconds NaN" in page
                assert await daemon.end() == 0
                assert "Traceback" not in daemon.said()

    @pytest.mark.parametrize("is_uninstalled", [True, False])
    async def test_what_it_keeps_goes_where_koord_is_uninstalled(self, machine: Machine, is_uninstalled: bool) -> None:
        async with in_cluster(machine, is_uninstalled) as daemon:
            assert await daemon.end() == 0
            assert "Traceback" not in daemon.said()
        left = {path.name for name in ("run", "state") for path in (machine.root / name).glob("*")}
        sockets = {name for name in ("h.sock", "i.sock") if (machine.root / name).exists()}
        if is_uninstalled:
            assert (left, sockets) == (set(), set())
        else:
            assert {"undo.jsonl", "nodeslo.yaml", "journal.db"} <= left

    async def test_who_stands_by_at_an_uninstall_has_its_own_files(self, machine: Machine) -> None:
        record = machine.root / "run" / UNDO
        async with in_cluster(machine, is_uninstalled=True) as first:
            second = Machine(machine.root / "second", machine.version)
            async with running(second, "--run-dir", str(record.parent)) as other:
                await until(lambda: other.says("standing by"))
                assert await first.end() == 0
                assert (await other.notified()).startswith(READY)
                await other.create()
                assert record.exists()
                with pytest.raises(UndoError, match="in use by a running koord-qosd"):
                    UndoRecord(record, "boot")
                assert await other.end() == 0
                assert "Traceback" not in other.said()

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
    @pytest.mark.parametrize(
        ("flags", "others"),
        [(CLUSTER, CLUSTER), (CLUSTER, ()), ((), CLUSTER), ((), ()), (CLUSTER, (*CLUSTER, "--dry-run"))],
        ids=["two of a cluster", "a unit beside a pod", "a pod beside a unit", "two units", "looks on in a cluster"],
    )
    async def test_the_second_stands_by_and_takes_over(
        self, machine: Machine, number: signal.Signals, flags: tuple[str, ...], others: tuple[str, ...]
    ) -> None:
        async with running(machine, *flags) as first:
            second = Machine(machine.root / "second", machine.version)
            shared = ("--run-dir", str(machine.root / "run"))
            async with running(second, *others, *shared) as other:
                await until(lambda other=other: other.says("standing by: another koord-qosd acts"))  # type: ignore[misc]
                assert "503" in await other.page("/readyz")
                assert not (second.root / "h.sock").exists()
                await first.create()
                await first.end(number)
                assert (await other.notified()).startswith(READY)
                await other.create()
                assert await other.end() == 0
                assert "Traceback" not in other.said()

    @pytest.mark.parametrize("flags", [CLUSTER, ()], ids=["in a cluster", "without one"])
    async def test_the_second_ends_while_it_stands_by(self, machine: Machine, flags: tuple[str, ...]) -> None:
        async with running(machine, *flags) as first:
            second = Machine(machine.root / "second", machine.version)
            async with running(second, *flags, "--run-dir", str(machine.root / "run")) as other:
                assert await other.end() == 0
                assert "Traceback" not in other.said()
            await first.create()


@asynccontextmanager
async def in_cluster(machine: Machine, is_uninstalled: bool) -> AsyncIterator[Daemon]:
    """qosd that has heard of its NodeSLO, which may say that Koord is uninstalled."""
    server = Server()
    annotations = {nodestate.UNINSTALLED: "true"} if is_uninstalled else {}
    server.put("/api/v1/nodes", "", "n1")
    slo = {"metadata": {"annotations": annotations, "generation": 1}, "spec": {}}
    server.put("/apis/slo.koordinator.sh/v1alpha1/nodeslos", "", "n1", **slo)
    async with server.serving() as url:
        machine.put("kubeconfig", json.dumps(kubeconfig(url)))
        flags = ("--kubeconfig", f"{machine.root}/kubeconfig", "--node-name", "n1")
        async with running(machine, *flags) as daemon:
            await until(lambda: asyncio.to_thread((machine.root / "state/nodeslo.yaml").exists))
            yield daemon


def kubeconfig(server: str) -> dict[str, object]:
    """Of a server that asks for no credentials."""
    return {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
    }


class TestRules:
    async def test_a_change_counts_at_once_and_a_bad_file_never(self, machine: Machine) -> None:
        async with running(machine) as daemon:
            assert await daemon.cpus() == ""
            machine.put("rules.yaml", 'node: {sharedPools: {ls: [{cpuset: "0-3"}]}}')
            assert await until(daemon.cpus) == "0-3"
            machine.put("rules.yaml", 'node: {sharedPools: {ls: [{cpuset: "0-x"}]}}')
            await until(lambda: daemon.says("the last good rules stay"))
            assert await daemon.cpus() == "0-3"
            said = f"{machine.root}/rules.yaml: node.sharedPools.ls[0].cpuset: '0-x' is not a CPU list"
            assert any(line.startswith(said) for line in (await daemon.node()).warnings)

    async def test_sighup_reads_them_again(self, machine: Machine) -> None:
        async with running(machine) as daemon:
            daemon.process.send_signal(signal.SIGHUP)
            assert (await daemon.notified()).startswith(RELOADING)
            assert (await daemon.notified()).startswith(READY)
            await until(lambda: daemon.says("built-in defaults", times=2))


async def test_life(machine: Machine) -> None:
    async with running(machine, start=execute) as daemon:
        registered = json.loads((machine.root / "hookserver.d" / "koord-qosd.json").read_text())
        assert (registered["remote-endpoint"], registered["failure-policy"]) == (f"{machine.root}/h.sock", "Ignore")
        modes = {name: stat.S_IMODE((machine.root / name).stat().st_mode) for name in ("h.sock", "i.sock", "m.sock")}
        assert modes == {"h.sock": 0o660, "i.sock": 0o600, "m.sock": 0o660}
        daemon.process.terminate()
        assert (await daemon.notified()).startswith(STOPPING)
        assert await daemon.end() == 0
        assert "Traceback" not in daemon.said()
    assert (machine.root / "hookserver.d" / "koord-qosd.json").exists()  # stopping is not disabling


async def test_a_log_that_nobody_reads_stops_nothing(machine: Machine) -> None:
    """What journald is while it hangs: here a FIFO that is open for reading, and full."""
    fifo = machine.root / "qosd.log"
    os.mkfifo(fifo)
    unread = os.open(fifo, os.O_RDWR)
    fcntl.fcntl(unread, fcntl.F_SETPIPE_SZ, mmap.PAGESIZE)
    try:
        async with running(machine) as daemon:
            for _ in range(100):
                daemon.process.send_signal(signal.SIGHUP)
                assert (await daemon.notified()).startswith(RELOADING)
                assert (await daemon.notified()).startswith(READY)
            await daemon.create()
            assert "koord_qosd_log_lines_dropped_total 0.0" in await daemon.page("/metrics")
            assert await daemon.end() == 0
    finally:
        os.close(unread)


async def test_the_hook_server_file_goes_with_it_if_so_configured(machine: Machine) -> None:
    async with running(machine, "--remove-hookserver-file") as daemon:
        assert await daemon.end() == 0
    assert list((machine.root / "hookserver.d").iterdir()) == []


async def test_ready_once_the_pods_are_known(machine: Machine) -> None:
    async with machine.runtime.serving(machine.socket), running(machine) as daemon:
        assert (await until(lambda: daemon.page_with("/readyz", "200 OK"))).endswith("ok\n")


async def test_hooks_and_node_share_the_metrics_page(machine: Machine) -> None:
    async with machine.runtime.serving(machine.socket), running(machine, "--tick-interval", "0.1") as daemon:
        batch_pod(machine)
        await daemon.create()
        page = await until(lambda: daemon.page_with("/metrics", "koord_qosd_pod_memory_usage_bytes{"))
    assert 'koord_qosd_hook_calls_total{caller="other",result="unchanged",stage="PreCreateContainer"} 1.0' in page
    assert re.search(r'koord_qosd_pod_memory_usage_bytes\{namespace="default",pod="job",uid="uid-job"\} \d', page)


async def test_the_watchdog_is_fed_at_half_its_time(machine: Machine) -> None:
    async with running(machine, WATCHDOG_USEC="200000") as daemon:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for _ in range(4):
            assert await daemon.notified() == WATCHDOG
        assert loop.time() - began_s < PATIENCE_S


async def test_a_watchdog_of_another_process_is_not_fed(machine: Machine) -> None:
    async with running(machine, WATCHDOG_USEC="100000", WATCHDOG_PID="1") as daemon:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await asyncio.get_running_loop().sock_recv(daemon.manager, 4096)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_values_stay_and_koordctl_puts_them_back_without_the_daemon(
    machine: Machine, number: signal.Signals
) -> None:
    async with machine.runtime.serving(machine.socket):
        cgroup = batch_pod(machine)
        async with running(machine) as daemon:
            await until(lambda: daemon.decided(cgroup))
            assert await daemon.end(number) == (0 if number is signal.SIGTERM else -number)
        assert machine.holds(cgroup, "cpu_quota") == 50_000
    where = ["--undo-file", f"{machine.root}/run/undo.jsonl", "--root", str(machine.root), "--cgroup-root", "/cgroup"]
    code, out, err = await koordctl("restore", "--yes", *where)
    assert (code, machine.holds(cgroup, "cpu_quota")) == (0, -1), out + err
