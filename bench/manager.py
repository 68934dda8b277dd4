"""koord-manager with 2,000 nodes on a real API server: what it costs, and how fresh it is. ``python -m bench.manager``.

Nodes are objects without machines, each with thirty pods that do not run: each has a connection of its own to NodeLink
(mTLS) on which it reports every five seconds, and its NodeMetric is written once a minute, as agents do. Cost is that
of the leader's whole process, caches included, over the measured interval; all of etcd, API server and load share the
machine. Freshness is from the instant at which a node reports a step of use until its Node shows the smaller offer, as
read from the API server.
"""

from __future__ import annotations

import argparse
import base64
import datetime
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import stats
from bench.nodelinkprocesses import Load, cpu_s, load, memory_mib
from bench.table import Line, summary
from integration.cluster import controlplane, manager, objects
from integration.cluster.api import Api
from integration.cluster.controlplane import ControlPlane
from integration.cluster.manager import NAMESPACE, Replica
from integration.harness.processes import wait_for
from koord.tls.certificates import CA_CERTIFICATE, CA_KEY, KeyPair

METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/koordinator-nodelink-certs"
BATCH_CPU = "kubernetes.io/batch-cpu"
POD_NAMESPACE = "shop"
PODS = 30
STEP_MILLI = 4000
WRITERS = 4
MINUTE_S = 60.0
SETTLE_S = 240.0


@dataclass
class MetricWriters:
    """Writes each node's NodeMetric once a minute, as the agents do."""

    plane: ControlPlane
    names: Sequence[str]
    written: int = 0
    failures: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self, interval_s: float) -> None:
        self._stop.clear()
        shares = [self.names[first::WRITERS] for first in range(WRITERS)]
        self._threads = [threading.Thread(target=self._write, args=(share, interval_s)) for share in shares]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def once(self) -> None:
        objects.for_each(self.plane.api, self.names, report)

    def _write(self, names: Sequence[str], interval_s: float) -> None:
        due_s = time.monotonic()
        with self.plane.api() as api:
            while True:
                for name in names:
                    due_s += interval_s / len(names)
                    if self._stop.wait(max(0.0, due_s - time.monotonic())):
                        return
                    try:
                        report(api, name)
                        self.written += 1
                    except Exception as error:  # noqa: BLE001 - the root of a writer: the figure says how many failed
                        self.failures.append(str(error))


def pod_name(node: str, index: int) -> str:
    """As the load reports it."""
    return f"{node}-web-5d9c7b6f4-{index:05}"


def fill(api: Api, node: str) -> None:
    """Create the pods of a node, which have been placed there."""
    amounts, labels = {"cpu": "10m", "memory": "20Mi"}, {"app": "web", "pod-template-hash": "5d9c7b6f4"}
    for index in range(PODS):
        made = objects.pod(
            pod_name(node, index), amounts, amounts, labels, nodeName=node, priorityClassName="koord-prod"
        )
        api.create(objects.pods_of(POD_NAMESPACE), made)


def report(api: Api, name: str) -> None:
    """The NodeMetric of a node whose pods use what the load says."""
    now = datetime.datetime.now(datetime.UTC).isoformat().replace("+00:00", "Z")
    system, node = ({"resources": {"cpu": cpu, "memory": memory}} for cpu, memory in (("1", "2Gi"), ("2", "4Gi")))
    pods = [
        {
            "namespace": POD_NAMESPACE,
            "name": pod_name(name, index),
            "priority": "koord-prod",
            "podUsage": {"resources": {"cpu": "10m", "memory": "20Mi"}},
        }
        for index in range(PODS)
    ]
    status = {"updateTime": now, "nodeMetric": {"nodeUsage": node, "systemUsage": system}, "podsMetric": pods}
    api.merge(f"{METRICS}/{name}/status", {"status": status})


def offered(api: Api, name: str) -> int | None:
    allocatable = api.get(f"{objects.NODES}/{name}")["status"]["allocatable"]
    return int(allocatable[BATCH_CPU].replace("k", "000")) if BATCH_CPU in allocatable else None


def freshness_s(api: Api, clients: Load, nodes: Sequence[int]) -> list[float]:
    """Of each node: from the step until its Node shows less."""
    taken_s = []
    for number in nodes:
        name = f"{clients.prefix}{number}"
        before = offered(api, name) or 0
        begun_s = time.monotonic()
        clients.step(number, STEP_MILLI)
        most = before - STEP_MILLI // 2
        wait_for(lambda name=name, most=most: (offered(api, name) or 0) <= most, 30.0, f"{name} to show {most}m")  # type: ignore[misc]
        taken_s.append(time.monotonic() - begun_s)
    return taken_s


def prepared(plane: ControlPlane, api: Api, names: Sequence[str]) -> Replica:
    """A leader that has seen every node and offers the rest of each."""
    manager.install(plane)
    manager.configure(api, {"colocation-config": '{"enable": true}'})
    nodes = [objects.node(name, {"cpu": "16", "memory": "64Gi", "pods": "110"}) for name in names]
    objects.create_nodes(plane.api, nodes)
    api.create("/api/v1/namespaces", {"metadata": {"name": POD_NAMESPACE}})
    objects.for_each(plane.api, names, fill)
    replica = Replica(plane, "manager", "--rest-config-qps=400", "--rest-config-burst=800")
    replica.wait_ready()
    wait_for(lambda: len(api.items(METRICS)) == len(names), SETTLE_S, "a NodeMetric for each node")
    return replica


def authority(api: Api) -> KeyPair:
    data = api.get(SECRET)["data"]
    key, certificate = (base64.b64decode(data[name]) for name in (CA_KEY, CA_CERTIFICATE))
    return KeyPair(key, certificate)


def main() -> int:
    parser = argparse.ArgumentParser(description="What koord-manager costs with many nodes.")
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the measured interval (default: 60)")
    parser.add_argument("--steps", type=int, default=40, help="steps of use, one after the other (default: 40)")
    options = parser.parse_args()
    names = [f"node-{number}" for number in range(options.nodes)]
    with (
        tempfile.TemporaryDirectory(prefix="koord-bench-") as directory,
        controlplane.private(Path(directory, "plane")) as plane,
        plane.api() as api,
    ):
        replica = prepared(plane, api, names)
        try:
            return measure(plane, api, replica, names, Path(directory), options)
        finally:
            replica.process.stop()


def measure(
    plane: ControlPlane,
    api: Api,
    replica: Replica,
    names: Sequence[str],
    directory: Path,
    options: argparse.Namespace,
) -> int:
    pid, writers = replica.process.pid, MetricWriters(plane, names)
    writers.once()
    wait_for(lambda: offered(api, names[-1]) is not None, SETTLE_S, "the last node's offer")
    alone_mib = memory_mib(pid)
    with load(directory, authority(api), replica.nodelink_port, len(names), PODS) as clients:
        wait_for(lambda: replica.figure("koord_manager_nodelink_nodes") == len(names), SETTLE_S, "every node's report")
        time.sleep(10)  # what connecting has left behind
        clients.say("forget")
        writers.start(MINUTE_S)
        begun_s, used_s = time.monotonic(), cpu_s(pid)
        time.sleep(options.seconds)
        passed_s, used_s = time.monotonic() - begun_s, cpu_s(pid) - used_s
        mib = memory_mib(pid)
        taken_s = freshness_s(api, clients, range(0, len(names), max(1, len(names) // options.steps)))
        writers.stop()
        latencies_ms, failures = clients.end()
    p99_ms = stats.percentile(latencies_ms, 99.0)
    median_s, worst_s = stats.percentile(taken_s, 50.0), max(taken_s)
    failed = [*failures, *writers.failures]
    done = f"{writers.written} NodeMetrics written, {len(latencies_ms)} reports, {len(failed)} failed {failed[:1]}"
    print(f"{len(names) * PODS} pods; {done}")
    core = used_s / passed_s
    rows = [
        Line("CPU of koord-manager", f"{core:.2f} core", "<= 0.5 core", core <= 0.5),
        Line("its memory", f"{mib:.0f} MiB; {alone_mib:.0f} MiB before the nodes came", "<= 350 MiB", mib <= 350),
        Line("a report, from call to answer", f"p99 {p99_ms:.0f} ms"),
        Line(
            "a step of use, from its report to the Node",
            f"p50 {median_s:.2f} s, at most {worst_s:.2f} s; {len(taken_s)} steps",
            "<= 3 s",
            worst_s <= 3,
        ),
    ]
    for row in rows:
        print(row.text())
    print(summary(f"bench-manager: {len(names)} nodes", rows))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
