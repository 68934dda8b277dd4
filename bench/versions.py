"""The proxy and koord-qosd of any version of this repository, started beside each other.

Each version's programs are started by that version's own test harness, because options and files differ between
versions. They end when the pipe to the process that holds them is closed, so also when this process is killed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from hatch_build import generate, write_version
from integration.harness.processes import HarnessError

REPOSITORY = Path(__file__).parent.parent
START_S = 60.0
STOP_S = 30.0

# Run in the version's own tree. Its arguments are the runtime's socket and a directory, its output the proxy's socket.
_PROXY = """\
import sys
from pathlib import Path
from integration.harness.proxy import proxy
with proxy(Path(sys.argv[1]), Path(sys.argv[2])) as socket:
    print(socket, flush=True)
    sys.stdin.read()
"""
# After these arguments come how long it settles in seconds, its rules and flags; its output is the daemon's pid and how
# many containers it measures.
_AGENT = """\
import sys, time
from pathlib import Path
from bench.agent import cost
from integration.node.daemon import Daemon
daemon = Daemon(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[4], sys.argv[5:])
daemon.start()
try:
    time.sleep(float(sys.argv[3]))
    print(daemon.pid, cost.measured(daemon), flush=True)
    sys.stdin.read()
finally:
    daemon.stop()
    daemon.restore()
"""


def checked_out(commit: str, directory: Path) -> Path:
    """The files of ``commit`` below ``directory``, with what the build generates; raises HarnessError without it."""
    tree = directory / commit.replace("/", "_")
    tree.mkdir(parents=True)
    archive = subprocess.Popen(["git", "-C", str(REPOSITORY), "archive", commit], stdout=subprocess.PIPE)
    unpacked = subprocess.run(["tar", "-x", "-C", str(tree)], stdin=archive.stdout, check=False)
    if archive.wait() or unpacked.returncode:
        raise HarnessError(f"git archive {commit} failed")
    generate(tree)
    write_version(tree, commit)
    return tree


@contextlib.contextmanager
def serving(tree: Path, runtime: Path, directory: Path) -> Iterator[Path]:
    """The socket of the proxy of ``tree``, in front of ``runtime`` and with that version's koord-qosd behind it."""
    with _held(tree, _PROXY, directory, [str(runtime), str(directory)]) as socket:
        yield Path(socket)


@contextlib.contextmanager
def measuring(
    tree: Path, runtime: Path, directory: Path, settle_s: float, rules: str, flags: Sequence[str]
) -> Iterator[tuple[int, int]]:
    """The pid of the koord-qosd of ``tree``, which has settled, and how many containers it measures."""
    with _held(tree, _AGENT, directory, [str(runtime), str(directory), str(settle_s), rules, *flags]) as line:
        pid, containers = line.split()
        yield int(pid), int(containers)


@contextlib.contextmanager
def _held(tree: Path, program: str, directory: Path, arguments: Sequence[str]) -> Iterator[str]:
    """What ``program`` says once its processes serve; they end with the block. Raises HarnessError."""
    directory.mkdir(parents=True, exist_ok=True)
    holder = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        text=True,
        start_new_session=True,  # Ctrl-C is for us alone: what it holds ends in order
    )
    assert holder.stdin is not None and holder.stdout is not None
    try:
        if not select.select([holder.stdout], [], [], START_S)[0] or not (line := holder.stdout.readline()):
            raise HarnessError(f"the programs of {tree} did not start; see {directory}")
        yield line.strip()
    finally:
        holder.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            holder.wait(STOP_S)
        if holder.poll() is None:
            os.killpg(holder.pid, signal.SIGKILL)
            holder.wait()
        holder.stdout.close()
