"""Builds the guest's disk once: ``python -m integration.guest.image`` prints its directory.

A Debian of debootstrap with systemd, containerd 1.6, runc and full Python, the cloud kernel, our kubelet and containerd
2.x, and the tests' container images already imported. It lies in the cache of ``integration.build``, under a hash of
everything that made it; no run ever writes to it (QEMU works on a throw-away copy).

Invariant: an image in the cache is complete (it appears by one rename). Needs root, debootstrap and the Debian mirror
(``$DEBIAN_MIRROR``, by default debootstrap's own); a failing step raises BuildError with its last lines.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from integration import build
from integration.build import BuildError
from integration.guest import initramfs
from integration.harness import images
from integration.harness.processes import Process

HERE = Path(__file__).parent
OVERLAY = HERE / "rootfs"
AGENT = HERE / "inside" / "agent.py"
SUITE = "bookworm"
KERNEL = "linux-image-cloud-amd64"
PACKAGES = (
    *("systemd-sysv", "udev", "dbus", "kmod", "procps", "iproute2", "iptables"),
    *("containerd", "runc", "containernetworking-plugins", "busybox-static", "python3"),
)
DISK_BYTES = 6 << 30
# What would wake up an idle guest, or change /etc between two snapshots.
MASKED = (
    *("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer"),
    *("e2scrub_reap.service", "systemd-pstore.service", "serial-getty@ttyS0.service", "getty@tty1.service"),
    *("systemd-networkd-wait-online.service",),
)
ENABLED = ("systemd-networkd.service", "koord-guest-agent.service")
TRIMMED = ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale", "usr/share/man")


@dataclass(frozen=True, slots=True)
class Image:
    """``disk`` is a raw ext4 file system, ``kernel`` a bzImage, ``initrd`` what makes it find the disk."""

    disk: Path
    kernel: Path
    initrd: Path


def built() -> Image:
    """The image of this checkout; makes it first if the cache lacks it."""
    cache = build.cache_directory(os.environ) / "guest"
    cache.mkdir(parents=True, exist_ok=True)
    kubelet, containerd2 = build.build("kubelet"), build.build("containerd2")
    directory = cache / _key(kubelet, containerd2)
    if not directory.is_dir():
        with (cache / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not directory.is_dir():
                _build(cache, directory, kubelet, containerd2)
    return Image(directory / "disk.img", directory / "vmlinuz", directory / "initrd")


def _key(kubelet: Path, containerd2: Path) -> str:
    digest = hashlib.sha256(repr((SUITE, KERNEL, kubelet.name, containerd2.name)).encode())
    made_by = (__file__, initramfs.__file__, images.__file__)
    sources = [AGENT, *map(Path, made_by), *(path for path in OVERLAY.rglob("*") if path.is_file())]
    for path in sorted(sources):
        digest.update(f"{path.relative_to(HERE.parent)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


def _build(cache: Path, directory: Path, kubelet: Path, containerd2: Path) -> None:
    print("building the guest's disk (a minute, the first time)", file=sys.stderr)
    started = time.monotonic()
    partial = Path(tempfile.mkdtemp(prefix=".building-", dir=cache))
    root, finished = partial / "rootfs", partial / "finished"
    finished.mkdir()
    try:
        _debootstrap(root, cache)
        _kernel(root, finished)
        shutil.copytree(OVERLAY, root, dirs_exist_ok=True)
        _settle(root)
        shutil.copy(kubelet / "kubelet", root / "usr/bin")
        shutil.copytree(containerd2, root / "opt/containerd2/bin")
        _import_images(root, partial)
        for path in TRIMMED:
            shutil.rmtree(root / path, ignore_errors=True)
        _make_disk(root, finished / "disk.img")
        finished.rename(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    print(f"built the guest's disk in {time.monotonic() - started:.0f} s", file=sys.stderr)


def _make_disk(root: Path, disk: Path) -> None:
    """An ext4 file system in a sparse file, filled without a mount."""
    options = ["-q", "-t", "ext4", "-E", "lazy_itable_init=1", "-d", str(root)]
    _run(["mke2fs", *options, str(disk), f"{DISK_BYTES // 1024}k"])


def _debootstrap(root: Path, cache: Path) -> None:
    archives = cache / "debs"
    archives.mkdir(exist_ok=True)
    mirror = [os.environ["DEBIAN_MIRROR"]] if os.environ.get("DEBIAN_MIRROR") else []
    options = ["--variant=minbase", f"--cache-dir={archives}", f"--include={','.join(PACKAGES)}"]
    _run(["debootstrap", *options, SUITE, str(root), *mirror])


def _kernel(root: Path, partial: Path) -> None:
    """The kernel's files without its installation, which would make an initrd for every machine there is."""
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    script = f"""
        mkdir /tmp/kernel && cd /tmp/kernel
        apt-get -qq update
        package=$(apt-cache depends {KERNEL} | sed -n 's/.*Depends: //p' | head -1)
        apt-get -qq -o APT::Sandbox::User=root download "$package"
        dpkg-deb -x "$package"_*.deb .
        mv lib/modules /usr/lib/
        depmod "$(ls /usr/lib/modules)"
    """
    _run(["chroot", str(root), "sh", "-ec", script])
    (kernel,) = (root / "tmp/kernel/boot").glob("vmlinuz-*")
    shutil.move(kernel, partial / "vmlinuz")
    (modules,) = (root / "usr/lib/modules").iterdir()
    initramfs.write(partial / "initrd", modules / "kernel" / "drivers")
    shutil.rmtree(root / "tmp/kernel")
    (root / "etc/resolv.conf").unlink()


def _settle(root: Path) -> None:
    """What a first boot would otherwise do, and what would disturb a test."""
    agent = root / "usr/local/lib/koord-guest/agent.py"
    agent.parent.mkdir(parents=True)
    shutil.copy(AGENT, agent)
    system = root / "etc/systemd/system"
    for unit in MASKED:
        (system / unit).symlink_to("/dev/null")
    _run(["chroot", str(root), "systemctl", "enable", *ENABLED])
    (root / "etc/machine-id").write_text("d" * 32 + "\n")
    (root / "etc/fstab").write_text(f"{initramfs.ROOT_DISK} / ext4 rw,noatime 0 0\n")
    (root / "var/log/journal").mkdir(exist_ok=True)
    for folder in ("etc/kubernetes/manifests", "srv/payload"):
        (root / folder).mkdir(parents=True, exist_ok=True)


def _import_images(root: Path, partial: Path) -> None:
    """The host's containerd 1.6 writes the guest's store: the database holds no path of this machine."""
    config = partial / "containerd.toml"
    state = partial / "state"
    socket = partial / "c.sock"
    config.write_text(
        f'version = 2\nroot = "{root}/var/lib/containerd"\nstate = "{state}"\n'
        f'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n[grpc]\n  address = "{socket}"\n'
    )
    process = Process(["containerd", "--config", str(config)], partial / "containerd.log")
    try:
        process.wait_for(socket.exists, 20, "containerd to listen")
        for image in images.IMAGES:
            archive = partial / "image.tar"
            images.write_archive(image, Path("/bin/busybox"), archive)
            _run(["ctr", "-a", str(socket), "-n", "k8s.io", "images", "import", str(archive)])
    finally:
        process.stop()


def _run(argv: Sequence[str]) -> None:
    done = subprocess.run(argv, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        last = "\n".join(done.stdout.splitlines()[-20:])
        raise BuildError(f"{' '.join(argv)} ended with {done.returncode}\n{last}")


if __name__ == "__main__":
    print(built().disk.parent)
