"""Shortens a thread's turns on the CPU, so that it does not wait for the end of other work's turn.

A task of the fair scheduler may say how long its turns are (EEVDF's request, Linux 6.12); one with short turns may
interrupt one with long ones. On a node whose CPUs are full of best-effort work a call waits mostly for that. The
thread's share of the CPU stays as it is: turns are shorter, and come sooner. Older kernels take the value and ignore
it. Invariant: policy, niceness and the scheduler's other attributes of the thread stay as they are.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

SLICE_NS = 100_000  # the shortest that the kernel takes; its own default is 700 µs and more, by the number of CPUs
_SET, _GET = 0, 1
_NUMBERS = {  # of sched_setattr and sched_getattr
    "x86_64": (314, 315),
    "aarch64": (274, 275),
    "riscv64": (274, 275),
    "loongarch64": (274, 275),
    "ppc64le": (355, 356),
    "s390x": (345, 346),
}
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")  # struct sched_attr: size, policy, flags, nice, priority, runtime, ...
_RUNTIME = 5
_FAIR = (os.SCHED_OTHER, os.SCHED_BATCH)


def shorten(slice_ns: int = SLICE_NS) -> None:
    """Shortens the turns of this thread and of those that it starts later. Raises OSError, having changed nothing."""
    attributes = _attributes()
    if attributes[1] not in _FAIR:
        return  # SCHED_IDLE has no turns to shorten, and a real-time thread runs before all of these
    attributes[_RUNTIME] = slice_ns
    _call(_SET, ctypes.create_string_buffer(_ATTRIBUTES.pack(*attributes), _ATTRIBUTES.size), 0)


def _attributes() -> list[int]:
    buffer = ctypes.create_string_buffer(_ATTRIBUTES.size)
    _call(_GET, buffer, _ATTRIBUTES.size, 0)
    return list(_ATTRIBUTES.unpack(buffer.raw))


def _call(call: int, *arguments: object) -> None:
    machine = os.uname().machine
    if machine not in _NUMBERS:
        raise OSError(errno.ENOSYS, f"the system calls' numbers are not known for {machine}")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_NUMBERS[machine][call], 0, *arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
