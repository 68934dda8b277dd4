from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from koord.service.listen_fds import (
    Inherited,
    ListenFdsError,
    format_named_fds,
    take_listen_fds,
    take_named_fds,
)


@pytest.fixture
def pair() -> Iterator[tuple[int, int]]:
    """Two inheritable descriptors with consecutive numbers, above all that other threads of the tests may open."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    first = min(most, 1 << 16) - 10
    with open("/dev/null") as null:
        for fd in (first, first + 1):
            os.dup2(null.fileno(), fd, inheritable=True)
    yield first, first + 1
    for fd in (first, first + 1):
        os.close(fd)


@pytest.mark.parametrize(
    ("environ", "variable"),
    [
        ({"LISTEN_FDS": "x", "LISTEN_PID": "7"}, "LISTEN_FDS"),
        ({"LISTEN_FDS": "-1", "LISTEN_PID": "7"}, "LISTEN_FDS"),
        ({"LISTEN_FDS": "99999", "LISTEN_PID": "7"}, "LISTEN_FDS"),
        ({"LISTEN_FDS": "1", "LISTEN_PID": "seven"}, "LISTEN_PID"),
        ({"LISTEN_FDS": "2", "LISTEN_PID": "7", "LISTEN_FDNAMES": "only-one"}, "LISTEN_FDNAMES"),
    ],
)
def test_a_malformed_environment_names_its_variable_and_is_removed(environ: dict[str, str], variable: str) -> None:
    with pytest.raises(ListenFdsError) as raised:
        take_listen_fds(environ, pid=7, first=900)
    assert raised.value.variable == variable
    assert environ == {}


def test_descriptors_that_are_not_open(pair: tuple[int, int]) -> None:
    with pytest.raises(ListenFdsError, match="Bad file descriptor"):
        take_listen_fds({"LISTEN_FDS": "3", "LISTEN_PID": "7"}, pid=7, first=pair[0])


def test_descriptors_for_another_process_are_left_alone(pair: tuple[int, int]) -> None:
    environ = {"LISTEN_FDS": "2", "LISTEN_PID": "8", "LISTEN_FDNAMES": "a:b"}
    assert take_listen_fds(environ, pid=7, first=pair[0]) == ()
    assert environ == {}
    assert os.get_inheritable(pair[0])


def test_taken_in_order_named_and_closed_on_exec(pair: tuple[int, int]) -> None:
    environ = {"LISTEN_FDS": "2", "LISTEN_PID": "7", "LISTEN_FDNAMES": "a.socket:stored", "PATH": "/bin"}
    expected = (Inherited(pair[0], "a.socket"), Inherited(pair[1], "stored"))
    assert take_listen_fds(environ, pid=7, first=pair[0]) == expected
    assert environ == {"PATH": "/bin"}
    assert not os.get_inheritable(pair[0])
    assert not os.get_inheritable(pair[1])


def test_without_names(pair: tuple[int, int]) -> None:
    taken = take_listen_fds({"LISTEN_FDS": "1", "LISTEN_PID": "7"}, pid=7, first=pair[0])
    assert taken == (Inherited(pair[0], "unknown"),)


def test_a_real_process_takes_descriptor_3() -> None:
    program = (
        "import os, socket, sys; from koord.service.listen_fds import take_listen_fds\n"
        "os.dup2(int(sys.argv[1]), 3)\n"
        "os.environ['LISTEN_PID'] = str(os.getpid())\n"
        "(entry,) = take_listen_fds(os.environ, os.getpid())\n"
        "print(entry.fd, entry.name, socket.socket(fileno=entry.fd).getsockname())"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        out = subprocess.run(
            [sys.executable, "-c", program, str(server.fileno())],
            pass_fds=[server.fileno()],
            env={**os.environ, "LISTEN_FDS": "1", "LISTEN_FDNAMES": "web"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert out == f"3 web {server.getsockname()}\n"


@pytest.mark.parametrize("text", ["3", "3:", "x:a", "3:a,,"])
def test_malformed_named_descriptors(text: str) -> None:
    environ = {"OURS": text}
    with pytest.raises(ListenFdsError, match="OURS"):
        take_named_fds(environ, "OURS")
    assert environ == {}


def test_named_descriptors_round_trip(pair: tuple[int, int]) -> None:
    entries = (Inherited(pair[0], "a.socket"), Inherited(pair[1], "rebound"))
    assert take_named_fds({"OURS": format_named_fds(entries)}, "OURS") == entries
    assert not os.get_inheritable(pair[1])
    assert take_named_fds({}, "OURS") == ()
