"""A component of a few lines, as two processes on a real API server: all else `koord.cluster` gives it."""

from __future__ import annotations

import signal
import sys
import urllib.error
import urllib.request
from pathlib import Path

from integration.cluster import objects
from integration.cluster.api import Api
from integration.cluster.controlplane import ControlPlane
from integration.cluster.ports import free_ports
from integration.cluster.toycomponent import NAME
from integration.harness.processes import Process, wait_for

NAMESPACE = "toys"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{NAME}"
NAMES = ("toy-a", "toy-b")
LINGER_S = 6.0
"""Longer than it takes another to lead."""
SOON_S = 30.0


class Replica:
    def __init__(self, plane: ControlPlane, name: str, log: Path) -> None:
        (self.port,) = free_ports(1)
        argv = [
            *(sys.executable, "-m", "integration.cluster.toycomponent", f"--kubeconfig={plane.admin}"),
            *(f"--metrics-addr=127.0.0.1:{self.port}", f"--config-namespace={NAMESPACE}", f"--linger={LINGER_S}"),
        ]
        self.process = Process(argv, log, {"HOSTNAME": name})

    def wait_ready(self) -> None:
        self.process.wait_for(lambda: self.readiness() == "200 ok", SOON_S, f"{NAME} to be ready")

    def readiness(self) -> str:
        """Status and sentence; "" while no server answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as answer:
                return f"{answer.status} {answer.read().decode().strip()}"
        except urllib.error.HTTPError as refusal:
            return f"{refusal.code} {refusal.read().decode().strip()}"
        except OSError:
            return ""


def leader(api: Api) -> str:
    """The host name in the Lease; "" if no replica leads."""
    return str(api.get(LEASE)["spec"].get("holderIdentity") or "").partition("_")[0] if api.exists(LEASE) else ""


def test_one_of_two_leads_and_the_other_takes_over(control_plane: ControlPlane, api: Api, tmp_path: Path) -> None:
    api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})

    def greeter(pod: str) -> str:
        """Who greeted a pod that is created now."""
        api.create(objects.pods_of(NAMESPACE), objects.pod(pod, {"cpu": "10m"}))
        events = f"/api/v1/namespaces/{NAMESPACE}/events"
        found = wait_for(
            lambda: api.items(events, fieldSelector=f"involvedObject.name={pod}"), SOON_S, f"Event of {pod}"
        )
        return str(found[0]["source"]["host"])

    replicas = {name: Replica(control_plane, name, tmp_path / f"{name}.log") for name in NAMES}
    try:
        for replica in replicas.values():
            replica.wait_ready()
        first = wait_for(lambda: leader(api), SOON_S, "a leader")
        (second,) = set(NAMES) - {first}
        assert greeter("one") == first
        leaving = replicas[first]
        leaving.process.signal(signal.SIGTERM)
        wait_for(lambda: leader(api) == second, LINGER_S, f"{second} to lead")
        assert (leaving.process.running, leaving.readiness()) == (True, f"503 {NAME} is stopping")
        assert replicas[second].readiness() == "200 ok"
        assert greeter("two") == second
        assert leaving.process.stop(LINGER_S + SOON_S) == 0
        assert replicas[second].process.stop(LINGER_S + SOON_S) == 0
        assert leader(api) == ""
    finally:
        for replica in replicas.values():
            replica.process.stop()
