"""Giving back every kernel file and every container's specification that Koord holds, once koord-qosd has gone."""

from __future__ import annotations

import errno
import time
from pathlib import Path

from koord.host.undo import UndoError
from koordctl.install.errors import InstallError
from koordctl.restoring import UNDO_FILE, UnknownBoot, restore_node

_IN_USE_S = 5.0
_POLL_S = 0.05


def restore_all(root: Path, runtime: str) -> tuple[str, ...]:
    """Restore the node below ``root`` by its undo record, with the runtime at ``runtime``; returns what could not be.

    koord-qosd may hold the record a moment longer than systemd takes it for stopped. Raises InstallError if the record
    cannot be had.
    """
    record, socket = (root / f"{path}".lstrip("/") for path in (UNDO_FILE, runtime))
    deadline_s = time.monotonic() + _IN_USE_S
    while True:
        try:
            return restore_node(record, socket, root=root).failures
        except UnknownBoot as error:
            raise InstallError(f"{error}, so nobody knows whether {record} is of this boot") from error
        except UndoError as error:
            if error.errno != errno.EAGAIN or time.monotonic() > deadline_s:
                raise InstallError(f"{error.filename}: {error.strerror}") from error
        time.sleep(_POLL_S)
