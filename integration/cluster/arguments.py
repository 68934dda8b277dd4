"""Command lines of the control plane's servers: pure functions of where files are and which ports are free.

All listen on loopback. etcd takes no credentials there, as with envtest. Admission and authorization are a real
cluster's: Node and RBAC, NodeRestriction on, and ServiceAccount on where the controllers that serve it run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from integration.cluster.certificates import KeyPair

LOOPBACK = "127.0.0.1"
SERVICE_ADDRESS = "10.96.0.1"  # of the Service "kubernetes": the first of SERVICE_RANGE
SERVICE_RANGE = "10.96.0.0/16"
POD_RANGE = "10.200.0.0/13"
SERVER_HOSTS = (
    *(LOOPBACK, SERVICE_ADDRESS, "localhost"),
    *("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"),
)


@dataclass(frozen=True, slots=True)
class Ports:
    """One TCP port of loopback for each listener."""

    etcd: int
    etcd_peers: int
    api_server: int
    controller_manager: int
    scheduler: int

    @property
    def etcd_url(self) -> str:
        return f"http://{LOOPBACK}:{self.etcd}"

    @property
    def server_url(self) -> str:
        return f"https://{LOOPBACK}:{self.api_server}"


def etcd(ports: Ports, data: Path) -> list[str]:
    """etcd that never waits for the disk: its data survives a SIGKILL of its own, not the machine's end."""
    peers = f"http://{LOOPBACK}:{ports.etcd_peers}"
    return [
        "--name=koord",
        f"--data-dir={data}",
        f"--listen-client-urls={ports.etcd_url}",
        f"--advertise-client-urls={ports.etcd_url}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=koord={peers}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def api_server(
    ports: Ports, authority: Path, server: KeyPair, kubelet_client: KeyPair, signing_key: Path, service_accounts: bool
) -> list[str]:
    """``service_accounts``: each pod gets its account's token, for which the account has to exist."""
    return [
        f"--etcd-servers={ports.etcd_url}",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        f"--secure-port={ports.api_server}",
        f"--tls-cert-file={server.certificate}",
        f"--tls-private-key-file={server.key}",
        f"--client-ca-file={authority}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        *([] if service_accounts else ["--disable-admission-plugins=ServiceAccount"]),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={signing_key}",
        f"--service-account-signing-key-file={signing_key}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--kubelet-certificate-authority={authority}",
        f"--kubelet-client-certificate={kubelet_client.certificate}",
        f"--kubelet-client-key={kubelet_client.key}",
        "--kubelet-preferred-address-types=InternalIP,Hostname",
        "--endpoint-reconciler-type=none",  # loopback cannot be an endpoint
        "--allow-privileged=true",
        "--delete-collection-workers=8",
        "--shutdown-watch-termination-grace-period=0s",
        "--profiling=false",
    ]


def controller_manager(ports: Ports, kubeconfig: Path, authority: KeyPair, signing_key: Path) -> list[str]:
    """``authority`` with its key: it also signs certificate requests."""
    return [
        *_authenticated(kubeconfig, ports.controller_manager),
        f"--root-ca-file={authority.certificate}",
        f"--cluster-signing-cert-file={authority.certificate}",
        f"--cluster-signing-key-file={authority.key}",
        f"--service-account-private-key-file={signing_key}",
        "--use-service-account-credentials=true",
        f"--cluster-cidr={POD_RANGE}",
        "--allocate-node-cidrs=false",
    ]


def scheduler(ports: Ports, kubeconfig: Path, configuration: Path) -> list[str]:
    return [*_authenticated(kubeconfig, ports.scheduler), f"--config={configuration}"]


def scheduler_configuration(kubeconfig: Path, names: Sequence[str]) -> str:
    """A KubeSchedulerConfiguration (JSON) with one default profile for each scheduler name."""
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 1000, "burst": 2000},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": name} for name in names],
    }
    return json.dumps(document)


def _authenticated(kubeconfig: Path, port: int) -> list[str]:
    """What both clients of the API server have in common."""
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        "--leader-elect=false",
        "--profiling=false",
    ]
