"""Where the API server is and who we are, as a kubeconfig or a pod's service account says it.

``RESTConfig`` is what was configured; ``koord.kube.credentials`` makes of it what a connection needs, again and again.
Several files are one configuration, in which the first that names something wins, as for kubectl. Proxies of the
environment and passwords are not used.

Fails with ``KubeconfigError``, which names the file and the entry.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_FILE = Path(".kube/config")
"""Of a user, below HOME."""

_MAX_BYTES = 4 << 20
_SHARED = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression")
"""What a plugin is told of a cluster as the kubeconfig has it."""
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"
_SERVER_HOST, _SERVER_PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"


class KubeconfigError(ValueError):
    """``place``: the file, and the entry in it."""

    def __init__(self, place: str, why: str) -> None:
        self.place, self.why = place, why
        super().__init__(f"{place}: {why}")


Material = bytes | Path
"""PEM as it stands in the configuration, or the file that has it."""


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A program that says who we are (client-go's "exec" credential plugins)."""

    api_version: str
    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    cluster: Mapping[str, Any] | None = None
    """What the program is told of the cluster, if it wants that: the API's ``Cluster`` of an ExecCredential."""
    install_hint: str = ""


@dataclass(frozen=True, slots=True)
class RESTConfig:
    """``server`` is a URL. ``files``: the configuration's own; those that it names are in the other members."""

    server: str
    ca: Material | None = None
    verify: bool = True
    server_name: str | None = None
    """Of the server's certificate, where it is not the URL's host."""
    proxy: str | None = None
    token: str = ""
    token_file: Path | None = None
    certificate: Material | None = None
    key: Material | None = None
    plugin: ExecPlugin | None = None
    namespace: str = ""
    files: tuple[Path, ...] = ()

    @property
    def watched_files(self) -> tuple[Path, ...]:
        """Those whose change may mean other credentials."""
        named = (self.ca, self.certificate, self.key, self.token_file)
        return (*self.files, *(path for path in named if isinstance(path, Path)))


def find(environ: Mapping[str, str], kubeconfig: str = "", context: str = "") -> RESTConfig:
    """As kubectl: the file named, else those of KUBECONFIG, else the user's own, else the pod's service account.

    Raises ConfigError or OSError.
    """
    names = [kubeconfig] if kubeconfig else environ.get("KUBECONFIG", "").split(":")
    if paths := [Path(name) for name in names if name]:
        return read_kubeconfig(paths, context)
    home = environ.get("HOME", "")
    if home and (Path(home) / DEFAULT_FILE).is_file():
        return read_kubeconfig([Path(home) / DEFAULT_FILE], context)
    return in_cluster(environ)


def in_cluster(environ: Mapping[str, str], directory: Path = SERVICE_ACCOUNT) -> RESTConfig:
    """What kubelet gives each pod. Raises ConfigError outside of one."""
    host, port = environ.get(_SERVER_HOST, ""), environ.get(_SERVER_PORT, "")
    if not host or not port:
        raise KubeconfigError("no kubeconfig", f"and not in a pod: {_SERVER_HOST} or {_SERVER_PORT} is not set")
    try:
        namespace = (directory / "namespace").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        namespace = ""
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return RESTConfig(server, ca=directory / "ca.crt", token_file=directory / "token", namespace=namespace)


def read_kubeconfig(paths: Sequence[Path], context: str = "") -> RESTConfig:
    """The settings of ``context``, or of the current one. A file that does not exist is skipped if there are others.

    Raises ConfigError or OSError.
    """
    documents = [(path, _document(path)) for path in paths if len(paths) == 1 or path.exists()]
    currents = (_text(document, "current-context", path) for path, document in documents)
    name = context or next(filter(None, currents), "")
    place = ":".join(map(str, paths))
    if not name:
        raise KubeconfigError(place, "no context is named, and none is current")
    chosen = _entry(documents, "contexts", "context", name, place)
    cluster = _entry(documents, "clusters", "cluster", chosen.text("cluster"), place)
    user = _entry(documents, "users", "user", chosen.text("user"), place) if chosen.text("user") else chosen.empty()
    server = cluster.text("server")
    if not server.startswith(("https://", "http://")):
        raise KubeconfigError(cluster.place, f"server {server!r} is no URL")
    return RESTConfig(
        server=server.rstrip("/"),
        ca=cluster.material("certificate-authority"),
        verify=not cluster.flag("insecure-skip-tls-verify"),
        server_name=cluster.text("tls-server-name") or None,
        proxy=cluster.text("proxy-url") or None,
        token=user.text("token"),
        token_file=user.path("tokenFile"),
        certificate=user.material("client-certificate"),
        key=user.material("client-key"),
        plugin=_plugin(user, cluster),
        namespace=chosen.text("namespace"),
        files=tuple(paths),
    )


@dataclass(frozen=True, slots=True)
class _Entry:
    """One named entry; relative paths in it start at its file's ``directory``."""

    place: str
    members: Mapping[str, Any]
    directory: Path

    def empty(self) -> _Entry:
        return _Entry(self.place, {}, self.directory)

    def text(self, member: str) -> str:
        return _text(self.members, member, self.place)

    def flag(self, member: str) -> bool:
        return self.members.get(member) is True

    def path(self, member: str) -> Path | None:
        text = self.text(member)
        return self.directory / text if text else None

    def material(self, member: str) -> Material | None:
        """Inline data win over the file's name, as for kubectl."""
        encoded = self.text(f"{member}-data")
        if not encoded:
            return self.path(member)
        try:
            return base64.b64decode(encoded, validate=True)
        except binascii.Error as error:
            raise KubeconfigError(self.place, f"{member}-data is not base64: {error}") from error


def _entry(
    documents: Sequence[tuple[Path, Mapping[str, Any]]], section: str, member: str, name: str, place: str
) -> _Entry:
    for path, document in documents:
        for item in document.get(section) or ():
            if isinstance(item, dict) and item.get("name") == name:
                members = item.get(member) or {}
                if not isinstance(members, dict):
                    raise KubeconfigError(f"{path}: {member} {name!r}", "is not an object")
                return _Entry(f"{path}: {member} {name!r}", members, path.parent.absolute())
    raise KubeconfigError(place, f"has no {member} {name!r}")


def _plugin(user: _Entry, cluster: _Entry) -> ExecPlugin | None:
    exec_ = user.members.get("exec")
    if not exec_:
        return None
    entry = _Entry(f"{user.place}: exec", exec_, user.directory)
    command = entry.text("command")
    if not command:
        raise KubeconfigError(entry.place, "lacks its command")
    if entry.text("interactiveMode") == "Always":
        raise KubeconfigError(entry.place, f"{command} wants a terminal")
    return ExecPlugin(
        api_version=entry.text("apiVersion"),
        command=str(user.directory / command) if "/" in command else command,
        args=tuple(map(str, exec_.get("args") or ())),
        env=tuple((str(item.get("name")), str(item.get("value"))) for item in exec_.get("env") or ()),
        cluster=_about(cluster) if entry.flag("provideClusterInfo") else None,
        install_hint=entry.text("installHint"),
    )


def _about(cluster: _Entry) -> Mapping[str, Any]:
    """The cluster as a plugin sees it: authorities are always data, and ``config`` is what its extension holds.

    Raises ConfigError or OSError.
    """
    about = {name: cluster.members[name] for name in _SHARED if cluster.members.get(name)}
    authority = cluster.material("certificate-authority")
    if authority:
        pem = authority.read_bytes() if isinstance(authority, Path) else authority
        about["certificate-authority-data"] = base64.b64encode(pem).decode()
    for extension in cluster.members.get("extensions") or ():
        if isinstance(extension, dict) and extension.get("name") == _EXEC_EXTENSION:
            about["config"] = extension.get("extension")
    return about


def _document(path: Path) -> Mapping[str, Any]:
    text = path.read_bytes()
    if len(text) > _MAX_BYTES:
        raise KubeconfigError(str(path), f"{len(text)} bytes are more than {_MAX_BYTES}")
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise KubeconfigError(str(path), f"is not YAML: {error}") from error
    if not isinstance(document, dict):
        raise KubeconfigError(str(path), "is not a kubeconfig")
    return document


def _text(members: Mapping[str, Any], member: str, place: object) -> str:
    value = members.get(member)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise KubeconfigError(str(place), f"{member} {value!r} is not text")
    return value
