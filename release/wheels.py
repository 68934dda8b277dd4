"""Fetches the wheels that a node needs: ours, and those of its ``node`` dependencies for each Python, by pip.

Invariants: only binary wheels that run on ``GLIBC`` and later; nothing is compiled here or on the node. The
wheels of others are those in ``release/locks`` (``make lock``), byte for byte. A package without one fails the build.
"""

from __future__ import annotations

import email.message
import email.parser
import shutil
import sys
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from release.run import BuildError, run

NAME = "koord"
EXTRA = "node"
LOCKS = Path(__file__).parent / "locks"
"""Has a file for each extra: versions, and the hashes of their files."""
GLIBC = (2, 28)
_OLDEST_MANYLINUX_MINOR = 5


@dataclass(frozen=True, slots=True, order=True)
class Wheel:
    """A wheel file; ``name`` and ``version`` as its file name spells them."""

    name: str
    version: str
    path: Path

    @classmethod
    def of(cls, path: Path) -> Wheel:
        """Reads the name of a wheel's file. Raises BuildError for another name."""
        parts = path.name.removesuffix(".whl").split("-")
        if path.suffix != ".whl" or len(parts) < 5:
            raise BuildError(f"{path}: not a wheel's name")
        return cls(parts[0], parts[1], path)

    def metadata(self) -> email.message.Message:
        with zipfile.ZipFile(self.path) as archive:
            text = archive.read(f"{self.name}-{self.version}.dist-info/METADATA").decode()
        return email.parser.HeaderParser().parsestr(text)

    def licence(self) -> str:
        """Returns the licence that the wheel declares, in one of the three ways that there have been."""
        metadata = self.metadata()
        declared = metadata["License-Expression"] or metadata["License"]
        classifiers = metadata.get_all("Classifier", [])
        named = [text.rpartition(" :: ")[2] for text in classifiers if text.startswith("License :: ")]
        return str(declared or ", ".join(named) or "see its text")


def fetch(ours: Path, pythons: Iterable[str], directory: Path, extras: str = EXTRA) -> list[Wheel]:
    """Puts our wheel and what its ``extras`` need for ``pythons`` ("3.11", …) into ``directory``; returns all in it.

    pip's own cache and configuration (index, proxy, certificates) apply. Raises BuildError.
    """
    fetch_others(pythons, directory, extras)
    shutil.copy2(ours, directory)
    return in_directory(directory)


def fetch_others(pythons: Iterable[str], directory: Path, extras: str) -> None:
    """Does what ``fetch`` does, without our wheel."""
    directory.mkdir(parents=True, exist_ok=True)
    locks = [word for lock in lock_files(extras) for word in ("--requirement", str(lock))]
    platforms = [f"manylinux_{GLIBC[0]}_{minor}_x86_64" for minor in range(GLIBC[1], _OLDEST_MANYLINUX_MINOR - 1, -1)]
    # pip expands only the old names by itself.
    chosen = [word for platform in [*platforms, "manylinux2014_x86_64"] for word in ("--platform", platform)]
    for version in pythons:
        target = "--implementation", "cp", "--python-version", version, *chosen
        _download(directory, "--require-hashes", "--no-deps", *target, *locks)


def lock_files(extras: str) -> list[Path]:
    return [LOCKS / f"{extra}.txt" for extra in extras.split(",")]


def fetch_pip(directory: Path) -> None:
    """Fetches pip's own wheel, which installs the others where a Python comes without it. Raises BuildError."""
    _download(directory, "--no-deps", "pip")


def _download(directory: Path, *arguments: str) -> None:
    """Downloads wheels, never sources. Raises BuildError."""
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--dest",
        directory,
        "--only-binary",
        ":all:",
    ]
    run([*pip, *arguments])


def in_directory(directory: Path) -> list[Wheel]:
    return sorted(Wheel.of(path) for path in directory.glob("*.whl"))
