"""The cluster that the daemon is measured in: a real API server, koord-manager, and this machine as a Node of them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.agent import rules
from bench.manager import offered
from integration.cluster import controlplane, manager, objects
from integration.cluster.api import Api
from integration.cluster.manager import MANIFESTS, Replica
from integration.harness.processes import wait_for
from integration.node.daemon import Daemon

NODE_NAME = "bench"
FIRST_REPORT_S = 150.0
STEPS, STEP_MILLI = 3, 400
_STEP = """
import time
while True:
    until = time.perf_counter() + 0.04
    while time.perf_counter() < until:
        pass
    time.sleep(0.06)
"""
"""About ``STEP_MILLI`` of a CPU, outside of all pods: the system's use."""
BETWEEN_S = 20.0
FRESH_S = 30.0
_WRITTEN = re.compile(r'koord_qosd_cluster_reports_total\{report="(\w+)",result="written"\} (\S+)')


@dataclass(frozen=True, slots=True)
class Cluster:
    """``flags``: of a daemon that is in it as kubelet is."""

    api: Api
    flags: tuple[str, ...]


@contextlib.contextmanager
def around(directory: Path) -> Iterator[Cluster]:
    """Its policy is that of ``rules.EVERYTHING``."""
    with controlplane.private(directory) as plane, plane.api() as api:
        manager.install(plane)
        for path in sorted((MANIFESTS / "koordlet").glob("*.yaml")):
            plane.kubectl("apply", "-f", str(path))
        manager.configure(api, _policy())
        memory = f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') >> 10}Ki"
        resources = {"cpu": str(os.cpu_count()), "memory": memory, "pods": "110"}
        objects.create_nodes(plane.api, [objects.node(NODE_NAME, resources)])
        replica = Replica(plane, "manager")
        try:
            yield Cluster(api, ("--kubeconfig", str(plane.node_kubeconfig(NODE_NAME)), "--node-name", NODE_NAME))
        finally:
            replica.process.stop()


def _policy() -> dict[str, str]:
    """slo-controller-config."""
    spec = yaml.safe_load(rules.EVERYTHING)["spec"]
    return {
        "colocation-config": json.dumps({"enable": True, "cpuReclaimThresholdPercent": 100}),
        "resource-threshold-config": json.dumps({"clusterStrategy": spec["resourceUsedThresholdWithBE"]}),
        "cpu-burst-config": json.dumps({"clusterStrategy": spec["cpuBurstStrategy"]}),
        "resource-qos-config": json.dumps({"clusterStrategy": spec["resourceQOSStrategy"]}),
        "system-config": json.dumps({"clusterStrategy": spec["systemStrategy"]}),
    }


def wait_first_report(daemon: Daemon) -> None:
    """Raises HarnessError."""
    wait_for(lambda: reports(daemon).get("NodeMetric"), FIRST_REPORT_S, "the first report")


def freshness_s(api: Api) -> list[float]:
    """From the begin of a step of the node's use until its Node offers that much less to batch pods.

    Each step comes on top of those before. Raises HarnessError if one is not seen.
    """
    taken_s = []
    with contextlib.ExitStack() as stack:
        for _ in range(STEPS):
            time.sleep(BETWEEN_S)
            before = offered(api, NODE_NAME) or 0
            begun_s = time.monotonic()
            process = subprocess.Popen([sys.executable, "-c", _STEP])
            stack.callback(process.wait)
            stack.callback(process.terminate)
            wait_for(
                lambda before=before: (offered(api, NODE_NAME) or 0) <= before - STEP_MILLI // 2,  # type: ignore[misc]
                FRESH_S,
                f"the Node to offer {STEP_MILLI // 2}m less than {before}m",
            )
            taken_s.append(time.monotonic() - begun_s)
    return taken_s


def reports(daemon: Daemon) -> dict[str, int]:
    """How many reports the daemon has written, by what is reported."""
    _, page = daemon.page("/metrics")
    return {kind: int(float(count)) for kind, count in _WRITTEN.findall(page)}
