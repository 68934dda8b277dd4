from __future__ import annotations

import array
import asyncio
import fcntl
import os
import socket
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from koord.service import lockfile
from koord.service.listen_fds import Inherited
from koord.service.notify import Notifier
from runtimeproxy.listen import (
    OWN_NAME,
    ListenError,
    Listeners,
    ListeningSocket,
    SocketAccess,
    access_like,
    adopt,
    bind,
    is_own,
    own_name,
    usable,
)

PRIVATE = SocketAccess(0o600, os.geteuid(), os.getegid())


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True


class Host:
    """Remembers what is served."""

    def __init__(self) -> None:
        self.served: list[socket.socket] = []

    def add_listener(self, listener: socket.socket) -> None:
        self.served.append(listener)

    def remove_listener(self, listener: socket.socket) -> None:
        self.served.remove(listener)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "proxy.sock"


def test_a_live_owner_is_not_displaced(path: Path) -> None:
    first = bind(str(path), PRIVATE)
    with pytest.raises(ListenError, match=r"proxy\.sock.*listens"):
        bind(str(path), PRIVATE)
    assert connects(path)
    first.sock.close()


def test_a_live_owner_with_a_full_queue_is_not_displaced(path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as owner, socket.socket(socket.AF_UNIX) as waiting:
        owner.bind(str(path))
        owner.listen(0)
        waiting.connect(str(path))
        with pytest.raises(ListenError, match=r"proxy\.sock"):
            bind(str(path), PRIVATE)
        assert path.exists()


@pytest.mark.parametrize(
    "make",
    [lambda path: path.write_text("precious"), lambda path: path.mkdir(), lambda path: path.symlink_to("/etc/passwd")],
)
def test_what_is_no_socket_is_never_removed(path: Path, make: object) -> None:
    path.parent.mkdir()
    assert callable(make)
    make(path)
    with pytest.raises(ListenError, match="not a socket"):
        bind(str(path), PRIVATE)
    assert os.path.lexists(path)


def test_two_that_start_at_once_do_not_both_bind(path: Path) -> None:
    path.parent.mkdir()
    with lockfile.held(path.with_name(".proxy.sock.lock")), pytest.raises(ListenError, match="about to"):
        bind(str(path), PRIVATE)
    bind(str(path), PRIVATE).sock.close()
    assert [entry.name for entry in path.parent.iterdir()] == ["proxy.sock"]


def test_who_may_only_read_the_directory_keeps_nobody_from_binding(path: Path) -> None:
    path.parent.mkdir()
    other = os.open(path.parent, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    bind(str(path), PRIVATE).sock.close()
    os.close(other)


def test_a_lock_file_of_somebody_else_is_named(path: Path) -> None:
    path.parent.mkdir()
    path.with_name(".proxy.sock.lock").touch(0o666)
    with pytest.raises(ListenError, match=r"\.proxy\.sock\.lock is no lock of ours: owner \d+, mode 06"):
        bind(str(path), PRIVATE)


def test_a_path_that_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(ListenError, match="too long"):
        bind(str(tmp_path / ("x" * 120)), PRIVATE)


def test_a_stale_file_is_replaced(path: Path) -> None:
    bind(str(path), PRIVATE).sock.close()
    second = bind(str(path), PRIVATE)
    assert connects(path)
    second.sock.close()


def test_the_directory_is_made(path: Path, umask: int) -> None:
    bind(str(path), PRIVATE).sock.close()
    assert mode_of(path.parent) == 0o755


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o640])
def test_as_wide_as_the_backends_socket(tmp_path: Path, path: Path, mode: int) -> None:
    backend = tmp_path / "backend.sock"
    with socket.socket(socket.AF_UNIX) as owner:
        owner.bind(str(backend))
        backend.chmod(mode)
        listener = bind(str(path), access_like(str(backend)))
    assert mode_of(path) == mode
    assert (path.stat().st_uid, path.stat().st_gid) == (backend.stat().st_uid, backend.stat().st_gid)
    listener.sock.close()


def test_without_a_backend_0660_and_ourselves(tmp_path: Path) -> None:
    assert access_like(str(tmp_path / "none")) == SocketAccess(0o660, os.geteuid(), os.getegid())


def test_sockets_handed_over_are_served_as_they_are(path: Path) -> None:
    made = bind(str(path), PRIVATE)
    (adopted,) = adopt([Inherited(os.dup(made.sock.fileno()), "koord-runtime-proxy.socket")])
    assert (adopted.name, adopted.path) == ("koord-runtime-proxy.socket", str(path))
    assert adopted.sock.getblocking() is False
    for listener in (made, adopted):
        listener.sock.close()


@pytest.fixture(params=["file", "tcp", "datagram", "connected"])
def wrong_fd(request: pytest.FixtureRequest) -> Iterator[int]:
    if request.param == "file":
        yield (fd := os.open("/dev/null", os.O_RDONLY))
        os.close(fd)
        return
    if request.param == "tcp":
        sock = socket.create_server(("127.0.0.1", 0))
    elif request.param == "datagram":
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    else:
        sock, _ = socket.socketpair()
    yield sock.detach()


def test_a_descriptor_of_another_kind_is_named(wrong_fd: int) -> None:
    with pytest.raises(ListenError, match=rf"{wrong_fd} \(odd\)"):
        adopt([Inherited(wrong_fd, "odd")])


@pytest.mark.parametrize(
    ("name", "bound_at_endpoint", "served"),
    [("unit.socket", True, True), ("unit.socket", False, True), (OWN_NAME, True, True), (OWN_NAME, False, False)],
)
def test_our_socket_of_an_earlier_endpoint_is_given_up(
    path: Path, name: str, bound_at_endpoint: bool, served: bool
) -> None:
    listener = ListeningSocket(bind(str(path), PRIVATE).sock, name, str(path))
    endpoint = path if bound_at_endpoint else path.with_name("new.sock")
    assert usable([listener], str(endpoint)) == ([listener] if served else [])
    assert connects(path) is served
    listener.sock.close()


class Scene:
    """A served socket, a host, and a service manager's end that receives descriptors."""

    def __init__(self, tmp_path: Path, served: list[ListeningSocket], stale: Iterable[str] = ()) -> None:
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.bind(str(tmp_path / "notify"))
        self.manager.setblocking(False)
        self.host = Host()
        self.listeners = Listeners(
            asyncio.get_running_loop(),
            self.host,
            Notifier(str(tmp_path / "notify")),
            served,
            str(tmp_path / "backend.sock"),
            stale,
        )
        self.listeners.serve()

    def told(self) -> list[tuple[str, int]]:
        """Messages of the descriptor store and how many descriptors each carried."""
        messages: list[tuple[str, int]] = []
        while True:
            try:
                data, ancillary, _flags, _from = self.manager.recvmsg(4096, socket.CMSG_SPACE(16))
            except BlockingIOError:
                return messages
            fds = array.array("i")
            for _level, _kind, content in ancillary:
                fds.frombytes(content)
            for fd in fds:
                os.close(fd)
            messages.append((data.decode(), len(fds)))

    def close(self) -> None:
        self.listeners.close()
        self.manager.close()


async def test_a_removed_socket_file_is_put_back_and_stored(tmp_path: Path, path: Path) -> None:
    first = bind(str(path), PRIVATE)
    scene = Scene(tmp_path, [ListeningSocket(first.sock, "unit.socket", str(path))])
    scene.listeners.watch()
    os.unlink(path)
    await asyncio.sleep(0.05)
    assert connects(path)
    assert mode_of(path) == 0o600
    assert len(scene.host.served) == 2
    assert scene.told() == [(f"FDSTORE=1\nFDNAME={OWN_NAME}", 1)]
    assert [entry.name for entry in scene.listeners.inherited()] == ["unit.socket", OWN_NAME]
    scene.close()


async def test_a_socket_of_ours_is_stored_before_an_earlier_one_is_dropped(tmp_path: Path, path: Path) -> None:
    """A kill in between leaves at least one of them in the store, whatever the manager has read by then."""
    scene = Scene(tmp_path, [bind(str(path), PRIVATE)])
    scene.listeners.watch()
    for earlier, later in (("listener", "listener1"), ("listener1", "listener"), ("listener", "listener1")):
        os.unlink(path)
        await asyncio.sleep(0.05)
        assert scene.told() == [(f"FDSTORE=1\nFDNAME={later}", 1), (f"FDSTOREREMOVE=1\nFDNAME={earlier}", 0)]
        assert [entry.name for entry in scene.listeners.inherited()] == [later]
    scene.close()


async def test_what_cannot_be_stored_drops_nothing_and_is_made_up_for(tmp_path: Path, path: Path) -> None:
    scene = Scene(tmp_path, [bind(str(path), PRIVATE)])
    scene.listeners.watch()
    (tmp_path / "notify").rename(tmp_path / "away")
    os.unlink(path)
    await asyncio.sleep(0.05)
    assert scene.told() == []
    (tmp_path / "away").rename(tmp_path / "notify")
    os.unlink(path)
    await asyncio.sleep(0.05)
    stored, *removed = scene.told()
    assert stored == ("FDSTORE=1\nFDNAME=listener2", 1)
    assert set(removed) == {(f"FDSTOREREMOVE=1\nFDNAME={name}", 0) for name in ("listener", "listener1")}
    scene.close()


async def test_a_socket_of_an_earlier_endpoint_is_dropped_from_the_store(tmp_path: Path, path: Path) -> None:
    stale = {"listener"}
    scene = Scene(tmp_path, [bind(str(path), PRIVATE, own_name(stale))], stale)
    scene.listeners.store_own()
    assert scene.told() == [("FDSTORE=1\nFDNAME=listener1", 1), ("FDSTOREREMOVE=1\nFDNAME=listener", 0)]
    scene.close()


@pytest.mark.parametrize(
    ("name", "own"), [("listener", True), ("listener12", True), ("unit.socket", False), ("listenerx", False)]
)
def test_names_of_our_own_sockets(name: str, own: bool) -> None:
    assert is_own(name) is own


async def test_removed_with_its_directory(tmp_path: Path, path: Path) -> None:
    scene = Scene(tmp_path, [bind(str(path), PRIVATE)])
    scene.listeners.watch()
    os.unlink(path)
    os.rmdir(os.path.dirname(path))
    await asyncio.sleep(0.05)
    assert connects(path)
    scene.close()


async def test_removed_before_the_watch_began(tmp_path: Path, path: Path) -> None:
    scene = Scene(tmp_path, [bind(str(path), PRIVATE)])
    os.unlink(path)
    scene.listeners.watch()
    assert connects(path)
    scene.close()


async def test_a_file_whose_listener_is_gone_is_replaced(tmp_path: Path, path: Path) -> None:
    """systemd's own socket serves no path any more once its file was replaced, and ours went with its store."""
    systemds = bind(str(path), PRIVATE)
    os.unlink(path)
    bind(str(path), PRIVATE).sock.close()
    scene = Scene(tmp_path, [ListeningSocket(systemds.sock, "unit.socket", str(path))])
    assert not connects(path)
    scene.listeners.watch()
    assert connects(path)
    assert [entry.name for entry in scene.listeners.inherited()] == ["unit.socket", OWN_NAME]
    scene.close()


async def test_a_live_file_is_left_as_it_is(tmp_path: Path, path: Path) -> None:
    served = bind(str(path), PRIVATE)
    scene = Scene(tmp_path, [served])
    scene.listeners.watch()
    assert [entry.name for entry in scene.listeners.inherited()] == [served.name]
    assert len(scene.host.served) == 1
    scene.close()


async def test_a_path_that_somebody_else_took_is_left_to_them(tmp_path: Path, path: Path) -> None:
    scene = Scene(tmp_path, [bind(str(path), PRIVATE)])
    scene.listeners.watch()
    os.unlink(path)
    os.symlink("mine", path)
    await asyncio.sleep(0.05)
    assert os.readlink(path) == "mine"
    scene.close()


async def test_unwatched_nothing_is_put_back(tmp_path: Path, path: Path) -> None:
    scene = Scene(tmp_path, [bind(str(path), PRIVATE)])
    scene.listeners.watch()
    scene.listeners.unwatch()
    os.unlink(path)
    await asyncio.sleep(0.05)
    assert not connects(path)
    scene.close()


async def test_closing_leaves_the_file_to_a_successor(tmp_path: Path, path: Path) -> None:
    scene = Scene(tmp_path, [bind(str(path), PRIVATE)])
    scene.close()
    assert os.stat(path)
    assert scene.host.served == []
