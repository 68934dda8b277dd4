"""Notes what kubelet requested for a container that gets something else, before the runtime is answered.

Fail safe: if the note cannot be written, the edit is answered all the same, counted and logged. The edit protects the
pod and its neighbours now; without the note only its removal is lost, and that ends with the container. (For a running
container's files the value is not urgent: there nothing is written without a note.)

Limits that the answer does not carry, because kubelet would report them as its own, are written from the note once the
container has its cgroup, before its program starts.

Invariant: noting and writing never make a call fail; noting costs one append to a file in memory.
"""

from __future__ import annotations

import logging

from koord.host.files import Target, ValueRefused
from koord.host.order import Change, order
from koord.host.originals import ContainerKey, Original, Originals, Pending
from koord.host.undo import UndoError, UndoRecord
from koord.host.weights import Weights
from koord.host.writer import WriteError, Writer
from qosd.hooks import originals as values
from qosd.hooks.originals import RequestedResources
from qosd.metrics import Metrics

_log = logging.getLogger(__name__)


class OriginalsRecorder:
    """``writer`` has the cgroup version and the mapping of shares to weights; ``metrics`` count each lost note."""

    def __init__(self, undo: UndoRecord, writer: Writer, metrics: Metrics) -> None:
        self._undo, self._writer, self._metrics = undo, writer, metrics

    @property
    def _spelling(self) -> tuple[int, Weights]:
        """The cgroup version, and how shares are mapped to weights."""
        return self._writer.version, self._writer.weights

    def replaced(
        self, requested: RequestedResources, edited: RequestedResources, pending: Pending = Pending.CREATED
    ) -> dict[str, Original]:
        """Returns by row what a container that is created by ``edited`` would hold by ``requested``."""
        return values.of_creation(requested, edited, *self._spelling, pending)

    def created(self, key: ContainerKey, replaced: dict[str, Original]) -> None:
        """Notes that this container is about to be created with other values in the place of ``replaced``."""
        self._note(Originals(key, replaced))

    def write_limits(self, key: ContainerKey, cgroup: str) -> None:
        """Writes the limits that no call carried, in the kernel's order; the container's program is about to start.

        Leaves to the reconciler each value that the kernel refuses or that is not noted.
        """
        known = self._undo.originals_of(key)
        due = {name: one for name, one in (known.values if known else {}).items() if one.pending is Pending.STARTED}
        changes = [Change(Target(cgroup, name), one.requested, one.edited) for name, one in due.items()]
        for step in order(changes, self._writer.version):
            try:
                self._writer.write(step.target, step.value)
            except (WriteError, ValueRefused) as error:
                self._metrics.late_limits += 1
                _log.info("%s starts without its %s: %s", key, step.target.name, error)

    def updated(self, key: ContainerKey, requested: RequestedResources, edited: RequestedResources) -> None:
        """Notes an update to ``edited``, of which kubelet ``requested`` some; the rest stays as it was noted."""
        known = self._undo.originals_of(key)
        after = values.of_update({} if known is None else known.values, requested, edited, *self._spelling)
        self._note(Originals(key, after, "" if known is None else known.cgroup))

    def _note(self, originals: Originals) -> None:
        try:
            self._undo.note_originals(originals)
        except UndoError as error:
            self._metrics.unrecorded_edits += 1
            _log.warning("%s: what kubelet requested is not noted, and cannot be put back: %s", originals.key, error)
