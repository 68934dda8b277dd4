"""The whole process, with a real backend, a real client, and a socket in place of the service manager."""

from __future__ import annotations

import itertools
import resource
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.runtimeproxy.processes import ECHO, Node, failure, until


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
