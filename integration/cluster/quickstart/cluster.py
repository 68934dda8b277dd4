"""A whole cluster with one real node as the guides expect it: standard paths, images by their names, pods that reach
the API.

The node's directories are layers over the machine's own (``harness.overlays``), its cgroups are in /kubepods, and the
proxy is a process, as it is a host service on a node. Nothing of Koord is in the cluster: that is for ``helm install``.

Invariant: at the end nothing is left on the machine. One such node runs on a machine at a time; where there is a
/kubepods already, or where kubelet's port is taken, HarnessError says so.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from integration import build
from integration.cluster import controlplane, objects
from integration.cluster.controlplane import ControlPlane, Options
from integration.cluster.node import JoinedKubelet
from integration.cluster.podnetwork import api_service
from integration.cluster.quickstart import images
from integration.harness import cgroups, containerd, machine
from integration.harness.containerd import Containerd
from integration.harness.kubelet_api import KubeletApi
from integration.harness.overlays import Layers, layered
from integration.harness.processes import HarnessError, Process
from integration.harness.proxy import start_proxy
from integration.harness.registry import Registry
from koord.scheduling.loadsettings import USAGE_THRESHOLDS

REPOSITORY = Path(__file__).parents[3]
NODE_NAME = "node-1"
OVERLAID = ("/etc", "/var/lib", "/var/log")
EMPTIED = ("/run",)
RUNTIME_DIRECTORY = Path("/run/containerd")
HOOK_FILES = Path("/etc/runtime/hookserver.d")
KUBELET_ROOT = Path("/var/lib/kubelet")
KUBELET_PORT = 10250
PODS_CGROUP = "/kubepods"
NO_THRESHOLDS = json.dumps({"usageThresholds": {"cpu": 0, "memory": 0}})
CLUSTER_DNS = "10.96.0.10"
PLANE = Options(
    controllers=True,
    scheduler=True,
    api_server_flags=("--enable-aggregator-routing=true",),  # webhooks by their pods: no kube-proxy serves Services
)


class StandardKubelet(JoinedKubelet):
    """Kubelet with its usual directory, port and cgroups."""

    def __init__(self, plane: ControlPlane, runtime: Path, directory: Path) -> None:
        super().__init__(plane, NODE_NAME, build.program("kubelet"), runtime, directory, "/")
        self.api = KubeletApi(KUBELET_PORT)
        self.root = KUBELET_ROOT

    def _configuration(self) -> dict[str, object]:
        """With the address of a cluster's DNS, on which no server answers."""
        return super()._configuration() | {"clusterDNS": [CLUSTER_DNS], "clusterDomain": "cluster.local"}


@dataclass(frozen=True, slots=True)
class Cluster:
    """``images`` can be pulled; ``directory`` is where a reader works: with the checkout's charts, and nothing else."""

    plane: ControlPlane
    containerd: Containerd
    kubelet: StandardKubelet
    proxy: Process
    layers: Layers
    images: Sequence[str]
    directory: Path

    def environment(self) -> Mapping[str, str]:
        """A reader's: kubectl, helm and koordctl on the path, KUBECONFIG and nothing of ours in the home directory."""
        programs = (build.program("kubectl").parent, build.program("helm").parent, REPOSITORY / ".venv" / "bin")
        return {
            "PATH": ":".join((*map(str, programs), os.environ["PATH"])),
            "HOME": str(self.directory),
            "KUBECONFIG": str(self.plane.admin),
            "LANG": "C.UTF-8",
        }


@contextlib.contextmanager
def started(directory: Path) -> Iterator[Cluster]:
    """The cluster, its node Ready; ``directory`` is empty, and is used for everything."""
    archives = images.archives(directory)
    with controlplane.private(directory / "plane", PLANE) as plane, node(plane, directory, archives) as running:
        yield running


@contextlib.contextmanager
def node(plane: ControlPlane, directory: Path, archives: Sequence[Path]) -> Iterator[Cluster]:
    """The node of ``plane``, which is of PLANE's options, Ready; it can pull the images of ``archives``."""
    bound = {str(RUNTIME_DIRECTORY): directory / "containerd", str(KUBELET_ROOT): directory / "kubelet-root"}
    for path in bound.values():
        path.mkdir()
    with contextlib.ExitStack() as stack:
        stack.enter_context(machine.only_node())
        layers = stack.enter_context(layered(directory / "layers", OVERLAID, EMPTIED, bound))
        if cgroups.existing(PODS_CGROUP):
            raise HarnessError(f"this machine has a {PODS_CGROUP} already: another kubelet runs, or one left it behind")
        stack.enter_context(cgroups.root(PODS_CGROUP))
        registry = stack.enter_context(Registry(archives))
        layout = replace(
            containerd.own_layout(directory / "containerd"),
            bound_at=RUNTIME_DIRECTORY,
            has_gateway=True,
            registries=registry.write_hosts(directory / "registries"),
        )
        stack.enter_context(api_service(layout.bridge, plane.port))
        runtime = stack.enter_context(containerd.private(containerd.installed(), directory / "containerd", layout))
        stack.callback(runtime.remove_pods)
        HOOK_FILES.mkdir(parents=True, exist_ok=True)
        (directory / "proxy").mkdir()
        proxy = start_proxy(runtime.socket, directory / "proxy", HOOK_FILES)
        stack.callback(proxy.stop)
        kubelet = StandardKubelet(plane, directory / "proxy" / "proxy.sock", directory / "kubelet")
        stack.callback(kubelet.close)
        kubelet.join()
        with plane.api() as api:  # this machine has other work, which keeps no pod off the node
            api.merge(f"{objects.NODES}/{NODE_NAME}", {"metadata": {"annotations": {USAGE_THRESHOLDS: NO_THRESHOLDS}}})
        yield Cluster(plane, runtime, kubelet, proxy, layers, registry.names, _workplace(directory / "reader"))


def _workplace(directory: Path) -> Path:
    directory.mkdir()
    (directory / "charts").symlink_to(REPOSITORY / "charts")
    return directory
