"""The images that the guides name, made here, under the very names that the guides use.

``python:3.9`` is a real Python 3.9: Debian bullseye's, by debootstrap, kept in the cache of ``integration.build``
under a hash of what made it (the Debian mirror is ``$DEBIAN_MIRROR``, by default debootstrap's own). For the programs
that a reader would have of his own (``data-processor`` and the like), and for nginx, busybox stands in. Invariant: an
image in the cache is complete (it appears by one rename). Needs root; a failing step raises BuildError with its last
lines.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from integration import build
from integration.build import BuildError
from integration.harness import images
from integration.harness.images import Image
from release.images.making import RECIPES

REPOSITORY = Path(__file__).parents[3]
SOURCES = ("koord", "koord_manager", "koord_scheduler", "koordctl", "qosd", "runtimeproxy", "release", "protos")
SUITE = "bullseye"
PACKAGES = ("python3", "python-is-python3")
PYTHON = "python:3.9"
PYTHON_CONFIG = {
    "Cmd": ["python3"],
    "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"],
}
TRIMMED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale", "usr/share/man")


def _says(sentence: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", f"echo '{sentence}'; sleep 2")


STAND_INS = (
    Image("data-processor:latest", _says("a batch was processed")),
    Image("report-gen:latest", _says("the report was written")),
    Image("your-batch-image:latest", _says("the work was done")),
    Image("release.daocloud.io/kpanda/nginx:1.25.3-alpine", ("/bin/httpd", "-f", "-p", "80")),
)


def archives(directory: Path) -> list[Path]:
    """The docker-archives of all images, Koord's among them; those that are not kept are written to ``directory``."""
    return [python(), *stand_ins(directory), *ours()]


def ours() -> list[Path]:
    """Those that ``make images`` makes of this checkout; made unless they are newer than every source."""
    archives = [REPOSITORY / "dist" / "images" / f"{each.name}.tar" for each in RECIPES]
    sources = [path for top in SOURCES for path in (REPOSITORY / top).rglob("*") if "__pycache__" not in path.parts]
    newest = max(path.stat().st_mtime for path in (*sources, REPOSITORY / "pyproject.toml"))
    if not all(path.exists() and path.stat().st_mtime > newest for path in archives):
        _run(["make", "--silent", "images"])
    return archives


def python() -> Path:
    """The docker-archive of python:3.9; made first if the cache lacks it."""
    cache = build.cache_directory(os.environ) / "images"
    cache.mkdir(parents=True, exist_ok=True)
    made_of = repr((SUITE, PACKAGES, PYTHON_CONFIG, TRIMMED))
    archive = cache / f"python-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.tar"
    if not archive.exists():
        with (cache / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not archive.exists():
                _make_python(cache, archive)
    return archive


def stand_ins(directory: Path) -> list[Path]:
    """The docker-archives of the other images, written to ``directory``."""
    archives = []
    for number, image in enumerate(STAND_INS):
        archive = directory / f"stand-in-{number}.tar"
        images.write_archive(image, Path("/bin/busybox"), archive)
        archives.append(archive)
    return archives


def _make_python(cache: Path, archive: Path) -> None:
    print(f"building the image {PYTHON} (a minute, the first time)", file=sys.stderr)
    started = time.monotonic()
    partial = Path(tempfile.mkdtemp(prefix=".building-", dir=cache))
    try:
        root, layer = partial / "rootfs", partial / "layer.tar"
        mirror = [os.environ["DEBIAN_MIRROR"]] if os.environ.get("DEBIAN_MIRROR") else []
        _run(["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(root), *mirror])
        for path in TRIMMED:
            shutil.rmtree(root / path, ignore_errors=True)
        _run(["tar", "--create", "--numeric-owner", f"--file={layer}", f"--directory={root}", "."])
        _write_archive(layer, partial / "image.tar")
        (partial / "image.tar").rename(archive)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    print(f"built the image {PYTHON} in {time.monotonic() - started:.0f} s", file=sys.stderr)


def _write_archive(layer: Path, target: Path) -> None:
    with layer.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": PYTHON_CONFIG,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [PYTHON], "Layers": ["layer.tar"]}]
    files = target.parent / "config.json", target.parent / "manifest.json"
    for path, document in zip(files, (config, manifest), strict=True):
        path.write_text(json.dumps(document))
    with tarfile.open(target, "w") as tar:
        for path in (*files, layer):
            tar.add(path, path.name)


def _run(argv: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            argv, cwd=REPOSITORY, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    except OSError as error:
        raise BuildError(f"{argv[0]} cannot be run: {error}") from error
    if done.returncode != 0:
        last = "\n".join(done.stdout.splitlines()[-20:])
        raise BuildError(f"{' '.join(argv)} ended with {done.returncode}\n{last}")


if __name__ == "__main__":
    print(python())
