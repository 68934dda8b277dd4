"""Runs commands for the host: JSON lines over the virtio port ``koord.agent``. Part of the guest's disk.

A request is ``{"id", "argv", "input", "env"}`` (run a program), ``{"id", "read": [path…]}``, ``{"id", "write": path,
"data", "mode"}`` or ``{"id", "get": path, "port"}`` (from a server on this machine); bytes travel as base64. The answer
repeats the id. Requests run in threads, so a long one holds up no other. On start the agent says ``{"hello": boot
id}``, from which the host knows of a reboot.

Invariant: it outlives everything that a test does to the machine but the kernel: it needs the standard library only,
imports nothing late, and an error is an answer.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

PORT = "/dev/virtio-ports/koord.agent"
GET_S = 30.0
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
Message = dict[str, Any]


def main() -> int:
    port = os.open(PORT, os.O_RDWR)
    lock = threading.Lock()

    def send(message: Message) -> None:
        data = memoryview(json.dumps(message).encode() + b"\n")
        with lock:
            while data:
                data = data[os.write(port, data) :]

    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        send({"hello": file.read().strip()})
    pending = b""
    while True:
        chunk = os.read(port, 65536)
        if not chunk:  # the host has closed its end
            time.sleep(0.1)
            continue
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            threading.Thread(target=serve, args=(json.loads(line), send), daemon=True).start()


def serve(request: Message, send: Callable[[Message], None]) -> None:
    answer: Message = {"id": request["id"]}
    try:
        if "argv" in request:
            answer.update(run(request))
        elif "get" in request:
            answer["body"] = get(request["port"], request["get"])
        elif "read" in request:
            answer["files"] = [read(path) for path in request["read"]]
        else:
            write(request["write"], base64.b64decode(request["data"]), request["mode"])
    except Exception as error:  # noqa: BLE001 - the root of the request's thread: the host is told
        answer["error"] = f"{type(error).__name__}: {error}"
    send(answer)


def run(request: Message) -> Message:
    environment = {**os.environ, "PATH": PATH, "HOME": "/root", **request["env"]}
    data = base64.b64decode(request["input"])
    done = subprocess.run(request["argv"], input=data, env=environment, cwd="/", capture_output=True, check=False)
    return {"returncode": done.returncode, "stdout": encoded(done.stdout), "stderr": encoded(done.stderr)}


def get(port: int, path: str) -> str | None:
    """The body of an answer 200; None for any other, or if there is none in time."""
    try:
        with socket.create_connection(("127.0.0.1", port), GET_S) as asker:
            asker.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            with asker.makefile("rb") as answer:
                head, _, body = answer.read().partition(b"\r\n\r\n")
    except OSError:
        return None
    return encoded(body) if head.split()[1:2] == [b"200"] else None


def read(path: str) -> str | int | None:
    """A file's content, or the errno for which it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        return error.errno
    try:
        chunks = []
        while chunk := os.read(descriptor, 1 << 20):
            chunks.append(chunk)
    except OSError as error:
        return error.errno
    finally:
        os.close(descriptor)
    return encoded(b"".join(chunks))


def write(path: str, data: bytes, mode: int | None) -> None:
    """Unbuffered, so that the kernel's own refusal is the error that the host sees; ``mode`` None: the file exists."""
    flags = os.O_WRONLY if mode is None else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    descriptor = os.open(path, flags, 0o600 if mode is None else mode)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    finally:
        os.close(descriptor)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


if __name__ == "__main__":
    sys.exit(main())
