"""Lays out the interpreter that builds as a tree that runs by itself: program, standard library, shared libraries.

Invariant: nothing outside of the tree is needed but a kernel. Shared libraries are those that the loader of this
machine finds for the programs and modules in the tree, so the image runs where this machine's programs would.
"""

from __future__ import annotations

import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from release.run import BuildError, run
from release.tree import PYTHON, compile_below

LIBRARIES = "lib/x86_64-linux-gnu"
_NOT_FOR_A_SERVICE = frozenset(
    ("test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "pydoc_data", "site-packages",
     "dist-packages", "__pycache__", "turtle.py", "sitecustomize.py")
)  # fmt: skip
_PREFIXES = ("config-", "_tkinter.", "_test", "_ctypes_test.", "_xxtestfuzz.", "xxlimited", "nis.")
_LOADED_LATE = ("libgcc_s.so.1",)
"""glibc opens it when a thread is cancelled."""
_RESOLVED = re.compile(r"^\t(?:(?P<name>\S+) => )?(?P<path>/\S+) \(0x[0-9a-f]+\)$", re.MULTILINE)
_MISSING = re.compile(r"^\t(?P<name>\S+) => not found$", re.MULTILINE)


def lay_out(root: Path) -> None:
    """Lays out the interpreter below ``root``, which may hold other things. Raises BuildError."""
    if f"{sys.version_info.major}.{sys.version_info.minor}" != PYTHON:
        raise BuildError(f"Python {PYTHON} builds the images, this is {sys.version.split()[0]}")
    program = root / f"usr/bin/python{PYTHON}"
    program.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(Path(sys.executable).resolve(), program)
    standard = root / f"usr/lib/python{PYTHON}"
    shutil.copytree(sysconfig.get_path("stdlib"), standard, ignore=_left_out)
    compile_below(standard, root)


def lay_out_libraries(root: Path) -> None:
    """Copies the libraries that programs and modules below ``root`` load. Raises BuildError if one is missing."""
    target = root / LIBRARIES
    target.mkdir(parents=True)
    found = dict(_libraries(root))
    for name in _LOADED_LATE:
        found.setdefault(name, found["libc.so.6"].parent / name)
    for name, path in sorted(found.items()):
        place = root / "lib64" / name if name.startswith("ld-linux") else target / name
        place.parent.mkdir(exist_ok=True)
        shutil.copy2(path.resolve(), place)


def _libraries(root: Path) -> Iterator[tuple[str, Path]]:
    """Yields each library outside of the tree, with the name that it is asked for by."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink() and _is_elf(path))
    said = run(["ldd", *files])
    if missing := sorted({found["name"] for found in _MISSING.finditer(said)}):
        raise BuildError(f"shared libraries that this machine lacks: {', '.join(missing)}")
    for found in _RESOLVED.finditer(said):
        path = Path(found["path"])
        if not path.resolve().is_relative_to(root.resolve()):
            yield Path(found["name"] or path.name).name, path


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _left_out(directory: str, names: list[str]) -> set[str]:
    """Returns what no service imports of a directory of the standard library."""
    return {name for name in names if name in _NOT_FOR_A_SERVICE or name.startswith(_PREFIXES) or name.endswith(".a")}
