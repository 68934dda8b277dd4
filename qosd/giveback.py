"""``koord-qosd give-back``: takes temporary values back when koord-qosd itself no longer can.

systemd runs it after the daemon, however that ended (``ExecStopPost``), kubelet before it ends the pod (preStop, with
``--beside``: the daemon may hang, and has the record). It takes the daemon's options, and loads little: no event loop,
no network. All other values stay; ``koordctl restore`` puts those back. It fails with 1 if the record, or a line of
it, cannot be read, or a file cannot be written; without a record there is nothing to do. A record that cannot be read
at all stays where it is, for the next start of the daemon.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence

from koord.host import systemd_units, temporary
from koord.host.cgroup import tree_at
from koord.host.reconcile.plan import DONE, VANISHED
from koord.host.undo import UNKNOWN_BOOT, UndoError, UndoRecord, boot_id
from koord.model.locations import UNDO_FILE_NAME
from koord.service.options import OptionError
from qosd.options import PROGRAM, Options

BESIDE = "--beside"


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code."""
    try:
        options = PROGRAM.load(PROGRAM.parse([each for each in arguments if each != BESIDE]))
    except OptionError as error:
        print(f"koord-qosd give-back: {error}", file=sys.stderr)
        return 2
    try:
        return _give_back(options, is_shared=BESIDE in arguments)
    except UndoError as error:
        if error.errno == errno.EAGAIN:  # another koord-qosd acts by now, and has seen to it
            return 0
        print(f"koord-qosd give-back: {error}", file=sys.stderr)
        return 1


def _give_back(options: Options, is_shared: bool) -> int:
    """Raises UndoError."""
    file, this_boot = options.run_dir / UNDO_FILE_NAME, boot_id(options.proc_root) or UNKNOWN_BOOT
    if not file.exists():
        return 0
    tree = tree_at(options.cgroup_root, options.proc_root, options.sys_root, options.resctrl_root)
    with UndoRecord(file, this_boot, is_shared=is_shared, sets_aside=False) as record:
        writer = record.writer(tree)
        outcomes = temporary.take_back(writer, record, systemd_units.of_host(writer, record))
    for problem in record.problems:
        print(f"koord-qosd give-back: {problem}", file=sys.stderr)
    for outcome in outcomes:
        write = outcome.write
        print(f"{write.path} <- {write.after}: {outcome.result}: {outcome.sentence}", file=sys.stderr)
    is_done = all(outcome.result in (DONE, VANISHED) for outcome in outcomes)
    return 0 if is_done and not record.problems else 1
