"""kubelet's CPU manager, by its state file: the policy that runs, and the CPUs that containers have to themselves.

kubelet's document grows: newer ones name owners in other members than ``entries``. So only ``defaultCpuSet`` is read
for certain, the CPUs that all containers share; every other online CPU has an owner, known or not.

The file (``cpu_manager_state`` in kubelet's root directory) is replaced at every change and watched; it is polled only
where the kernel refuses the watch (``look_again``). Invariant: ``current`` is the last readable state; an absent file
counts as the policy "none" without exclusive CPUs, which another source may contradict. ``problem`` says which parts of
the file could not be taken, and why it is not watched. The checksum is kubelet's business.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import msgspec

from koord.model import cpuset
from koord.model.cpuset import EMPTY, CPUSet, CPUSetError
from koord.service.inotify import FileWatch

NONE, STATIC = "none", "static"
UNNAMED = "unnamed"
"""Stands for the UID of an owner of CPUs that is not named in a known way."""
_HINTS = {
    errno.EMFILE: " (raise fs.inotify.max_user_instances)",
    errno.ENOSPC: " (raise fs.inotify.max_user_watches)",
}
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CPUManagerState:
    """``exclusive``: CPU lists by pod UID, of all its containers; ``default_cpus``: those that all other containers
    share.

    ``problems``: the entries that could not be read, whose CPUs have an owner all the same.
    """

    policy: str = NONE
    default_cpus: str = ""
    exclusive: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def gives_cpus(self) -> bool:
        """Returns whether the policy may give containers CPUs of their own, as each but ``none`` does."""
        return self.policy not in ("", NONE)

    def exclusive_on(self, online: CPUSet) -> Mapping[str, str]:
        """Returns ``exclusive``, and under ``UNNAMED`` the ``online`` CPUs that are neither in it nor in
        ``default_cpus``.
        """
        if not self.gives_cpus:
            return self.exclusive
        named = reduce(or_, map(cpuset.parse, self.exclusive.values()), cpuset.parse(self.default_cpus))
        unnamed = online - named
        return {**self.exclusive, UNNAMED: str(unnamed)} if unnamed else self.exclusive


class _Document(msgspec.Struct, rename="camel"):
    policy_name: str
    default_cpu_set: str = ""
    entries: Any = None


class CPUManagerFile:
    """The state file at ``path``; ``changed()`` is called on ``loop`` after ``current`` changed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: Path, changed: Callable[[], None]) -> None:
        self._loop, self._path, self._changed = loop, path, changed
        self._watch: FileWatch | None = None
        self._unread = self._unwatched = self.untold = ""
        """``untold``: why ``current`` is not what the file says now; "" = it is."""
        self.is_absent = False
        self._owned: tuple[CPUManagerState, CPUSet, Mapping[str, str]] | None = None
        self.current = CPUManagerState()

    def exclusive(self, online: CPUSet) -> Mapping[str, str]:
        """Returns ``current.exclusive_on(online)``; the same object while both stay."""
        if self._owned is None or self._owned[0] is not self.current or self._owned[1] != online:
            self._owned = self.current, online, self.current.exclusive_on(online)
        return self._owned[2]

    def start(self) -> None:
        """Watches, then reads. Never raises: see ``problem``."""
        self._unwatched = _said(self._unwatched, self._refused())
        self.load()

    def look_again(self) -> None:
        """Tries again to watch the file and reads it, if it is not watched: call it from time to time."""
        if not self.watched:
            self.start()

    @property
    def problem(self) -> str:
        """Returns what is wrong; "" if nothing is."""
        return "; ".join(filter(None, (self._unread, self._unwatched)))

    @property
    def watched(self) -> bool:
        return self._watch is not None

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def load(self) -> None:
        """Reads the file; a bad one changes nothing but ``problem``."""
        try:
            found, self.is_absent = read_state(self._path.read_bytes()), False
        except FileNotFoundError:
            found, self.is_absent = CPUManagerState(), True
        except (OSError, ValueError) as error:
            self.is_absent, self.untold = False, f"{self._path}: {error}"
            problem = f"{self.untold}; kubelet's CPU manager counts as {self.current.policy}, as before"
            self._unread = _said(self._unread, problem)
            return
        self.untold = f"{self._path} is not there" if self.is_absent else ""
        self._unread = _said(self._unread, "; ".join(f"{self._path}: {problem}" for problem in found.problems))
        if found != self.current:
            self.current = found
            self._changed()

    def _refused(self) -> str:
        """Watches the file. Returns why the kernel refused; "" if it did not."""
        try:
            self._watch = FileWatch(self._loop, str(self._path), self.load)
        except OSError as error:
            why = f"{error.strerror}{_HINTS.get(error.errno or 0, '')}"
            return f"{self._path} cannot be watched and is read from time to time: {why}"
        return ""


def _said(before: str, problem: str) -> str:
    """Returns ``problem``, and logs it when it is new: it may be found again every ten seconds."""
    if problem and problem != before:
        log.warning("%s", problem)
    return problem


def read_state(text: bytes) -> CPUManagerState:
    """Returns kubelet's document, its CPU lists in canonical form. Raises ValueError saying what is wrong.

    An entry that cannot be read costs only the name of its owner.
    """
    document = msgspec.json.decode(text, type=_Document)
    default_cpus = _cpus("defaultCpuSet", document.default_cpu_set)
    exclusive: dict[str, CPUSet] = {}
    problems = []
    for uid, name, cpus in _entries(document.entries):
        where = f"entries.{uid}.{name}" if name else f"entries.{uid}" if uid else "entries"
        try:
            exclusive[uid] = exclusive.get(uid, EMPTY) | _cpus(where, cpus)
        except ValueError as error:
            problems.append(str(error))
    state = CPUManagerState(
        policy=document.policy_name,
        default_cpus=str(default_cpus),
        exclusive={uid: str(cpus) for uid, cpus in exclusive.items()},
        problems=tuple(problems),
    )
    if state.gives_cpus and not default_cpus and not exclusive:
        raise ValueError(f"policyName is {state.policy}, but neither defaultCpuSet nor entries name a CPU")
    return state


def _entries(entries: Any) -> Iterator[tuple[str, str, Any]]:
    """Yields pod UID, container name and CPU list; "" for the names in what is no table."""
    if not isinstance(entries, dict):
        yield from () if entries is None else [("", "", entries)]
        return
    for uid, containers in entries.items():
        yield from (
            ((uid, *each) for each in containers.items()) if isinstance(containers, dict) else [(uid, "", containers)]
        )


def _cpus(where: str, text: Any) -> CPUSet:
    if not isinstance(text, str):
        raise ValueError(f"{where}: {text!r:.80} is not a CPU list")
    try:
        return cpuset.parse(text)
    except CPUSetError as error:
        raise ValueError(f"{where}: {error}") from error
