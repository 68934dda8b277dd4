"""What one kernel file is: a logical name, where each cgroup version keeps it, and how it spells its value.

The rows themselves are in ``files``. Errors are ValueErrors that name the file or row, the value and the rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from koord.host.spelling import At, Spelling
from koord.host.weights import Weights
from koord.model.lattice import Value

_OPTIONAL = "optional "
L = TypeVar("L", str, bytes)
R = TypeVar("R")
_RESCTRL_GROUP = r"(?!\.)[0-9A-Za-z_.\-]{1,255}"
_QUALIFIERS = {
    "device": re.compile(r"[0-9]{1,4}:[0-9]{1,7}", re.ASCII),
    "feature": re.compile(r"(?!NO_)[A-Z][A-Z0-9_]{0,63}", re.ASCII),
    "pid": re.compile(r"[1-9][0-9]{0,9}", re.ASCII),
    "group/resource": re.compile(rf"(?:{_RESCTRL_GROUP})?/[0-9A-Z]{{1,16}}", re.ASCII),
}


class ParseError(ValueError):
    """``text``, found in ``file``, is not of the form that ``file`` has; ``why`` says how."""

    def __init__(self, file: str, text: str | bytes, why: object) -> None:
        self.file, self.text, self.why = file, text, str(why)
        shown = repr(text)
        super().__init__(f"{file}: {shown if len(shown) <= 120 else shown[:120] + '…'}: {why}")


def readable(file: str, lines: Iterable[L], parse: Callable[[L], R]) -> list[R]:
    """Returns what ``parse`` makes of each line; a line that it cannot read costs itself only.

    Raises ParseError, which names the first line, if it can read none of them.
    """
    found, unreadable = list[R](), None
    for line in lines:
        try:
            found.append(parse(line))
        except (ValueError, IndexError) as error:
            unreadable = unreadable or (line, error)
    if unreadable is not None and not found:
        raise ParseError(file, *unreadable)
    return found


class ValueRefused(ValueError):
    """``value`` must not be written to row ``name``; ``why`` says which rule it breaks."""

    def __init__(self, name: str, value: object, why: str) -> None:
        self.name, self.value, self.why = name, value, why
        super().__init__(f"{name}: {value!r} {why}")


@dataclass(frozen=True, slots=True)
class Target:
    """One value of one cgroup: ``cgroup`` is its path (``/kubepods/…``, "/" = the root), or "" for a file of no cgroup.

    ``name`` is a row's, with ``@`` and a device (``io.max.rbps@253:0``), pid or resctrl group where the row takes one.
    """

    cgroup: str
    name: str


class Probe(StrEnum):
    """Where one looks to learn whether this kernel has the file."""

    ASSUMED = "assumed"
    """Every supported kernel has it wherever the controller is on."""
    TARGET = "target"
    """In the target's own directory, each time."""
    KUBEPODS = "kubepods"
    """In any of kubelet's directories, once there is one; the root cgroup lacks the file."""


@dataclass(frozen=True, slots=True)
class KernelFile:
    """One row. ``v1`` is (controller, file), ``v2`` the file; None where that version has no such file.

    ``v2_read`` is read instead of ``v2`` where the value that is written and the one in effect differ. ``system`` is
    (root, path) of a file outside the cgroup tree; root is ``proc``, ``sys`` or ``resctrl``, and ``{}`` in the path
    takes the qualifier. ``system_before`` is the path that it has on older kernels, where that differs. ``since`` is
    the first mainline kernel with the file, where that matters. ``vendor_on`` are the cgroup versions on which only
    vendor kernels have it. ``unified``: a v1 node has the file too, in the v2 tree that hybrids mount. ``default``: the
    value of a new cgroup's file; None where no code needs it, or where it is the parent's value. ``is_inherited``:
    below a cgroup that holds another value, a new one may hold that value instead. ``is_one_shot``: writing it is an
    order to the kernel; there is nothing to read, to hold or to give back. ``takes``: which kind of ``qualifier`` a
    target names after ``@`` (one of _QUALIFIERS, perhaps "optional").
    """

    name: str
    unit: str
    spelling: Spelling
    v1: tuple[str, str] | None = None
    v2: str | None = None
    v2_read: str | None = None
    system: tuple[str, str] | None = None
    system_before: str = ""
    writable: bool = True
    vendor_on: tuple[int, ...] = ()
    unified: bool = False
    since: str = ""
    probe: Probe = Probe.ASSUMED
    takes: str = ""
    qualifier: str = ""
    default: Value | None = None
    is_inherited: bool = False
    is_one_shot: bool = False

    @property
    def vendor(self) -> bool:
        """Do only vendor kernels have it, on every cgroup version that knows it?"""
        known = [version for version, file in ((1, self.v1), (2, self.v2)) if file is not None]
        return bool(self.vendor_on) and all(version in self.vendor_on for version in known)

    def file_name(self, version: int, for_write: bool = False) -> str | None:
        """The file's own name on cgroup ``version``, without its directory."""
        if self.system is not None:
            return self.system[1].rpartition("/")[2]
        if version == 1:
            return None if self.v1 is None else self.v1[1]
        return self.v2 if for_write or self.v2_read is None else self.v2_read

    def version_of(self, path: str) -> int:
        """Returns the cgroup version of the file at ``path``, by its name; for a name that both versions have either
        will do."""
        return 1 if self.v1 is not None and path.rpartition("/")[2] == self.v1[1] else 2

    def parse(self, text: str, version: int, weights: Weights = Weights.LINEAR) -> Value:
        """The canonical value of the file's ``text``; raises ParseError."""
        try:
            return self.spelling.parse(text, At(version, self.qualifier, weights))
        except ValueError as error:
            raise ParseError(self.file_name(version) or self.name, text, error) from error

    def format(self, value: Value, version: int, weights: Weights = Weights.LINEAR) -> str:
        """The text to write for ``value``; raises ValueRefused."""
        self.check(value, version)
        return self.spelling.format(value, At(version, self.qualifier, weights))

    def check(self, value: Value, version: int) -> None:
        """Raises ValueRefused if the kernel would refuse ``value``, or if this file cannot be written."""
        why = self._unwritable(version)
        if not why:
            try:
                why = self.spelling.refusal(value, At(version, self.qualifier))
            except ValueError as error:
                why = str(error)
        if why:
            raise ValueRefused(self.name, value, why)

    def same(self, desired: Value, actual: Value, page_bytes: int, version: int) -> bool:
        """Returns whether the file, parsed as ``actual``, already says ``desired``.

        Kernels round sizes to pages, and v2 keeps weights for shares; unless ``version`` is 1 either mapping of shares
        counts.
        """
        return self.spelling.same(desired, actual, page_bytes, version)

    def _unwritable(self, version: int) -> str:
        if not self.writable or (self.system is None and self.file_name(version, for_write=True) is None):
            return f"cannot be written on cgroup v{version}"
        lacks = self.takes and not self.takes.startswith(_OPTIONAL) and not self.qualifier
        return f"lacks its {self.takes}" if lacks else ""

    def accepts(self, qualifier: str) -> bool:
        """Is ``qualifier`` (after the ``@`` of a target's name) one that this row takes?"""
        pattern = _QUALIFIERS.get(self.takes.removeprefix(_OPTIONAL))
        return pattern is not None and pattern.fullmatch(qualifier) is not None
