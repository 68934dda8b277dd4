"""Puts kernel files, tasks and the runtime's specifications back, while the pods run on.

The daemon must not run: the undo record is locked. The runtime is asked only if it made a container by an edited
request. First it gets what kubelet had requested, because it writes all of a container's files then, and after that
every file is looked at. If it does not answer, the files are put back all the same; the report names what is left, and
the record keeps it for the next time. Invariant: after any failure, restoring again goes on where this one ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from koord.host import restoring, systemd_units
from koord.host.cgroup import tree_at
from koord.host.originals import ContainerKey, Originals
from koord.host.systemd_units import Units
from koord.host.undo import UndoRecord, boot_id
from koord.host.undoable import Restored, RestoreOutcome
from koord.host.weights import Weights
from koord.host.writer import Writer
from koord.http2.grpc import UnaryError
from koord.model.locations import CGROUP_ROOT
from koordctl.runtimespecs import RuntimeContainer, RuntimeSpecs, as_requested

_SYSTEMD_S = 30.0
"""More than a tick would wait: on a busy machine systemd takes seconds to answer."""


class UnknownBoot(OSError):
    """It is not known whether the record is of this boot; one of another boot would be emptied."""


@dataclass(frozen=True, slots=True)
class Spec:
    """The outcome, or the plan (RESTORED), for one container's specification at the runtime."""

    container: str
    outcome: RestoreOutcome
    why: str = ""


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """The outcome for every file and specification that Koord changed; ``problems``: of reading the record."""

    files: tuple[Restored, ...] = ()
    specs: tuple[Spec, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def to_do(self) -> int:
        """Returns how many files and specifications are, or were, to be put back."""
        outcomes = [*(each.outcome for each in self.files), *(each.outcome for each in self.specs)]
        return outcomes.count(RestoreOutcome.RESTORED)

    @property
    def failures(self) -> tuple[str, ...]:
        """Returns a sentence for each file and specification that could not be put back."""
        failed = [f"{each.path}: {each.why}" for each in self.files if each.outcome is RestoreOutcome.FAILED]
        return (
            *failed,
            *(f"{each.container}: {each.why}" for each in self.specs if each.outcome is RestoreOutcome.FAILED),
        )


def restore_node(undo_file: Path, runtime: Path, root: Path = Path("/")) -> RestoreReport:
    """Puts all back; returns an empty report if there is no record.

    Raises UndoError (EAGAIN: the daemon runs) if the record cannot be had, UnknownBoot if it may be of another boot.
    What fails after that is in the report.
    """
    if not undo_file.exists():
        return RestoreReport()
    with opened(undo_file, runtime, root=root, cgroup_root=Path(CGROUP_ROOT), weights=None) as node:
        return node.restore()


@contextmanager
def opened(
    undo_file: Path, runtime: Path, *, root: Path, cgroup_root: Path, weights: Weights | None
) -> Iterator[Restoration]:
    """Yields the node below ``root``, for as long as its undo record is open. ``weights``: else as the record says."""
    this_boot = boot_id(root / "proc")
    if not this_boot:
        raise UnknownBoot(f"{root / 'proc/sys/kernel/random/boot_id'} cannot be read")
    cgroups = root / f"{cgroup_root}".lstrip("/")
    tree = tree_at(cgroups, root / "proc", root / "sys", root / "sys/fs/resctrl")
    with UndoRecord(undo_file, this_boot) as record:
        writer = record.writer(tree)
        writer.weights = weights or writer.weights
        units = systemd_units.of_host(writer, record, root, _SYSTEMD_S)
        yield Restoration(writer, record, RuntimeSpecs(str(runtime)), units)


class Restoration:
    """Puts one node back; ``planned`` shows what ``restore`` would do."""

    def __init__(self, writer: Writer, record: UndoRecord, runtime: RuntimeSpecs, units: Units | None) -> None:
        self._writer, self._record, self._runtime, self._units = writer, record, runtime, units

    def planned(self) -> RestoreReport:
        """Returns the plan: RESTORED stands for "to be put back". Writes nothing and asks the runtime for no change."""
        listed, why = self._listed()
        specs = tuple(self._to_do(originals, listed.get(originals.key), why) for originals in self._record.originals)
        self._claim(listed)
        return RestoreReport(restoring.planned(self._writer, self._record), specs, tuple(self._record.problems))

    def restore(self) -> RestoreReport:
        """Puts all back. Raises UndoError if the record cannot be written."""
        listed, why = self._listed()
        self._claim(listed)
        before = {line.target: line for line in restoring.planned(self._writer, self._record)}
        specs = tuple(self._put_back(originals, listed.get(originals.key), why) for originals in self._record.originals)
        lines = restoring.restore(self._writer, self._record, self._units)
        done = tuple(_done_by_the_runtime(before.get(line.target), line) for line in lines)
        return RestoreReport(done, specs, tuple(self._record.problems))

    def _listed(self) -> tuple[Mapping[ContainerKey, RuntimeContainer], str]:
        """Returns the containers that are concerned, or why they are not known."""
        keys = [originals.key for originals in self._record.originals]
        try:
            return self._runtime.find(keys) if keys else {}, ""
        except UnaryError as error:
            return MappingProxyType({}), f"the runtime at {self._runtime.socket} does not answer: {error}"

    def _claim(self, listed: Mapping[ContainerKey, RuntimeContainer]) -> None:
        cgroups = {key: container.cgroup for key, container in listed.items() if container.cgroup}
        restoring.claim(self._writer, self._record, cgroups)

    def _to_do(self, originals: Originals, listed: RuntimeContainer | None, why: str) -> Spec:
        if listed is None:
            return _without_runtime(originals, why)
        update = as_requested(originals, listed, self._writer)
        return Spec(listed.name, RestoreOutcome.ALREADY_BASE if update is None else RestoreOutcome.RESTORED)

    def _put_back(self, originals: Originals, listed: RuntimeContainer | None, why: str) -> Spec:
        """Puts one container back; its originals are forgotten if there is nothing left to do for it."""
        spec = _without_runtime(originals, why) if listed is None else self._updated(originals, listed)
        if spec.outcome is not RestoreOutcome.FAILED:
            self._record.forget_originals(originals.key)
        return spec

    def _updated(self, originals: Originals, listed: RuntimeContainer) -> Spec:
        update = as_requested(originals, listed, self._writer)
        if update is None:
            return Spec(listed.name, RestoreOutcome.ALREADY_BASE)
        restoring.expect(
            self._writer, self._record, Originals(originals.key, originals.values, listed.cgroup or originals.cgroup)
        )
        try:
            there = self._runtime.update(listed.id, update)
        except UnaryError as error:
            return Spec(listed.name, RestoreOutcome.FAILED, f"the runtime keeps the values it was made with: {error}")
        return Spec(listed.name, RestoreOutcome.RESTORED if there else RestoreOutcome.GONE)


def _without_runtime(originals: Originals, why: str) -> Spec:
    """Returns the outcome for a container that was not found: it is gone, unless the runtime did not answer."""
    if not why:
        return Spec(str(originals.key), RestoreOutcome.GONE)
    left = "its specification" if originals.cgroup else "its specification and its files"
    return Spec(str(originals.key), RestoreOutcome.FAILED, f"{left} cannot be put back: {why}")


def _done_by_the_runtime(before: Restored | None, line: Restored) -> Restored:
    """Returns ``line`` as restored, if the file was to be put back and the runtime did that before us."""
    if before is None or (before.outcome, line.outcome) != (RestoreOutcome.RESTORED, RestoreOutcome.ALREADY_BASE):
        return line
    return replace(line, outcome=RestoreOutcome.RESTORED, before=before.before)
