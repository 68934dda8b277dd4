"""Opens the listening socket: handed over by systemd or a predecessor, or made here; puts back a removed socket file.

Invariants: a live owner's socket file is never unlinked, nor anything that is not a socket; our socket is never open
to more users than the backend's; our file is never removed on exit, because a successor may be listening on it.
Start-up fails with ``ListenError`` (path and reason). A listener that cannot be put back is logged and tried again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from koord.service import lockfile
from koord.service.directories import make_directories
from koord.service.listen_fds import Inherited
from koord.service.notify import Notifier
from koord.service.unixsocket import answers, permissions, prepare

if TYPE_CHECKING:
    from koord.service.inotify import FileWatch

log = logging.getLogger("runtimeproxy.listen")

BACKLOG = 4096
OWN_NAME = "listener"  # FDNAME= in systemd's store of the socket that we made; a later one has a number behind it
RETRY_S = 5.0
RETIRE_S = 1.0


class ListenError(Exception):
    """There is no socket to serve on; the text names the path and the reason."""


def is_own(name: str) -> bool:
    """Returns whether it is the name of a socket that we made."""
    return name.rstrip("0123456789") == OWN_NAME


def own_name(names: Iterable[str]) -> str:
    """Returns a name for a socket that we make, other than ``names``."""
    others = set(names)
    return next(name for number in count() if (name := f"{OWN_NAME}{number or ''}") not in others)


class ListenerHost(Protocol):
    """Serves the sockets (`RelayServer`)."""

    def add_listener(self, listener: socket.socket) -> None:
        """Accepts on it from now on."""

    def remove_listener(self, listener: socket.socket) -> None:
        """Accepts on it no more; it stays the caller's to close."""


@dataclass(frozen=True, slots=True)
class SocketAccess:
    """Mode (permission bits), uid and gid of a socket file."""

    mode: int
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class ListeningSocket:
    """A listening socket and the name under which it is handed on; ``path`` is "" in the abstract namespace."""

    sock: socket.socket
    name: str
    path: str


def adopt(inherited: Sequence[Inherited]) -> list[ListeningSocket]:
    """Wraps descriptors that were handed over. ListenError if one is no listening unix stream socket."""
    listeners = []
    for entry in inherited:
        try:
            sock = socket.socket(fileno=entry.fd)
        except OSError as error:
            raise ListenError(f"descriptor {entry.fd} ({entry.name}) is no socket: {error.strerror}") from error
        is_listening = bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
        if sock.family != socket.AF_UNIX or sock.type != socket.SOCK_STREAM or not is_listening:
            raise ListenError(f"descriptor {entry.fd} ({entry.name}) is no listening unix stream socket")
        sock.setblocking(False)
        name = sock.getsockname()
        listeners.append(ListeningSocket(sock, entry.name, name if isinstance(name, str) else ""))
    return listeners


def usable(listeners: Sequence[ListeningSocket], endpoint: str) -> list[ListeningSocket]:
    """Returns the sockets to serve: all that the manager opened, and those of our own bound at ``endpoint``.

    A socket that we made for an earlier ``--koord-runtimeproxy-endpoint`` is closed.
    """
    kept = []
    for listener in listeners:
        if os.path.realpath(listener.path) == os.path.realpath(endpoint):
            kept.append(listener)
        elif is_own(listener.name):
            listener.sock.close()
        else:
            log.warning("serving %s, which was handed over, and not %s", listener.path or "an abstract name", endpoint)
            kept.append(listener)
    return kept


def access_like(backend: str) -> SocketAccess:
    """Returns the access of the backend's socket; while there is none, 0660 and our own user and group."""
    return _access_of(backend) or SocketAccess(0o660, os.geteuid(), os.getegid())


def bind(path: str, access: SocketAccess, name: str = OWN_NAME) -> ListeningSocket:
    """Makes the directory (0755) and the socket. ListenError if the path is taken, or cannot be bound."""
    try:
        directory, file = os.path.split(path)
        make_directories(directory)
        with lockfile.held(Path(directory, f".{file}.lock")):  # no other process in between
            prepare(Path(path))
            return _bind(path, access, name)
    except BlockingIOError as error:
        raise ListenError(f"{path}: another process listens on it, or is about to") from error
    except OSError as error:
        what = error.filename if error.filename not in (None, path) else ""
        raise ListenError(f"{path}: {what and f'{what} '}{error.strerror or error}") from error


def _bind(path: str, access: SocketAccess, name: str) -> ListeningSocket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        with permissions(0o600):
            sock.bind(path)
        _set_access(path, access)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return ListeningSocket(sock, name, path)


def _set_access(path: str, access: SocketAccess) -> None:
    """Sets owner before mode, so that no other user gets in between; without that right, our own bits only."""
    mode = access.mode
    if (access.uid, access.gid) != (os.geteuid(), os.getegid()):
        try:
            os.chown(path, access.uid, access.gid)
        except PermissionError:
            mode &= 0o700
            log.warning("%s: may not be given to %d:%d; open to our own user only", path, access.uid, access.gid)
    os.chmod(path, mode)


def _trouble(path: str) -> str:
    """Returns why no client can connect by the path,  "" if one can or we cannot tell: a socket's file outlives it."""
    try:
        abandoned = stat.S_ISSOCK(os.lstat(path).st_mode) and not answers(path)
    except FileNotFoundError:
        return "was removed"
    except OSError:
        return ""
    return "had no listener" if abandoned else ""


class Listeners:
    """Holds the sockets being served, and the watch that puts a removed socket file back.

    A socket whose file was removed stays: it may be systemd's own, and clients may still be queued on it. The one that
    replaces it goes to systemd's descriptor store, so that it survives this process as the first one does.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        host: ListenerHost,
        notifier: Notifier,
        served: Sequence[ListeningSocket],
        backend: str,
        stale: Iterable[str] = (),
    ) -> None:
        self._loop = loop
        self._host = host
        self._notifier = notifier
        self._served = list(served)
        self._backend = backend
        self._path = next((listener.path for listener in served if listener.path), "")
        self._access = _access_of(self._path)
        self._stale = set(stale)  # names in systemd's store of sockets of ours that are served no more
        self._watch: FileWatch | None = None
        self._retry: asyncio.TimerHandle | None = None

    def serve(self) -> None:
        for listener in self._served:
            self._host.add_listener(listener.sock)

    def store_own(self) -> None:
        """Gives the socket that we made, if there is one, to systemd's descriptor store, and then drops earlier ones.

        In this order a kill, whenever it comes, leaves one of them in the store; or both, and the next process serves
        both.
        """
        own = [listener for listener in self._served if is_own(listener.name)]
        if not own or not self._notifier.enabled:
            return
        for listener in own:
            if not self._notifier.store_fds(listener.name, [listener.sock.fileno()]):
                return  # what is stored already stays
        for name in self._stale - {listener.name for listener in own}:
            self._notifier.remove_fds(name)
        self._stale.clear()

    def inherited(self) -> tuple[Inherited, ...]:
        """Returns the sockets for a successor."""
        return tuple(Inherited(listener.sock.fileno(), listener.name) for listener in self._served)

    def watch(self) -> None:
        """Watches the socket file from now on, and checks it once; without inotify only once (logged)."""
        from koord.service.inotify import FileWatch  # noqa: PLC0415 - ctypes, after serving has begun

        if not self._path or self._watch is not None:
            return
        try:
            self._watch = FileWatch(self._loop, self._path, self._look)
        except OSError as error:
            log.warning("%s is not watched: %s", self._path, error)
        self._look()

    def unwatch(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _look(self) -> None:
        self._retry = None
        trouble = _trouble(self._path)
        if not trouble:
            return
        try:
            name = own_name(self._stale | {listener.name for listener in self._served})
            fresh = bind(self._path, self._access or access_like(self._backend), name)
        except ListenError as error:
            log.error("socket file %s and cannot be put back, next attempt in %g s: %s", trouble, RETRY_S, error)
            self._retry = self._loop.call_later(RETRY_S, self._look)
            return
        self._host.add_listener(fresh.sock)
        self._retire_own()
        self._served.append(fresh)
        self.store_own()
        log.warning("%s %s; listening on a new one", self._path, trouble)

    def _retire_own(self) -> None:
        """Gives up an earlier socket of our own, once the clients in its queue have been accepted."""
        for listener in [listener for listener in self._served if is_own(listener.name)]:
            self._served.remove(listener)
            self._stale.add(listener.name)
            self._loop.call_later(RETIRE_S, self._give_up, listener.sock)

    def _give_up(self, sock: socket.socket) -> None:
        self._host.remove_listener(sock)
        sock.close()

    def close(self) -> None:
        """Gives up every socket; the files stay, and so do the descriptors of systemd and of a successor."""
        self.unwatch()
        for listener in self._served:
            self._give_up(listener.sock)
        self._served.clear()


def _access_of(path: str) -> SocketAccess | None:
    try:
        entry = os.stat(path)
    except OSError:
        return None
    return SocketAccess(stat.S_IMODE(entry.st_mode) & 0o777, entry.st_uid, entry.st_gid)
