"""Notifications of the kernel the moment that tasks stall: PSI triggers, and ``memory.pressure_level`` of cgroup v1.

A trigger is its descriptor: it ends with the descriptor, and so with the process, and nothing is left to be undone.
Invariant: a function here returns a descriptor that is armed, or raises OSError, which names the file, and leaves none
open.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

LEVEL = "memory.pressure_level"
_UNPRIVILEGED_US = 2_000_000
"""Without CAP_SYS_RESOURCE the kernel takes windows of whole multiples of that."""


def psi(file: Path, degree: str, stall_us: int, window_us: int) -> tuple[int, int]:
    """Has the kernel notify when tasks stalled for ``stall_us`` within ``window_us``, at most once in a window.

    ``degree``: ``some`` or ``full``. Returns the descriptor, to be polled for EPOLLPRI, and the window in force: a
    process without CAP_SYS_RESOURCE has the next multiple of 2 s, and the same share of it.
    """
    descriptor = _opened(file, os.O_RDWR)
    try:
        return descriptor, _armed(descriptor, degree, stall_us, window_us)
    except OSError as error:
        os.close(descriptor)
        raise OSError(
            error.errno, f"no PSI trigger of {stall_us} us in {window_us} us: {error.strerror}", str(file)
        ) from error


def _armed(descriptor: int, degree: str, stall_us: int, window_us: int) -> int:
    whole_us = -(-window_us // _UNPRIVILEGED_US) * _UNPRIVILEGED_US
    try:
        os.write(descriptor, f"{degree} {stall_us} {window_us}\0".encode("ascii"))
    except OSError as error:
        if error.errno != errno.EINVAL or window_us == whole_us:
            raise
        return _armed(descriptor, degree, stall_us * whole_us // window_us, whole_us)
    return window_us


def memory_level(directory: Path, level: str) -> int:
    """Has cgroup v1 notify of pressure on the memory of the cgroup in ``directory``, and below it.

    ``level``: ``low``, ``medium`` or ``critical``. Returns an eventfd, to be polled for EPOLLIN and read each time; it
    is readable once more when the cgroup is removed.
    """
    source = _opened(directory / LEVEL, os.O_RDONLY)
    try:
        event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            _order(directory / "cgroup.event_control", f"{event} {source} {level}")
        except OSError:
            os.close(event)
            raise
        return event
    finally:
        os.close(source)


def _order(file: Path, text: str) -> None:
    descriptor = _opened(file, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode("ascii"))
    except OSError as error:
        raise OSError(error.errno, f"no notice of memory pressure ({text}): {error.strerror}", str(file)) from error
    finally:
        os.close(descriptor)


def _opened(file: Path, flags: int) -> int:
    return os.open(file, flags | os.O_NONBLOCK | os.O_CLOEXEC)
