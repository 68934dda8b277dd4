"""Pressure stall information: how long tasks waited for CPU, memory or IO (Documentation/accounting/psi.rst).

The same two lines stand in /proc/pressure/* and in a cgroup's ``*.pressure``. Kernels before 5.13 print no ``full``
line for the CPU: that is None, not 0. Fails with ParseError, and with nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from koord.host.kernelfile import ParseError

RESOURCES = ("cpu", "memory", "io")


@dataclass(frozen=True, slots=True)
class Stall:
    """Percent of the last 10, 60 and 300 s in which tasks stalled, and microseconds of it since the cgroup began."""

    avg10: float
    avg60: float
    avg300: float
    total_us: int


@dataclass(frozen=True, slots=True)
class Pressure:
    """``some``: at least one task stalled; ``full``: all of them did, None where the kernel does not tell."""

    some: Stall
    full: Stall | None


def parse(file: str, data: bytes) -> Pressure:
    """The content of pressure file ``file``."""
    found: dict[bytes, Stall] = {}
    unreadable = ParseError(file, data, "has no line some")
    for line in data.splitlines():
        kind, _, numbers = line.partition(b" ")
        if kind in (b"some", b"full"):
            try:
                found.setdefault(kind, _stall(file, data, numbers))
            except ParseError as error:
                unreadable = error
    if b"some" not in found:
        raise unreadable
    return Pressure(found[b"some"], found.get(b"full"))


def totals_us(file: str, data: bytes) -> tuple[int, int | None]:
    """Returns the totals of (some, full) alone, which costs least: the stall over any span is the difference of two
    totals."""
    try:
        first, _, rest = data.partition(b"\n")
        if not first.startswith(b"some "):
            raise ValueError("does not begin with some")
        some = int(first[first.rindex(b"total=") + 6 :])
    except ValueError as error:
        raise ParseError(file, data, error) from error
    try:
        return some, int(rest[rest.rindex(b"total=") + 6 :]) if rest.startswith(b"full ") else None
    except ValueError:
        return some, None


def _stall(file: str, data: bytes, numbers: bytes) -> Stall:
    try:
        found = dict(word.split(b"=", 1) for word in numbers.split())
        return Stall(float(found[b"avg10"]), float(found[b"avg60"]), float(found[b"avg300"]), int(found[b"total"]))
    except KeyError as error:
        raise ParseError(file, data, f"has no {error.args[0].decode()}") from error
    except ValueError as error:
        raise ParseError(file, data, error) from error
