"""The cluster that the daemon is measured in: a real API server, koord-manager, and this machine as a Node of them."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from bench.agent import rules
from integration.cluster import controlplane, manager, objects
from integration.cluster.manager import MANIFESTS, Replica
from integration.harness.processes import wait_for
from integration.node.daemon import Daemon

NODE_NAME = "bench"
FIRST_REPORT_S = 150.0
_WRITTEN = re.compile(r'koord_qosd_cluster_reports_total\{report="(\w+)",result="written"\} (\S+)')


@contextlib.contextmanager
def around(directory: Path) -> Iterator[tuple[str, ...]]:
    """The flags of a daemon that is in the cluster as kubelet is; the policy is that of ``rules.EVERYTHING``."""
    with controlplane.private(directory) as plane, plane.api() as api:
        manager.install(plane)
        for path in sorted((MANIFESTS / "koordlet").glob("*.yaml")):
            plane.kubectl("apply", "-f", str(path))
        manager.configure(api, _policy())
        memory = f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') >> 10}Ki"
        offered = {"cpu": str(os.cpu_count()), "memory": memory, "pods": "110"}
        objects.create_nodes(plane.api, [objects.node(NODE_NAME, offered)])
        replica = Replica(plane, "manager")
        try:
            yield ("--kubeconfig", str(plane.node_kubeconfig(NODE_NAME)), "--node-name", NODE_NAME)
        finally:
            replica.process.stop()


def _policy() -> dict[str, str]:
    """slo-controller-config."""
    spec = yaml.safe_load(rules.EVERYTHING)["spec"]
    return {
        "colocation-config": json.dumps({"enable": True}),
        "resource-threshold-config": json.dumps({"clusterStrategy": spec["resourceUsedThresholdWithBE"]}),
        "cpu-burst-config": json.dumps({"clusterStrategy": spec["cpuBurstStrategy"]}),
        "resource-qos-config": json.dumps({"clusterStrategy": spec["resourceQOSStrategy"]}),
        "system-config": json.dumps({"clusterStrategy": spec["systemStrategy"]}),
    }


def wait_first_report(daemon: Daemon) -> None:
    """Raises HarnessError."""
    wait_for(lambda: reports(daemon).get("NodeMetric"), FIRST_REPORT_S, "the first report")


def reports(daemon: Daemon) -> dict[str, int]:
    """How many reports the daemon has written, by what is reported."""
    _, page = daemon.page("/metrics")
    return {kind: int(float(count)) for kind, count in _WRITTEN.findall(page)}
