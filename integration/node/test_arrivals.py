"""Pods and qosd that come in any order: before it, after it, and last of all one that wants CPUs for itself.

Times are printed; what is asserted is their order.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from integration.demo import pods
from integration.harness import cgroups
from integration.harness.containerd import Containerd
from integration.harness.cri import Cri
from integration.harness.pods import Pod
from integration.harness.processes import Process, wait_for
from integration.harness.proxy import RULES, socket_of, start_proxy
from integration.node import cpusets, doctor
from integration.node.conftest import MakeDaemon
from integration.node.daemon import Daemon, Row
from integration.nri.classes import MAKERS, MIB, NO_LIMIT, held, start, wanted
from koord.model import cpuset

DRY = ("--dry-run",)
CPU, OTHER = "0", "1"
Amounts = tuple[str, int, int, int]
PARENTS: dict[str, dict[str, Amounts]] = {  # cpuset, quota, shares, memory
    "LSR": {"pod": ("all", -1, 1024, 128 * MIB), "sandbox": (CPU, -1, 2, NO_LIMIT)},
    "LS": {"pod": ("all", 100_000, 512, 128 * MIB), "sandbox": (OTHER, -1, 2, NO_LIMIT)},
    "BE": {"pod": ("all", 50_000, 512, 64 * MIB), "sandbox": ("all", -1, 2, NO_LIMIT)},
}


@pytest.fixture
def with_nri(containerd2: Containerd, kubepods: str) -> Iterator[Containerd]:
    """containerd 2.x, without pods; it runs afterwards, whatever the test did to it."""
    yield containerd2
    containerd2.remove_pods()


@pytest.fixture(params=["containerd1", "containerd2"])
def backend(request: pytest.FixtureRequest, kubepods: str) -> Iterator[Containerd]:
    """Each release in turn; its pods are gone before their cgroups are."""
    running: Containerd = request.getfixturevalue(request.param)
    yield running
    running.remove_pods()


def nri_flags(runtime: Containerd) -> tuple[str, ...]:
    return ("--nri-socket", str(runtime.layout.nri_socket))


@contextmanager
def proxy(daemon: Daemon) -> Iterator[Process]:
    """The runtime proxy before the daemon's runtime."""
    running = start_proxy(daemon.runtime, daemon.directory, daemon.directory / "hookserver.d")
    try:
        yield running
    finally:
        running.stop()


def front_ends(daemon: Daemon) -> dict[str, str]:
    """State by front end, as ``koordctl node`` has it."""
    found = daemon.koordctl("node")["front_ends"]
    return {one["name"]: "acts" if one["acting"] else "attached" if one["attached"] else "absent" for one in found}


def hook_calls(daemon: Daemon, caller: str) -> set[str]:
    """The results of this caller's hook calls so far."""
    lines = [line for line in daemon.page("/metrics")[1].splitlines() if f'caller="{caller}"' in line]
    return {line.partition('result="')[2].partition('"')[0] for line in lines if "_total{" in line}


def exclusive(root: str, cpus: str = CPU, name: str = "lse") -> Pod:
    """An LSE pod to which the scheduler gave ``cpus``, as many as it requests."""
    pod = pods.latency_sensitive_reserved(root)
    whole = [dataclasses.replace(each, cpu_limit_milli=1000 * len(cpuset.parse(cpus))) for each in pod.containers]
    status = json.dumps({"cpuset": cpus})
    return dataclasses.replace(
        pod,
        name=name,
        labels={**pod.labels, pods.QOS: "LSE"},
        annotations={pods.RESOURCE_STATUS: status},
        containers=tuple(whole),
    )


# --- front ends ------------------------------------------------------------------------------------------------------


def test_nri_edits_through_every_restart_of_containerd(
    with_nri: Containerd, make_daemon: MakeDaemon, kubepods: str
) -> None:
    """qosd's own writes are switched off: the values are those that the runtime got."""
    daemon = make_daemon(RULES, (*nri_flags(with_nri), *DRY), socket=with_nri.socket)
    daemon.start()

    def killed() -> None:
        with_nri.kill()
        with_nri.start()

    for life, again in enumerate((lambda: None, with_nri.restart, killed), start=1):
        again()
        daemon.process.wait_for(lambda: daemon.log.count("attached to containerd") == life, 20, "NRI")  # noqa: B023
        with Cri(with_nri.socket) as client:
            for qos, make in MAKERS.items():
                assert held(cgroups.read(start(client, make(kubepods)))) == wanted(qos), (life, qos)
            client.remove_all()
    assert front_ends(daemon) == {"proxy": "absent", "nri": "acts", "reconciler": "attached"}
    assert doctor.findings(daemon)["front-end"] == "ok: nri acts"
    with_nri.stop()
    wait_for(lambda: front_ends(daemon)["nri"] == "absent", 5, "NRI to be absent")
    assert doctor.findings(daemon)["front-end"].startswith("info: no proxy and no NRI is attached")
    assert not daemon.complaints()


def test_of_two_front_ends_one_acts_and_the_other_takes_over(
    with_nri: Containerd, make_daemon: MakeDaemon, kubepods: str
) -> None:
    daemon = make_daemon(RULES, (*nri_flags(with_nri), *DRY), socket=with_nri.socket)
    daemon.start()
    with proxy(daemon) as running, Cri(socket_of(daemon.directory)) as client:
        assert held(cgroups.read(start(client, pods.best_effort(kubepods)))) == wanted("BE")
        assert front_ends(daemon) == {"proxy": "acts", "nri": "attached", "reconciler": "attached"}
        assert doctor.findings(daemon)["front-end"] == "ok: proxy acts; attached, but idle: nri"
        assert (hook_calls(daemon, "koord"), hook_calls(daemon, "nri")) == ({"edited"}, {"yielded"})
        running.kill()
        wait_for(lambda: front_ends(daemon)["nri"] == "acts", 5, "NRI to take over")
    with Cri(with_nri.socket) as client:
        assert held(cgroups.read(start(client, pods.latency_sensitive(kubepods)))) == wanted("LS")
    assert hook_calls(daemon, "nri") == {"yielded", "edited"}


# --- pods that were there before -------------------------------------------------------------------------------------


def picture(pod: Pod, sandbox_id: str, container_id: str) -> dict[str, Amounts]:
    """What the kernel holds for a pod with one container."""
    groups = {"pod": "", "sandbox": f"/{sandbox_id}", "container": f"/{container_id}"}
    return {level: held(cgroups.read(pod.cgroup_parent + below)) for level, below in groups.items()}


def expected(qos: str) -> dict[str, Amounts]:
    found = {"container": wanted(qos)}
    for level, (cpus, quota_us, shares, memory_bytes) in PARENTS[qos].items():
        found[level] = (cgroups.all_cpus() if cpus == "all" else cpus, quota_us, shares, memory_bytes)
    return found


def run(client: Cri, pod: Pod) -> tuple[Pod, str, str]:
    """The pod as kubelet starts it, with the ids of its sandbox and its container."""
    cgroups.make_pod(pod)
    sandbox_id, ids = client.run(pod)
    return pod, sandbox_id, ids[pod.containers[0].name]


def test_pods_that_ran_before_get_what_the_proxy_brings(
    backend: Containerd, make_daemon: MakeDaemon, kubepods: str
) -> None:
    by_proxy = make_daemon(RULES, socket=backend.socket)
    by_proxy.start()
    with proxy(by_proxy), Cri(socket_of(by_proxy.directory)) as client:
        made = {qos: run(client, make(kubepods)) for qos, make in MAKERS.items()}
        for qos, pod in made.items():
            wait_for(lambda: picture(*pod) == expected(qos), 5, f"the proxy's {qos}")  # noqa: B023
        client.remove_all()
    by_proxy.stop()
    with Cri(backend.socket) as client:
        made = {qos: run(client, make(kubepods)) for qos, make in MAKERS.items()}
        assert all(picture(*pod) != expected(qos) for qos, pod in made.items())
        alone = make_daemon(RULES, socket=backend.socket)
        alone.start()
        for qos, pod in made.items():
            wait_for(lambda: picture(*pod) == expected(qos), 5, f"the reconciler's {qos}")  # noqa: B023
    assert doctor.findings(alone)["front-end"].startswith("info: no proxy and no NRI is attached")
    assert not alone.complaints()


# --- the last to come ------------------------------------------------------------------------------------------------


def runs(client: Cri, root: str) -> list[str]:
    """An LS and a BE pod, running: the cgroups of their containers and sandboxes."""
    made = [run(client, make(root)) for make in (pods.latency_sensitive, pods.best_effort)]
    return [f"{pod.cgroup_parent}/{id_}" for pod, *ids in made for id_ in ids]


def moved(daemon: Daemon, since: int) -> list[tuple[int, str, str, str]]:
    """Tick, pod, CPU set before and after of all moves journalled after the first ``since`` entries."""
    wait_for(lambda: len(daemon.journal()) > since, 5, "the journal")
    rows: list[Row] = [row for row in daemon.journal()[since:] if row.name == "cpuset_cpus"]
    assert {row.result for row in rows} <= {"done"}
    return [(row.tick, row.pod.partition("/")[2], str(row.before), str(row.after)) for row in rows]


@contextmanager
def kubelet_at(front_end: str, runtime: Containerd, make_daemon: MakeDaemon) -> Iterator[Cri]:
    """A client on a node where this front end acts."""
    daemon = make_daemon("", nri_flags(runtime) if front_end == "nri" else (), socket=runtime.socket)
    daemon.start()
    with ExitStack() as stack:
        if front_end == "proxy":
            stack.enter_context(proxy(daemon))
        client = stack.enter_context(Cri(socket_of(daemon.directory) if front_end == "proxy" else runtime.socket))
        wait_for(client.ready, 5, "the runtime to answer")
        yield client


@pytest.mark.parametrize("front_end", ["proxy", "nri"])
def test_who_runs_on_an_lse_pod_s_cpu_leaves_before_it_starts(
    with_nri: Containerd, make_daemon: MakeDaemon, kubepods: str, front_end: str
) -> None:
    with Cri(with_nri.socket) as direct:
        present = runs(direct, kubepods)
    with kubelet_at(front_end, with_nri, make_daemon) as client, cpusets.Writes(present) as writes:
        wait_for(lambda: held(cgroups.read(present[-1])) == wanted("BE"), 10, "the pods to be known")
        assert cpusets.of(present) == {cgroups.all_cpus()}
        pod = exclusive(kubepods)
        cgroups.make_pod(pod)
        began_s = time.time()
        sandbox_id = client.run_pod(pod)
        ran_s = time.time()
        container_id = client.create_container(sandbox_id, pod, pod.containers[0])
        if front_end == "proxy":
            assert cpusets.of(present) == {OTHER}  # CreateContainer has waited for that
        client.start_container(container_id)
        wait_for(lambda: cpusets.of(present) == {OTHER}, 5, "the others to move")
        started_s = client.container_status(container_id).status.started_at / 1e9
        first, last, ran, started = (
            f"{(at_s - began_s) * 1e3:.0f} ms" for at_s in (writes.times_s[0], writes.times_s[-1], ran_s, started_s)
        )
        print(f"\n{front_end}: first move after {first}, last {last}; sandbox after {ran}, start {started}")
        assert len(writes.times_s) == len(present)
        assert writes.times_s[-1] < started_s
        assert cgroups.read(f"{pod.cgroup_parent}/{container_id}").cpuset_cpus == CPU
        client.remove(sandbox_id)
        wait_for(lambda: cpusets.of(present) == {cgroups.all_cpus()}, 5, "the CPU to be given back")


def test_the_reconciler_alone_makes_room_after_the_start(
    backend: Containerd, make_daemon: MakeDaemon, kubepods: str
) -> None:
    with Cri(backend.socket) as client:
        present = runs(client, kubepods)
        daemon = make_daemon(socket=backend.socket)
        daemon.start()
        wait_for(lambda: held(cgroups.read(present[-1])) == wanted("BE"), 10, "the pods to be known")
        seen = len(daemon.journal())
        pod = exclusive(kubepods)
        pinned = dataclasses.replace(pod, containers=(dataclasses.replace(pod.containers[0], cpuset_cpus=OTHER),))
        _, sandbox_id, container_id = run(client, pinned)
        began_s = time.monotonic()
        wait_for(lambda: cpusets.of(present) == {OTHER}, 5, "the others to move")
        wait_for(lambda: cgroups.read(f"{pod.cgroup_parent}/{container_id}").cpuset_cpus == CPU, 5, "the newcomer")
        print(f"\nreconciler on {backend.release.name}: {(time.monotonic() - began_s) * 1e3:.0f} ms after the start")
        daemon.stop()  # which writes the journal
        moves = moved(daemon, seen)
        newcomer = [number for number, (_, name, _, _) in enumerate(moves) if name == pod.name]
        others = [number for number, (_, name, _, _) in enumerate(moves) if name != pod.name]
        assert max(others) < min(newcomer), moves
        daemon.start()
        client.remove(sandbox_id)
        wait_for(lambda: cpusets.of(present) == {cgroups.all_cpus()}, 5, "the CPU to be given back")


def test_the_ls_pool_is_never_empty(runtime: Path, cri: Cri, make_daemon: MakeDaemon, kubepods: str) -> None:
    everywhere = cgroups.all_cpus()
    present = runs(cri, kubepods)
    daemon = make_daemon()
    daemon.start()
    _, sandbox_id, _ = run(cri, exclusive(kubepods, everywhere, "greedy"))
    wait_for(lambda: "default/greedy (LSE)" in daemon.log, 5, "a warning that names the pod")
    said = f"no CPU is left for the LS and BE pools: they share the LSE pods' CPUs {everywhere} of default/greedy (LSE)"
    answer = daemon.koordctl("node")
    assert said in daemon.log and said in answer["warnings"]
    assert {pool["cpus"] for pool in answer["pools"]} == {everywhere}
    assert cpusets.of(present) == {everywhere}
    cri.remove(sandbox_id)
    wait_for(lambda: said not in daemon.koordctl("node")["warnings"], 5, "the warning to go")
