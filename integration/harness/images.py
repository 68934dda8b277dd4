"""Container images made from the machine's static busybox, so that no registry is needed.

An image is a docker-archive tar: one layer, a config and ``manifest.json``. The same busybox gives the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PAUSE = "localhost/pause:1"
BUSYBOX = "localhost/busybox:1"


@dataclass(frozen=True, slots=True)
class Image:
    """``entrypoint`` is an argv; ``reference`` is the full name with its tag."""

    reference: str
    entrypoint: tuple[str, ...]


IMAGES = (Image(PAUSE, ("/bin/sleep", "1000000000")), Image(BUSYBOX, ("/bin/sh",)))


def write_archive(image: Image, busybox: Path, target: Path) -> None:
    """Write ``image`` as a docker-archive tar to ``target``."""
    layer = _layer(busybox.read_bytes(), _applets(busybox))
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": list(image.entrypoint), "Env": ["PATH=/bin"], "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        },
        sort_keys=True,
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [image.reference], "Layers": ["layer.tar"]}]
    with tarfile.open(target, "w") as archive:
        _add(archive, config_name, config)
        _add(archive, "layer.tar", layer)
        _add(archive, "manifest.json", json.dumps(manifest).encode())


def _applets(busybox: Path) -> Sequence[str]:
    listing = subprocess.run([str(busybox), "--list"], check=True, capture_output=True, text=True)
    return [name for name in listing.stdout.split() if name != "busybox"]


def _layer(busybox: bytes, applets: Sequence[str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for directory in ("bin", "etc", "tmp", "proc", "sys", "dev"):
            _add_directory(archive, directory)
        _add(archive, "bin/busybox", busybox, mode=0o755)
        for name in applets:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
        _add(archive, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\n")
    return buffer.getvalue()


def _add_directory(archive: tarfile.TarFile, name: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    archive.addfile(entry)


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))
