"""Scheduling attributes of tasks: ``sched_getattr`` and ``sched_setattr``, for which neither Python nor libc has names.

Since Linux 6.12 ``sched_runtime`` of a task of the fair classes is its slice: for how long it runs before the scheduler
looks for another (``custom_slice``, 0.1 to 100 ms, inherited by forks; 0 = the kernel's own). Before that it reads as
0. Sources: include/uapi/linux/sched/types.h, kernel/sched/syscalls.c (__setparam_fair), sched_setattr(2). Fails with
OSError; a task that has ended gives None or False.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import ClassVar

SLICE = "sched_slice_us"
"""The attribute's name, where others have a row's name."""
_NUMBERS = {"x86_64": (314, 315), "aarch64": (274, 275)}
"""The system calls' numbers (set, get) by machine."""
_FAIR = (0, 3, 5)  # SCHED_OTHER, SCHED_BATCH, SCHED_IDLE
_NS_PER_US = 1000


class _Attributes(ctypes.Structure):
    _fields_: ClassVar = [
        ("size", ctypes.c_uint32),
        ("sched_policy", ctypes.c_uint32),
        ("sched_flags", ctypes.c_uint64),
        ("sched_nice", ctypes.c_int32),
        ("sched_priority", ctypes.c_uint32),
        ("sched_runtime", ctypes.c_uint64),
        ("sched_deadline", ctypes.c_uint64),
        ("sched_period", ctypes.c_uint64),
        ("sched_util_min", ctypes.c_uint32),
        ("sched_util_max", ctypes.c_uint32),
    ]


_libc = ctypes.CDLL(None, use_errno=True)


def slice_us(task: int) -> int | None:
    """The slice of a thread (0 = the caller); None if it has ended or is of no fair class, 0 before Linux 6.12."""
    attributes = _get(task)
    if attributes is None or attributes.sched_policy not in _FAIR:
        return None
    return int(attributes.sched_runtime) // _NS_PER_US


def set_slice_us(task: int, value_us: int) -> bool:
    """Gives a thread a slice, 0 = the kernel's own, and changes no other attribute of it. False if it has ended.

    Raises OSError: EPERM is another user's thread without CAP_SYS_NICE.
    """
    attributes = _get(task)
    if attributes is None or attributes.sched_policy not in _FAIR:
        return False
    attributes.sched_runtime = value_us * _NS_PER_US
    return _call(_numbers()[0], task, ctypes.byref(attributes), 0)


def has_slices() -> bool:
    """Does this kernel have slices of single tasks?"""
    try:
        return bool(slice_us(0))
    except OSError:
        return False


def _get(task: int) -> _Attributes | None:
    attributes = _Attributes(size=ctypes.sizeof(_Attributes))
    is_there = _call(_numbers()[1], task, ctypes.byref(attributes), ctypes.sizeof(attributes), 0)
    return attributes if is_there else None


def _call(number: int, *arguments: object) -> bool:
    """False: there is no such task."""
    if _libc.syscall(number, *arguments) == 0:
        return True
    code = ctypes.get_errno()
    if code == errno.ESRCH:
        return False
    raise OSError(code, os.strerror(code))


def _numbers() -> tuple[int, int]:
    machine = os.uname().machine
    if machine not in _NUMBERS:
        raise OSError(errno.ENOSYS, f"the system calls' numbers on {machine} are not known")
    return _NUMBERS[machine]
