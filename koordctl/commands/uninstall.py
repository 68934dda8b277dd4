"""``koordctl uninstall``: puts kubelet back on the runtime and kernel files back, and removes every trace of Koord."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from koord.model.locations import CONFIGURATION_DIRECTORY
from koordctl import guide, options
from koordctl.exits import OK, Failed, Refused

if TYPE_CHECKING:
    from koordctl.install.machine import Machine
    from koordctl.install.record import Record

_BY_HAND = (
    "there is no record of an installation, but {} {} there. If Koord was installed by hand, remove it by hand: see "
    "'To go back' in the README."
)


@click.command(short_help=guide.summary("uninstall"), epilog=guide.examples("uninstall"))
@click.option("--dry-run", is_flag=True, help="Show what would be undone, and stop.")
@options.yes
@click.option("--package", is_flag=True, help="Programs and units are a package's, which removes them itself.")
@click.option("--purge", is_flag=True, help=f"Remove edited files and all of {CONFIGURATION_DIRECTORY}, too.")
@options.force
@options.wait
def uninstall(dry_run: bool, yes: bool, package: bool, purge: bool, force: bool, wait_s: float) -> int:
    """Undo what koordctl install recorded on this node. If something interrupts it, run it again.

    It keeps and names files that were edited since; --purge removes them.
    """
    from koordctl.install import execute  # noqa: PLC0415
    from koordctl.install import record as records  # noqa: PLC0415
    from koordctl.install.machine import InstallError, this_machine  # noqa: PLC0415

    if os.geteuid() != 0:
        raise Refused("only root can uninstall.")
    machine = this_machine(wait_s)
    try:
        with records.alone(machine.disk):
            record = records.load(machine.disk)
            if record is None:
                return _without_record(machine, package, dry_run)
            if not _agreed(machine, record, dry_run, yes, force):
                return OK
            records.sweep(machine.disk)
            notes = execute.uninstall(machine, record, purge)
    except execute.NotUndone as error:
        raise Failed(f"{error}. Correct that, then run koordctl uninstall again: its record is kept.") from error
    except (InstallError, OSError) as error:
        raise Failed(str(error)) from error
    _tell(notes)
    return OK


def _agreed(machine: Machine, record: Record, dry_run: bool, yes: bool, force: bool) -> bool:
    """Shows what is to be undone; returns whether it may be. Raises Refused where kubelet's restart would end pods."""
    from koordctl.doctor import CheckStatus  # noqa: PLC0415
    from koordctl.install.prepare import restart_of  # noqa: PLC0415
    from koordctl.views import install as view  # noqa: PLC0415

    click.echo(f"{view.undoing(record.steps, machine.disk.look)}\n")
    if restart := restart_of(machine.disk.root, record.steps):
        click.echo(f"{restart.sentence}\n")
        if restart.status is CheckStatus.WARN and not force and not dry_run:
            raise Refused(
                f"nothing was changed. To do: {restart.remedy}; or restart kubelet all the same with --force."
            )
    if not dry_run and not yes:
        click.confirm("Uninstall?", abort=True, err=True)
    return not dry_run


def _tell(notes: Sequence[str]) -> None:
    for note in notes:
        click.echo(note)
    click.echo("Koord is uninstalled.")


def _without_record(machine: Machine, package: bool, dry_run: bool) -> int:
    """Does nothing, or raises Refused where Koord was installed by hand; a package's unit files alone do nothing."""
    from koordctl.install import record as records  # noqa: PLC0415
    from koordctl.install.machine import SystemdError  # noqa: PLC0415
    from koordctl.node.units import LOCAL, UNITS  # noqa: PLC0415

    if not dry_run:
        records.sweep(machine.disk)
    leftovers = []
    with suppress(SystemdError):  # a machine without systemd runs none of them
        leftovers = [unit for unit in UNITS if machine.systemd.state(unit) == "active"]
    if not package:
        files = [f"{LOCAL}/{unit}" for unit in UNITS]
        leftovers += [file for file in files if machine.disk.exists(file)]
    if leftovers:
        raise Refused(_BY_HAND.format(", ".join(leftovers), "are" if len(leftovers) > 1 else "is"))
    click.echo("Koord is not installed here: there is no record of an installation.")
    return OK
