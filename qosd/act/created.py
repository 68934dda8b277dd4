"""Which cgroup is which container's, for those of which the undo record knows what kubelet asked for.

A container has no id when that is noted, so its cgroup is known once it is listed; its files are looked at once it
runs, since before that the runtime itself writes there. What is noted of a container that is gone is forgotten, and so
is what belongs to none for ``UNSEEN_S``: it was never made. Invariant: a tick at which nothing of this changed costs
two comparisons.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from koord.host.asked import Given, Which
from koord.host.files import Target
from koord.host.undo import UndoError, UndoRecord
from qosd.snapshot import ContainerView, PodView, has_cgroup, runs

UNSEEN_S = 600
_S = 1_000_000_000
_log = logging.getLogger(__name__)


class Created:
    """Reads what hooks note in ``undo``; ``due``: files to be looked at because there is news of what was asked."""

    def __init__(self, undo: UndoRecord) -> None:
        self._undo = undo
        self._pods: tuple[PodView, ...] = ()
        self._changes = -1
        self._of_group: dict[str, Which] = {}
        self._seen: set[Which] = set()
        self._unseen_since_ns: dict[Which, int] = {}
        self._forget_ns = 1 << 63
        self.due: tuple[Target, ...] = ()

    def find(self, target: Target) -> tuple[Which, Given] | None:
        """What was asked and given of ``target``, and for whom; None if its container was made as asked."""
        which = self._of_group.get(target.group)
        asked = None if which is None else self._undo.asked_for(which)
        given = None if asked is None else asked.values.get(target.name)
        return None if which is None or given is None else (which, given)

    def follow(self, pods: tuple[PodView, ...], now_ns: int) -> None:
        """``pods`` are all there are; ``now_ns`` of the monotonic clock."""
        changes = self._undo.asked_changes
        if (pods is self._pods and changes == self._changes) and now_ns < self._forget_ns:
            return
        self._pods, self._changes = pods, changes
        asked = {each.which: each for each in self._undo.asked}
        listed = {which: each for which, each in _containers(pods) if which in asked}
        self._of_group = {each.group: which for which, each in listed.items() if each.group and runs(each.state)}
        self.due = tuple(
            Target(group, name)
            for group, which in self._of_group.items()
            for name, given in asked[which].values.items()
            if given.news
        )
        self._forget(asked.keys() - listed.keys(), now_ns)
        self._seen = set(listed)

    def _forget(self, unlisted: set[Which], now_ns: int) -> None:
        """Those that were listed once, and those for which that would be long overdue."""
        since_ns = {which: self._unseen_since_ns.get(which, now_ns) for which in unlisted - self._seen}
        over = {which for which, since in since_ns.items() if now_ns - since >= UNSEEN_S * _S}
        self._unseen_since_ns = {which: since for which, since in since_ns.items() if which not in over}
        self._forget_ns = min(self._unseen_since_ns.values(), default=1 << 62) + UNSEEN_S * _S
        for which in (unlisted & self._seen) | over:
            try:
                self._undo.forget_asked(which)
            except UndoError as error:
                _log.warning("%s stays in the undo record: %s", which, error)


def _containers(pods: tuple[PodView, ...]) -> Iterator[tuple[Which, ContainerView]]:
    """Those that are made or run."""
    for pod in pods:
        for each in pod.containers:
            if not each.is_sandbox and has_cgroup(each.state):
                yield Which(pod.uid, each.name, each.attempt), each
