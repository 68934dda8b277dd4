"""The files that koord-qosd keeps from one run to the next, and their removal when Koord is uninstalled.

Stopping is not disabling, so all files stay at an ordinary end. When a cluster removes Koord from its nodes it says so,
and no later run needs them, nor files that were set aside or left half written by a kill. Invariant: none is removed
while a kernel file holds a value of ours, because the undo record is what puts it back; the caller of ``remove`` holds
the record's lock.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from koord.host import linefile, undo
from koord.service import wholefile
from qosd.act import journal
from qosd.node import BEST_EFFORT, JOURNAL, MODELS, NODE_OBJECT, NODE_SLO, POLICY, UNDO
from qosd.options import Options
from qosd.predict import checkpoint

_log = logging.getLogger(__name__)


def paths(options: Options) -> Iterator[Path]:
    """Yields every file, whether it is there or not; the lock comes last, so that the next koord-qosd loses nothing."""
    run, state = options.run_dir, options.state_dir
    yield from (options.hook_socket, options.inspect_socket)
    yield from _named(run / UNDO, "", undo.ASIDE, linefile.NEW)
    yield from _named(state / JOURNAL, "", journal.ASIDE, *journal.OF_SQLITE)
    yield state / f"{MODELS}{checkpoint.ASIDE}"
    for whole in (run / BEST_EFFORT, *(state / name for name in (MODELS, POLICY, NODE_SLO, NODE_OBJECT))):
        yield from _named(whole, "", wholefile.BESIDE)
    yield undo.lock_file(run / UNDO)


def remove(options: Options) -> None:
    """Removes the files, and the directories if nothing else is in them. Logs what cannot be removed."""
    for path in paths(options):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("%s stays: %s", path, error.strerror)
    for directory in (options.run_dir, options.state_dir):
        try:
            directory.rmdir()
        except OSError as error:  # it is a mount, or others use it
            _log.info("%s stays: %s", directory, error.strerror)
    _log.info("Koord is uninstalled: what was kept in %s and %s is removed", options.run_dir, options.state_dir)


def _named(file: Path, *suffixes: str) -> Iterator[Path]:
    """Yields the names of ``file`` with each of ``suffixes``."""
    return (file.with_name(f"{file.name}{suffix}") for suffix in suffixes)
