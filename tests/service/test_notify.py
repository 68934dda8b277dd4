from __future__ import annotations

import array
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from koord.service.notify import Notifier, NotifyEnvironmentError, strip_notify_environ, watchdog_interval_us


class Manager:
    """The service manager's end: a datagram socket and what arrived on it."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.settimeout(2)

    def receive(self) -> tuple[list[str], list[int]]:
        data, ancillary, _flags, _from = self.socket.recvmsg(4096, socket.CMSG_SPACE(16))
        fds = array.array("i")
        for _level, _kind, content in ancillary:
            fds.frombytes(content)
        return data.decode().split("\n"), list(fds)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    end = Manager(str(tmp_path / "notify"))
    yield end
    end.socket.close()


@pytest.fixture
def notifier(manager: Manager, tmp_path: Path) -> Notifier:
    return Notifier(str(tmp_path / "notify"))


@pytest.mark.parametrize("address", ["relative/path", "@", "vsock:2:1"])
def test_an_address_that_is_no_unix_socket_is_refused(address: str) -> None:
    with pytest.raises(NotifyEnvironmentError, match="NOTIFY_SOCKET"):
        Notifier(address)


@pytest.mark.parametrize("address", [None, ""])
def test_without_a_manager_nothing_is_sent(address: str | None) -> None:
    notifier = Notifier(address)
    assert not notifier.enabled
    assert notifier.ready() is False


def test_a_manager_that_is_gone_is_no_error(tmp_path: Path) -> None:
    assert Notifier(str(tmp_path / "nobody")).ready() is False


def test_a_manager_that_does_not_read_does_not_block(tmp_path: Path, manager: Manager, notifier: Notifier) -> None:
    sent = sum(notifier.watchdog() for _ in range(1000))
    assert 0 < sent < 1000


def test_out_of_descriptors_the_watchdog_is_still_fed(manager: Manager, notifier: Notifier) -> None:
    assert notifier.ready()
    manager.receive()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            socket.socket()
        assert notifier.watchdog()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert manager.receive() == (["WATCHDOG=1"], [])


def test_ready_names_the_main_process(manager: Manager, notifier: Notifier) -> None:
    assert notifier.ready(status="serving", main_pid=42)
    assert manager.receive() == (["READY=1", "MAINPID=42", "STATUS=serving"], [])


def test_reloading_carries_the_monotonic_clock(manager: Manager, notifier: Notifier) -> None:
    assert notifier.reloading(monotonic_us=17)
    assert manager.receive() == (["RELOADING=1", "MONOTONIC_USEC=17"], [])


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda n: n.stopping(), ["STOPPING=1"]),
        (lambda n: n.stopping("draining"), ["STOPPING=1", "STATUS=draining"]),
        (lambda n: n.status("bypass"), ["STATUS=bypass"]),
        (lambda n: n.watchdog(), ["WATCHDOG=1"]),
        (lambda n: n.remove_fds("listener"), ["FDSTOREREMOVE=1", "FDNAME=listener"]),
    ],
)
def test_messages(manager: Manager, notifier: Notifier, call: object, expected: list[str]) -> None:
    assert callable(call)
    assert call(notifier)
    assert manager.receive() == (expected, [])


def test_a_stored_descriptor_is_the_same_open_file(manager: Manager, notifier: Notifier, tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        assert notifier.store_fds("listener", [file.fileno()])
        lines, fds = manager.receive()
        assert lines == ["FDSTORE=1", "FDNAME=listener"]
        assert os.fstat(fds[0]).st_ino == os.fstat(file.fileno()).st_ino
        os.close(fds[0])


def test_abstract_address() -> None:
    name = f"koord-test-{os.getpid()}"
    manager = Manager("\0" + name)
    assert Notifier("@" + name).ready()
    assert manager.receive() == (["READY=1"], [])
    manager.socket.close()


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": ""}, None),
        ({"WATCHDOG_USEC": "10000000"}, 10_000_000),
        ({"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": "7"}, 10_000_000),
        ({"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": "8"}, None),
    ],
)
def test_watchdog_interval(environ: dict[str, str], expected: int | None) -> None:
    assert watchdog_interval_us(environ, pid=7) == expected


@pytest.mark.parametrize(
    "environ", [{"WATCHDOG_USEC": "-1"}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "1", "WATCHDOG_PID": "x"}]
)
def test_a_malformed_watchdog_names_its_variable(environ: dict[str, str]) -> None:
    with pytest.raises(NotifyEnvironmentError, match="WATCHDOG_"):
        watchdog_interval_us(environ, pid=7)


def test_strip() -> None:
    environ = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1", "PATH": "/bin"}
    strip_notify_environ(environ)
    assert environ == {"PATH": "/bin"}
