"""Builds the Debian package from wheels, by dpkg-deb alone: ``python -m release.deb``.

Invariant: the same wheels give the same bytes (times are $SOURCE_DATE_EPOCH or the wheel's own, owners root, order
sorted). No conffiles: configuration is the operator's, and what wiring the node creates is recorded by koordctl.
Anything missing raises BuildError, and no package is left behind.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from string import Template

from release.run import BuildError, run
from release.tree import PYTHON, lay_out
from release.wheels import GLIBC, NAME, Wheel, fetch

TEMPLATES = Path(__file__).parent / "debian"
SCRIPTS = ("preinst", "postinst", "prerm", "postrm")
HAND_OVER = Path(__file__).parent / "hand_over.sh"
_PEP440_PRE_RELEASE = re.compile(r"(?<=\d)\.?(a|b|rc|dev)(?=\d)")


def debian_version(version: str) -> str:
    """Returns Debian's spelling, in which a pre-release sorts before its release: 1.2.0~rc1 for 1.2.0rc1."""
    return _PEP440_PRE_RELEASE.sub(r"~\1", version)


def file_name(version: str) -> str:
    return f"{NAME}_{debian_version(version)}_amd64.deb"


def build(wheels: Sequence[Wheel], output: Path, xz_level: int = 6) -> Path:
    """Packages ``wheels`` (ours and its dependencies for one Python) into ``output``; returns the package's path."""
    ours = _ours(wheels)
    target = output / file_name(ours.version)
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="koord-deb-") as scratch:
        root = Path(scratch, "root")
        lay_out(wheels, ours.version, root)
        _copyright(wheels, root / "usr/share/doc" / NAME / "copyright")
        _control(ours, root)
        environ = {**os.environ, "SOURCE_DATE_EPOCH": str(source_date_epoch_s(ours, os.environ))}
        made = Path(scratch, target.name)
        run(["dpkg-deb", "--root-owner-group", "-Zxz", f"-z{xz_level}", "--build", root, made], environ)
        target.write_bytes(made.read_bytes())
    return target


def for_python(wheels: Sequence[Wheel], version: str) -> list[Wheel]:
    """Returns the wheels that Python ``version`` ("3.11") imports: pure ones, its own, and of the stable ABI."""
    tag = "cp" + version.replace(".", "")
    kept = [wheel for wheel in wheels if wheel.name != "pip"]
    return [
        wheel
        for wheel in kept
        if f"-{tag}-" in wheel.path.name or "-cp" not in wheel.path.name or "-abi3-" in wheel.path.name
    ]


def _ours(wheels: Sequence[Wheel]) -> Wheel:
    ours = [wheel for wheel in wheels if wheel.name == NAME]
    if len(ours) != 1:
        raise BuildError(f"{len(ours)} wheels of {NAME} instead of one")
    return ours[0]


def source_date_epoch_s(ours: Wheel, environ: Mapping[str, str]) -> int:
    """Returns the time of everything in the package: $SOURCE_DATE_EPOCH, else that of the newest file in our wheel."""
    if chosen := environ.get("SOURCE_DATE_EPOCH"):
        return int(chosen)
    with zipfile.ZipFile(ours.path) as archive:
        newest = max(info.date_time for info in archive.infolist())
    return int(datetime(*newest, tzinfo=UTC).timestamp())


def _control(ours: Wheel, root: Path) -> None:
    directory = root / "DEBIAN"
    directory.mkdir(mode=0o755)
    directory.chmod(0o755)
    size_bytes = sum(path.lstat().st_size for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    values = {
        "version": debian_version(ours.version),
        "python": PYTHON,
        "glibc": ".".join(map(str, GLIBC)),
        "size_kib": -(-size_bytes // 1024),
        "summary": str(ours.metadata()["Summary"]),
    }
    _write(directory / "control", Template((TEMPLATES / "control").read_text()).substitute(values), 0o644)
    for script in SCRIPTS:
        text = (TEMPLATES / script).read_text().replace("@HAND_OVER@", HAND_OVER.read_text())
        _write(directory / script, text, 0o755)


def _copyright(wheels: Sequence[Wheel], path: Path) -> None:
    """Writes which licences apply to the packages inside; their texts are beside each package's code."""
    lines = [
        "Koord is under the Apache License, Version 2.0: /usr/share/common-licenses/Apache-2.0",
        "",
        "Packages of others in /usr/lib/koord, each with its licence in its .dist-info directory:",
    ]
    lines += [f"  {wheel.name} {wheel.version}: {wheel.licence()}" for wheel in sorted(wheels) if wheel.name != NAME]
    path.parent.mkdir(parents=True)
    for directory in (path.parent, path.parent.parent, path.parent.parent.parent):
        directory.chmod(0o755)
    _write(path, "\n".join(lines) + "\n", 0o644)


def _write(path: Path, text: str, mode: int) -> None:
    path.write_text(text)
    path.chmod(mode)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m release.deb", description="Build Koord's Debian package.")
    parser.add_argument("wheel", type=Path, help="Koord's own wheel")
    parser.add_argument("--output", type=Path, default=Path("dist"), help="directory of the package")
    options = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="koord-wheels-") as directory:
            wheels = fetch(options.wheel, [PYTHON], Path(directory))
            print(build(wheels, options.output))
    except BuildError as error:
        print(f"no package: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
