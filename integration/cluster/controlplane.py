"""etcd, kube-apiserver and, where wanted, kube-controller-manager and kube-scheduler, with an authority of their own.

    with controlplane.private(tmp_path / "plane") as plane:
        with plane.api() as api:                                    # cluster-admin; plane.api("bob", ["dev"]): anybody
            api.create("/api/v1/namespaces", {"metadata": {"name": "shop"}})
        path = plane.kubeconfig("system:node:n1", ["system:nodes"])  # for a client under test; plane.admin: the admin's
        plane.kubectl("apply", "-f", "manifests/crds")
        plane.api_server.kill()                                     # or stop, pause, resume, restart; so plane.etcd
        plane.api_server.start()                                    # on the same data, port and certificates

``plane.server_url`` and ``plane.authority.certificate`` are what a client with a token needs. One plane starts in
seconds; parallel ones do not disturb each other. No controller runs unless ``Options.controllers``: without it Nodes
keep the taint that admission gives them, nothing collects garbage, and pods get no token.

Invariant: everything listens on loopback, every file lies below the plane's directory, and after ``close()`` no process
is left and of the files only the logs. A server that does not start raises HarnessError with the tail of its log.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from integration import build
from integration.cluster import arguments, kubeconfig
from integration.cluster.api import Api
from integration.cluster.arguments import Ports
from integration.cluster.certificates import Authority, KeyPair, file_name, write_signing_key
from integration.cluster.health import serves
from integration.cluster.kubectl import Kubectl
from integration.cluster.part import Part
from integration.cluster.ports import free_ports
from integration.harness.processes import HarnessError, wait_for

ADMIN = "kubernetes-admin"
ADMINS = ("system:masters",)
DEFAULT_SCHEDULER = "default-scheduler"
BOOT_S = 30.0


@dataclass(frozen=True, slots=True)
class Options:
    """``scheduler``: whether kube-scheduler runs. ``server_hosts``: further names and addresses in the API server's
    certificate. ``api_server_flags`` come after our own. ``feature_gates``: of every component, kubelet included, such
    as ``InPlacePodVerticalScaling=true``."""

    controllers: bool = False
    scheduler: bool = False
    server_hosts: tuple[str, ...] = ()
    api_server_flags: tuple[str, ...] = ()
    feature_gates: tuple[str, ...] = ()


WHOLE = Options(controllers=True, scheduler=True)


class ControlPlane:
    """A control plane that keeps everything below ``directory``; ``program`` finds a binary by its name."""

    def __init__(
        self, directory: Path, options: Options | None = None, program: Callable[[str], Path] = build.program
    ) -> None:
        self.directory = directory
        self.options = options or Options()
        self.authority = Authority(directory / "pki")
        self._identities: dict[str, KeyPair] = {}
        self._ports = Ports(*free_ports(5))
        self._signing_key = directory / "pki" / "service-accounts.key"
        write_signing_key(self._signing_key)
        self.admin = self.kubeconfig(ADMIN, ADMINS)
        self.kubectl = Kubectl(program("kubectl"), self.admin)
        self.etcd = self._part(program("etcd"), arguments.etcd(self._ports, directory / "etcd"), self._etcd_serves)
        self.api_server = self._part(program("kube-apiserver"), self._api_server_arguments(), self._api_serves)
        self._clients: list[Part] = []
        if self.options.controllers:
            self._clients.append(self._controller_manager(program("kube-controller-manager")))
        if self.options.scheduler:
            self._clients.append(self._scheduler(program("kube-scheduler")))

    @property
    def server_url(self) -> str:
        return self._ports.server_url

    @property
    def port(self) -> int:
        """The API server's, on 127.0.0.1."""
        return self._ports.api_server

    @property
    def parts(self) -> list[Part]:
        """All servers in the order of their start."""
        return [self.etcd, self.api_server, *self._clients]

    def part(self, name: str) -> Part:
        """A server by its program's name, such as kube-scheduler."""
        for part in self.parts:
            if part.name == name:
                return part
        raise HarnessError(f"no {name} among {[part.name for part in self.parts]}")

    def start(self) -> None:
        """Start all servers and wait until a pod can be created in the namespace ``default``."""
        for part in (self.etcd, self.api_server):
            part.start()
        for part in self._clients:
            part.spawn()
        for part in self._clients:
            part.wait_ready()
        wanted = "/api/v1/namespaces/default" + ("/serviceaccounts/default" if self.options.controllers else "")
        with self.api() as api:
            wait_for(lambda: api.exists(wanted), BOOT_S, f"{wanted} to exist")

    def close(self) -> None:
        """End all servers, the API server before etcd, and remove everything but the logs."""
        for part in reversed(self.parts):
            part.stop()
        for path in self.directory.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.suffix != ".log":
                path.unlink()

    def identity(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """The client certificate of ``user`` in ``groups``; ``authority.issue_client`` rotates it in its files."""
        key = file_name(user, groups)
        if key not in self._identities:
            self._identities[key] = self.authority.issue_client(user, groups)
        return self._identities[key]

    def kubeconfig(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig file of ``user`` in ``groups``."""
        path = self.directory / "kubeconfig" / file_name(user, groups)
        kubeconfig.write(path, self.server_url, self.authority.certificate, user, self.identity(user, groups))
        return path

    def node_kubeconfig(self, name: str) -> Path:
        """kubelet's kubeconfig of node ``name``."""
        return self.kubeconfig(f"system:node:{name}", ("system:nodes",))

    def api(self, user: str = ADMIN, groups: Sequence[str] = ADMINS) -> Api:
        """A client as ``user`` in ``groups``; not connected yet."""
        return Api(self.port, self.authority.certificate.read_text(), self.identity(user, groups))

    def node_api(self, name: str) -> Api:
        """A client with the credential of node ``name``."""
        return self.api(f"system:node:{name}", ("system:nodes",))

    def anonymous(self, token: str = "") -> Api:
        """A client without a certificate: anonymous, or the account of ``token``."""
        return Api(self.port, self.authority.certificate.read_text(), token=token)

    # The servers

    def _part(self, program: Path, flags: Sequence[str], ready: Callable[[], bool]) -> Part:
        if self.options.feature_gates and program.name.startswith("kube-"):
            flags = [*flags, f"--feature-gates={','.join(self.options.feature_gates)}"]
        return Part([program, *flags], self.directory / f"{program.name}.log", ready)

    def _api_server_arguments(self) -> list[str]:
        return [
            *arguments.api_server(
                self._ports,
                self.authority.certificate,
                self.authority.issue_server("kube-apiserver", (*arguments.SERVER_HOSTS, *self.options.server_hosts)),
                self.identity("kube-apiserver-kubelet-client", ADMINS),
                self._signing_key,
                service_accounts=self.options.controllers,
            ),
            *self.options.api_server_flags,
        ]

    def _controller_manager(self, program: Path) -> Part:
        path = self.kubeconfig("system:kube-controller-manager")
        pair = KeyPair(self.authority.certificate, self.authority.key)
        flags = arguments.controller_manager(self._ports, path, pair, self._signing_key)
        return self._part(program, flags, lambda: serves(_healthz(self._ports.controller_manager)))

    def _scheduler(self, program: Path) -> Part:
        path = self.kubeconfig("system:kube-scheduler")
        configuration = self.directory / "scheduler.json"
        configuration.write_text(arguments.scheduler_configuration(path, [DEFAULT_SCHEDULER]))
        flags = arguments.scheduler(self._ports, path, configuration)
        return self._part(program, flags, lambda: serves(_healthz(self._ports.scheduler)))

    def _etcd_serves(self) -> bool:
        return serves(f"{self._ports.etcd_url}/health")

    def _api_serves(self) -> bool:
        with self.api() as api:
            return api.healthy()


def _healthz(port: int) -> str:
    return f"https://{arguments.LOOPBACK}:{port}/healthz"


@contextlib.contextmanager
def private(directory: Path, options: Options | None = None) -> Iterator[ControlPlane]:
    """A started control plane, closed at the end."""
    plane = ControlPlane(directory, options)
    try:
        plane.start()
        yield plane
    finally:
        plane.close()
