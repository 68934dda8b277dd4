"""The air-gapped bundle, from our wheel: ``python -m release.bundle``.

One archive with everything that a node without a network needs: Koord's package and the Debian packages that a bare
Debian 12 lacks for it, and a wheelhouse for every other system that has a Python of ``PYTHONS``.

Invariant: the archive is made from the directory that its own SHA256SUMS describes, in sorted order with fixed times
and owners, so the same parts give the same bytes. Anything missing raises BuildError, and no archive is left behind.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from release import apt, deb
from release.run import BuildError
from release.tree import PYTHON
from release.wheels import GLIBC, Wheel, fetch, fetch_pip, in_directory

PYTHONS = (PYTHON, "3.12", "3.13", "3.14")
TEMPLATES = Path(__file__).parent / "offline"
SUMS = "SHA256SUMS"


def top_level(version: str) -> str:
    """The name of the archive, and of the one directory in it."""
    return f"koord-{version}-linux-x86_64"


def collect(ours: Path, directory: Path, scratch: Path) -> None:
    """Fetches and builds all parts of the bundle into the empty ``directory``. Needs the network; raises BuildError."""
    fetch(ours, PYTHONS, directory / "wheelhouse")
    fetch_pip(directory / "wheelhouse")
    apt.fetch([f"python{PYTHON}"], scratch / "apt", directory / "debian")
    deb.build(deb.for_python(in_directory(directory / "wheelhouse"), PYTHON), directory)
    finish(Wheel.of(ours), directory)


def finish(ours: Wheel, directory: Path) -> None:
    """Add what needs no network: units, texts, and the sums of everything that is there by then."""
    _units(ours, directory / "units")
    values = {
        "@VERSION@": ours.version,
        "@DEBIAN_VERSION@": deb.debian_version(ours.version),
        "@PYTHONS@": " ".join(PYTHONS),
        "@GLIBC@": ".".join(map(str, GLIBC)),
        "@HAND_OVER@": deb.HAND_OVER.read_text(),
    }
    for template in sorted(TEMPLATES.iterdir()):
        text = template.read_text()
        for name, value in values.items():
            text = text.replace(name, value)
        (directory / template.name).write_text(text)
    for path in [directory, *directory.rglob("*")]:
        path.chmod(0o755 if path.is_dir() or path.suffix == ".sh" else 0o644)
    (directory / SUMS).write_text("".join(_sums(directory)))


def pack(directory: Path, name: str, output: Path, epoch_s: int) -> Path:
    """Writes ``directory`` as ``output``/``name``.tar.gz, where it is called ``name``; returns the archive's path."""
    output.mkdir(parents=True, exist_ok=True)
    target = output / f"{name}.tar.gz"
    partial = target.with_suffix(".partial")

    def fixed(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        member.mtime = epoch_s
        return member

    with (
        partial.open("wb") as file,
        gzip.GzipFile("", "wb", compresslevel=1, fileobj=file, mtime=epoch_s) as packed,  # compressed inside already
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in [directory, *sorted(directory.rglob("*"))]:
            archive.add(path, str(Path(name, path.relative_to(directory))), recursive=False, filter=fixed)
    partial.rename(target)
    return target


def _units(ours: Wheel, directory: Path) -> None:
    directory.mkdir()
    with zipfile.ZipFile(ours.path) as archive:
        for name in archive.namelist():
            if "/share/koord/systemd/" in name:
                (directory / Path(name).name).write_bytes(archive.read(name))


def _sums(directory: Path) -> list[str]:
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(directory)}\n" for path in files]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m release.bundle", description="Build Koord's air-gapped bundle.")
    parser.add_argument("wheel", type=Path, help="Koord's own wheel")
    parser.add_argument("--output", type=Path, default=Path("dist"), help="directory of the archive")
    options = parser.parse_args(arguments)
    scratch = Path(tempfile.mkdtemp(prefix="koord-bundle-"))
    try:
        ours = Wheel.of(options.wheel)
        directory = scratch / "bundle"
        collect(options.wheel, directory, scratch)
        epoch_s = deb.source_date_epoch_s(ours, os.environ)
        print(pack(directory, top_level(ours.version), options.output, epoch_s))
    except BuildError as error:
        print(f"no bundle: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(scratch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
