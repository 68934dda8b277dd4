"""The whole process, with a real backend, a real client, and a socket in place of the service manager."""

from __future__ import annotations

import fcntl
import itertools
import json
import mmap
import os
import resource
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtimeproxy.processes import Node, failure, unary
from tests.support.waiting import wait_until


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
        call = unary(channel).future(b"slow", timeout=5)
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
        call = unary(channel).future(b"hello", timeout=5)
        time.sleep(0.2)
        hidden.rename(backend)
        assert call.result() == b"hello"
    node.close()


def test_the_watchdog_is_fed_until_the_process_hangs(node: Node) -> None:
    process = node.start(WATCHDOG_USEC="200000")
    node.told("READY=1")
    for _ in range(3):
        node.told("WATCHDOG=1", timeout_s=0.4)
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: node.silent_about("WATCHDOG=1", 0.3))


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
    wait_until(lambda: node.metric("koord_runtimeproxy_bypass") == 0)
    for text, expected in (("bypass: true\n", 1), ("bypass: nonsense\n", 1), ("bypass: false\n", 0)):
        config.write_text(text)
        process.send_signal(signal.SIGHUP)
        assert any(line.startswith("MONOTONIC_USEC=") for line in node.told("RELOADING=1"))
        node.told("READY=1")
        assert node.metric("koord_runtimeproxy_bypass") == expected


def bypassed(node: Node) -> bool:
    return node.metric("koord_runtimeproxy_bypass") == 1


def test_bypass_by_signal_and_by_file(node: Node) -> None:
    process = node.start()
    node.told("READY=1")
    wait_until(lambda: not bypassed(node))
    node.bypass_file.touch()
    wait_until(lambda: bypassed(node))
    node.bypass_file.unlink()
    wait_until(lambda: not bypassed(node))
    process.send_signal(signal.SIGUSR1)
    wait_until(lambda: bypassed(node) and node.bypass_file.exists())
    process.send_signal(signal.SIGUSR1)
    wait_until(lambda: not bypassed(node) and not node.bypass_file.exists())
    node.bypass_file.touch()
    wait_until(lambda: bypassed(node))
    process.send_signal(signal.SIGUSR1)
    wait_until(lambda: not bypassed(node) and not node.bypass_file.exists())


def test_bypass_by_signal_survives_a_kill(node: Node) -> None:
    node.bypass_file = node.directory / "not" / "there" / "bypass"
    process = node.start()
    node.told("READY=1")
    process.send_signal(signal.SIGUSR1)
    wait_until(node.bypass_file.exists)
    process.kill()
    process.wait()
    successor = node.start()
    node.told("READY=1")
    wait_until(lambda: bypassed(node))
    successor.send_signal(signal.SIGUSR1)
    wait_until(lambda: not bypassed(node))


@pytest.mark.parametrize("flags", [["--bypass-file=/proc/none"], ["--bypass-file="], ["--bypass"]])
def test_bypass_by_signal_where_there_is_no_file(node: Node, flags: list[str]) -> None:
    process = node.start(*flags)
    node.told("READY=1")
    was_on = flags == ["--bypass"]
    wait_until(lambda: bypassed(node) is was_on)
    process.send_signal(signal.SIGUSR1)
    wait_until(lambda: bypassed(node) is not was_on)
    process.send_signal(signal.SIGUSR1)
    wait_until(lambda: bypassed(node) is was_on)


def test_pages(node: Node) -> None:
    node.start()
    node.told("READY=1")
    assert node.say() == b"hello"
    wait_until(lambda: "200 OK" in node.get("/healthz"))
    assert 'koord_runtimeproxy_calls_total{code="0",method="/test.Echo/Say"} 1.0' in node.get("/metrics")
    assert node.get("/healthz").endswith("ok\n")
    assert node.get("/readyz").startswith("HTTP/1.0 200")
    assert "application/json" in node.get("/dump")
    node.server.stop(None).wait()
    assert node.get("/readyz").startswith("HTTP/1.0 503")


def test_what_is_wrong_with_hook_files_is_on_the_page(node: Node) -> None:
    hooks = node.directory / "hooks"
    node.start()
    node.told("READY=1")
    wait_until(lambda: "200 OK" in node.get("/healthz"))
    assert errors_on_the_page(node) == {}
    (hooks / "new").write_text("{}")
    (hooks / "new").chmod(0o666)
    (hooks / "new").rename(hooks / "evil.json")
    wait_until(lambda: bool(errors_on_the_page(node)))
    assert errors_on_the_page(node) == {
        "evil.json": f"evil.json: {hooks}/evil.json can be written by others than uid {os.geteuid()} (mode 0666)"
    }
    assert node.metric("koord_runtimeproxy_hook_file_errors") == 1


def errors_on_the_page(node: Node) -> object:
    return json.loads(node.get("/dump").partition("\r\n\r\n")[2])["hookFileErrors"]


def test_under_the_units_umask_the_directories_are_for_everybody_to_pass(node: Node) -> None:
    before = os.umask(0o077)
    try:
        node.endpoint = node.directory / "run" / "proxy.sock"
        node.status = node.directory / "status" / "metrics.sock"
        node.start()
    finally:
        os.umask(before)
    node.told("READY=1")
    wait_until(node.status.exists)
    made = [node.directory / name for name in ("hooks", "run", "status")]
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in made} == dict.fromkeys(
        ("hooks", "run", "status"), 0o755
    )


def test_a_removed_socket_file_is_put_back(node: Node) -> None:
    node.start()
    node.told("READY=1")
    wait_until(lambda: "200 OK" in node.get("/healthz"))
    node.endpoint.unlink()
    wait_until(node.endpoint.exists)
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
    wait_until(lambda: "200 OK" in node.get("/healthz"))
    soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    with node.channel() as channel:
        served = unary(channel)
        assert served(b"before", timeout=5) == b"before"
        used = descriptors(process.pid)
        free = sorted(set(range(len(used) + 2)) - used)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (free[spare], hard))
        with node.channel() as newcomer:
            waiting = unary(newcomer).future(b"newcomer", timeout=20)
            for _ in range(3):
                assert served(b"meanwhile", timeout=5) == b"meanwhile"
                time.sleep(0.1)
            assert not waiting.done()
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (soft, hard))
            assert waiting.result() == b"newcomer"
    process.terminate()
    assert failure(process)[1].count("no connection can be accepted") <= 1


EARLY_SIGNAL = """
import os, signal, sys
number = signal.Signals[os.environ["EARLY_SIGNAL"]]
is_successor = "KOORD_READY_FD" in os.environ
if is_successor:
    os.kill(os.getpid(), number)
def hear(event, arguments):
    if event == "import" and arguments[0] == "runtimeproxy.program" and not is_successor:
        os.kill(os.getpid(), number)
sys.addaudithook(hear)
"""


class TestSignalsDuringTheStart:
    """They end a process that has no handler yet. Here they come as soon as anything that takes time is imported."""

    @pytest.fixture
    def start(self, node: Node, tmp_path: Path) -> Callable[[signal.Signals], subprocess.Popen[str]]:
        (tmp_path / "sitecustomize.py").write_text(EARLY_SIGNAL)
        search = f"{tmp_path}:{Path(__file__).parents[2]}"
        return lambda number: node.start(PYTHONPATH=search, EARLY_SIGNAL=number.name)

    def test_a_reload_comes_later(self, node: Node, start: Callable[[signal.Signals], object]) -> None:
        start(signal.SIGHUP)
        node.told("RELOADING=1")
        assert node.say() == b"hello"

    def test_bypass_comes_later(self, node: Node, start: Callable[[signal.Signals], object]) -> None:
        start(signal.SIGUSR1)
        node.told("READY=1")
        wait_until(lambda: bypassed(node) and node.bypass_file.exists())

    def test_an_upgrade_comes_later_and_its_successor_outlives_one(
        self, node: Node, start: Callable[[signal.Signals], subprocess.Popen[str]]
    ) -> None:
        """The successor gets its signal in its very first instruction, while Python itself starts."""
        old = start(signal.SIGUSR2)
        node.successors.append(int(node.told("MAINPID=", 20)[1].removeprefix("MAINPID=")))
        assert old.wait(20) == 0
        assert node.say() == b"hello"


class TestALogThatNobodyReads:
    """What journald is while it hangs; the pipe is made as small as it can be."""

    @staticmethod
    def silenced(node: Node) -> subprocess.Popen[str]:
        """A proxy that serves, with more log lines than its pipe takes."""
        process = node.start()
        assert process.stderr is not None
        fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, mmap.PAGESIZE)
        node.told("READY=1")
        for _ in range(200):
            process.send_signal(signal.SIGHUP)
            node.told("RELOADING=1")
            node.told("READY=1")
        return process

    def test_calls_are_served_and_the_lines_come_later(self, node: Node) -> None:
        process = self.silenced(node)
        assert node.say() == b"hello"
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        said = process.stderr.read().splitlines()
        assert process.wait(5) == 0
        assert [line for line in said if line.endswith("runtimeproxy.life: reloaded")][199:]
        assert said[-1].endswith("stopped: draining for at most 10 s")

    def test_the_process_ends_all_the_same(self, node: Node) -> None:
        process = self.silenced(node)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
