"""The part of kubelet's own HTTPS API that ``kubectl get``, ``exec`` and ``logs`` end at.

kubelet signs its certificate itself, so it is not verified; the port is on loopback. Exec is the streaming one (a
WebSocket with subprotocol v4.channel.k8s.io), the way kubectl does it, not the simpler ExecSync.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
import ssl
import struct
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

STDOUT = 1
STATUS = 3
CALL_S = 15.0


def free_port() -> int:
    """A TCP port of the loopback interface that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class KubeletApi:
    """Calls kubelet's API on ``port``; a refused, unexpected or late answer raises OSError."""

    def __init__(self, port: int, timeout_s: float = CALL_S) -> None:
        self.port, self._timeout_s = port, timeout_s

    def healthy(self) -> bool:
        try:
            return self._get("/healthz") == b"ok"
        except OSError:
            return False

    def pods(self) -> list[dict[str, Any]]:
        """Pods as kubelet lists them: Kubernetes' JSON."""
        items: list[dict[str, Any]] = json.loads(self._get("/pods"))["items"] or []
        return items

    def ready_pods(self) -> list[str]:
        """Names of the pods whose condition Ready is true, without the node's name that kubelet appends."""
        return [
            pod["metadata"]["name"].removesuffix("-node")
            for pod in self.pods()
            for condition in pod["status"].get("conditions", [])
            if condition["type"] == "Ready" and condition["status"] == "True"
        ]

    def log(self, namespace: str, pod: str, container: str) -> str:
        return self._get(f"/containerLogs/{namespace}/{pod}/{container}").decode()

    def exec(self, namespace: str, pod: str, container: str, *command: str) -> tuple[str, str]:
        """Run a command: its output, and the status that ends the stream ("Success" or "Failure")."""
        query = urlencode([*(("command", word) for word in command), ("output", "1"), ("error", "1")])
        stdout, status = b"", b"{}"
        with self._connect() as connection:
            for frame in _websocket(connection, f"/exec/{namespace}/{pod}/{container}?{query}"):
                if frame[:1] == bytes([STDOUT]):
                    stdout += frame[1:]
                elif frame[:1] == bytes([STATUS]):
                    status = frame[1:]
        return stdout.decode(), json.loads(status or b"{}").get("status", "")

    def _connect(self) -> ssl.SSLSocket:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context.wrap_socket(socket.create_connection(("127.0.0.1", self.port), self._timeout_s))

    def _get(self, path: str) -> bytes:
        with self._connect() as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n".encode())
            response = http.client.HTTPResponse(connection)
            response.begin()
            body = response.read()
        if response.status != http.client.OK:
            raise OSError(f"{path}: {response.status}: {body[:200]!r}")
        return body


def _websocket(connection: ssl.SSLSocket, path: str) -> Iterator[bytes]:
    """Data frames of a WebSocket on which the client says nothing (RFC 6455), until the server closes it."""
    key = base64.b64encode(os.urandom(16)).decode()
    lines = (
        f"GET {path} HTTP/1.1",
        "Host: node",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Protocol: v4.channel.k8s.io",
    )
    connection.sendall("".join(f"{line}\r\n" for line in (*lines, "")).encode())
    with connection.makefile("rb") as stream:
        status = stream.readline()
        if b" 101 " not in status:
            raise OSError(f"{path}: {status!r}: {stream.read(500)!r}")
        while stream.readline().strip():
            pass
        while head := stream.read(2):
            opcode, length = head[0] & 0x0F, head[1] & 0x7F
            if length == 126:
                (length,) = struct.unpack(">H", stream.read(2))
            elif length == 127:
                (length,) = struct.unpack(">Q", stream.read(8))
            payload = stream.read(length)
            if opcode == 8:
                return
            if opcode in (1, 2):
                yield payload
