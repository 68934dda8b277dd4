"""The sockets outlive the process: it hands them to a successor, or somebody outside holds them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest

from tests.runtimeproxy.processes import Node, unary
from tests.support.waiting import wait_until


def test_a_successor_takes_over_without_a_lost_call(node: Node) -> None:
    old = node.start(WATCHDOG_USEC="10000000", WATCHDOG_PID="1")
    node.told("READY=1")
    with node.channel() as channel:
        in_flight = unary(channel).future(b"slow", timeout=5)
        time.sleep(0.3)
        old.send_signal(signal.SIGUSR2)
        lines = node.told("MAINPID=")
        new = int(next(line for line in lines if line.startswith("MAINPID=")).removeprefix("MAINPID="))
        node.successors.append(new)
        assert "READY=1" in lines
        assert new != old.pid
        for _ in range(20):
            assert unary(channel)(b"x", timeout=5) == b"x"
        assert in_flight.result() == b"slow"
    assert old.wait(5) == 0
    assert node.silent_about("STOPPING=1", 0.3)
    assert node.say() == b"hello"
    wait_until(lambda: node.get("/healthz").endswith("ok\n"))


def test_bypass_by_signal_survives_a_hand_over(node: Node) -> None:
    old = node.start()
    node.told("READY=1")
    old.send_signal(signal.SIGUSR1)
    wait_until(node.bypass_file.exists)
    old.send_signal(signal.SIGUSR2)
    node.successors.append(int(node.told("MAINPID=")[1].removeprefix("MAINPID=")))
    assert old.wait(5) == 0
    wait_until(lambda: node.metric("koord_runtimeproxy_bypass") == 1)


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
    wait_until(lambda: "200 OK" in node.get("/healthz"))
    with node.channel() as channel:
        in_flight = unary(channel).future(b"slow", timeout=5)
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
        in_flight = unary(channel).future(b"held", timeout=20)
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
            queued = unary(channel).future(b"queued", timeout=5)
            time.sleep(0.1)
            _start_holding(node, held)
            assert queued.result() == b"queued"


@pytest.mark.parametrize("managed", [True, False], ids=["under a service manager", "without one"])
def test_a_successor_whose_predecessor_died_stays_only_if_nobody_starts_another(node: Node, managed: bool) -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    with socket.socket(socket.AF_UNIX) as held, theirs:
        held.bind(str(node.endpoint))
        held.listen(64)
        for kept in (held, theirs):
            os.set_inheritable(kept.fileno(), True)
        manager = {"NOTIFY_SOCKET": str(node.directory / "notify")} if managed else {}
        process = _start_holding(node, held, KOORD_READY_FD=str(theirs.fileno()), **manager)
        if managed:
            assert process.wait(10) == 0
            assert node.silent_about("", 0.1)
        else:
            assert node.say() == b"hello"


def _start_holding(node: Node, held: socket.socket, **environ: str) -> subprocess.Popen[str]:
    ready = [int(environ["KOORD_READY_FD"])] if "KOORD_READY_FD" in environ else []
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
        pass_fds=[held.fileno(), *ready],
        env={**os.environ, "KOORD_LISTEN_FDS": f"{held.fileno()}:held", **environ},
    )
    node.processes.append(process)
    return process
