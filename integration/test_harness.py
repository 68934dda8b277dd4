"""The harness itself: asked values are in the kernel's files, faults are survived, nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import grpc
import pytest

from integration.harness import cgroups, containerd, leftovers, machine
from integration.harness.containerd import Containerd
from integration.harness.cri import Cri
from integration.harness.pods import SLEEP, Container, Pod
from integration.harness.processes import HarnessError, Process
from koord.pb.cri import api_pb2 as pb

MIB = 1 << 20


def test_another_session_of_tests_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "SESSION_LOCK", tmp_path / "lock")
    began = threading.Event()

    def other() -> None:
        with machine.sole_session():
            began.set()

    with machine.sole_session():
        session = threading.Thread(target=other)
        session.start()
        assert not began.wait(0.3)
    session.join(5)
    assert began.is_set()
    assert capsys.readouterr().err == f"another session of tests holds {tmp_path}/lock: waiting for its end\n"


def test_what_a_session_of_tests_starts_gives_way_as_it_does(tmp_path: Path) -> None:
    code = (
        "import os, pathlib; from integration.harness.processes import Process; os.nice(7);"
        f"p = Process(['sleep', '60'], pathlib.Path('{tmp_path}/log'));"
        "print(pathlib.Path(f'/proc/{p.pid}/autogroup').read_text()); p.kill()"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=30, stdout=subprocess.PIPE, text=True)
    assert done.stdout.strip().endswith(f" nice {min(os.nice(0) + 7, 19)}")


def test_a_process_that_does_not_serve_in_time_is_stopped(tmp_path: Path) -> None:
    process = Process(["sleep", "60"], tmp_path / "log")
    with pytest.raises(HarnessError, match="a file"):
        process.wait_until_serving((tmp_path / "absent").exists, 0.1, "a file")
    assert not process.running


def test_an_unknown_container_is_refused_with_containerds_own_code(cri: Cri) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        cri.start_container("no-such-container")
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


def test_asked_values_are_in_the_kernels_files(cri: Cri, cgroup_root: str) -> None:
    container = Container("main", cpu_limit_milli=500, memory_limit_bytes=64 * MIB, cpuset_cpus="0")
    pod = Pod("asked", (container,), cgroup_root=cgroup_root)
    cgroups.make_pod(pod)
    with cri.running(pod) as ids:
        values = cgroups.read(f"{pod.cgroup_parent}/{ids['main']}")
    assert values == cgroups.Values(512, 50_000, 100_000, "0", values.cpuset_mems, 64 * MIB)


def test_an_update_of_one_value_leaves_the_others_alone(cri: Cri, cgroup_root: str) -> None:
    container = Container("main", cpu_limit_milli=500, memory_limit_bytes=64 * MIB)
    pod = Pod("updated", (container,), cgroup_root=cgroup_root)
    cgroups.make_pod(pod)
    with cri.running(pod) as ids:
        path = f"{pod.cgroup_parent}/{ids['main']}"
        before = cgroups.read(path)
        cri.update_container(ids["main"], pb.LinuxContainerResources(cpu_shares=300))
        after = cgroups.read(path)
    assert (after.cpu_shares, after.cfs_quota_us, after.memory_limit_bytes) == (300, 50_000, before.memory_limit_bytes)


def test_exec_env_and_logs_of_a_pod_with_a_network_of_its_own(cri: Cri, cgroup_root: str, tmp_path: Path) -> None:
    container = Container("main", envs={"GREETING": b"hello"}, command=SLEEP)
    pod = Pod("talks", (container,), cgroup_root=cgroup_root, host_network=False, logs=tmp_path)
    cgroups.make_pod(pod)
    with cri.running(pod) as ids:
        answer = cri.exec_sync(ids["main"], "sh", "-c", "echo $GREETING; ip -o -4 addr show eth0")
        log = (tmp_path / "main" / "0.log").read_text()
    assert answer.exit_code == 0
    assert answer.stdout.startswith(b"hello\n") and b"inet 10." in answer.stdout
    assert log.endswith("stdout F started\n")


def test_pods_outlive_a_killed_containerd(any_containerd: Containerd, cri: Cri, cgroup_root: str) -> None:
    pod = Pod("outlives", (Container("main"),), cgroup_root=cgroup_root)
    cgroups.make_pod(pod)
    with cri.running(pod) as ids:
        any_containerd.kill()
        any_containerd.start()
        with Cri(any_containerd.socket) as again:
            states = {item.id: item.state for item in again.containers()}
            assert states[ids["main"]] == pb.CONTAINER_RUNNING
            assert again.exec_sync(ids["main"], "true").exit_code == 0


def test_nothing_is_left_of_a_containerd_that_died_with_pods(tmp_path: Path, cgroup_root: str) -> None:
    pod = Pod("orphan", (Container("main"),), cgroup_root=cgroup_root, host_network=False)
    cgroups.make_pod(pod)
    with containerd.private(containerd.installed(), tmp_path / "c") as running:
        with Cri(running.socket) as cri:
            cri.run(pod)
        assert leftovers.shims(running.socket)
        assert leftovers.mounts_below(running.layout.directory)
        running.kill()
    assert leftovers.shims(running.socket) == []
    assert leftovers.mounts_below(tmp_path) == []
    assert not Path("/sys/class/net", running.layout.bridge).exists()
    assert [path.name for path in running.layout.directory.iterdir()] == ["containerd.log"]
