"""Tells systemd the values of its units' files once they were written: see ``systemd`` for why.

The kernel's file comes first and counts: a value that systemd cannot be told stays written, and a reload of systemd may
take it back. When systemd is told a value it writes the whole unit again, each file with the value that it knows. So
all that Koord holds of a unit is told together, and a file of the unit that systemd changed meanwhile is written once
more with what it held: systemd keeps quotas in whole percents, and runtimes therefore write the exact one without
systemd, as Koord does. A value that another writer wrote meanwhile stays: a runtime that resizes a container writes it
once.

Invariants: each value that systemd is going to write is noted in the undo record as one of ours before it is told; so
is each drop-in file that this makes where none was, and a restore removes it. Nothing here raises but ``clear``.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from koord.host import systemd
from koord.host.cgroup import ReadError, read_text
from koord.host.files import ROWS, ParseError, Target, Value, ValueRefused, row
from koord.host.notes import DropIn
from koord.host.systemd import Setting
from koord.host.systemd_bus import SOCKET, TIMEOUT_S, SystemBus
from koord.host.undo import UndoError, UndoRecord
from koord.host.writer import Reading, WriteError, Writer

_TRANSIENT, _CONTROL = "transient", "system.control"
_RESIZE_NS = 1_000_000_000
"""How long a runtime takes at most between telling systemd a new value and having written it itself."""


@dataclass(frozen=True, slots=True)
class SyncOutcome:
    """The result for one file: ``why`` systemd does not know its value, "" if it does.

    ``value``: the value that systemd writes to it from now on; None: the same as until now. ``is_rounded``: that
    differs a little from what the file held. ``answered``: systemd took it or refused it.
    """

    why: str = ""
    value: Value | None = None
    is_rounded: bool = False
    answered: bool = True

    @property
    def sentence(self) -> str:
        """For people."""
        if self.why:
            return f"not set through systemd: {self.why}"
        return "also set through systemd" + (f", which keeps {self.value}" if self.is_rounded else "")


@dataclass(slots=True)
class _Part:
    """Rows of one unit whose values make one property, what their files hold, and why systemd does not know it."""

    unit: str
    found: dict[Target, Reading]
    settings: tuple[Setting, ...]
    why: str = ""
    answered: bool = False


class Units:
    """The units of this host's systemd, whose runtime directory is ``run``. One thread at a time."""

    def __init__(self, writer: Writer, record: UndoRecord, bus: SystemBus, run: Path) -> None:
        self._writer, self._record, self._bus, self._run = writer, record, bus, run
        kept = (name for name in ROWS if systemd.keeps(name, writer.version))
        self._has_period_property = True  # CPUQuotaPeriodUSec, from systemd 242 on; False once that was refused
        self._written = (systemd.ALWAYS_WRITTEN, *kept)  # rows that systemd writes whenever it is told any property

    def tell(self, targets: Iterable[Target]) -> dict[Target, SyncOutcome]:
        """Tells systemd what these files hold now; files of no unit, and those that are gone, are left out of the
        answer."""
        version = self._writer.version
        wanted = dict.fromkeys(target for target in targets if systemd.keeps(target.name, version))
        together = dict.fromkeys((target.cgroup, systemd.rows_with(target.name, version)) for target in wanted)
        since_ns = time.time_ns() - _RESIZE_NS
        parts = [part for cgroup, rows in together if (part := self._part(cgroup, rows)) is not None]
        beside = self._beside(parts)
        self._send([part for part in parts if self._note(part)])
        for target, found in beside.items():
            self._rewrite(target, found, since_ns)
        return {
            target: self._settled(part, target, found, since_ns)
            for part in parts
            for target, found in part.found.items()
            if target in wanted
        }

    def clear(self) -> None:
        """Remove the drop-in files that telling made. Raises UndoError if the record cannot be written."""
        for path in [drop_in.path for drop_in in self._record.all(DropIn)]:
            with contextlib.suppress(OSError):  # gone, or others are in the directory
                os.unlink(path)
                os.rmdir(os.path.dirname(path))
            self._record.drop(DropIn, path)

    def _part(self, cgroup: str, rows: Iterable[str]) -> _Part | None:
        """Returns what systemd is to be told of these files; None if they are no unit's."""
        unit = systemd.unit_of(cgroup)
        if not unit:
            return None
        found: dict[Target, Reading] = {}
        for target in (Target(cgroup, name) for name in rows):
            with contextlib.suppress(ReadError, ParseError):
                if (one := self._look(target)) is not None:
                    found[target] = one
        values = {target.name: one.value for target, one in found.items()}
        settings = systemd.settings(values, self._writer.version, self._writer.weights)
        if not self._has_period_property:
            settings = systemd.without_period(settings) or settings
        return _Part(unit, found, settings) if settings else None

    def _look(self, target: Target) -> Reading | None:
        """Returns the writer's reading; a period on v2 has no file of its own and is read in the quota's file."""
        if self._writer.path(target) is not None:
            return self._writer.look(target)
        path = self._writer.tree.path(target)
        text = None if path is None else read_text(path)
        if path is None or text is None:
            return None
        text = self._writer.as_made(target, path, text)
        return Reading(str(path), 0, row(target.name).parse(text, self._writer.version))

    def _beside(self, parts: Iterable[_Part]) -> dict[Target, Reading]:
        """Returns the other files that systemd writes in the cgroups of these units when it is told, as they are
        now."""
        told = dict.fromkeys(target for part in parts for target in part.found)
        cgroups = dict.fromkeys(target.cgroup for target in told)
        found: dict[Target, Reading] = {}
        for target in (Target(cgroup, name) for cgroup in cgroups for name in self._written):
            if target in told:
                continue
            with contextlib.suppress(ReadError, ParseError):
                if (one := self._writer.look(target)) is not None:
                    found[target] = one
        return found

    def _note(self, part: _Part) -> bool:
        """Notes what systemd is about to write for it; False, with the reason in ``part``, if that cannot be noted."""
        try:
            for target, found in part.found.items():
                kept = _kept(part, target, found)
                if kept is not None and self._record.entry_for(target, found) is not None:
                    self._record.remember(target, found, kept)
            for path in self._drop_ins(part):
                if not os.path.exists(path):
                    self._record.note(DropIn(path))
        except UndoError as error:
            part.why = f"what it changes cannot be noted: {error}"
        return not part.why

    def _drop_ins(self, part: _Part) -> Iterator[str]:
        """The files that systemd makes for the properties."""
        parent = _TRANSIENT if (self._run / _TRANSIENT / part.unit).exists() else _CONTROL
        for setting in part.settings:
            yield f"{self._run}/{parent}/{part.unit}.d/50-{setting.directive}.conf"

    def _send(self, parts: Sequence[_Part]) -> None:
        """Tells all, unit by unit; where systemd refuses a unit, each property alone, so that only the refused one is
        missing."""
        units: dict[str, list[_Part]] = {}
        for part in parts:
            units.setdefault(part.unit, []).append(part)
        self._send_together(list(units.values()))
        refused = [[part] for of_unit in units.values() if len(of_unit) > 1 for part in of_unit if part.why]
        if not self._bus.trouble:
            self._send_together(refused)
            self._send_without_period([part for part in parts if systemd.PERIOD_PROPERTY in part.why])

    def _send_without_period(self, parts: Sequence[_Part]) -> None:
        """Tells the quota alone where systemd does not know that a quota has a period; it is not told of a period
        again."""
        again = [(part, settings) for part in parts if (settings := systemd.without_period(part.settings))]
        for part, settings in again:
            part.settings = settings
        self._send_together([[part] for part, _ in again])
        self._has_period_property = self._has_period_property and all(part.why for part, _ in again)

    def _send_together(self, units: Sequence[Sequence[_Part]]) -> None:
        if not units:
            return
        calls = [(parts[0].unit, [one for part in parts for one in part.settings]) for parts in units]
        for parts, answer in zip(units, self._bus.tell(calls), strict=True):
            for part in parts:
                part.why, part.answered = (self._bus.trouble, False) if answer is None else (answer, True)

    def _settled(self, part: _Part, target: Target, before: Reading, since_ns: int) -> SyncOutcome:
        """Returns the result for a file, after its own value was written to it again."""
        failed = self._rewrite(target, before, since_ns, part)
        kept = _kept(part, target, before)
        if part.why:
            return SyncOutcome(part.why, answered=part.answered)
        return SyncOutcome(failed, before.value if kept is None else kept, kept is not None)

    def _rewrite(self, target: Target, before: Reading, since_ns: int, told: _Part | None = None) -> str:
        """Writes what the file held once more if systemd changed it; returns why that fails, or ""."""
        try:
            now = self._writer.look(target)
            if now is None or now.inode != before.inode or now.value == before.value:
                return ""
            if self._is_of_systemd(target, before, now, since_ns, told):
                self._writer.write(target, before.value)
        except (ReadError, ParseError, ValueRefused, WriteError) as error:
            return str(error)
        return ""

    def _is_of_systemd(self, target: Target, before: Reading, now: Reading, since_ns: int, told: _Part | None) -> bool:
        """Returns whether systemd wrote ``now``, and not another writer. ``told``: what systemd was told of the file.

        For a file that Koord holds, the undo record has all values that systemd may write. To another file systemd
        writes the value that another program told it before; where the drop-in file was written at ``since_ns`` or
        later, that program has just told it a new value.
        """
        entry = self._record.entry_for(target, now)
        if entry is not None:
            return self._record.is_ours(entry, now.value) or self._record.is_base(entry, now.value)
        part = told or self._part(target.cgroup, systemd.rows_with(target.name, self._writer.version))
        if part is None or now.value == _kept(part, target, before):
            return True
        return not any(_is_written_since(path, since_ns) for path in self._drop_ins(part))


def of_host(writer: Writer, record: UndoRecord, root: Path = Path("/"), timeout_s: float = TIMEOUT_S) -> Units | None:
    """The units of the systemd that runs the node below ``root`` (sd_booted(3)); a telling may take ``timeout_s``.

    None if none does, or if ``writer`` is for some other tree than the node's own.
    """
    run = root / "run/systemd"
    is_its_own = writer.tree.root == root / "sys/fs/cgroup"
    if not is_its_own or not (run / "system").is_dir():
        return None
    return Units(writer, record, SystemBus(root / SOCKET, timeout_s), run)


def _is_written_since(path: str, since_ns: int) -> bool:
    with contextlib.suppress(OSError):
        return os.stat(path).st_mtime_ns >= since_ns
    return False


def _kept(part: _Part, target: Target, reading: Reading) -> Value | None:
    """Returns the value that systemd writes for the one that was read; None if it keeps that as it is."""
    if target.name != "cpu_quota":
        return None
    quota_us, period_us = int(reading.value), int(part.found[Target(target.cgroup, "cpu_period")].value)
    kept_us = systemd.kept_quota_us(quota_us, period_us)
    return None if kept_us == quota_us else kept_us
