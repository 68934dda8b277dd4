"""A private containerd, 1.6 or 2.x, with pause and busybox images.

Invariant: after ``close()`` no process, mount, interface or directory of it is left, however it ended. It is started
again for that if a test killed it, because only containerd knows all its pods.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc

from integration.harness import containerd_config, images, leftovers
from integration.harness.containerd_config import Layout
from integration.harness.cri import Cri
from integration.harness.processes import HarnessError, Process, tail

BOOT_S = 20.0
REMOVAL_S = 10.0


@dataclass(frozen=True, slots=True)
class Release:
    """One containerd: ``binaries`` holds containerd and ctr; ``dialect`` is the version of its configuration file."""

    name: str
    binaries: Path
    dialect: int


def installed() -> Release:
    """The machine's own containerd (Debian 12: 1.6)."""
    path = shutil.which("containerd")
    if path is None:
        raise HarnessError("containerd is not on PATH: apt-get install containerd runc containernetworking-plugins")
    return Release("containerd-1.6", Path(path).parent, 2)


def built(binaries: Path) -> Release:
    """containerd 2.x out of the cache of ``integration.build``."""
    return Release("containerd-2.x", binaries, 3)


def own_layout(directory: Path) -> Layout:
    """Everything below ``directory``, with a bridge and a subnet that no other directory has."""
    tag = hashlib.sha256(os.fsencode(directory)).hexdigest()
    subnet = f"10.{200 + int(tag[:2], 16) % 50}.{int(tag[2:4], 16)}.0/24"
    return Layout(directory, f"koord{tag[:8]}", subnet)


class Containerd:
    """A containerd of ``release`` that keeps everything where ``layout`` says, by default below ``directory``; its log
    stays there after ``close()``."""

    def __init__(self, release: Release, directory: Path, layout: Layout | None = None) -> None:
        self.release = release
        self.layout = layout or own_layout(directory)
        self.log = directory / "containerd.log"
        self._process: Process | None = None
        self._made = leftovers.absent(leftovers.SHARED)

    @property
    def socket(self) -> Path:
        return self.layout.socket

    @property
    def pid(self) -> int:
        if self._process is None:
            raise HarnessError(f"{self.release.name} is not running")
        return self._process.pid

    def start(self) -> None:
        """Start and wait until CRI answers and reports the runtime and the network as ready."""
        containerd_config.write(self.layout, self.release.dialect)
        path = f"{self.release.binaries}:{os.environ['PATH']}"
        argv = [str(self.release.binaries / "containerd"), "--config", str(self.layout.config)]
        self._process = Process(argv, self.log, {"PATH": path})
        with Cri(self.socket) as cri:
            self._process.wait_for(lambda: self._ready(cri), BOOT_S, f"{self.release.name} to be ready")

    def import_images(self) -> None:
        """Make and import the images, and wait until CRI lists them."""
        for image in images.IMAGES:
            archive = self.layout.directory / "image.tar"
            images.write_archive(image, Path("/bin/busybox"), archive)
            self.ctr("images", "import", str(archive))
            archive.unlink()
        wanted = {image.reference for image in images.IMAGES}
        with Cri(self.socket) as cri:
            self._running().wait_for(lambda: wanted <= set(cri.image_names()), 10, "CRI to list the images")

    def ctr(self, *arguments: str) -> str:
        """Run ctr in CRI's namespace; returns its output."""
        argv = [str(self.release.binaries / "ctr"), "-a", str(self.socket), "-n", "k8s.io", *arguments]
        done = subprocess.run(argv, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise HarnessError(f"{' '.join(argv)}: {done.stderr.strip()}\n{tail(self.log)}")
        return done.stdout

    def stop(self) -> None:
        """SIGTERM and wait; pods keep running, as on a node."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        """SIGKILL; pods keep running."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def remove_pods(self) -> None:
        """Stop and remove every pod; starts containerd for that if it is not running.

        A container that is being started cannot be removed, so it is tried for ``REMOVAL_S``.
        """
        if self._process is None or not self._process.running:
            self.start()
        deadline_s = time.monotonic() + REMOVAL_S
        with Cri(self.socket) as cri:
            while True:
                try:
                    cri.remove_all()
                    return
                except grpc.RpcError:
                    if time.monotonic() >= deadline_s:
                        raise
                time.sleep(0.5)

    def close(self) -> None:
        """Remove all pods and everything else that this containerd made."""
        try:
            with contextlib.suppress(HarnessError, grpc.RpcError):
                self.remove_pods()
        finally:
            self.stop()
            self._remove_rest()

    def _running(self) -> Process:
        if self._process is None:
            raise HarnessError(f"{self.release.name} is not running")
        return self._process

    def _ready(self, cri: Cri) -> bool:
        try:
            return cri.ready()
        except grpc.RpcError:
            return False

    def _remove_rest(self) -> None:
        leftovers.kill_shims(self.layout.address)
        leftovers.unlink_shim_sockets(self.layout.state)
        leftovers.unmount_below(self.layout.directory)
        leftovers.delete_interface(self.layout.bridge)
        for path in self.layout.directory.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path != self.log:
                path.unlink()
        leftovers.remove_empty(self._made)


@contextlib.contextmanager
def private(release: Release, directory: Path, layout: Layout | None = None) -> Iterator[Containerd]:
    """A started containerd with images, closed at the end."""
    directory.mkdir(parents=True, exist_ok=True)
    containerd = Containerd(release, directory, layout)
    try:
        containerd.start()
        containerd.import_images()
        yield containerd
    finally:
        containerd.close()
