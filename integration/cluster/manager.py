"""koord-manager as processes beside a control plane, with the rights that its manifests give it and no more.

The API server reaches a replica's webhooks by URL, since there is no service network: the configurations of
``manifests/koord-manager`` are applied with a URL in place of the Service.
"""

from __future__ import annotations

import copy
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import yaml

from integration.cluster.api import Api, Object
from integration.cluster.controlplane import ControlPlane
from integration.cluster.ports import free_ports
from integration.harness.processes import HarnessError, Process, wait_for

MANIFESTS = Path(__file__).parents[2] / "manifests"
NAMESPACE = "koordinator-system"
USER = f"system:serviceaccount:{NAMESPACE}:koord-manager"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/koordinator-manager"
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
READY_S = 60.0


class Plane(Protocol):
    """What a replica needs of a control plane. ``directory``: for its log."""

    @property
    def directory(self) -> Path: ...
    def kubeconfig(self, user: str) -> Path: ...


class Replica:
    """One koord-manager. ``name``: its host name, as the Lease has it."""

    def __init__(self, plane: Plane, name: str, *flags: str) -> None:
        self.name = name
        self.webhook_port, self.metrics_port, self.nodelink_port = free_ports(3)
        nodelink = f"127.0.0.1:{self.nodelink_port}"
        argv = [
            *(sys.executable, "-m", "koord_manager", f"--kubeconfig={plane.kubeconfig(USER)}"),
            *(f"--metrics-addr=127.0.0.1:{self.metrics_port}", "--webhook-host=127.0.0.1"),
            *(f"--webhook-port={self.webhook_port}", "--webhook-names=127.0.0.1", "--webhook-linger=0.5"),
            *(f"--nodelink-endpoint={nodelink}", f"--advertise-address={nodelink}", *flags),
        ]
        self.process = Process(argv, plane.directory / f"{name}.log", {"HOSTNAME": name})

    def wait_ready(self) -> None:
        """Until it answers webhooks with a certificate that API servers verify."""
        self.process.wait_for(lambda: self.page("readyz") == "ok\n", READY_S, f"{self.name} to be ready")

    def page(self, path: str) -> str:
        """A status page; "" while there is none."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def figure(self, name: str) -> float:
        """A metric without labels."""
        lines = [line.split() for line in self.page("metrics").splitlines() if line.startswith(f"{name} ")]
        if not lines:
            raise HarnessError(f"{self.name} has no metric {name}")
        return float(lines[0][1])


@contextmanager
def asked_replica(plane: ControlPlane, api: Api, name: str, *flags: str) -> Iterator[Replica]:
    """A replica that the API server asks about pods, Nodes and ConfigMaps, until the end of the block."""
    replica = Replica(plane, name, *flags)
    try:
        replica.wait_ready()
        send_webhooks_to(api, replica)
        yield replica
    finally:
        replica.process.stop()


def install(plane: ControlPlane) -> None:
    """CRDs, rights, PriorityClasses and empty Secrets; no webhooks."""
    make_namespace(plane)
    for path in (
        "crds",
        *(f"koord-manager/{name}.yaml" for name in ("rbac", "admission", "priorityclasses", "secrets")),
    ):
        plane.kubectl("apply", "-f", str(MANIFESTS / path))
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(MANIFESTS / "crds"))


def install_agents(plane: ControlPlane) -> None:
    """What nodes' agents may do, as pods and as systemd units."""
    make_namespace(plane)
    for path in ("koordlet", "optional/node-units.yaml"):
        plane.kubectl("apply", "-f", str(MANIFESTS / path))


def make_namespace(plane: ControlPlane) -> None:
    with plane.api() as api:
        if not api.exists(f"/api/v1/namespaces/{NAMESPACE}"):
            api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})


def configure(api: Api, data: Mapping[str, str]) -> None:
    """The ConfigMap with the cluster's policy."""
    metadata = {"name": "slo-controller-config", "namespace": NAMESPACE}
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}
    api.apply(f"{CONFIG_MAPS}/slo-controller-config", manifest)


def send_webhooks_to(api: Api, replica: Replica) -> None:
    """The webhook configurations, with ``replica`` in place of the Service; returns once they have its authority."""
    paths = []
    for document in yaml.safe_load_all((MANIFESTS / "optional" / "webhooks.yaml").read_text()):
        configuration = _with_url(document, replica.webhook_port)
        plural = f"{configuration['kind'].lower()}s"
        path = f"/apis/admissionregistration.k8s.io/v1/{plural}/{configuration['metadata']['name']}"
        if api.exists(path):
            api.delete(path)
        api.create(path.rpartition("/")[0], configuration)
        paths.append(path)
    wait_for(lambda: all(_is_trusted(api.get(path)) for path in paths), 90, "caBundle to be filled in")


def _with_url(configuration: Object, port: int) -> Object:
    changed = copy.deepcopy(configuration)
    for webhook in changed["webhooks"]:
        service = webhook["clientConfig"].pop("service")
        webhook["clientConfig"]["url"] = f"https://127.0.0.1:{port}{service['path']}"
    return changed


def _is_trusted(configuration: Object) -> bool:
    return all(webhook["clientConfig"].get("caBundle") for webhook in configuration["webhooks"])


def leader(api: Api) -> str:
    """The host name of the replica that holds the Lease; "" if none does."""
    holder: Any = api.get(LEASE)["spec"].get("holderIdentity") if api.exists(LEASE) else ""
    return str(holder or "").partition("_")[0]
