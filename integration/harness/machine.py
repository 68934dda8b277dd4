"""Whether this machine can run the real parts, and whose it is meanwhile."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from integration.harness.processes import HarnessError

NODE_LOCK = Path("/run/lock/koord-test-node")
SESSION_LOCK = Path("/run/lock/koord-test-session")
PROGRAMS = ("containerd", "ctr", "runc", "ip", "iptables")


def missing() -> list[str]:
    """What keeps the integration tests from running here, one sentence each; empty if nothing does."""
    reasons = [f"{name} is not on PATH" for name in PROGRAMS if shutil.which(name) is None]
    if os.geteuid() != 0:
        reasons.append("not root")
    if not Path("/sys/fs/cgroup/cpu").exists():
        reasons.append("cgroup v1's cpu controller is not mounted")
    if not Path("/bin/busybox").exists():
        reasons.append("/bin/busybox is not installed")
    if not Path("/usr/lib/cni/bridge").exists():
        reasons.append("the CNI plugins are not in /usr/lib/cni")
    return reasons


@contextlib.contextmanager
def sole_session() -> Iterator[None]:
    """For a whole session of tests, which look at interfaces, mounts and cgroups of the machine: waits for others."""
    with SESSION_LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another session of tests holds {SESSION_LOCK}: waiting for its end", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def only_node() -> Iterator[None]:
    """While a kubelet of ours runs: its kernel settings and some of its directories are the machine's.

    Raises HarnessError if another run has one.
    """
    with NODE_LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HarnessError(f"another run has a node on this machine: it holds {NODE_LOCK}") from error
        yield
