"""kubelet's CPU manager, as its state file tells: which policy runs, and which CPUs containers have to themselves.

The file (``cpu_manager_state`` in kubelet's root directory) is replaced at every change and watched; only where the
kernel refuses the watch is it polled (``look_again``). Invariant: ``current`` is the last state that could be read
whole; an absent file is the policy "none" without exclusive CPUs. ``problem`` says why the file of now could not be
taken, and why it is not watched. The checksum is kubelet's business.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from pathlib import Path

import msgspec

from koord.model import cpuset
from koord.model.cpuset import EMPTY, CPUSetError
from koord.service.inotify import FileWatch

STATIC = "static"
_HINTS = {
    errno.EMFILE: " (raise fs.inotify.max_user_instances)",
    errno.ENOSPC: " (raise fs.inotify.max_user_watches)",
}
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CPUManagerState:
    """``by_container``: cpuset lists by (pod UID, container name); ``exclusive``: by pod UID, all its containers'."""

    policy: str = "none"
    default_cpus: str = ""
    by_container: Mapping[tuple[str, str], str] = field(default_factory=dict)
    exclusive: Mapping[str, str] = field(default_factory=dict)


class _Document(msgspec.Struct, rename="camel"):
    policy_name: str
    default_cpu_set: str = ""
    entries: dict[str, dict[str, str]] | None = None


class CPUManagerFile:
    """The state file at ``path``; ``changed()`` is called on ``loop`` after ``current`` changed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: Path, changed: Callable[[], None]) -> None:
        self._loop, self._path, self._changed = loop, path, changed
        self._watch: FileWatch | None = None
        self._unread = self._unwatched = ""
        self.current = CPUManagerState()

    def start(self) -> None:
        """Watch, then read. Never raises: see ``problem``."""
        self._unwatched = _said(self._unwatched, self._refused())
        self.load()

    def look_again(self) -> None:
        """To be called from time to time: without a watch, which is tried again, nothing tells of a change."""
        if not self.watched:
            self.start()

    @property
    def problem(self) -> str:
        """ "" if all is well."""
        return "; ".join(filter(None, (self._unread, self._unwatched)))

    @property
    def watched(self) -> bool:
        return self._watch is not None

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def load(self) -> None:
        """Read the file; a bad one changes nothing but ``problem``."""
        try:
            found = read_state(self._path.read_bytes())
        except FileNotFoundError:
            found = CPUManagerState()
        except (OSError, ValueError) as error:
            problem = f"{self._path}: {error}; kubelet's CPU manager counts as {self.current.policy}, as before"
            self._unread = _said(self._unread, problem)
            return
        self._unread = ""
        if found != self.current:
            self.current = found
            self._changed()

    def _refused(self) -> str:
        """Watch the file; why the kernel refused, "" if it did not."""
        try:
            self._watch = FileWatch(self._loop, str(self._path), self.load)
        except OSError as error:
            why = f"{error.strerror}{_HINTS.get(error.errno or 0, '')}"
            return f"{self._path} cannot be watched and is read from time to time: {why}"
        return ""


def _said(before: str, problem: str) -> str:
    """``problem``, logged when it is new: it may be found again every ten seconds."""
    if problem and problem != before:
        log.warning("%s", problem)
    return problem


def read_state(text: bytes) -> CPUManagerState:
    """kubelet's document, its CPU lists in canonical form. Raises ValueError saying what is wrong."""
    document = msgspec.json.decode(text, type=_Document)
    sets = {
        (uid, name): _cpus(f"entries.{uid}.{name}", cpus)
        for uid, containers in (document.entries or {}).items()
        for name, cpus in containers.items()
    }
    pods = {uid: reduce(or_, [cpus for (owner, _), cpus in sets.items() if owner == uid], EMPTY) for uid, _ in sets}
    return CPUManagerState(
        policy=document.policy_name,
        default_cpus=str(_cpus("defaultCpuSet", document.default_cpu_set)),
        by_container={key: str(cpus) for key, cpus in sets.items()},
        exclusive={uid: str(cpus) for uid, cpus in pods.items()},
    )


def _cpus(where: str, text: str) -> cpuset.CPUSet:
    try:
        return cpuset.parse(text)
    except CPUSetError as error:
        raise ValueError(f"{where}: {error}") from error
