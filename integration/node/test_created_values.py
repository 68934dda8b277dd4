"""Containers that the runtime made with edited values: what they hold without Koord again is what they would ever have.

The same pods are made once through the proxy with koord-qosd acting, and once on a direct connection without it.
Every settable value below the pods' cgroups is compared, after each way in which Koord may leave.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from pathlib import Path

import pytest

from integration.demo import pods
from integration.harness import cgroups
from integration.harness.containerd import Containerd
from integration.harness.cri import Cri
from integration.harness.pods import Container, Pod
from integration.harness.processes import wait_for
from integration.harness.proxy import socket_of, start_proxy
from integration.node import walker
from integration.node.conftest import MakeDaemon
from integration.node.daemon import Daemon
from koord.host.undoable import RestoreOutcome
from koord.pb.cri import api_pb2 as pb
from koordctl.restoring import RestoreReport, restore_node

# CPU sets, quotas (one divided, one lifted), shares, memory limits and cpu.idle are all edited.
RULES = """\
node:
  sharedPools:
    ls: [{socket: 0, node: 0, cpuset: "1"}]
    be: [{socket: 0, node: 0, cpuset: "0"}]
  cpuNormalizationRatio: 1.2
spec:
  resourceQOSStrategy:
    beClass: {cpuQOS: {enable: true, schedIdle: 1}}
"""
MIB = 1 << 20
EDITED = {"cpu.cfs_quota_us", "cpu.shares", "cpuset.cpus", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"}
EDITED_BY_NRI = EDITED - {"memory.memsw.limit_in_bytes"}
"""Limits are written behind the runtime there, which makes the one with swap along with that of memory."""
Made = dict[str, tuple[Pod, str, str]]
"""Pod, sandbox id and container id by the pod's name."""


def makers(root: str) -> list[Pod]:
    """LSR, LS, BE, and a pod without a class whose container kubelet pins."""
    pinned = Container("main", cpu_request_milli=100, cpu_limit_milli=500, cpuset_cpus="0-1")
    return [
        pods.latency_sensitive_reserved(root),
        pods.latency_sensitive(root),
        pods.best_effort(root),
        Pod("pinned", (pinned,), cgroup_root=root),
    ]


@pytest.fixture(params=["containerd1", "containerd2"])
def backend(request: pytest.FixtureRequest, kubepods: str) -> Iterator[Containerd]:
    """Each release in turn; its pods are gone before their cgroups are."""
    running: Containerd = request.getfixturevalue(request.param)
    yield running
    running.remove_pods()


def run(client: Cri, root: str) -> Made:
    made = {}
    for pod in makers(root):
        cgroups.make_pod(pod)
        sandbox_id, ids = client.run(pod)
        made[pod.name] = (pod, sandbox_id, ids[pod.containers[0].name])
    return made


def values(made: Made) -> walker.Values:
    """All settable values of the pods, by paths in which names stand for ids."""
    found = {}
    for name, (pod, sandbox_id, container_id) in made.items():
        for path, content in walker.values(pod.cgroup_parent).items():
            named = path.replace(pod.uid, name).replace(sandbox_id, "sandbox").replace(container_id, "container")
            found[named] = content
    return found


@contextmanager
def through_the_proxy(daemon: Daemon) -> Iterator[Cri]:
    running = start_proxy(daemon.runtime, daemon.directory, daemon.directory / "hookserver.d")
    try:
        with Cri(socket_of(daemon.directory)) as client:
            wait_for(client.ready, 10, "the runtime to answer")
            yield client
    finally:
        running.stop()


def adopted(daemon: Daemon, made: Made) -> bool:
    """Does the daemon hold an edited file of every container?"""
    held = [path for path in daemon.held() if "cpuset.cpus" in path]
    return all(any(container_id in path for path in held) for _, _, container_id in made.values() if _ is not None)


def settle(daemon: Daemon, made: Made) -> None:
    daemon.process.wait_for(lambda: adopted(daemon, made), 20, "koord-qosd to take over what the runtime wrote")


def stopped(daemon: Daemon, made: Made) -> None:
    settle(daemon, made)
    assert daemon.stop() == 0


def killed_at_once(daemon: Daemon, made: Made) -> None:
    daemon.kill()


def killed_later(daemon: Daemon, made: Made) -> None:
    settle(daemon, made)
    daemon.kill()


def restarted(daemon: Daemon, made: Made) -> None:
    daemon.kill()
    daemon.start()
    stopped(daemon, made)


def disabled(daemon: Daemon, made: Made) -> None:
    settle(daemon, made)
    daemon.koordctl("disable", "all")
    assert daemon.stop() == 0


ENDS: Mapping[str, Callable[[Daemon, Made], None]] = {
    each.__name__: each for each in (stopped, killed_at_once, killed_later, restarted, disabled)
}


def pin_all(client: Cri, made: Made) -> None:
    """As kubelet's CPU manager does after its restart: the runtime writes all that it knows of the container."""
    for _, _, container_id in made.values():
        client.update_container(container_id, pb.LinuxContainerResources(cpuset_cpus=cgroups.all_cpus()))


@pytest.mark.parametrize("end", ENDS)
def test_nothing_of_what_they_were_made_with_is_left(
    backend: Containerd, make_daemon: MakeDaemon, kubepods: str, end: str
) -> None:
    daemon = make_daemon(RULES, socket=backend.socket)
    daemon.start()
    with through_the_proxy(daemon) as client:
        made = run(client, kubepods)
    leaves_nothing(backend, daemon, made, kubepods, end)


@pytest.mark.parametrize("end", ["stopped", "killed_at_once"])
def test_nor_of_what_nri_made_of_them(
    containerd2: Containerd, make_daemon: MakeDaemon, kubepods: str, end: str
) -> None:
    daemon = make_daemon(RULES, ("--nri-socket", str(containerd2.layout.nri_socket)), socket=containerd2.socket)
    daemon.start()
    daemon.process.wait_for(lambda: "attached to containerd" in daemon.log, 20, "NRI")
    with Cri(containerd2.socket) as client:
        made = run(client, kubepods)
    try:
        leaves_nothing(containerd2, daemon, made, kubepods, end, EDITED_BY_NRI)
    finally:
        containerd2.remove_pods()


def leaves_nothing(
    backend: Containerd, daemon: Daemon, made: Made, kubepods: str, end: str, files: Set[str] = EDITED
) -> None:
    """Let Koord leave, restore, and compare with pods that never knew it."""
    edited = values(made)
    ENDS[end](daemon, made)
    report = restore_node(daemon.undo_file, backend.socket)
    restored = values(made)
    with Cri(backend.socket) as direct:
        control = run(direct, kubepods)
        unedited = values(control)
        differing = walker.by_name(walker.changed(unedited, edited))
        assert differing.keys() >= files & set(walker.by_name(unedited))
        assert (report.failures, walker.changed(unedited, restored)) == ((), {}), report
        assert restored.keys() == unedited.keys()
        pin_all(direct, made)
        pin_all(direct, control)
        assert walker.changed(values(control), values(made)) == {}
    assert sum(spec.outcome is RestoreOutcome.RESTORED for spec in report.specs) == len(makers(kubepods))
    print(
        f"\n{backend.release.name}, {end}: {len(restored)} values as without Koord, which had edited {dict(differing)}"
    )
    assert restore_node(daemon.undo_file, backend.socket) == RestoreReport()
    assert not daemon.complaints()


def test_without_the_runtime_files_are_restored_and_the_rest_is_said(
    backend: Containerd, make_daemon: MakeDaemon, kubepods: str, tmp_path: Path
) -> None:
    daemon = make_daemon(RULES, socket=backend.socket)
    daemon.start()
    with through_the_proxy(daemon) as client:
        made = run(client, kubepods)
    stopped(daemon, made)
    report = restore_node(daemon.undo_file, tmp_path / "nobody.sock")
    restored = values(made)
    with Cri(backend.socket) as direct:
        unedited = values(run(direct, kubepods))
    assert walker.changed(unedited, restored) == {}
    assert len(report.failures) == len(report.specs) == len(makers(kubepods))
    assert all("its specification cannot be put back: the runtime at" in line for line in report.failures)
    again = restore_node(daemon.undo_file, backend.socket)
    assert (again.failures, {spec.outcome for spec in again.specs}) == ((), {RestoreOutcome.RESTORED})
    assert walker.changed(unedited, values(made)) == {}


def test_plans_explanations_and_the_journal_of_what_was_taken_over(
    backend: Containerd, make_daemon: MakeDaemon, kubepods: str
) -> None:
    daemon = make_daemon(RULES, socket=backend.socket)
    daemon.start()
    with through_the_proxy(daemon) as client:
        made = run(client, kubepods)
        settle(daemon, made)
    _, _, container_id = made["batch-job"]
    answer = daemon.koordctl("explain", "file", f"{made['batch-job'][0].cgroup_parent}/{container_id}/cpu_shares")
    (file,) = answer["files"]
    assert (file["base"], file["result"], file["owner"]) == ("2", "512", "hooks")
    assert file["base_from"] == "kubelet requested it; the container was made with 512"
    assert daemon.koordctl("plan")["writes"] == []
    daemon.stop()
    rows = [row for row in daemon.journal() if container_id in row.path]
    assert {row.result for row in rows} == {"adopted"}
    (shares,) = [row for row in rows if row.name == "cpu_shares"]
    assert (str(shares.before), str(shares.after)) == ("2", "512")
    assert shares.why == "set at creation by the runtime, requested 2"


def test_what_kubelet_asks_for_later_is_what_comes_back(
    backend: Containerd, make_daemon: MakeDaemon, kubepods: str
) -> None:
    """An update whose edit leaves the file as it is, so that only the hook sees kubelet's value."""
    daemon = make_daemon(RULES, socket=backend.socket)
    daemon.start()
    asked = pb.LinuxContainerResources(cpuset_cpus="1", cpu_shares=700, cpu_quota=40_000, cpu_period=100_000)
    with through_the_proxy(daemon) as client:
        made = run(client, kubepods)
        settle(daemon, made)
        pod, _, container_id = made["nginx-lsr"]
        _, _, batch_id = made["batch-job"]
        client.update_container(container_id, asked)
        client.update_container(batch_id, pb.LinuxContainerResources(cpu_shares=3))
    daemon.process.wait_for(lambda: not daemon.koordctl("plan")["writes"], 10, "the update to be dealt with")
    daemon.kill()
    report = restore_node(daemon.undo_file, backend.socket)
    lsr = cgroups.read(f"{pod.cgroup_parent}/{container_id}")
    batch = cgroups.read(f"{made['batch-job'][0].cgroup_parent}/{batch_id}")
    assert (lsr.cfs_quota_us, lsr.cpu_shares, lsr.cpuset_cpus) == (40_000, 700, "1"), report
    assert batch.cpu_shares == 3, report


def test_a_fast_container_is_not_taken_for_what_it_was(
    backend: Containerd, make_daemon: MakeDaemon, kubepods: str
) -> None:
    """A container that ended is forgotten; the next attempt of it is another one."""
    daemon = make_daemon(RULES, socket=backend.socket)
    daemon.start()
    with through_the_proxy(daemon) as client:
        pod = dataclasses.replace(pods.best_effort(kubepods), name="brief")
        cgroups.make_pod(pod)
        sandbox_id, _ = client.run(pod)
        wait_for(lambda: b'"container"' in daemon.undo_file.read_bytes(), 5, "what was requested to be noted")
        client.remove(sandbox_id)
    daemon.process.wait_for(lambda: daemon.koordctl("plan")["writes"] == [], 10, "the pod to be gone")
    wait_for(lambda: _noted_now(daemon) == 0, 10, "what was requested to be forgotten")
    assert daemon.stop() == 0


def _noted_now(daemon: Daemon) -> int:
    """The number of containers for which the record has kubelet's request."""
    noted: set[str] = set()
    for event in map(json.loads, daemon.undo_file.read_text().splitlines()[1:]):
        if event["type"] == "container":
            noted.add(str(event["key"]))
        elif event["type"] == "dropped" and event["kind"] == "container":
            noted.discard(str(event["key"]))
    return len(noted)
