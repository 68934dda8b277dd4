"""The saturated node that measurements make on this machine: what it is while it lasts, and that nothing is left."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bench.saturation import Node, saturated
from integration.harness.cgroups import hierarchies
from integration.harness.processes import Process

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes cgroups: root")
BOUND_S = 60
CPUS = len(os.sched_getaffinity(0))


def _groups(name: str) -> dict[str, int]:
    """Shares of every group whose name begins with ``name``, by path."""
    cpu = hierarchies()["cpu"]
    found = [
        path for top in cpu.glob(f"{name}-*") for path in (top, *(below for below in top.iterdir() if below.is_dir()))
    ]
    return {
        str(path.relative_to(cpu)).removeprefix(f"{name}-"): int((path / "cpu.shares").read_text()) for path in found
    }


def _group_of(pid: int) -> str:
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return next(line.rpartition(":")[2] for line in lines if line.split(":")[1] == "cpu")


def _spinning(name: str) -> list[int]:
    procs = hierarchies()["cpu"] / f"{name}-kubepods" / "besteffort" / "cgroup.procs"
    return [int(pid) for pid in procs.read_text().split()]


def _sleeping(log: Path) -> Process:
    return Process([sys.executable, "-c", f"import time; time.sleep({BOUND_S})"], log)


def test_groups_have_the_shares_of_a_node(tmp_path: Path) -> None:
    name = f"koord-test-{os.getpid()}"
    with saturated(name, 10_240, BOUND_S, tmp_path / "log"):
        assert _groups(name) == {"kubepods": 1024 * CPUS, "kubepods/besteffort": 2, "system": 1024, "koord": 10_240}
        assert len(_spinning(name)) >= CPUS


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_nothing_is_left_after_a_failure(failure: type[BaseException], tmp_path: Path) -> None:
    name, log = f"koord-test-{os.getpid()}", tmp_path / "log"
    spinning: list[int] = []
    process = _sleeping(log)

    def fail(node: Node) -> None:
        node.koord.join(process.pid)
        assert _group_of(process.pid) == f"/{name}-koord"
        spinning.extend(_spinning(name))
        raise failure

    try:
        with pytest.raises(failure), saturated(name, 10_240, BOUND_S, log) as node:
            fail(node)
        assert _groups(name) == {}
        assert _group_of(process.pid) == "/"
        assert process.running
        assert not [pid for pid in spinning if Path(f"/proc/{pid}").exists()]
    finally:
        process.kill()


def test_a_group_that_is_there_already_is_not_ours_to_remove(tmp_path: Path) -> None:
    name = f"koord-test-{os.getpid()}"
    theirs = hierarchies()["cpu"] / f"{name}-system"
    theirs.mkdir()
    try:
        with pytest.raises(FileExistsError), saturated(name, 10_240, BOUND_S, tmp_path / "log"):
            pass
        assert _groups(name) == {"system": 1024}
    finally:
        theirs.rmdir()
