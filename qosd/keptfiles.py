"""What qosd keeps on the node from one run to the next, and that all of it goes when Koord is uninstalled.

Stopping is not disabling, so everything stays at an ordinary end. A cluster that takes Koord off its nodes says so, and
no later run will want any of it. Invariant: nothing goes while a kernel file holds a value of ours, because the undo
record is what puts it back.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

from koord.host.undo import lock_file
from qosd.node import BEST_EFFORT, JOURNAL, MODELS, NODE_OBJECT, NODE_SLO, POLICY, UNDO
from qosd.options import Options

_OF_SQLITE = ("", "-journal", "-wal", "-shm")
_log = logging.getLogger(__name__)


def paths(options: Options) -> Iterator[Path]:
    """Every file, whether it is there or not."""
    yield from (options.hook_socket, options.inspect_socket)
    undo = options.run_dir / UNDO
    yield from (undo, lock_file(undo), options.run_dir / BEST_EFFORT)
    yield from (options.state_dir / name for name in (MODELS, POLICY, NODE_SLO, NODE_OBJECT))
    yield from (options.state_dir / f"{JOURNAL}{suffix}" for suffix in _OF_SQLITE)


def remove(options: Options) -> None:
    """The files, and the directories if nothing else is in them. What cannot be removed is said and stays."""
    for path in paths(options):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("%s stays: %s", path, error.strerror)
    for directory in (options.run_dir, options.state_dir):
        with contextlib.suppress(OSError):  # it is a mount, or others use it
            directory.rmdir()
    _log.info("Koord is uninstalled: what was kept in %s and %s is removed", options.run_dir, options.state_dir)
