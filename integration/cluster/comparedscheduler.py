"""kube-scheduler that says how it decides: its log has every score, and an HTTP extender of ours sees the rest.

The extender is shown the nodes that all filters let pass, and who would have to leave each node for a pod that none
takes. It lets everything pass.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from integration import build
from integration.cluster import arguments
from integration.cluster.controlplane import ControlPlane
from integration.cluster.health import serves
from integration.cluster.part import Part
from integration.cluster.ports import free_ports

NAME = "compared"


class Victims(NamedTuple):
    """``uids``: from the most important pod to the least."""

    uids: tuple[str, ...]
    violations: int


@dataclass
class Extender:
    """By the pod's name: the nodes that are feasible when it is tried first, and the victims of each node that
    preemption could clear.
    """

    port: int
    feasible: dict[str, frozenset[str]] = field(default_factory=dict)
    victims: dict[str, dict[str, Victims]] = field(default_factory=dict)

    @property
    def configuration(self) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.port}"
        verbs = {"filterVerb": "filter", "preemptVerb": "preempt"}
        return {"urlPrefix": url, **verbs, "nodeCacheCapable": True, "enableHTTPS": False}

    def answer(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        sent = {key.lower(): value for key, value in body.items()}
        name = sent["pod"]["metadata"]["name"]
        if path == "/preempt":
            by_node = sent["nodenametometavictims"]
            self.victims[name] = {
                node: Victims(tuple([each["UID"] for each in said["Pods"]]), said["NumPDBViolations"])
                for node, said in by_node.items()
            }
            return {"NodeNameToMetaVictims": by_node}
        names = sent["nodenames"] or []
        self.feasible.setdefault(name, frozenset(names))
        return {"NodeNames": names}


E = TypeVar("E", bound=Extender)


@contextlib.contextmanager
def extender(make: Callable[[int], E]) -> Iterator[E]:
    """An extender on a port of its own, which ``make`` is told."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            content = json.dumps(made.answer(self.path, body)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = make(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def kube_scheduler(plane: ControlPlane, directory: Path, extender: Extender) -> Iterator[Path]:
    """kube-scheduler of pods whose scheduler is ``NAME``; it looks at all nodes. Yields its log."""
    kubeconfig, ports = plane.kubeconfig("system:kube-scheduler"), arguments.Ports(*free_ports(5))
    document = json.loads(arguments.scheduler_configuration(kubeconfig, [NAME]))
    document |= {"percentageOfNodesToScore": 100, "extenders": [extender.configuration]}
    for profile in document["profiles"]:
        every_node = {"minCandidateNodesPercentage": 100, "minCandidateNodesAbsolute": 100}
        profile["pluginConfig"] = [{"name": "DefaultPreemption", "args": every_node}]
    configuration, log = directory / "compared.json", directory / "compared.log"
    configuration.write_text(json.dumps(document))
    flags = [*arguments.scheduler(ports, kubeconfig, configuration), "-v=10"]
    url = f"https://{arguments.LOOPBACK}:{ports.scheduler}/healthz"
    part = Part([build.program("kube-scheduler"), *flags], log, lambda: serves(url))
    part.start()
    try:
        yield log
    finally:
        part.stop()
