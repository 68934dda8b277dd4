"""``koordctl restore``: put this node's kernel files back without the daemon.

The undo record is locked by a running koord-qosd, so the two never write at once; there is no way to force it.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from koordctl import options
from koordctl.exits import EPILOG, FAILED, OK, Failed, Refused

if TYPE_CHECKING:
    from koord.host.cgroup import Tree
    from koord.host.undo import Restored

UNDO_FILE = Path("/run/koord/undo.jsonl")


@click.command(epilog=EPILOG)
@click.option(
    "--undo-file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=UNDO_FILE,
    show_default=True,
    help="koord-qosd's undo record.",
)
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path("/"),
    show_default=True,
    help="The node's root directory.",
)
@click.option(
    "--cgroup-root",
    type=click.Path(path_type=Path),
    default=Path("/sys/fs/cgroup"),
    show_default=True,
    help="Where cgroups are mounted, below --root.",
)
@click.option(
    "--weights",
    type=click.Choice(["linear", "quadratic"]),
    help="How this node's runtime maps CPU shares to cpu.weight (cgroup v2); else as the record says.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be put back, and stop.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@options.output()
def restore(
    undo_file: Path, root: Path, cgroup_root: Path, weights: str | None, dry_run: bool, yes: bool, output: str
) -> int:
    """Give every kernel file that Koord holds its last foreign value. Stop koord-qosd first.

    What is to be done is shown first; nothing is written without a yes.
    """
    from koord.host import undo  # noqa: PLC0415
    from koord.host.weights import Weights  # noqa: PLC0415
    from koord.host.writer import Writer  # noqa: PLC0415
    from koordctl.views import restore as view  # noqa: PLC0415

    if not undo_file.exists():
        raise Refused(f"no undo record at {undo_file}: Koord holds no file since the last boot. Another: --undo-file.")
    boot_id = root / "proc/sys/kernel/random/boot_id"
    if not _text(boot_id):  # of another boot, the record would be emptied
        raise Refused(f"{boot_id} cannot be read, so nobody knows whether the record is of this boot. Another: --root.")
    writer = Writer(_tree(root, cgroup_root))
    try:
        with undo.UndoRecord(undo_file, _text(boot_id).strip()) as record:
            writer.weights = Weights(weights) if weights else record.weights or writer.weights
            for problem in record.problems:
                click.echo(f"warning: {problem}", err=True)
            lines = undo.planned(writer, record)
            wanted = [line for line in lines if line.outcome is undo.Outcome.RESTORED]
            if dry_run or not wanted:
                _show(view.PLAN, lines, output)
                return OK
            if not yes:
                click.echo(view.table(view.PLAN, lines), err=output != "table")
                click.confirm(f"Write {len(wanted)} values?", abort=True, err=True)
            done = undo.restore(writer, record)
    except undo.UndoError as error:
        raise Failed(f"{error.filename}: {error.strerror}{_hint(error)}") from error
    _show(view.DONE, done, output)
    return FAILED if any(line.outcome is undo.Outcome.FAILED for line in done) else OK


def _show(header: tuple[str, ...], lines: Sequence[Restored], output: str) -> None:
    from koordctl.views import restore as view  # noqa: PLC0415

    if output == "table":
        click.echo(view.table(header, lines))
        return
    from koordctl.output import render  # noqa: PLC0415

    click.echo(render({"files": [view.plain(line) for line in lines]}, output))


def _tree(root: Path, cgroup_root: Path) -> Tree:
    from koord.host import cgroup  # noqa: PLC0415

    tree = cgroup.detect(root / f"{cgroup_root}".lstrip("/"), _text(root / "proc/self/mountinfo"))
    return replace(tree, proc=root / "proc", sys=root / "sys", resctrl=root / "sys/fs/resctrl")


def _hint(error: OSError) -> str:
    return ": stop it first (systemctl stop koord-qosd)" if error.errno == errno.EAGAIN else ""


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
