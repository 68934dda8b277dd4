"""Finds the cgroups of containers for which the undo record has what kubelet requested.

A container has no id when its request is noted, so its cgroup is known once it is listed; its files are looked at once
it runs, since the runtime itself writes there before. The note of a container that is gone is forgotten, and so is a
note without a container for ``UNSEEN_S``: that container was never made. Invariant: a tick without changes costs two
comparisons.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType

from koord.host.files import Target
from koord.host.originals import ContainerKey, Original
from koord.host.undo import UndoError, UndoRecord
from qosd.model.snapshot import PodView, has_cgroup, runs

UNSEEN_S = 600
_S = 1_000_000_000
_log = logging.getLogger(__name__)


class CreatedContainers:
    """Reads the hooks' notes in ``undo``. ``due``: files to be looked at because their original is pending.

    ``originals``: by cgroup, then by row; replaced whole.
    """

    def __init__(self, undo: UndoRecord) -> None:
        self._undo = undo
        self._pods: tuple[PodView, ...] = ()
        self._changes = -1
        self._of_cgroup: dict[str, ContainerKey] = {}
        self._seen: set[ContainerKey] = set()
        self._unseen_since_ns: dict[ContainerKey, int] = {}
        self._forget_ns = 1 << 63
        self.due: tuple[Target, ...] = ()
        self.originals: Mapping[str, Mapping[str, Original]] = MappingProxyType({})

    def find(self, target: Target) -> tuple[ContainerKey, Original] | None:
        """Returns the original of ``target`` and its container; None if the container was made as requested."""
        key = self._of_cgroup.get(target.cgroup)
        originals = None if key is None else self._undo.originals_of(key)
        original = None if originals is None else originals.values.get(target.name)
        return None if key is None or original is None else (key, original)

    def follow(self, pods: tuple[PodView, ...], now_ns: int) -> None:
        """Follows ``pods``, which are all there are; ``now_ns`` of the monotonic clock."""
        changes = self._undo.originals_changes
        if (pods is self._pods and changes == self._changes) and now_ns < self._forget_ns:
            return
        self._pods, self._changes = pods, changes
        known = {each.key: each for each in self._undo.originals}
        listed = {
            key: each
            for pod in pods
            for each in pod.containers
            if not each.is_sandbox and has_cgroup(each.state)
            if (key := ContainerKey(pod.uid, each.name, each.attempt)) in known
        }
        self._of_cgroup = {each.cgroup: key for key, each in listed.items() if each.cgroup and runs(each.state)}
        self.originals = MappingProxyType({cgroup: known[key].values for cgroup, key in self._of_cgroup.items()})
        self.due = tuple(
            Target(cgroup, name)
            for cgroup, originals in self.originals.items()
            for name, original in originals.items()
            if original.pending
        )
        self._forget(known.keys() - listed.keys(), now_ns)
        self._seen = set(listed)

    def _forget(self, unlisted: set[ContainerKey], now_ns: int) -> None:
        """Forgets the notes of containers that were listed once, or should have been listed long ago."""
        since_ns = {key: self._unseen_since_ns.get(key, now_ns) for key in unlisted - self._seen}
        over = {key for key, since in since_ns.items() if now_ns - since >= UNSEEN_S * _S}
        self._unseen_since_ns = {key: since for key, since in since_ns.items() if key not in over}
        self._forget_ns = min(self._unseen_since_ns.values(), default=1 << 62) + UNSEEN_S * _S
        for key in (unlisted & self._seen) | over:
            try:
                self._undo.forget_originals(key)
            except UndoError as error:
                _log.warning("%s stays in the undo record: %s", key, error)
