"""Lays out the installed tree: each version in a directory of its own, unpacked from wheels, compiled, never written.

::

    usr/lib/koord/<version>/site-packages   our packages and their dependencies
    usr/lib/koord/<version>/bin             the programs
    usr/lib/systemd/system                  units
    usr/bin                                 links to the programs

A program adds the directory that its own real path names to the search path, so a running process keeps to its
version while /usr/bin already names the next one. The links are symbolic, and dpkg puts those in place after all
files: a program that is started during an upgrade is wholly of the old version or wholly of the new.

Invariant: nothing is ever written below usr/lib/koord. Every module ships its byte code, valid whatever the source's
time stamp is (PEP 552, unchecked), and the programs run with ``-B``. They also run isolated from the environment
(``-I``) and from the system's own Python packages (``-S``), which have another protobuf.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from release.run import BuildError, python, run
from release.wheels import Wheel

PYTHON = "3.11"
PREFIX = PurePosixPath("/usr/lib/koord")
UNITS = PurePosixPath("/usr/lib/systemd/system")
PROGRAMS = {
    "koord-runtime-proxy": "runtimeproxy.__main__",
    "koord-qosd": "qosd.__main__",
    "koordctl": "koordctl.__main__",
}

_PROGRAM = """\
#!/usr/bin/python{python} -IBS
import sys
from os.path import dirname, realpath

sys.path.append(dirname(dirname(realpath(__file__))) + "/site-packages")
from {module} import main

sys.exit(main())
"""

_NOT_FOR_A_NODE = re.compile(
    r"""
    \.(pyi|pyx|pxd|pxi|c|h)$ | /py\.typed$              # for type checkers and compilers
    | \.dist-info/(RECORD|WHEEL|top_level\.txt|entry_points\.txt)$    # for pip
    | /(tests?|testdata|_testbase\.py|testing\.py)(/|$)
    """,
    re.VERBOSE,
)


def lay_out(wheels: Iterable[Wheel], version: str, root: Path, programs: Mapping[str, str] = PROGRAMS) -> None:
    """Fills the empty directory ``root`` with the tree for ``version``. Raises BuildError.

    ``programs``: their modules by name; the directory may hold what the tree does not.
    """
    home = root / PREFIX.relative_to("/") / version
    site_packages = home / "site-packages"
    for wheel in wheels:
        _unpack(wheel, site_packages, root)
    _programs(home, version, root, programs)
    compile_below(site_packages, root)
    _set_modes(root)


def _unpack(wheel: Wheel, site_packages: Path, root: Path) -> None:
    """Unpacks packages into ``site_packages``, our units and shared data to their places; fails on other data."""
    data = f"{wheel.name}-{wheel.version}.data/"
    units = data + "data/share/koord/systemd/"
    with zipfile.ZipFile(wheel.path) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith("/") or _NOT_FOR_A_NODE.search(name):
                continue
            if name.startswith(units):
                target = root / UNITS.relative_to("/") / name.removeprefix(units)
            elif name.startswith(data + "data/share/koord/"):
                target = root / "usr/share/koord" / name.removeprefix(data + "data/share/koord/")
            elif name.startswith(data):
                raise BuildError(f"{wheel.path.name}: {name} has no place in the tree")
            else:
                target = site_packages / name
            if not target.resolve().is_relative_to(root.resolve()):
                raise BuildError(f"{wheel.path.name}: {name} points out of the tree")
            if target.exists():
                raise BuildError(f"{wheel.path.name}: {name} is in another wheel too")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(name))


def _programs(home: Path, version: str, root: Path, programs: Mapping[str, str]) -> None:
    links = root / "usr/bin"
    (home / "bin").mkdir()
    links.mkdir(parents=True, exist_ok=True)
    for name, module in programs.items():
        (home / "bin" / name).write_text(_PROGRAM.format(python=PYTHON, module=module))
        (links / name).symlink_to(f"../lib/koord/{version}/bin/{name}")


def compile_below(directory: Path, root: Path) -> None:
    """Makes byte code that names the installed paths. A fixed hash seed and one process: the same bytes every time."""
    environ = {"PATH": os.environ["PATH"], "PYTHONHASHSEED": "0"}
    run(
        [
            python(PYTHON),
            "-P",
            "-m",
            "compileall",
            "-q",
            "-j",
            "1",
            "--invalidation-mode",
            "unchecked-hash",
            "-s",
            root,
            "-p",
            "/",
            directory,
        ],
        environ,
    )


def _set_modes(root: Path) -> None:
    """Makes all of it readable by everyone and writable by its owner only, whatever the builder's umask is."""
    for directory, _, files in os.walk(root):
        Path(directory).chmod(0o755)
        for name in files:
            file = Path(directory, name)
            if not file.is_symlink():
                file.chmod(0o755 if file.parent.name == "bin" else 0o644)
