"""The cluster that the daemon is measured in: a real API server, koord-manager, and this machine as a Node of them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.agent.settings import EVERYTHING
from bench.manager import offered
from integration.cluster import controlplane, manager, objects
from integration.cluster.api import Api
from integration.cluster.manager import Replica
from integration.harness.processes import wait_for
from integration.node.daemon import Daemon

NODE_NAME = "bench"
FIRST_REPORT_S = 150.0
STEPS = 3
SEEN_MILLI = 500
"""Of a step of a whole CPU: the offer is the lowest of the last minute, and not always as low."""
FRESH_S = 30.0
RECOVERY_S = 180.0
"""An offer grows with a NodeMetric, of which there is one a minute."""
_SPIN = "while True: pass"
_WRITTEN = re.compile(r'koord_qosd_cluster_reports_total\{report="(\w+)",result="written"\} (\S+)')


@dataclass(frozen=True, slots=True)
class Cluster:
    """``flags``: of a daemon that is in it as kubelet is."""

    api: Api
    flags: tuple[str, ...]


@contextlib.contextmanager
def around(directory: Path) -> Iterator[Cluster]:
    """Its policy is that of ``EVERYTHING``."""
    with controlplane.private(directory) as plane, plane.api() as api:
        manager.install(plane)
        manager.install_agents(plane)
        manager.configure(api, _policy({"enable": True}))
        memory = f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') >> 10}Ki"
        resources = {"cpu": str(os.cpu_count()), "memory": memory, "pods": "110"}
        objects.create_nodes(plane.api, [objects.node(NODE_NAME, resources)])
        replica = Replica(plane, "manager")
        try:
            yield Cluster(api, ("--kubeconfig", str(plane.node_kubeconfig(NODE_NAME)), "--node-name", NODE_NAME))
        finally:
            replica.process.stop()


def _policy(colocation: Mapping[str, object]) -> dict[str, str]:
    """slo-controller-config."""
    spec = yaml.safe_load(EVERYTHING)["spec"]
    return {
        "colocation-config": json.dumps(colocation),
        "resource-threshold-config": json.dumps({"clusterStrategy": spec["resourceUsedThresholdWithBE"]}),
        "cpu-burst-config": json.dumps({"clusterStrategy": spec["cpuBurstStrategy"]}),
        "resource-qos-config": json.dumps({"clusterStrategy": spec["resourceQOSStrategy"]}),
        "system-config": json.dumps({"clusterStrategy": spec["systemStrategy"]}),
    }


def wait_first_report(daemon: Daemon) -> None:
    """Raises HarnessError."""
    wait_for(lambda: reports(daemon).get("NodeMetric"), FIRST_REPORT_S, "the first report")


def freshness_s(api: Api) -> list[float]:
    """From the begin of a step of the node's use, outside of all pods, until its Node offers less to batch pods.

    It offers twice what it has from here on, so that a step can be seen on a small machine. Raises HarnessError if one
    is not seen.
    """
    manager.configure(api, _policy({"enable": True, "cpuReclaimThresholdPercent": 200}))
    least_milli, taken_s = 1000 * (os.cpu_count() or 1), list[float]()
    for _ in range(STEPS):
        before_milli = _wait_offer(api, least_milli)
        taken_s.append(_step_s(api, before_milli - SEEN_MILLI))
        least_milli = before_milli - SEEN_MILLI // 2
    return taken_s


def _wait_offer(api: Api, least_milli: int) -> int:
    wait_for(lambda: _offer_milli(api) >= least_milli, RECOVERY_S, f"an offer of {least_milli}m or more")
    return _offer_milli(api)


def _offer_milli(api: Api) -> int:
    return offered(api, NODE_NAME) or 0


def _step_s(api: Api, most_milli: int) -> float:
    begun_s = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", _SPIN])
    try:
        wait_for(lambda: _offer_milli(api) <= most_milli, FRESH_S, f"an offer of {most_milli}m or less")
        return time.monotonic() - begun_s
    finally:
        process.kill()
        process.wait()


def reports(daemon: Daemon) -> dict[str, int]:
    """How many reports the daemon has written, by what is reported."""
    _, page = daemon.page("/metrics")
    return {kind: int(float(count)) for kind, count in _WRITTEN.findall(page)}
