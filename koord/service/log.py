"""Log lines for journald and for people: one line per event on standard error, priority first.

Under systemd (``JOURNAL_STREAM`` is set) each line carries its syslog level as ``<N>`` and no time stamp, since
the journal adds its own. Invariants: a message is one line of printable characters, also where it quotes others; the
process never waits for the reader of the log (``koord.service.lines``).
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from koord.service.lines import LineWriter, error_stream

LEVELS = ("debug", "info", "warning", "error")
STDERR_FD = 2

_SYSLOG = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (logging.DEBUG, 7))


class LineFormatter(logging.Formatter):
    """``<4>qosd.node: kept …`` for the journal; ``2026-01-02T03:04:05.678Z warning qosd.node: kept …`` otherwise."""

    def __init__(self, journal: bool) -> None:
        super().__init__("%(name)s: %(message)s")
        self._journal = journal

    def format(self, record: logging.LogRecord) -> str:
        return _head(self._journal, record.levelno, record.created) + printable(super().format(record))


def printable(text: str) -> str:
    """Returns ``text`` with escapes (``\\n``, ``\\x1b``, ``\\u2028``) for what could move a cursor or end a line."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


class LineHandler(logging.Handler):
    """Queues each record, formatted; ``logging.shutdown``, which Python calls at exit, waits until all is written."""

    def __init__(self, lines: LineWriter) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.put(self.format(record))
        except Exception:  # noqa: BLE001 - as every handler: a message that cannot be formatted stops nothing
            self.handleError(record)

    def flush(self) -> None:
        self._lines.flush()


class InfoLines:
    """Lines of one logger at level info, in LineFormatter's form; ``put`` gets each without its line break.

    For lines that are part of a call's cost: ``logging`` takes five times as long for one.
    """

    def __init__(self, name: str, journal: bool, put: Callable[[str], None]) -> None:
        self._name = name
        self._journal = journal
        self._put = put

    def write(self, message: str) -> None:
        """Writes ``message``, which is printable."""
        self._put(f"{_head(self._journal, logging.INFO, time.time())}{self._name}: {message}")


def _head(journal: bool, level: int, seconds: float) -> str:
    """Returns the head of a line: its priority for the journal, else its time and level."""
    if journal:
        return f"<{syslog_priority(level)}>"
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{stamp}.{int(seconds % 1 * 1000):03d}Z {logging.getLevelName(level).lower()} "


def syslog_priority(level: int) -> int:
    """Returns syslog(3)'s number for a logging level: 3 error … 7 debug."""
    return next((priority for floor, priority in _SYSLOG if level >= floor), 7)


def set_up(level: str, packages: Sequence[str], environ: Mapping[str, str], fd: int = STDERR_FD) -> LineWriter:
    """Sends log lines to ``fd``: those of ``packages`` from ``level`` (one of LEVELS) on, others from warning on.

    Python's own output to standard error goes there too. At exit the queue is written out (``lines.FLUSH_S``).
    """
    journal = "JOURNAL_STREAM" in environ

    def notice(missing: int) -> str:
        return f"{_head(journal, logging.WARNING, time.time())}{__name__}: {missing} lines dropped, nobody read them"

    lines = LineWriter(fd, notice)
    handler = LineHandler(lines)
    handler.setFormatter(LineFormatter(journal))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    for package in packages:
        logging.getLogger(package).setLevel(level.upper())
    sys.stderr = error_stream(lines)
    return lines
