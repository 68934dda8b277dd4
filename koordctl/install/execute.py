"""Carries out a plan, and undoes what is in a record.

Invariants: a step is in the record before it is begun; when a step fails, or a signal interrupts, everything since the
record was last complete is undone before this returns. What cannot be undone stays in the record, and undoing goes no
further; it can be called again.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from koordctl.install import record as records
from koordctl.install.machine import InstallError, Machine
from koordctl.install.record import Begun, Record
from koordctl.install.steps import CheckSandbox, RestoreKernel, Step

_EXPECTED = (InstallError, OSError)


class RolledBack(InstallError):
    """The installation failed and was undone; ``notes``: a sentence for each thing that is left all the same."""

    def __init__(self, why: str, notes: Sequence[str]) -> None:
        super().__init__(why)
        self.notes = tuple(notes)


class NotUndone(InstallError):
    """Undoing failed part-way; the record has the rest."""


def install(
    machine: Machine, record: Record | None, steps: Sequence[Step], version: str, with_daemon: bool = True
) -> None:
    """Does ``steps``. Raises RolledBack or NotUndone; KeyboardInterrupt is raised again after all is undone.

    ``with_daemon``: what a new record is to say.
    """
    try:
        record = record or records.create(machine.disk, version, with_daemon)
    except OSError as error:
        records.sweep(machine.disk)
        raise RolledBack(f"the record cannot be made: {error}", ()) from error
    try:
        for step in steps:
            machine.say(step.sentence)
            before = step.look(machine)
            record.begin(step, before)
            step.apply(machine, before)
        record.finish()
    except _EXPECTED as error:
        machine.say(f"Failed: {error}. Rolling back.")
        raise RolledBack(str(error), roll_back(machine, record)) from error
    except KeyboardInterrupt:
        roll_back(machine, record)
        raise


def roll_back(machine: Machine, record: Record) -> tuple[str, ...]:
    """Undoes what was not finished; returns what stays. Raises NotUndone."""
    notes = _undo(machine, record.unfinished, purge=False)
    if not record.forget_unfinished():
        record.erase()
    return notes


def uninstall(machine: Machine, record: Record, purge: bool) -> tuple[str, ...]:
    """Undoes all, and removes the record as the last thing; returns what stays. Raises NotUndone."""
    notes = _undo(machine, record.steps, purge)
    return (*notes, *record.erase())


def _undo(machine: Machine, begun: Sequence[Begun], purge: bool) -> tuple[str, ...]:
    notes: list[str] = []
    for number, each in reversed([*enumerate(begun)]):
        if isinstance(each.step, CheckSandbox) and each is not begun[-1]:
            continue  # a later step was begun, so the check came to its end and removed its sandbox
        step = _of_today(each.step, begun)
        machine.say(step.undoing)
        try:
            notes += step.undo(machine, each.before, purge, tuple(older.step for older in begun[:number]))
        except _EXPECTED as error:
            raise NotUndone(str(error)) from error
    return tuple(dict.fromkeys(notes))


def _of_today(step: Step, begun: Sequence[Begun]) -> Step:
    """Returns ``step`` with the runtime that the node has by now: the one before may not answer any more."""
    if not isinstance(step, RestoreKernel):
        return step
    *_, newest = (each.step.runtime for each in begun if isinstance(each.step, RestoreKernel))
    return msgspec.structs.replace(step, runtime=newest)
