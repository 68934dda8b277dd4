"""Things that go wrong on a node, for real, and are put right again when their block ends."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from integration.harness.processes import Process, wait_for

_FILLER = "filler"


@contextlib.contextmanager
def small_disk(directory: Path, kib: int) -> Iterator[Path]:
    """A file system of its own at ``directory``."""
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "koordtest", str(directory)], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def fill(directory: Path) -> None:
    """Take the last byte of the file system."""
    with contextlib.suppress(OSError), (directory / _FILLER).open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def empty(directory: Path) -> None:
    (directory / _FILLER).unlink()


@contextlib.contextmanager
def unreadable(*files: Path) -> Iterator[None]:
    """Reading or writing these files is an I/O error: the memory of a process, whose first page is never mapped."""
    with contextlib.ExitStack() as stack:
        for file in files:
            subprocess.run(["mount", "--bind", f"/proc/{os.getpid()}/mem", str(file)], check=True)
            stack.callback(subprocess.run, ["umount", str(file)], check=True)
        yield


@contextlib.contextmanager
def kubelet_that_says(configuration: str, directory: Path) -> Iterator[Path]:
    """A process named kubelet with this configuration file, which does nothing else."""
    directory.mkdir(parents=True, exist_ok=True)
    file, program = directory / "config.yaml", directory / "kubelet"
    file.write_text(configuration)
    program.write_text("#!/bin/sh\nwhile :; do sleep 1; done\n")
    program.chmod(0o755)
    running = Process([program, f"--config={file}"], directory / "kubelet.log")
    try:
        wait_for(lambda: Path(f"/proc/{running.pid}/comm").read_text() == "kubelet\n", 5, "a process named kubelet")
        yield file
    finally:
        running.kill()


@contextlib.contextmanager
def server_that_answers(answer: bytes) -> Iterator[int]:
    """A TCP port of the loopback interface on which every request is answered so."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_answer, args=(listener, answer), daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _answer(listener: socket.socket, answer: bytes) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            connection.sendall(answer)
