"""A node with a real backend and the proxy's whole process, and a socket in place of the service manager."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from tests.support.waiting import HANG_S

ECHO = "/test.Echo/Say"


def unary(channel: grpc.Channel, path: str = ECHO) -> grpc.UnaryUnaryMultiCallable[bytes, bytes]:
    """A call of bytes."""
    return channel.unary_unary(path)


class Backend(grpc.GenericRpcHandler):
    """Answers every unary call with its own bytes; ``slow`` takes a second, ``held`` until ``release`` is set."""

    def __init__(self) -> None:
        self.release = threading.Event()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        return grpc.unary_unary_rpc_method_handler(self._echo)

    def _echo(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        if request == b"slow":
            time.sleep(1)
        if request == b"held":
            self.release.wait(30)
        return request


class Node:
    """A directory with a backend, a manager's datagram socket, and proxies started in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.endpoint = directory / "proxy.sock"
        self.status = directory / "status.sock"
        self.bypass_file = directory / "bypass"
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.bind(str(directory / "notify"))
        self.backend = Backend()
        self.server = grpc.server(ThreadPoolExecutor(4), handlers=[self.backend])
        self.server.add_insecure_port(f"unix:{directory}/backend.sock")
        self.server.start()
        self.processes: list[subprocess.Popen[str]] = []
        self.successors: list[int] = []

    def start(
        self, *arguments: str, program: tuple[str, ...] = (sys.executable, "-m", "runtimeproxy"), **environ: str
    ) -> subprocess.Popen[str]:
        command = [
            *program,
            f"--koord-runtimeproxy-endpoint={self.endpoint}",
            f"--remote-runtime-service-endpoint={self.directory}/backend.sock",
            f"--metrics-endpoint={self.status}",
            f"--hookserver-dir={self.directory}/hooks",
            f"--bypass-file={self.bypass_file}",
            *arguments,
        ]
        process = subprocess.Popen(
            command,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "NOTIFY_SOCKET": str(self.directory / "notify"), **environ},
        )
        self.processes.append(process)
        return process

    def told(self, wanted: str, timeout_s: float = HANG_S) -> list[str]:
        """The manager's next message that contains ``wanted``, as lines."""
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0 and select.select([self.manager], [], [], left_s)[0]:
            message = self.manager.recv(4096).decode()
            if wanted in message:
                return message.split("\n")
        raise AssertionError(f"the manager was not told {wanted}")

    def silent_about(self, unwanted: str, during_s: float) -> bool:
        try:
            self.told(unwanted, during_s)
        except AssertionError:
            return True
        return False

    def channel(self) -> grpc.Channel:
        return grpc.insecure_channel(f"unix:{self.endpoint}", options=[("grpc.use_local_subchannel_pool", 1)])

    def say(self, request: bytes = b"hello") -> bytes:
        with self.channel() as channel:
            return unary(channel)(request, timeout=5)

    def get(self, page: str) -> str:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self.status))
            client.sendall(f"GET {page} HTTP/1.0\r\n\r\n".encode())
            return b"".join(iter(lambda: client.recv(65536), b"")).decode()

    def metric(self, name: str) -> float:
        found = re.search(rf"^{name} (\S+)$", self.get("/metrics"), re.MULTILINE)
        assert found is not None
        return float(found[1])

    def close(self) -> None:
        for pid in self.successors:
            if Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGKILL)
        for process in self.processes:
            process.kill()
            process.wait()
            assert process.stderr is not None
            process.stderr.close()
        self.backend.release.set()
        self.server.stop(None)
        self.manager.close()


def failure(process: subprocess.Popen[str]) -> tuple[int, str]:
    assert process.stderr is not None
    return process.wait(5), process.stderr.read()
