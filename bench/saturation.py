"""A node whose CPUs are full of best-effort work, made of cgroups of this machine (v1's cpu controller).

    NAME-kubepods         1024 shares for each CPU, as kubelet gives it; nothing latency-sensitive runs in it, so that
        besteffort        2 shares, full of spinning processes, has all of that weight
    NAME-system           1024 shares, as systemd gives system.slice
    NAME-koord            what systemd makes of the CPUWeight= of koord.slice

The groups are at the root, because that is where they compete with each other on a node. Invariant: on the way out,
whatever the reason, the spinning processes are gone, what joined a group is back in the root group, and the groups are
removed; a process that spins also ends with its parent, and after ``bound_s`` in any case.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from integration.harness.cgroups import hierarchies, write
from integration.harness.processes import HarnessError, Process, wait_for
from koord.model.cfs import MAX_SHARES, MIN_SHARES
from koordctl.node.units import assignments

KOORD_SLICE = Path(__file__).parent.parent / "systemd" / "koord.slice"
SHARES = 1024  # of a slice without CPUWeight=, and of one CPU in kubepods
DEFAULT_WEIGHT = 100  # systemd's, for which v1 has 1024 shares
SPINNERS_PER_CPU = 4
SPIN = "import ctypes, signal; ctypes.CDLL(None).prctl(1, signal.SIGKILL); signal.alarm({bound_s})\nwhile True: pass"
REMOVED_WITHIN_S = 10.0


def shares_of_weight(cpu_weight: int) -> int:
    """``cpu.shares`` that systemd writes on v1 for ``CPUWeight=`` (100 is 1024), within what the kernel takes."""
    return max(MIN_SHARES, min(MAX_SHARES, cpu_weight * SHARES // DEFAULT_WEIGHT))


def cpu_weight(unit: str) -> int:
    """``CPUWeight=`` of the slice whose unit file is ``unit``; the last one counts, 100 without any."""
    found = [value for section, key, value in assignments(unit) if (section, key) == ("Slice", "CPUWeight")]
    return int(found[-1]) if found and found[-1] else DEFAULT_WEIGHT


def koord_weight() -> int:
    """``CPUWeight=`` of the slice that both daemons' units name."""
    return cpu_weight(KOORD_SLICE.read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One cgroup of the cpu controller."""

    directory: Path

    def join(self, *pids: int) -> None:
        """Move processes, with all their threads, here."""
        for pid in pids:
            write(self.directory / "cgroup.procs", str(pid))

    def remove(self, members_to: Cgroup) -> None:
        """Remove the group; whatever is in it goes to ``members_to``."""
        wait_for(lambda: self._removed(members_to), REMOVED_WITHIN_S, f"{self.directory} to be empty")

    def _removed(self, members_to: Cgroup) -> bool:
        try:
            for pid in (self.directory / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    members_to.join(int(pid))
            self.directory.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Node:
    """The groups that others may join."""

    root: Cgroup
    system: Cgroup
    koord: Cgroup


@contextlib.contextmanager
def saturated(name: str, koord_shares: int, bound_s: int, log: Path) -> Iterator[Node]:
    """A node that is saturated until the end of the block, for ``bound_s`` seconds at most."""
    mount = hierarchies().get("cpu")
    if mount is None:
        raise HarnessError("the saturated node is made of cgroup v1's cpu controller, which is not mounted here")
    cpus = len(os.sched_getaffinity(0))
    root, system, koord = Cgroup(mount), Cgroup(mount / f"{name}-system"), Cgroup(mount / f"{name}-koord")
    kubepods, besteffort = Cgroup(mount / f"{name}-kubepods"), Cgroup(mount / f"{name}-kubepods" / "besteffort")
    with contextlib.ExitStack() as stack:
        for cgroup, shares in (
            (kubepods, cpus * SHARES),
            (besteffort, MIN_SHARES),
            (system, SHARES),
            (koord, koord_shares),
        ):
            cgroup.directory.mkdir()
            stack.callback(cgroup.remove, root)
            write(cgroup.directory / "cpu.shares", str(shares))
        for _ in range(cpus * SPINNERS_PER_CPU):
            spinner = Process([sys.executable, "-c", SPIN.format(bound_s=bound_s)], log)
            stack.callback(spinner.kill)
            besteffort.join(spinner.pid)
        yield Node(root, system, koord)
