"""Writes a directory as a docker-archive: one layer, a config, ``manifest.json``.

Invariant: the same directory gives the same bytes, whatever owners and times its files have.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

WRITABLE = frozenset({"tmp"})
"""Directories that every user may write to."""


@dataclass(frozen=True, slots=True)
class Image:
    """``reference``: the full name with its tag; ``user``: "uid:gid" """

    reference: str
    entrypoint: tuple[str, ...]
    user: str
    environment: Mapping[str, str]


def write(image: Image, root: Path, target: Path) -> str:
    """Packs ``root`` into ``target``; returns the image's id, the digest of its config."""
    layer = _layer(root)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "Entrypoint": list(image.entrypoint),
                "Env": [f"{name}={value}" for name, value in sorted(image.environment.items())],
                "User": image.user,
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        },
        sort_keys=True,
    ).encode()
    digest = hashlib.sha256(config).hexdigest()
    manifest = [{"Config": f"{digest}.json", "RepoTags": [image.reference], "Layers": ["layer.tar"]}]
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w") as archive:
        _add(archive, f"{digest}.json", config)
        _add(archive, "layer.tar", layer)
        _add(archive, "manifest.json", json.dumps(manifest).encode())
    return f"sha256:{digest}"


def _layer(root: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(root.rglob("*")):
            name = str(path.relative_to(root))
            entry = archive.gettarinfo(path, name)
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, 0, "", ""
            entry.mode = _mode(entry, name)
            if entry.isreg() or entry.islnk():  # a second name of a file is a file
                content = path.read_bytes()
                entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", len(content)
                archive.addfile(entry, io.BytesIO(content))
            else:
                archive.addfile(entry)
    return buffer.getvalue()


def _mode(entry: tarfile.TarInfo, name: str) -> int:
    if name in WRITABLE:
        return 0o1777
    if entry.issym():
        return 0o777
    return 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    archive.addfile(entry, io.BytesIO(content))
