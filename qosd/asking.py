"""Noting, before a runtime is answered, what kubelet asked for where the answer says something else.

Fail safe: an edit whose note cannot be written is answered all the same, counted and logged. It protects the pod and
its neighbours now; without the note only its removal is lost, and that ends with the container. (A running container's
files are another matter: there the value is not urgent, and nothing is written without a note.)

Invariant: noting never makes a call fail, and costs one append to a file in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from koord.host.asked import Asked, Given, Which
from koord.host.undo import UndoError, UndoRecord
from koord.host.weights import Weights
from koord.host.writer import Writer
from qosd.hooks import asked as values
from qosd.hooks.asked import Request

_log = logging.getLogger(__name__)


class Asking:
    """``writer`` tells the cgroup version and how shares are spelled; ``lost`` is called for each note that is not."""

    def __init__(self, undo: UndoRecord, writer: Writer, lost: Callable[[], object]) -> None:
        self._undo, self._writer, self._lost = undo, writer, lost

    @property
    def _spelling(self) -> tuple[int, Weights]:
        """How the values of this node are spelled."""
        return self._writer.version, self._writer.weights

    def replaced(self, asked: Request, given: Request) -> dict[str, Given]:
        """By row, what a container that is made by ``given`` would hold by ``asked``."""
        return values.of_creation(asked, given, *self._spelling)

    def created(self, which: Which, replaced: dict[str, Given]) -> None:
        """The runtime is about to make this container, with something else in the place of these values."""
        self._note(Asked(which, replaced))

    def updated(self, which: Which, asked: Request, given: Request) -> None:
        """The runtime is about to update it to ``given``; ``asked`` is laid over what the container has."""
        known = self._undo.asked_for(which)
        found = values.of_update({} if known is None else known.values, asked, given, *self._spelling)
        self._note(Asked(which, found, "" if known is None else known.group))

    def _note(self, asked: Asked) -> None:
        try:
            self._undo.ask(asked)
        except UndoError as error:
            self._lost()
            _log.warning("%s: what was asked for is not noted, and cannot be put back: %s", asked.which, error)
