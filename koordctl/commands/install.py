"""``koordctl install``: brings Koord onto this node, up to a kubelet that talks through the proxy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from koordctl import guide, options
from koordctl.exits import OK, Failed, Refused

if TYPE_CHECKING:
    from koordctl.install.machine import Machine
    from koordctl.install.prepare import Prepared, Wishes
    from koordctl.install.record import Record

_LEFT = "Correct that, then run koordctl uninstall: the record of what was done is kept."


@click.command(short_help=guide.summary("install"), epilog=guide.examples("install"))
@click.option("--dry-run", is_flag=True, help="Show every file and every change, and stop.")
@options.yes
@click.option("--package", is_flag=True, help="A package brought programs and units: only enable and start them.")
@options.runtime
@click.option(
    "--kubelet-unit", default="", metavar="NAME", help="kubelet's systemd unit.  [default: the unit of its process]"
)
@click.option("--only-grants", is_flag=True, help="Only bring up to date what an installed koord-qosd may do.")
@click.option("--no-kubelet", is_flag=True, help="Leave kubelet as it is, and say what to set there.")
@click.option(
    "--daemon/--no-daemon",
    default=None,
    help="Start koord-qosd, or only the proxy, where the chart's DaemonSet is the node daemon. Kept until uninstall.",
)
@options.force
@options.wait
@options.root("A recorded tree to plan for (with --dry-run and --offline).")
@click.option("--offline", is_flag=True, help="Look at files only (with --dry-run).")
def install(
    dry_run: bool,
    yes: bool,
    package: bool,
    runtime: str,
    kubelet_unit: str,
    only_grants: bool,
    no_kubelet: bool,
    daemon: bool | None,
    force: bool,
    wait_s: float,
    root: Path,
    offline: bool,
) -> int:
    """Install Koord on this node: units, node daemon, proxy, and kubelet's endpoint.

    koordctl shows its plan and asks. It makes a pod sandbox through the proxy before it touches kubelet, and rolls
    everything back if a step fails. Run it again after a change of the rules or of the node: it brings the
    installation up to date.
    """
    from koordctl.install.machine import interruptible, this_machine  # noqa: PLC0415
    from koordctl.install.prepare import Wishes  # noqa: PLC0415

    if not dry_run and (offline or root != Path("/")):
        raise click.UsageError("--root and --offline are for --dry-run")
    wishes = Wishes(runtime, kubelet_unit, package, not no_kubelet, daemon, offline, only_grants, force)
    machine = this_machine(wait_s, root)
    if dry_run:
        return _dry_run(machine, root, wishes)
    with interruptible():
        return _install(machine, root, wishes, yes)


def _dry_run(machine: Machine, root: Path, wishes: Wishes) -> int:
    from koordctl.install import record as records  # noqa: PLC0415
    from koordctl.install.machine import InstallError  # noqa: PLC0415
    from koordctl.install.prepare import prepare, remembered  # noqa: PLC0415

    try:
        record = records.load(machine.disk)
    except (InstallError, OSError) as error:
        raise Refused(str(error)) from error
    _needs_record(wishes, record)
    wishes = remembered(wishes, record)
    if record is not None and not record.complete:
        click.echo("An earlier run was cut off; what it began would be undone first.\n")
    _show(prepare(root, wishes, machine.systemd, record), machine, wishes, full=True)
    return OK


def _install(machine: Machine, root: Path, wishes: Wishes, yes: bool) -> int:
    from koord import __version__  # noqa: PLC0415
    from koordctl.install import execute  # noqa: PLC0415
    from koordctl.install import record as records  # noqa: PLC0415
    from koordctl.install.machine import InstallError  # noqa: PLC0415
    from koordctl.install.prepare import prepare, remembered  # noqa: PLC0415

    if os.geteuid() != 0:
        raise Refused("only root can install.")
    try:
        with records.alone(machine.disk):
            records.sweep(machine.disk)
            found = records.load(machine.disk)
            wishes = remembered(wishes, found)
            record = _settled(machine, found, yes)
            _needs_record(wishes, record)
            prepared = prepare(root, wishes, machine.systemd, record)
            _show(prepared, machine, wishes, full=False)
            if not prepared.steps:
                return OK
            if not yes:
                click.confirm("Install?", abort=True, err=True)
            execute.install(machine, record, prepared.steps, __version__, wishes.with_daemon is not False)
    except execute.NotUndone as error:
        raise Failed(f"not everything could be undone: {error}. {_LEFT}") from error
    except execute.RolledBack as error:
        for note in error.notes:
            click.echo(note)
        raise Failed(f"{error}. Everything was rolled back.") from error
    except (InstallError, OSError) as error:
        raise Failed(str(error)) from error
    click.echo("Koord is installed. koordctl doctor checks it; koordctl uninstall removes it.")
    return OK


def _needs_record(wishes: Wishes, record: Record | None) -> None:
    if wishes.only_grants and record is None:
        raise Refused("Koord is not installed here, so there is nothing to bring up to date.")


def _settled(machine: Machine, record: Record | None, yes: bool) -> Record | None:
    """Returns the record without what an earlier run began and did not end."""
    from koordctl.install import execute  # noqa: PLC0415

    if record is None or record.complete:
        return record
    click.echo("An earlier run was cut off; what it began is undone first.")
    if not yes:
        click.confirm("Undo it?", abort=True, err=True)
    for note in execute.roll_back(machine, record):
        click.echo(note)
    return record if record.complete else None


def _show(prepared: Prepared, machine: Machine, wishes: Wishes, full: bool) -> None:
    """Shows the node and the plan, ``full``: with what each file will hold. With reasons against the plan, shows those
    instead and raises Refused.
    """
    from koordctl.views import install as view  # noqa: PLC0415

    click.echo(view.head(prepared.facts))
    if prepared.reasons:
        click.echo(f"\n{view.reasons(prepared.reasons)}\n", err=True)
        raise Refused("Nothing was installed or changed on this node.")
    if not prepared.steps:
        click.echo("\nInstalled, and nothing to change.")
        return
    click.echo(f"\n{view.plan(prepared.steps, machine.disk.look, full)}\n")
    if not wishes.with_kubelet:
        click.echo(f"{view.NO_KUBELET}\n")
    if wishes.with_daemon is False:
        click.echo(f"{view.NO_DAEMON}\n")
