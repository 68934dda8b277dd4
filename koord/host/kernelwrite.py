"""One write of a text into a kernel file, which may make the kernel reclaim memory for seconds.

The write of a v2 memory limit below the usage makes the kernel reclaim before the call returns. With O_NONBLOCK it does
not, from Linux 6.16 on (memory.high in Documentation/admin-guide/cgroup-v2.rst). On older kernels a thread of its own
makes the write, and the caller does not wait for it: the kernel sets the limit before it reclaims. Invariants: writes
to one file stay in order, and the last one counts; a write that raises a limit waits for no other; at most
``MOST_RECLAIMING`` are under way. Fails with OSError: EAGAIN for one too many.
"""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

from koord.model.version import numbers

MOST_RECLAIMING = 8
"""How many such writes are under way at most: each keeps a CPU busy until the kernel has reclaimed, or finds nothing
more."""
_NONBLOCKING_SINCE = (6, 16)
_RECLAIMING = ("memory.high", "memory.max")
_NO_LIMIT = "max"
_SET_S = 0.05
"""How long the caller waits for a write that may reclaim: much longer than the kernel takes to set the limit."""


def put(path: Path, text: str, flags: int = os.O_NONBLOCK) -> None:
    """Writes ``text`` with one write(2). A plain file (a tree that is not the kernel's) loses the rest of a longer
    text."""
    data = text.encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | flags)
    try:
        os.write(descriptor, data)
        if os.fstat(descriptor).st_size > len(data):
            os.ftruncate(descriptor, len(data))
    finally:
        os.close(descriptor)


class LimitWrites:
    """The limit writes of one writer. ``is_nonblocking``: does the kernel heed O_NONBLOCK here? None: its version
    tells."""

    def __init__(self, is_nonblocking: bool | None = None) -> None:
        if is_nonblocking is None:
            is_nonblocking = (numbers(os.uname().release) or (0, 0)) >= _NONBLOCKING_SINCE
        self._is_nonblocking = is_nonblocking
        self.under_way: dict[Path, WriteAside] = {}

    def put(self, path: Path, text: str) -> None:
        """Write ``text``, aside where the kernel would reclaim for it; other files are written as ``put`` does."""
        if self._is_nonblocking or path.name not in _RECLAIMING:
            put(path, text)
            return
        self.under_way = {each: write for each, write in self.under_way.items() if write.is_alive()}
        write = self.under_way.get(path)
        if write is not None and not write.then(text):
            write = None
        if _is_raise(path, text):
            put(path, text)
            return
        if write is None:
            if len(self.under_way) >= MOST_RECLAIMING:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            write = self.under_way[path] = WriteAside(path, text)
            write.start()
        write.join(_SET_S)
        if not write.is_alive() and write.error is not None:
            raise write.error


class WriteAside(threading.Thread):
    """Writes to one file that may take their time. They do not delay the end of the process, because the kernel ends
    reclaim then."""

    def __init__(self, path: Path, text: str) -> None:
        super().__init__(name=f"write {path.name}", daemon=True)
        self._path = path
        self._lock, self._is_over = threading.Lock(), False
        self._next: str | None = text
        self.error: OSError | None = None

    def then(self, text: str) -> bool:
        """Has ``text`` written last, in place of the text that waits; False if the thread has ended, and nothing is
        written."""
        with self._lock:
            if not self._is_over:
                self._next = text
            return not self._is_over

    def run(self) -> None:
        while (text := self._taken()) is not None:
            self.error = None
            try:
                put(self._path, text, flags=0)
            except OSError as error:
                self.error = error

    def _taken(self) -> str | None:
        with self._lock:
            text, self._next = self._next, None
            self._is_over = text is None
            return text


def _is_raise(path: Path, text: str) -> bool:
    """Returns whether the limit grows: then the kernel has nothing to reclaim."""
    if text == _NO_LIMIT:
        return True
    before = path.read_text(encoding="ascii").strip()
    return before.isdigit() and int(before) <= int(text)
