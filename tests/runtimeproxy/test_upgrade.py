from __future__ import annotations

import asyncio
import os
import resource
import socket
import sys
import time
from pathlib import Path

import pytest

from koord.service.listen_fds import Inherited, ListenFdsError
from runtimeproxy.upgrade import (
    LISTEN_VARIABLE,
    READY_VARIABLE,
    UpgradeError,
    own_command,
    preload,
    start_successor,
    take_predecessor,
)

PRELUDE = """
import os, socket, sys, time
from runtimeproxy.upgrade import take_predecessor
inherited, predecessor = take_predecessor(os.environ)
"""


def command(program: str) -> list[str]:
    return [sys.executable, "-c", PRELUDE + program]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def ends(pid: int) -> bool:
    deadline = time.monotonic() + 2
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not alive(pid)


def content(file: Path) -> str:
    while not file.exists() or not file.read_text():
        time.sleep(0.01)
    return file.read_text()


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("sys.exit(3)", "ended before it served"),
        ("predecessor._ready.sendall(b'1\\n'); time.sleep(30)", "answered b'1"),
        ("time.sleep(30)", "did not serve within 0.5 s"),
    ],
)
async def test_a_successor_that_does_not_serve_is_ended(program: str, reason: str) -> None:
    with pytest.raises(UpgradeError, match=reason) as raised:
        await start_successor(command(program), os.environ, (), timeout_s=5 if "within" not in reason else 0.5)
    pid = int(str(raised.value).split()[1])
    assert await asyncio.to_thread(ends, pid)


@pytest.mark.parametrize(
    ("original", "arguments", "mode", "expected"),
    [
        (["py", "-I", "{program}", "--flag"], ["{program}", "--flag"], 0o755, ["{program}", "--flag"]),
        (["py", "{program}"], ["{program}"], 0o755, ["{program}"]),
        (["py", "-I", "{program}", "--flag"], ["{program}", "--flag"], 0o644, ["/bin/py", "-I", "{program}", "--flag"]),
        (["py", "-m", "runtimeproxy", "-x"], ["{program}", "-x"], 0o755, ["/bin/py", "-m", "runtimeproxy", "-x"]),
        (["py", "-I", "{program}.gone"], ["{program}.gone"], 0o755, ["/bin/py", "-I", "{program}.gone"]),
    ],
    ids=["a program with options of its interpreter", "a program", "a script", "a module", "a removed program"],
)
def test_own_command(tmp_path: Path, original: list[str], arguments: list[str], mode: int, expected: list[str]) -> None:
    program = tmp_path / "koord-runtime-proxy"
    program.touch(mode)
    program.chmod(mode)

    def named(words: list[str]) -> list[str]:
        return [word.format(program=program) for word in words]

    assert own_command("/bin/py", named(original), named(arguments)) == named(expected)


async def test_a_program_that_cannot_be_executed() -> None:
    with pytest.raises(UpgradeError, match="ended before"):
        await start_successor(["/nonexistent/python"], os.environ, (), timeout_s=5)


async def test_out_of_descriptors_there_is_no_successor() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(UpgradeError, match="no socket pair"):
            await start_successor(command(""), os.environ, (), timeout_s=5)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_cancelled_the_successor_is_ended(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    program = f"open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(30)"
    task = asyncio.create_task(start_successor(command(program), os.environ, (), timeout_s=30))
    pid = int(await asyncio.to_thread(content, note))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(ends, pid)


async def test_the_successor_gets_the_sockets_and_is_nobodys_child() -> None:
    program = (
        "sock = socket.socket(fileno=inherited[0].fd)\n"
        "predecessor.announce(os.getpid())\n"
        "assert [entry.name for entry in inherited] == ['a.socket']\n"
        "assert not os.get_inheritable(inherited[0].fd)\n"
        "assert 'WATCHDOG_PID' not in os.environ and os.environ['WATCHDOG_USEC'] == '5'\n"
        f"assert {LISTEN_VARIABLE!r} not in os.environ and {READY_VARIABLE!r} not in os.environ\n"
        "client, _ = sock.accept()\n"
        "client.sendall(b'%d %d' % (os.getpid(), os.getppid()))\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        environ = {**os.environ, "WATCHDOG_PID": str(os.getpid()), "WATCHDOG_USEC": "5"}
        pid = await start_successor(command(program), environ, (Inherited(server.fileno(), "a.socket"),), timeout_s=10)
        with socket.create_connection(server.getsockname()) as client:
            answer = client.recv(100).split()
    assert int(answer[0]) == pid
    assert int(answer[1]) != os.getpid()


def test_who_is_nobodys_successor() -> None:
    assert take_predecessor({}) == ((), None)


@pytest.mark.parametrize("value", ["x", "99999"])
def test_a_ready_descriptor_that_is_none(value: str) -> None:
    environ = {READY_VARIABLE: value}
    with pytest.raises(ListenFdsError, match=READY_VARIABLE):
        take_predecessor(environ)
    assert environ == {}


def test_a_predecessor_that_is_gone_is_no_error() -> None:
    ours, theirs = socket.socketpair()
    fd = theirs.detach()
    _, predecessor = take_predecessor({READY_VARIABLE: str(fd)})
    ours.close()
    assert predecessor is not None
    predecessor.announce(1)


def test_preload_names_what_is_missing() -> None:
    assert preload(["json", "koord.no_such_module"]) == ["koord.no_such_module"]
