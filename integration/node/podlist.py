"""kubelet's pod list, of pods that a test runs itself, over HTTP: its only source of priorities, phases and owners."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from integration.harness.pods import Container, Pod
from integration.node.kinds import EXTENDED_RESOURCES

STARTED = "2025-01-01T00:00:00Z"


class PodList:
    """``pods``: what is listed, each with its priority and the Job that owns it; to be replaced whole."""

    def __init__(self) -> None:
        self.pods: tuple[tuple[Pod, int, str], ...] = ()

    @contextlib.contextmanager
    def served(self, port: int = 0) -> Iterator[str]:
        """The endpoint, for ``--kubelet-endpoint``; ``port`` 0: any that is free."""
        listed = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_list = self.path == "/pods"
                body = json.dumps({"items": [_item(*pod) for pod in listed.pods]} if is_list else {}).encode()
                self.send_response(200 if is_list else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_port}"
            finally:
                server.shutdown()
                thread.join()


def _item(pod: Pod, priority: int, job: str) -> dict[str, Any]:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": True}
    return {
        "metadata": {
            "uid": pod.uid,
            "namespace": pod.namespace,
            "name": pod.name,
            "labels": dict(pod.labels),
            "annotations": {**pod.annotations, "kubernetes.io/config.source": "api"},
            **({"ownerReferences": [owner]} if job else {}),
        },
        "spec": {"priority": priority, "containers": [_container(pod, each) for each in pod.containers]},
        "status": {"phase": "Running", "qosClass": pod.qos_class, "startTime": STARTED},
    }


def _container(pod: Pod, container: Container) -> dict[str, Any]:
    spec = json.loads(pod.annotations.get(EXTENDED_RESOURCES, "{}")).get("containers", {})
    extended = spec.get(container.name, {})
    requests = {"cpu": f"{container.cpu_request_milli}m", "memory": str(container.memory_request_bytes)}
    limits = {"cpu": f"{container.cpu_limit_milli}m", "memory": str(container.memory_limit_bytes)}
    resources = {
        name: {
            **{resource: amount for resource, amount in amounts.items() if amount not in ("0m", "0")},
            **extended.get(name, {}),
        }
        for name, amounts in (("requests", requests), ("limits", limits))
    }
    return {"name": container.name, "resources": resources}
