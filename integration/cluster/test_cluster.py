"""``make cluster`` brings a whole cluster up and leaves nothing, whenever and however often it is told to end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration import build
from integration.cluster import podnetwork
from integration.cluster.kubectl import Kubectl
from integration.cluster.quickstart import images
from integration.harness import cgroups, leftovers
from integration.harness.kubelet import DIRECTORIES, SYSCTLS
from integration.harness.processes import Process, wait_for

NODE_CGROUP = "/kubepods"
START_S, CLEAN_UP_S = 300.0, 180.0
"""For a machine that runs other tests, too; an idle one needs a tenth."""


@pytest.fixture
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the program keeps the files that it has to remove."""
    return tmp_path_factory.mktemp("c")


@contextlib.contextmanager
def started(directory: Path, log: Path) -> Iterator[Process]:
    """The program; one that is still there at the end has time to remove what it made."""
    for program in ("etcd", "kube-apiserver", "kube-scheduler", "kubelet", "helm"):
        build.program(program)
    images.python()
    images.ours()
    cluster = Process([sys.executable, "-m", "integration.cluster"], log, {"TMPDIR": str(directory)})
    try:
        yield cluster
    finally:
        cluster.stop(CLEAN_UP_S)


def end(cluster: Process) -> int:
    """As an impatient user ends it."""
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        cluster.signal(number)
        time.sleep(0.1)
    wait_for(lambda: not cluster.running, CLEAN_UP_S, "the cluster to end")
    return cluster.stop()


def traces(directory: Path, cluster: Process) -> list[str]:
    """What is left of a cluster that kept its files in ``directory``."""
    processes = [pid for pid in os.listdir("/proc") if pid.isdigit() and str(directory) in _command_line(pid)]
    return [
        *map(str, directory.iterdir()),
        *map(str, leftovers.mounts_below(directory)),
        *(f"process {pid}: {_command_line(pid)}" for pid in processes),
        *([NODE_CGROUP] if cgroups.existing(NODE_CGROUP) else []),
    ]


def _command_line(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
    except OSError:
        return ""


def machine_state() -> dict[str, object]:
    """What kubelet and the pods' network change outside of the program's own directory."""
    settings = {str(path): path.read_text() for path in (*SYSCTLS, podnetwork.FORWARDING) if path.exists()}
    rules = subprocess.run(["iptables", "-w", "-t", "nat", "-S"], check=True, capture_output=True, text=True).stdout
    return {
        **settings,
        **{str(path): path.exists() for path in DIRECTORIES},
        "interfaces": sorted(os.listdir("/sys/class/net")),
        "nat": sorted(rules.splitlines()),
    }


def test_it_stays_until_it_is_told_to_end(directory: Path, tmp_path: Path, figure: Callable[[str], None]) -> None:
    log, before = tmp_path / "log", machine_state()
    with started(directory, log) as cluster:
        kubeconfig = re.compile(r"export KUBECONFIG=(\S+)")
        printed = cluster.wait_for(lambda: kubeconfig.search(log.read_text()), START_S, "a kubeconfig")
        nodes = Kubectl(build.program("kubectl"), Path(printed.group(1)))("get", "nodes", "--no-headers")
        assert re.match(r"node-1\s+Ready\b", nodes), nodes
        figure(f"make cluster: {log.read_text().splitlines()[0]}")
        assert traces(directory, cluster) != []
        assert machine_state() != before
        status = end(cluster)
    assert (status, log.read_text().splitlines()[-1]) == (0, "everything was removed")
    assert traces(directory, cluster) == [] and machine_state() == before


@pytest.mark.parametrize("program", ["etcd", "containerd"])
def test_a_signal_while_it_starts(directory: Path, tmp_path: Path, program: str) -> None:
    log, before = tmp_path / "log", machine_state()
    with started(directory, log) as cluster:
        cluster.wait_for(lambda: list(directory.glob(f"*/**/{program}.log")), START_S, f"{program} to be started")
        assert end(cluster) == 0, log.read_text()
    assert "export KUBECONFIG" not in log.read_text()
    assert traces(directory, cluster) == [] and machine_state() == before
