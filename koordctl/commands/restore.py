"""``koordctl restore``: puts this node back as it was before Koord, without the daemon.

The undo record is locked by a running koord-qosd, so the two never write at once; there is no way to force it.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

import click

from koord.model.locations import CGROUP_ROOT, CONTAINERD_SOCKET, UNDO_RECORD
from koordctl import guide, options
from koordctl.exits import FAILED, OK, Failed, Refused

if TYPE_CHECKING:
    from koordctl.restoring import Restoration, RestoreReport


@click.command(short_help=guide.summary("restore"), epilog=guide.examples("restore"))
@click.option(
    "--undo-file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path(UNDO_RECORD),
    show_default=True,
    help="koord-qosd's undo record.",
)
@options.root("The node's root directory.")
@click.option(
    "--cgroup-root",
    type=click.Path(path_type=Path),
    default=Path(CGROUP_ROOT),
    show_default=True,
    help="Where cgroups are mounted, below --root.",
)
@click.option(
    "--weights",
    type=click.Choice(["linear", "quadratic"]),
    help="How this node's runtime maps CPU shares to cpu.weight (cgroup v2).  [default: as the record says]",
)
@click.option(
    "--runtime",
    type=click.Path(path_type=Path),
    default=Path(CONTAINERD_SOCKET),
    show_default=True,
    help="The container runtime's own CRI socket: the runtime keeps what it made containers with.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be put back, and stop.")
@options.yes
@options.output
def restore(
    undo_file: Path,
    root: Path,
    cgroup_root: Path,
    weights: str | None,
    runtime: Path,
    dry_run: bool,
    yes: bool,
    output: str,
) -> int:
    """Put every kernel file that Koord holds back to the last value that another program wrote, and give every
    container whose request Koord edited what kubelet had asked for. Stop koord-qosd first.

    koordctl shows what it will do, and asks before it writes.
    """
    from koord.host.undo import UndoError  # noqa: PLC0415
    from koord.host.weights import Weights  # noqa: PLC0415
    from koordctl import restoring  # noqa: PLC0415

    if not undo_file.exists():
        raise Refused(
            f"no undo record at {undo_file}: Koord has changed no file since the last boot. "
            "Name another record with --undo-file."
        )
    by = Weights(weights) if weights else None
    try:
        with restoring.opened(undo_file, runtime, root=root, cgroup_root=cgroup_root, weights=by) as node:
            return _restore(node, dry_run, yes, output)
    except restoring.UnknownBoot as error:
        raise Refused(
            f"{error}, so it is not known whether the record is of this boot. Name another root with --root."
        ) from error
    except UndoError as error:
        hint = ": stop it first (systemctl stop koord-qosd)" if error.errno == errno.EAGAIN else ""
        raise Failed(f"{error.filename}: {error.strerror}{hint}") from error


def _restore(node: Restoration, dry_run: bool, yes: bool, output: str) -> int:
    from koordctl.views import restore as view  # noqa: PLC0415

    plan = node.planned()
    for problem in plan.problems:
        click.echo(f"warning: {problem}", err=True)
    if dry_run:
        _show(plan, output, planned=True)
        return OK
    if plan.to_do and not yes:
        click.echo(view.table(plan, planned=True), err=output != "table")
        click.confirm(f"Put back {plan.to_do} values?", abort=True, err=True)
    done = node.restore()
    _show(done, output, planned=False)
    for failure in done.failures:
        click.echo(f"not put back: {failure}", err=True)
    return FAILED if done.failures else OK


def _show(report: RestoreReport, output: str, planned: bool) -> None:
    from koordctl.views import restore as view  # noqa: PLC0415

    if output == "table":
        click.echo(view.table(report, planned))
        return
    from koordctl.output import render  # noqa: PLC0415

    click.echo(render(view.plain(report), output))
