"""Every attempt of a user without rights is without influence: on files, locks, sockets, processes and pages.

Everything is where such a user gets to, as /run is; and each attempt is one that root succeeds in.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration.unprivileged import nobody
from koordctl.install import record
from koordctl.install.disk import NodeDisk
from runtimeproxy.listen import ListenError, SocketAccess, bind
from tests.qosd.machine import Machine
from tests.qosd.test_daemon import running
from tests.runtimeproxy.processes import Node
from tests.support.waiting import wait_until

Figure = Callable[[str], None]
PORT_HEAD = "GET {} HTTP/1.0\r\n\r\n"


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of root's that everybody may pass through and read."""
    directory = Path(tempfile.mkdtemp(prefix="koord-nobody-", dir="/run"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def node(place: Path) -> Iterator[Node]:
    before = os.umask(0o077)  # the units'
    try:
        node = Node(place)
        (place / "backend.sock").chmod(0o660)
        (place / "notify").chmod(0o600)
        (place / "hooks").mkdir(mode=0o755)
        (place / "hooks").chmod(0o755)
        yield node
        node.close()
    finally:
        os.umask(before)


def everything(place: Path) -> dict[str, tuple[int, int, int]]:
    """Path → mode, owner, inode."""
    paths = (place, *sorted(place.rglob("*")))
    return {str(path): (found.st_mode, found.st_uid, found.st_ino) for path in paths for found in [path.lstat()]}


def attempts(place: Path, pid: int) -> dict[str, nobody.Attempt]:
    tries: dict[str, nobody.Attempt] = dict(nobody.signals(pid))
    for path in (place, *sorted(place.rglob("*"))):
        tries |= nobody.against(path)
    return tries


def test_the_attempts_are_such_that_root_succeeds_in_them(place: Path) -> None:
    """Else a test that finds no influence would find none in anything."""
    (place / "file").touch()
    (place / "directory").mkdir()
    failed = []
    for path in (place / "file", place / "directory"):
        for name, attempt in nobody.against(path).items():
            try:
                attempt()
            except OSError as error:
                failed.append((name.split(" /")[0], error.errno))
            (place / "file").touch()
            shutil.rmtree(place / "directory", ignore_errors=True)
            (place / "directory").unlink(missing_ok=True)
            (place / "directory").mkdir()
            for left in place.glob("*.nobody"):
                left.unlink() if not left.is_dir() else left.rmdir()
    assert {name for name, _ in failed} <= {"write", "link", "replace by a link"}  # of a directory


def test_the_proxy(node: Node, figure: Figure) -> None:
    process = node.start()
    node.told("READY=1")
    wait_until(lambda: "200 OK" in node.get("/healthz"))
    before = everything(node.directory)
    with nobody.trying(attempts(node.directory, process.pid)) as who:
        assert who.succeeded == []
        assert node.say() == b"hello"
        assert everything(node.directory) == before
        assert process.poll() is None
        assert node.metric("koord_runtimeproxy_bypass") == 0
        figure(f"unprivileged: {len(who.outcomes)} attempts against the proxy, none with influence")


def test_locks_keep_neither_the_proxy_nor_the_installer_away(node: Node, place: Path, figure: Figure) -> None:
    root = place / "node"
    for directory in ("run", "var/lib", "etc"):
        (root / directory).mkdir(parents=True)
    for path in (root, *root.rglob("*")):
        path.chmod(0o755)
    lockable = (place, *sorted(path for path in place.rglob("*") if path.is_dir()))
    tries: dict[str, nobody.Attempt] = {}
    for path in lockable:
        tries |= nobody.locks(path)
    with nobody.trying(tries) as who:
        assert len(who.succeeded) == len(tries)  # a directory of root's can be locked: that is why none is
        node.start()
        node.told("READY=1")
        wait_until(lambda: "200 OK" in node.get("/healthz"))
        node.endpoint.unlink()
        wait_until(node.endpoint.exists)
        assert node.say() == b"hello"
        with record.alone(NodeDisk(root)):
            pass
        figure(f"unprivileged: {len(tries)} locks held, the proxy bound twice and the installer ran")


def test_a_held_lock_file_cannot_be_opened(place: Path) -> None:
    root = place / "node"
    (root / "run").mkdir(parents=True)
    with record.alone(NodeDisk(root)), nobody.trying(nobody.locks(root / "run/koord-install.lock")) as who:
        assert set(who.outcomes.values()) == {"EACCES"}


@pytest.mark.parametrize("planted", ["symlink", "file", "fifo"])
def test_a_lock_that_was_planted_is_named_and_left(place: Path, planted: str) -> None:
    """In a directory that everybody may write, as an operator's own endpoint may be in."""
    shared, precious = place / "shared", place / "precious"
    shared.mkdir()
    shared.chmod(0o1777)
    precious.write_text("precious")
    precious.chmod(0o644)
    lock = str(shared / ".proxy.sock.lock")
    plant: dict[str, nobody.Attempt] = {
        "symlink": lambda: os.symlink(precious, lock),
        "file": lambda: os.open(lock, os.O_CREAT | os.O_RDWR, 0o600),
        "fifo": lambda: os.mkfifo(lock, 0o600),
    }
    with nobody.trying({planted: plant[planted]}) as who:
        assert who.succeeded == [planted]
        with pytest.raises(ListenError, match=r"\.proxy\.sock\.lock"):
            bind(str(shared / "proxy.sock"), SocketAccess(0o600, 0, 0))
    assert (precious.read_text(), stat.S_IMODE(precious.stat().st_mode)) == ("precious", 0o644)
    assert os.path.lexists(lock)


def test_a_hook_file_of_theirs_is_refused(node: Node, place: Path) -> None:
    node.start()
    node.told("READY=1")
    wait_until(lambda: "200 OK" in node.get("/healthz"))
    theirs = place / "theirs.json"
    theirs.write_text('{"remote-endpoint": "/run/lock/x.sock", "runtime-hooks": ["*"]}')
    os.chown(theirs, nobody.UID, nobody.UID)
    theirs.rename(place / "hooks/theirs.json")
    wait_until(lambda: node.metric("koord_runtimeproxy_hook_file_errors") == 1)
    assert node.metric("koord_runtimeproxy_hook_servers") == 0


def page(port: int, path: str) -> int:
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(PORT_HEAD.format(path).encode())
        return int(client.recv(4096).split()[1])


def test_a_port_shows_them_no_figures(node: Node, place: Path) -> None:
    (place / "token").write_text("secret")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    node.start(f"--metrics-endpoint=127.0.0.1:{port}", f"--metrics-token-file={place}/token")
    node.told("READY=1")
    wait_until(lambda: page(port, "/healthz") == 200)
    assert [page(port, path) for path in ("/readyz", "/metrics", "/dump")] == [200, 401, 401]
    with nobody.trying({"read": lambda: os.open(place / "token", os.O_RDONLY)}) as who:
        assert who.outcomes == {"read": "EACCES"}


def test_the_node_daemon(place: Path, figure: Figure) -> None:
    before = os.umask(0o077)
    try:
        asyncio.run(_tried_against_qosd(place, figure))
    finally:
        os.umask(before)


def against_qosd(place: Path) -> dict[str, nobody.Attempt]:
    """Attempts against its sockets, its records, and the directories that these are in."""
    files = [path for path in place.rglob("*") if not path.is_dir()]
    sockets = {path for path in files if path.name in ("h.sock", "i.sock", "m.sock")}
    assert len(sockets) == 3
    own = sockets | {path for path in files if path.name.startswith(("undo.jsonl", "journal.db"))}
    tries: dict[str, nobody.Attempt] = {}
    for path in (*own, *{path.parent for path in own}):
        tries |= nobody.against(path)
    return tries


async def _tried_against_qosd(place: Path, figure: Figure) -> None:
    machine = Machine(place)
    machine.kubepods()
    async with running(machine) as daemon:
        await daemon.create()
        tries = {**nobody.signals(daemon.process.pid), **against_qosd(place)}
        with nobody.trying(tries) as who:
            assert who.succeeded == []
            await daemon.create()
            assert (await daemon.page("/healthz")).startswith("HTTP/1.0 200")
            figure(f"unprivileged: {len(tries)} attempts against koord-qosd, none with influence")
        assert await daemon.end() == 0
