"""From exec until the first answered call: what kubelet would notice of a restart without socket activation."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

from integration.harness.processes import HarnessError, Process
from tests.runtimeproxy.relay import raw
from tests.runtimeproxy.relay.ledger import FrameCutter

VERSION = "/runtime.v1.RuntimeService/Version"
DEADLINE_S = 10.0
RETRY_S = 0.001


def exec_to_serving_ms(argv: list[str], path: Path, log: Path) -> float:
    """Start ``argv``, call Version on ``path`` as soon as a process listens there, and end the process again."""
    path.unlink(missing_ok=True)
    started = time.perf_counter()
    process = Process(argv, log)
    try:
        with _connected(path, started + DEADLINE_S, lambda: process.running) as client:
            client.sendall(raw.OPENING + _version_call())
            _until_answered(client)
        return (time.perf_counter() - started) * 1e3
    finally:
        process.stop()


def _connected(path: Path, deadline: float, alive: Callable[[], bool]) -> socket.socket:
    while time.perf_counter() < deadline and alive():
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            client.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            client.close()
            time.sleep(RETRY_S)
        else:
            client.settimeout(DEADLINE_S)
            return client
    raise HarnessError(f"nobody listens on {path}")


def _version_call() -> bytes:
    """Version on stream 1: ``VersionRequest{version: "0.1.0"}``."""
    return raw.headers(1, VERSION) + raw.frame(raw.DATA, raw.END_STREAM, 1, b"\0\0\0\0\7\n\0050.1.0")


def _until_answered(client: socket.socket) -> None:
    """Read until a HEADERS frame ends stream 1; raises ``HarnessError`` when the connection ends first."""
    cutter = FrameCutter(preface=False)
    while data := client.recv(1 << 16):
        if any(frame[3] == raw.HEADERS and frame[4] & raw.END_STREAM for frame in cutter.feed(data)):
            return
    raise HarnessError("the connection ended before Version was answered")
