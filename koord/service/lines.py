"""Writes lines to a descriptor whose reader may stop, without stopping the work.

A line is put into a queue and written by a thread of its own, which is started with the first line. Invariants: ``put``
never waits for the reader; lines come out in their order; the queue holds at most ``limit_bytes``, and where a line did
not fit, a notice says how many are missing, in their place. The descriptor's flags stay as they are: its open file
description may be another process's too, and O_NONBLOCK would hold for both. A line that cannot be written (the reader
is gone, the disk is full) counts as dropped.
"""

from __future__ import annotations

import errno
import io
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from typing_extensions import Buffer

LIMIT_BYTES = 1 << 20  # about 5,000 lines: what 700 creations leave in the audit log
MAX_LINE_BYTES = 32_768  # journald cuts at 48 KiB
FLUSH_S = 1.0
_ATOMIC_BYTES = select.PIPE_BUF  # what is written at once is not torn by another process that writes to the same pipe
_LINE_BYTES = 64  # what a queued line costs besides its text


class LineWriter:
    """Queues lines; ``put`` and ``flush`` are for any thread. ``notice(n)``: the line that says that n are missing."""

    def __init__(self, fd: int, notice: Callable[[int], str], limit_bytes: int = LIMIT_BYTES) -> None:
        self._fd = fd
        self._notice = notice
        self._limit_bytes = limit_bytes
        self._changed = threading.Condition()  # re-entrant: a finalizer may log while its thread is in here
        self._lines: deque[tuple[int, bytes]] = deque()  # how many are missing before it, and the line
        self._bytes = 0  # of the queue and of what is being written
        self._missing = 0  # after the last line of the queue
        self._writing = False
        self._thread: threading.Thread | None = None
        self.dropped = 0

    def put(self, line: str) -> None:
        """Queues one line, given without its line break and cut at MAX_LINE_BYTES."""
        text = line.encode("utf-8", "backslashreplace")
        if len(text) > MAX_LINE_BYTES:
            text = text[:MAX_LINE_BYTES].decode("utf-8", "ignore").encode() + "…".encode()
        with self._changed:
            if self._bytes + len(text) + _LINE_BYTES > self._limit_bytes:
                self.dropped += 1
                self._missing += 1
                return
            self._lines.append((self._missing, text + b"\n"))
            self._bytes += len(text) + _LINE_BYTES
            self._missing = 0
            self._changed.notify_all()
            if self._thread is None:
                self._start()

    def flush(self, timeout_s: float = FLUSH_S) -> bool:
        """Waits until everything is written, at most ``timeout_s``; False if something is left."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._lines or self._missing or self._writing), timeout_s)

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="log", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread may be made now: the next line tries again
            return
        self._thread = thread

    def _run(self) -> None:
        unwritten = 0
        while True:
            batch, size_bytes, missing = self._next()
            text = b"".join(self._noticed(count) + line for count, line in batch) + self._noticed(missing)
            try:
                self._write(self._noticed(unwritten) + text)
                failed = 0
            except OSError:
                failed = len(batch)
                unwritten += failed + missing + sum(count for count, _ in batch)
            else:
                unwritten = 0
            with self._changed:
                self.dropped += failed
                self._bytes -= size_bytes
                self._writing = False
                self._changed.notify_all()

    def _next(self) -> tuple[list[tuple[int, bytes]], int, int]:
        """Waits for lines; returns as many as go out at once, their bytes, and how many are missing after them."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._missing)
            batch: list[tuple[int, bytes]] = []
            size_bytes = 0
            while self._lines and (not batch or size_bytes + len(self._lines[0][1]) <= _ATOMIC_BYTES):
                batch.append(self._lines.popleft())
                size_bytes += len(batch[-1][1])
            missing = 0 if self._lines else self._missing
            self._missing -= missing
            self._writing = True
            return batch, size_bytes + len(batch) * (_LINE_BYTES - 1), missing

    def _noticed(self, missing: int) -> bytes:
        return self._notice(missing).encode() + b"\n" if missing else b""

    def _write(self, text: bytes) -> None:
        rest = memoryview(text)
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except OSError as error:
                if error.errno != errno.EAGAIN:
                    raise
                self._wait_for_room()  # another process made the description non-blocking

    def _wait_for_room(self) -> None:
        writable = select.poll()
        writable.register(self._fd, select.POLLOUT)
        writable.poll()


class ErrorStream(io.RawIOBase):
    """Takes Python's own output to standard error, such as the traceback of an uncaught exception, as lines."""

    def __init__(self, lines: LineWriter) -> None:
        self._lines = lines

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer) -> int:
        text = bytes(data)
        for line in text.decode("utf-8", "backslashreplace").splitlines():
            self._lines.put(line)
        return len(text)


def error_stream(lines: LineWriter) -> TextIO:
    return io.TextIOWrapper(ErrorStream(lines), "utf-8", "backslashreplace", line_buffering=True)  # type: ignore[type-var]
