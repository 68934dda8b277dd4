"""Whether this machine can run the real parts, and whose turn it is where there is room for one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

NODE_LOCK = Path("/run/lock/koord-test-node")
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
def node_turn() -> Iterator[None]:
    """Waits until no other run has a kubelet here: kernel settings and some of its directories are the machine's."""
    with NODE_LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
