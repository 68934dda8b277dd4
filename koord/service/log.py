"""Log lines for journald and for people: one line per event on standard error, priority first.

Under systemd (``JOURNAL_STREAM`` is set) each line carries its syslog level as ``<N>`` and no time stamp, since
the journal adds its own. Invariant: a message with line breaks stays one line.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TextIO

LEVELS = ("debug", "info", "warning", "error")

_SYSLOG = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (logging.DEBUG, 7))


class LineFormatter(logging.Formatter):
    """``<4>qosd.node: kept …`` for the journal; ``2026-01-02T03:04:05.678Z warning qosd.node: kept …`` otherwise."""

    def __init__(self, journal: bool) -> None:
        super().__init__("%(name)s: %(message)s")
        self._journal = journal

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record).replace("\n", "\\n")
        return _head(self._journal, record.levelno, record.created) + line


class InfoLines:
    """Lines of one logger at level info, written at once and in LineFormatter's form.

    For lines that are part of a call's cost: ``logging`` takes five times as long for one.
    """

    def __init__(self, name: str, journal: bool, stream: TextIO = sys.stderr) -> None:
        self._name = name
        self._journal = journal
        self._stream = stream

    def write(self, message: str) -> None:
        """``message`` is one line."""
        self._stream.write(f"{_head(self._journal, logging.INFO, time.time())}{self._name}: {message}\n")
        self._stream.flush()


def _head(journal: bool, level: int, seconds: float) -> str:
    """What comes before a line: its priority for the journal, else its time and level."""
    if journal:
        return f"<{syslog_priority(level)}>"
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{stamp}.{int(seconds % 1 * 1000):03d}Z {logging.getLevelName(level).lower()} "


def syslog_priority(level: int) -> int:
    """syslog(3)'s number for a logging level: 3 error … 7 debug."""
    return next((priority for floor, priority in _SYSLOG if level >= floor), 7)


def set_up(level: str, packages: Sequence[str], environ: Mapping[str, str], stream: TextIO = sys.stderr) -> None:
    """Send log lines to ``stream``: those of ``packages`` from ``level`` (one of LEVELS) on, others from warning on."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter(journal="JOURNAL_STREAM" in environ))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for package in packages:
        logging.getLogger(package).setLevel(level.upper())
