"""The cgroup tree's own events, through inotify: pods and containers that come and go, and values that are written.

One watch follows one hierarchy: the tiers of kubelet's tree, the pods in them, the containers in those. A tier that
does not exist yet is waited for at its nearest existing ancestor. cgroupfs tells of a removed directory to the watch of
its *parent* only (neither IN_DELETE_SELF nor IN_IGNORED is sent), so every watch is ended when the parent reports the
removal, and every directory has a watched parent. Any write(2), one of ours included, to a file of a watched directory
is IN_MODIFY with the file's name.

Invariant: ``pods`` and ``containers`` are the directories as of the last event read. After an overflow everything is
looked at again. Where the kernel refuses a watch (fs.inotify limits) ``problem`` says so and ``rescan`` tries again.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from koord.model import cgroup_parent
from koord.service.inotify import IN_CREATE, IN_DELETE, IN_ONLYDIR, Inotify, InotifyEvent

IN_MODIFY = 0x00000002
IN_ISDIR = 0x40000000
_STRUCTURE = IN_CREATE | IN_DELETE | IN_ONLYDIR
_MOVES = ("cgroup.procs", "cgroup.threads", "tasks")  # written whenever a process joins; no value
_NOTICES = ".events"  # of files that the kernel itself "modifies" to wake readers
_MONITORS = "conmon"  # cri-o's own scope beside a container's
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ENODEV)

log = logging.getLogger(__name__)


class CgroupWatch:
    """Watches the hierarchy mounted at ``root`` (v1: one controller's, v2: the only one).

    ``tiers``: the cgroup paths in which kubelet makes pods (``/kubepods``, ``/kubepods/burstable``, …). ``changed()``:
    a pod or container directory came or went, or may have. ``modified(path)``: a process wrote the file at ``path``, in
    a tier's, pod's or container's directory. Both are called on ``loop``.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        root: Path,
        tiers: Sequence[str],
        changed: Callable[[], None],
        modified: Callable[[str], None] | None = None,
    ) -> None:
        self._loop, self._root = loop, str(root)
        self.tiers: frozenset[str] = frozenset(_normal(tier) for tier in tiers)
        self._above = frozenset(above for tier in self.tiers for above in _ancestors(tier)) - self.tiers
        self._changed, self._modified = changed, modified
        self._inotify: Inotify | None = None
        self._cgroups: dict[int, str] = {}  # cgroup path by watch descriptor
        self._wds: dict[str, int] = {}
        self.pods: set[str] = set()
        self.containers: set[str] = set()
        self.problem = self._said = ""

    def start(self) -> None:
        """Begins to watch; ``pods`` and ``containers`` then hold what exists already. Never raises: see ``problem``."""
        try:
            self._inotify = Inotify()
        except OSError as error:
            self._refused("an inotify instance", error)
            return
        self._loop.add_reader(self._inotify.fileno(), self._on_readable)
        self._arm("")

    def close(self) -> None:
        if self._inotify is not None:
            self._loop.remove_reader(self._inotify.fileno())
            self._inotify.close()
            self._inotify = None

    @property
    def watches(self) -> int:
        """Returns how many directories are watched."""
        return len(self._wds)

    def rescan(self) -> None:
        """Looks at the whole tree again, from nothing: after an overflow, or to try for watches once refused."""
        self.problem = ""
        for cgroup in list(self._wds):
            self._unwatch(cgroup)
        self.pods.clear()
        self.containers.clear()
        if self._inotify is None:
            self.start()
        else:
            self._arm("")

    # directories

    def _arm(self, cgroup: str) -> bool:
        """Watches the directory of ``cgroup`` ("" = the root), then looks into it. Returns whether there was news of
        pods.
        """
        if not self._watch(cgroup) or cgroup in self.containers:
            return False
        news = False
        for name in self._directories(cgroup):
            news |= self._appeared(f"{cgroup}/{name}")
        return news

    def _appeared(self, cgroup: str) -> bool:
        """Takes a directory that is there. Returns whether it is a tier, pod or container."""
        if cgroup in self._above:
            return self._arm(cgroup)
        if cgroup in self.tiers:
            self._arm(cgroup)
        elif _parent(cgroup) in self.tiers and cgroup_parent.parse(cgroup) is not None:
            self.pods.add(cgroup)
            self._arm(cgroup)
        elif _parent(cgroup) in self.pods and _MONITORS not in cgroup.rpartition("/")[2]:
            self.containers.add(cgroup)
            if self._modified is not None:
                self._arm(cgroup)
        else:
            return False
        return True

    def _vanished(self, cgroup: str) -> bool:
        """Forgets a directory that is gone, with all below it. Returns whether one was a tier, pod or container."""
        news = cgroup in self.pods or cgroup in self.containers or cgroup in self.tiers
        below = f"{cgroup}/"
        gone = [one for one in self._wds if one == cgroup or one.startswith(below)]
        for one in gone:
            self._unwatch(one)
        for known in (self.pods, self.containers):
            known.difference_update([one for one in known if one == cgroup or one.startswith(below)])
        return news

    def _watch(self, cgroup: str) -> bool:
        """Watches the directory. Returns False if it is not there (any more), or may not be watched."""
        if self._inotify is None:
            return False
        wants_writes = self._modified is not None and cgroup and cgroup not in self._above
        try:
            wd = self._inotify.add(self._root + cgroup, _STRUCTURE | (IN_MODIFY if wants_writes else 0))
        except OSError as error:
            if error.errno not in _GONE or not cgroup:
                self._refused(self._root + cgroup, error)
            return False
        if self._wds.get(cgroup, wd) != wd:
            self._unwatch(cgroup)  # another directory of that name: its end has not been read yet
        self._cgroups[wd], self._wds[cgroup] = cgroup, wd
        return True

    def _unwatch(self, cgroup: str) -> None:
        wd = self._wds.pop(cgroup)
        self._cgroups.pop(wd, None)
        if self._inotify is not None:
            self._inotify.remove(wd)

    def _directories(self, cgroup: str) -> list[str]:
        try:
            with os.scandir(self._root + cgroup) as entries:
                return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError as error:
            if error.errno not in _GONE:
                self._refused(self._root + cgroup, error)
            return []

    def _refused(self, subject: str, error: OSError) -> None:
        if self.problem:
            return
        self.problem = f"{subject} cannot be watched: {error.strerror}{_HINTS.get(error.errno or 0, '')}"
        if self.problem != self._said:
            self._said = self.problem  # once, however often it is tried again
            log.warning("%s; pods are listed more often instead", self.problem)

    # events

    def _on_readable(self) -> None:
        assert self._inotify is not None
        news, written = False, dict[str, None]()
        for event in self._inotify.read():
            if event.overflow:
                self.rescan()
                news = True
                continue
            cgroup = self._cgroups.get(event.wd)
            if cgroup is None:
                continue
            if event.mask & IN_ISDIR:
                news |= self._on_directory(f"{cgroup}/{event.name}", event)
            elif event.mask & IN_MODIFY and _is_value(event.name):
                written[f"{self._root}{cgroup}/{event.name}"] = None
        if news:
            self._changed()
        if self._modified is not None:
            for path in written:
                self._modified(path)

    def _on_directory(self, cgroup: str, event: InotifyEvent) -> bool:
        if event.mask & IN_DELETE:
            return self._vanished(cgroup)
        return self._appeared(cgroup) if event.mask & IN_CREATE else False


_HINTS = {
    errno.ENOSPC: " (raise fs.inotify.max_user_watches)",
    errno.EMFILE: " (raise fs.inotify.max_user_instances)",
}


def _is_value(name: str) -> bool:
    return bool(name) and name not in _MOVES and not name.endswith(_NOTICES)


def _normal(cgroup: str) -> str:
    return "/" + cgroup.strip("/") if cgroup.strip("/") else ""


def _parent(cgroup: str) -> str:
    return cgroup.rpartition("/")[0]


def _ancestors(cgroup: str) -> list[str]:
    """Returns the cgroup paths above ``cgroup``, without the root."""
    parts = cgroup.split("/")[1:-1]
    return ["/" + "/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
