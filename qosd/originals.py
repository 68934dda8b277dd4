"""Noting, before a runtime is answered, what kubelet requested where the answer says something else.

Fail safe: an edit whose note cannot be written is answered all the same, counted and logged. It protects the pod and
its neighbours now; without the note only its removal is lost, and that ends with the container. (A running container's
files are another matter: there the value is not urgent, and nothing is written without a note.)

Invariant: noting never makes a call fail, and costs one append to a file in memory.
"""

from __future__ import annotations

import logging

from koord.host.originals import ContainerKey, Original, Originals
from koord.host.undo import UndoError, UndoRecord
from koord.host.weights import Weights
from koord.host.writer import Writer
from qosd.hooks import originals as values
from qosd.hooks.originals import RequestedResources
from qosd.metrics import Metrics

_log = logging.getLogger(__name__)


class OriginalsRecorder:
    """``writer`` tells the cgroup version and how shares are spelled; ``metrics`` count each note that is lost."""

    def __init__(self, undo: UndoRecord, writer: Writer, metrics: Metrics) -> None:
        self._undo, self._writer, self._metrics = undo, writer, metrics

    @property
    def _spelling(self) -> tuple[int, Weights]:
        """How the values of this node are spelled."""
        return self._writer.version, self._writer.weights

    def replaced(self, requested: RequestedResources, edited: RequestedResources) -> dict[str, Original]:
        """By row, what a container that is made by ``edited`` would hold by ``requested``."""
        return values.of_creation(requested, edited, *self._spelling)

    def created(self, key: ContainerKey, replaced: dict[str, Original]) -> None:
        """The runtime is about to make this container, with something else in the place of these values."""
        self._note(Originals(key, replaced))

    def updated(self, key: ContainerKey, requested: RequestedResources, edited: RequestedResources) -> None:
        """The runtime is about to update it to ``edited``; ``requested`` is laid over what the container has."""
        known = self._undo.originals_of(key)
        after = values.of_update({} if known is None else known.values, requested, edited, *self._spelling)
        self._note(Originals(key, after, "" if known is None else known.cgroup))

    def _note(self, originals: Originals) -> None:
        try:
            self._undo.note_originals(originals)
        except UndoError as error:
            self._metrics.unrecorded_edits += 1
            _log.warning("%s: what kubelet requested is not noted, and cannot be put back: %s", originals.key, error)
