"""The initial RAM disk of a guest: it loads what the kernel needs for its root disk, and goes on to systemd.

The cloud kernel has no driver of virtio disks in itself, and one of NVMe disks whose state QEMU cannot save. The
archive is cpio's ``newc``, as the kernel's documents describe it (early-userspace/buffer-format).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BUSYBOX = Path("/bin/busybox")
MODULES = (
    *("virtio/virtio", "virtio/virtio_ring", "virtio/virtio_pci_legacy_dev", "virtio/virtio_pci_modern_dev"),
    *("virtio/virtio_pci", "block/virtio_blk"),
)
"""Below the kernel's ``drivers``, each after those that it needs."""
ROOT_DISK = "/dev/vda"
_INIT = f"""\
#!/bin/busybox sh
/bin/busybox mount -t devtmpfs none /dev
for module in {" ".join(Path(each).name for each in MODULES)}; do /bin/busybox insmod /$module.ko; done
/bin/busybox mount -t ext4 -o noatime,noinit_itable {ROOT_DISK} /root
/bin/busybox mount -o move /dev /root/dev
exec /bin/busybox switch_root /root /sbin/init
"""
_DIRECTORY, _FILE, _CONSOLE = 0o040755, 0o100755, 0o020600
_CONSOLE_DEVICE = (5, 1)


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    mode: int
    data: bytes = b""
    device: tuple[int, int] = (0, 0)


def write(target: Path, drivers: Path) -> None:
    """Write the archive; ``drivers`` is the directory of that name with the kernel's modules. Raises OSError."""
    target.write_bytes(b"".join(_encoded(number, entry) for number, entry in enumerate(_entries(drivers), start=1)))


def _entries(drivers: Path) -> Iterator[_Entry]:
    for name in ("bin", "dev", "root"):
        yield _Entry(name, _DIRECTORY)
    yield _Entry("dev/console", _CONSOLE, device=_CONSOLE_DEVICE)
    yield _Entry("bin/busybox", _FILE, BUSYBOX.read_bytes())
    yield _Entry("init", _FILE, _INIT.encode())
    for each in MODULES:
        yield _Entry(f"{Path(each).name}.ko", _FILE, (drivers / f"{each}.ko").read_bytes())
    yield _Entry("TRAILER!!!", 0)


def _encoded(number: int, entry: _Entry) -> bytes:
    name = entry.name.encode() + b"\0"
    # inode, mode, uid, gid, links, mtime, size, the file's device, the node's device, length of the name, checksum
    fields = (number, entry.mode, 0, 0, 1, 0, len(entry.data), 0, 0, *entry.device, len(name), 0)
    return _padded(b"070701" + b"".join(b"%08x" % field for field in fields) + name) + _padded(entry.data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
