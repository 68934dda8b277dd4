"""What qosd keeps on the node from one run to the next, and that all of it goes when Koord is uninstalled.

Stopping is not disabling, so everything stays at an ordinary end. A cluster that takes Koord off its nodes says so, and
no later run will want any of it, nor what was set aside or what a kill left half written. Invariant: nothing goes while
a kernel file holds a value of ours, because the undo record is what puts it back; whoever calls ``remove`` holds the
record's lock.
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
    """Every file, whether it is there or not; the lock comes last, so that the next koord-qosd loses nothing."""
    run, state = options.run_dir, options.state_dir
    yield from (options.hook_socket, options.inspect_socket)
    yield from _named(run / UNDO, "", undo.ASIDE, linefile.NEW)
    yield from _named(state / JOURNAL, "", journal.ASIDE, *journal.OF_SQLITE)
    yield state / f"{MODELS}{checkpoint.ASIDE}"
    for whole in (run / BEST_EFFORT, *(state / name for name in (MODELS, POLICY, NODE_SLO, NODE_OBJECT))):
        yield from _named(whole, "", wholefile.BESIDE)
    yield undo.lock_file(run / UNDO)


def remove(options: Options) -> None:
    """The files, and the directories if nothing else is in them. What cannot be removed is said and stays."""
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
    """``file`` and others beside it, by the ends of their names."""
    return (file.with_name(f"{file.name}{suffix}") for suffix in suffixes)
