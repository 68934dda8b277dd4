"""Descriptors handed over by the service manager (sd_listen_fds(3)): LISTEN_FDS, LISTEN_PID, LISTEN_FDNAMES.

Invariant: the descriptors are close-on-exec, and the variables are gone from the environment also after an error, so a
child never mistakes our descriptors for its own. A malformed or untrue environment raises ``ListenFdsError``.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from dataclasses import dataclass

FIRST_FD = 3  # SD_LISTEN_FDS_START
MAX_FDS = 1024
_UNNAMED = "unknown"  # what sd_listen_fds_with_names(3) says of a descriptor without a name


class ListenFdsError(ValueError):
    """The variable does not describe descriptors that this process holds."""

    def __init__(self, variable: str, value: str, reason: str) -> None:
        super().__init__(f"{variable}={value!r}: {reason}")
        self.variable = variable
        self.value = value


@dataclass(frozen=True, slots=True)
class Inherited:
    """An open descriptor; ``name`` is the socket unit's FileDescriptorName= or the FDNAME= it was stored under."""

    fd: int
    name: str


def take_listen_fds(environ: MutableMapping[str, str], pid: int, first: int = FIRST_FD) -> tuple[Inherited, ...]:
    """Takes the descriptors meant for process ``pid``, in the manager's order; () if there are none, or not for us."""
    count_text = environ.pop("LISTEN_FDS", "")
    pid_text = environ.pop("LISTEN_PID", "")
    names_text = environ.pop("LISTEN_FDNAMES", "")
    if not count_text or not pid_text:
        return ()
    if _number("LISTEN_PID", pid_text) != pid:
        return ()
    count = _number("LISTEN_FDS", count_text)
    if count > MAX_FDS:
        raise ListenFdsError("LISTEN_FDS", count_text, f"more than {MAX_FDS}")
    names = names_text.split(":") if names_text else [_UNNAMED] * count
    if len(names) != count:
        raise ListenFdsError("LISTEN_FDNAMES", names_text, f"{len(names)} names for {count} descriptors")
    fds = range(first, first + count)
    _close_on_exec(fds, "LISTEN_FDS", count_text)
    return tuple(Inherited(fd, name) for fd, name in zip(fds, names, strict=True))


def take_named_fds(environ: MutableMapping[str, str], variable: str) -> tuple[Inherited, ...]:
    """Takes those of a variable of our own, ``<fd>:<name>,…``, set by a parent that cannot know its child's pid."""
    text = environ.pop(variable, "")
    if not text:
        return ()
    found = []
    for part in text.split(","):
        number, separator, name = part.partition(":")
        if not separator or not name:
            raise ListenFdsError(variable, text, f"{part!r} is not <fd>:<name>")
        found.append(Inherited(_number(variable, number), name))
    _close_on_exec([entry.fd for entry in found], variable, text)
    return tuple(found)


def format_named_fds(entries: tuple[Inherited, ...]) -> str:
    """Returns the value that ``take_named_fds`` reads back."""
    return ",".join(f"{entry.fd}:{entry.name}" for entry in entries)


def _close_on_exec(fds: range | list[int], variable: str, text: str) -> None:
    for fd in fds:
        try:
            os.set_inheritable(fd, False)
        except OSError as error:
            raise ListenFdsError(variable, text, f"descriptor {fd}: {error.strerror}") from error


def _number(variable: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ListenFdsError(variable, text, "not a number")
    return int(text)
