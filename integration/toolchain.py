"""Finds a Go that can build a module, and gets one through the ordinary Go client if there is none.

Go 1.21 and later fetch the toolchain that a go.mod names by themselves (``GOTOOLCHAIN=auto``). An older one, such as
Debian 12's 1.19, can still download it as a module; the module cache drops exec bits, which are put back here. With no
Go at all, root gets Debian's by apt. Anything that fails raises ToolchainError, which says what to install.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

SELF_UPDATING = (1, 21, 0)
Version = tuple[int, int, int]


class ToolchainError(Exception):
    """No Go that is new enough could be found or fetched."""


@dataclass(frozen=True, slots=True)
class Go:
    """A ``go`` program; ``environment`` is what it must run with; ``version`` the compiler's that will be used."""

    program: Path
    version: str
    environment: Mapping[str, str] = field(default_factory=dict)


def wanted(go_mod: Path) -> Version:
    """The version on the ``go`` line of a go.mod (a ``toolchain`` line is not used in this repository)."""
    found = re.search(r"^go (\S+)$", go_mod.read_text(), re.MULTILINE)
    if found is None:
        raise ToolchainError(f"{go_mod}: no go line")
    return _parse(found.group(1))


def find(cache: Path, environment: Mapping[str, str], version: Version) -> Go:
    """A Go of at least ``version``; downloads go to ``cache`` (old Go) or Go's own module cache (new Go)."""
    program = _program(environment) or _install()
    present = _version(program)
    if present >= version:
        return Go(program, _text(present), {"GOTOOLCHAIN": "local"})
    if present >= SELF_UPDATING:
        return Go(program, _text(version), {"GOTOOLCHAIN": f"go{_text(version)}+auto"})
    return _downloaded(program, cache, environment, version)


def _program(environment: Mapping[str, str]) -> Path | None:
    path = environment.get("PATH", "") + ":/usr/local/go/bin:/usr/lib/go/bin"
    found = shutil.which("go", path=path)
    return Path(found) if found else None


def _install() -> Path:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ToolchainError("no Go on PATH and none can be installed here: install Go 1.21 or later")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = "apt-get update && apt-get install -y --no-install-recommends golang-go ca-certificates"
    done = subprocess.run(["sh", "-c", command], env=environment, check=False, capture_output=True, text=True)
    found = shutil.which("go")
    if done.returncode != 0 or found is None:
        raise ToolchainError(f"no Go on PATH, and {command!r} failed: {done.stderr.strip()[-500:]}")
    return Path(found)


def _version(program: Path) -> Version:
    """Of the program itself, not of a toolchain that it would switch to."""
    argv = [str(program), "version"]
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    done = subprocess.run(argv, check=True, capture_output=True, text=True, env=environment, cwd="/")
    return _parse(done.stdout.split()[2].removeprefix("go"))


def _downloaded(program: Path, cache: Path, environment: Mapping[str, str], version: Version) -> Go:
    """The toolchain module golang.org/toolchain, as newer Go fetches it, in a module cache below ``cache``."""
    name = f"v0.0.1-go{_text(version)}.linux-{_architecture()}"
    modules = cache / "toolchain"
    root = modules / f"golang.org/toolchain@{name}"
    if not (root / "bin" / "go").exists() or not os.access(root / "bin" / "go", os.X_OK):
        modules.mkdir(parents=True, exist_ok=True)
        argv = [str(program), "mod", "download", f"golang.org/toolchain@{name}"]
        settings = {**environment, "GOMODCACHE": str(modules), "GOFLAGS": "-modcacherw"}
        done = subprocess.run(argv, cwd="/", env=settings, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise ToolchainError(f"Go {_text(version)} is needed and {' '.join(argv)} failed: {done.stderr.strip()}")
        for folder in (root / "bin", root / "pkg" / "tool"):
            for file in (path for path in folder.rglob("*") if path.is_file()):
                file.chmod(0o755)
    return Go(root / "bin" / "go", _text(version), {"GOTOOLCHAIN": "local", "GOROOT": str(root)})


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]


def _parse(text: str) -> Version:
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    if found is None:
        raise ToolchainError(f"not a Go version: {text!r}")
    return int(found.group(1)), int(found.group(2)), int(found.group(3) or 0)


def _text(version: Version) -> str:
    return ".".join(map(str, version))
