"""The whole process, with a real backend, a real client, and a socket in place of the service manager."""

from __future__ import annotations

import itertools
import os
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

ECHO = "/test.Echo/Say"


class Backend(grpc.GenericRpcHandler):
    """Answers every unary call with its own bytes; ``slow`` takes a second, ``held`` until ``release`` is set."""

    def __init__(self) -> None:
        self.release = threading.Event()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(self._echo)

    def _echo(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        if request == b"slow":
            time.sleep(1)
        if request == b"held":
            self.release.wait(30)
        return request


class Node:
    """A directory with a backend, a manager's datagram socket, and proxies started in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.endpoint = directory / "proxy.sock"
        self.status = directory / "status.sock"
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.bind(str(directory / "notify"))
        self.backend = Backend()
        self.server = grpc.server(ThreadPoolExecutor(4), handlers=[self.backend])
        self.server.add_insecure_port(f"unix:{directory}/backend.sock")
        self.server.start()
        self.processes: list[subprocess.Popen[str]] = []
        self.successors: list[int] = []

    def start(
        self, *arguments: str, program: tuple[str, ...] = (sys.executable, "-m", "runtimeproxy"), **environ: str
    ) -> subprocess.Popen[str]:
        command = [
            *program,
            f"--koord-runtimeproxy-endpoint={self.endpoint}",
            f"--remote-runtime-service-endpoint={self.directory}/backend.sock",
            f"--metrics-endpoint={self.status}",
            f"--hookserver-dir={self.directory}/hooks",
            *arguments,
        ]
        process = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "NOTIFY_SOCKET": str(self.directory / "notify"), **environ},
        )
        self.processes.append(process)
        return process

    def told(self, wanted: str, timeout_s: float = 5) -> list[str]:
        """The manager's next message that contains ``wanted``, as lines."""
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0 and select.select([self.manager], [], [], left_s)[0]:
            message = self.manager.recv(4096).decode()
            if wanted in message:
                return message.split("\n")
        raise AssertionError(f"the manager was not told {wanted}")

    def silent_about(self, unwanted: str, during_s: float) -> bool:
        try:
            self.told(unwanted, during_s)
        except AssertionError:
            return True
        return False

    def channel(self) -> grpc.Channel:
        return grpc.insecure_channel(f"unix:{self.endpoint}", options=[("grpc.use_local_subchannel_pool", 1)])

    def say(self, request: bytes = b"hello") -> bytes:
        with self.channel() as channel:
            return bytes(channel.unary_unary(ECHO)(request, timeout=5))

    def get(self, page: str) -> str:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self.status))
            client.sendall(f"GET {page} HTTP/1.0\r\n\r\n".encode())
            return b"".join(iter(lambda: client.recv(65536), b"")).decode()

    def metric(self, name: str) -> float:
        found = re.search(rf"^{name} (\S+)$", self.get("/metrics"), re.MULTILINE)
        assert found is not None
        return float(found[1])

    def close(self) -> None:
        for pid in self.successors:
            if Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGKILL)
        for process in self.processes:
            process.kill()
            process.wait()
            assert process.stderr is not None
            process.stderr.close()
        self.backend.release.set()
        self.server.stop(None)
        self.manager.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.close()


def until(condition: Callable[[], bool], timeout_s: float = 5) -> None:
    deadline = time.monotonic() + timeout_s
    while not _holds(condition):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except OSError:
        return False


def failure(process: subprocess.Popen[str]) -> tuple[int, str]:
    assert process.stderr is not None
    return process.wait(5), process.stderr.read()


def test_an_unknown_flag_ends_with_2_and_one_line(node: Node) -> None:
    code, text = failure(node.start("--no-such-flag"))
    assert code == 2
    assert "--no-such-flag" in text
    assert text.count("\n") == 1


def test_a_taken_socket_ends_with_1_and_one_line(node: Node) -> None:
    node.start()
    node.told("READY=1")
    code, text = failure(node.start())
    assert code == 1
    assert str(node.endpoint) in text
    assert text.count("\n") == 1
    assert node.say() == b"hello"


def test_descriptors_that_make_no_sense_end_with_1(node: Node) -> None:
    code, text = failure(node.start(KOORD_LISTEN_FDS="x"))
    assert (code, text.count("\n")) == (1, 1)
    assert "KOORD_LISTEN_FDS" in text


def test_sigterm_lets_calls_in_flight_end_and_exits_0(node: Node) -> None:
    process = node.start()
    assert "MAINPID" not in str(node.told("READY=1"))
    with node.channel() as channel:
        call = channel.unary_unary(ECHO).future(b"slow", timeout=5)
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        assert call.result() == b"slow"
    node.told("STOPPING=1")
    assert process.wait(5) == 0
    assert node.endpoint.exists()


def test_started_without_a_backend_it_serves_once_there_is_one(tmp_path: Path) -> None:
    node = Node(tmp_path)
    backend = tmp_path / "backend.sock"
    hidden = tmp_path / "hidden.sock"
    backend.rename(hidden)
    node.start()
    node.told("READY=1")
    with node.channel() as channel:
        call = channel.unary_unary(ECHO).future(b"hello", timeout=5)
        time.sleep(0.2)
        hidden.rename(backend)
        assert call.result() == b"hello"
    node.close()


def test_the_watchdog_is_fed_at_half_its_interval(node: Node) -> None:
    process = node.start(WATCHDOG_USEC="200000")
    node.told("READY=1")
    for _ in range(3):
        node.told("WATCHDOG=1", timeout_s=0.4)
    process.send_signal(signal.SIGSTOP)
    until(lambda: node.silent_about("WATCHDOG=1", 0.3))


def test_a_manager_that_is_busy_is_told_later(node: Node) -> None:
    """systemd reads nothing while it reloads, and its queue is short."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                other.sendto(b"busy", str(node.directory / "notify"))
    process = node.start(WATCHDOG_USEC="200000")
    assert process.stderr is not None
    assert "not notified of READY=1" in "".join(itertools.takewhile(lambda line: "serving" not in line, process.stderr))
    assert node.say() == b"hello"
    node.told("READY=1")
    node.told("WATCHDOG=1")


def test_reload(node: Node, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("bypass: false\n")
    process = node.start(f"--config={config}")
    node.told("READY=1")
    until(lambda: node.metric("koord_runtimeproxy_bypass") == 0)
    for text, expected in (("bypass: true\n", 1), ("bypass: nonsense\n", 1), ("bypass: false\n", 0)):
        config.write_text(text)
        process.send_signal(signal.SIGHUP)
        assert any(line.startswith("MONOTONIC_USEC=") for line in node.told("RELOADING=1"))
        node.told("READY=1")
        assert node.metric("koord_runtimeproxy_bypass") == expected


def test_bypass_by_signal_and_by_file(node: Node, tmp_path: Path) -> None:
    switch = tmp_path / "bypass"
    process = node.start(f"--bypass-file={switch}")
    node.told("READY=1")
    until(lambda: node.metric("koord_runtimeproxy_bypass") == 0)
    switch.touch()
    until(lambda: node.metric("koord_runtimeproxy_bypass") == 1)
    switch.unlink()
    until(lambda: node.metric("koord_runtimeproxy_bypass") == 0)
    process.send_signal(signal.SIGUSR1)
    until(lambda: node.metric("koord_runtimeproxy_bypass") == 1)
    process.send_signal(signal.SIGUSR1)
    until(lambda: node.metric("koord_runtimeproxy_bypass") == 0)


def test_pages(node: Node) -> None:
    node.start()
    node.told("READY=1")
    assert node.say() == b"hello"
    until(lambda: "200 OK" in node.get("/healthz"))
    assert 'koord_runtimeproxy_calls_total{code="0",method="/test.Echo/Say"} 1.0' in node.get("/metrics")
    assert node.get("/healthz").endswith("ok\n")
    assert node.get("/readyz").startswith("HTTP/1.0 200")
    assert "application/json" in node.get("/dump")
    node.server.stop(None).wait()
    assert node.get("/readyz").startswith("HTTP/1.0 503")


def test_a_removed_socket_file_is_put_back(node: Node) -> None:
    node.start()
    node.told("READY=1")
    until(lambda: "200 OK" in node.get("/healthz"))
    node.endpoint.unlink()
    until(node.endpoint.exists)
    assert node.say() == b"hello"


def descriptors(pid: int) -> set[int]:
    """Those that are open, once none comes or goes."""
    found: set[int] = set()
    while found != (found := {int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()}):
        time.sleep(0.1)
    return found


@pytest.mark.parametrize("spare", [0, 1], ids=["nobody is accepted", "none for the runtime's end"])
def test_out_of_descriptors_clients_wait_and_open_connections_go_on(node: Node, spare: int) -> None:
    process = node.start("--backend-wait=20s")
    node.told("READY=1")
    until(lambda: "200 OK" in node.get("/healthz"))
    soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    with node.channel() as channel:
        served = channel.unary_unary(ECHO)
        assert served(b"before", timeout=5) == b"before"
        used = descriptors(process.pid)
        free = sorted(set(range(len(used) + 2)) - used)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (free[spare], hard))
        with node.channel() as newcomer:
            waiting = newcomer.unary_unary(ECHO).future(b"newcomer", timeout=20)
            for _ in range(3):
                assert served(b"meanwhile", timeout=5) == b"meanwhile"
                time.sleep(0.1)
            assert not waiting.done()
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (soft, hard))
            assert waiting.result() == b"newcomer"
    process.terminate()
    assert failure(process)[1].count("no connection can be accepted") <= 1


def test_a_successor_takes_over_without_a_lost_call(node: Node) -> None:
    old = node.start(WATCHDOG_USEC="10000000", WATCHDOG_PID="1")
    node.told("READY=1")
    with node.channel() as channel:
        in_flight = channel.unary_unary(ECHO).future(b"slow", timeout=5)
        time.sleep(0.3)
        old.send_signal(signal.SIGUSR2)
        lines = node.told("MAINPID=")
        new = int(next(line for line in lines if line.startswith("MAINPID=")).removeprefix("MAINPID="))
        node.successors.append(new)
        assert "READY=1" in lines
        assert new != old.pid
        for _ in range(20):
            assert channel.unary_unary(ECHO)(b"x", timeout=5) == b"x"
        assert in_flight.result() == b"slow"
    assert old.wait(5) == 0
    assert node.silent_about("STOPPING=1", 0.3)
    assert node.say() == b"hello"
    until(lambda: node.get("/healthz").endswith("ok\n"))


IMPORT_LOG = """
import os, sys, time
log = os.open(os.environ["IMPORT_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
sys.addaudithook(lambda event, arguments: event == "import" and os.write(
    log, f"{os.getpid()} {time.monotonic_ns()} {arguments[0]}\\n".encode()))
"""


def test_a_draining_process_imports_nothing(node: Node, tmp_path: Path) -> None:
    """The files of its package may be the successor's by then. Each import is logged with pid and time."""
    (tmp_path / "sitecustomize.py").write_text(IMPORT_LOG)
    search = f"{tmp_path}:{Path(__file__).parents[2]}"
    old = node.start(PYTHONPATH=search, IMPORT_LOG=str(tmp_path / "imports"))
    node.told("READY=1")
    until(lambda: "200 OK" in node.get("/healthz"))
    with node.channel() as channel:
        in_flight = channel.unary_unary(ECHO).future(b"slow", timeout=5)
        time.sleep(0.3)
        old.send_signal(signal.SIGUSR2)
        node.successors.append(int(node.told("MAINPID=")[1].removeprefix("MAINPID=")))
        handed_over_ns = time.monotonic_ns()
        assert in_flight.result() == b"slow"
    assert old.wait(5) == 0
    imports = [line.split() for line in (tmp_path / "imports").read_text().splitlines()]
    assert [name for pid, _, name in imports if int(pid) == old.pid]
    assert [name for pid, ns, name in imports if int(pid) == old.pid and int(ns) > handed_over_ns] == []


def test_the_successor_is_what_the_program_s_path_names_by_then(node: Node, tmp_path: Path) -> None:
    """Two versions, each with an interpreter of its own, behind one link, as a package's upgrade leaves them."""
    program = tmp_path / "koord-runtime-proxy"
    for version in ("1", "2"):
        directory = tmp_path / version
        directory.mkdir()
        (directory / "python").symlink_to(sys.executable)
        (directory / "program").write_text(f"#!{directory}/python\nfrom runtimeproxy.__main__ import main\nmain()\n")
        (directory / "program").chmod(0o755)
        (tmp_path / "link").symlink_to(directory / "program")
        (tmp_path / "link").rename(program)
        if version == "1":
            old = node.start(program=(str(program),), PYTHONPATH=":".join(filter(None, sys.path)))
            node.told("READY=1")
    shutil.rmtree(tmp_path / "1")
    old.send_signal(signal.SIGUSR2)
    node.successors.append(int(node.told("MAINPID=")[1].removeprefix("MAINPID=")))
    started_with = Path(f"/proc/{node.successors[0]}/cmdline").read_text().split("\0")
    assert started_with[:2] == [f"{tmp_path}/2/python", str(program)]
    assert old.wait(5) == 0
    assert node.say() == b"hello"


def test_sigterm_shortens_the_drain_after_a_hand_over(node: Node) -> None:
    old = node.start("--stop-timeout=100ms")
    node.told("READY=1")
    with node.channel() as channel:
        in_flight = channel.unary_unary(ECHO).future(b"held", timeout=20)
        time.sleep(0.2)
        old.send_signal(signal.SIGUSR2)
        node.successors.append(int(node.told("MAINPID=")[1].removeprefix("MAINPID=")))
        time.sleep(0.1)
        assert old.poll() is None
        old.send_signal(signal.SIGTERM)
        assert old.wait(5) == 0
        assert in_flight.code() is grpc.StatusCode.UNAVAILABLE


def test_a_successor_that_fails_leaves_the_old_one_serving(node: Node, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("bypass: false\n")
    process = node.start(f"--config={config}")
    node.told("READY=1")
    config.write_text("bypass: nonsense\n")
    process.send_signal(signal.SIGUSR2)
    assert process.stderr is not None
    assert any("upgrade failed" in line for line in process.stderr)
    assert node.silent_about("MAINPID=", 0.1)
    assert process.poll() is None
    assert node.say() == b"hello"


@pytest.mark.parametrize("moment", [signal.SIGKILL, signal.SIGTERM])
def test_a_socket_held_outside_outlives_the_process(node: Node, moment: signal.Signals) -> None:
    with socket.socket(socket.AF_UNIX) as held:
        held.bind(str(node.endpoint))
        held.listen(64)
        os.set_inheritable(held.fileno(), True)
        first = _start_holding(node, held)
        assert node.say() == b"hello"
        first.send_signal(moment)
        first.wait(5)
        with node.channel() as channel:
            queued = channel.unary_unary(ECHO).future(b"queued", timeout=5)
            time.sleep(0.1)
            _start_holding(node, held)
            assert queued.result() == b"queued"


def _start_holding(node: Node, held: socket.socket) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "runtimeproxy",
            f"--remote-runtime-service-endpoint={node.directory}/backend.sock",
            "--metrics-endpoint=",
            f"--hookserver-dir={node.directory}/hooks",
        ],
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=[held.fileno()],
        env={**os.environ, "KOORD_LISTEN_FDS": f"{held.fileno()}:held"},
    )
    node.processes.append(process)
    return process
