"""The Debian packages that a bare node lacks: the dependency closure of some, less that of a minimal installation.

apt itself computes and downloads, from this machine's sources, with a state of its own in which nothing is installed;
so the result does not depend on this machine, and root is not needed. Downloads are verified by the archive's
signatures. A machine without apt, or whose sources lack a package, raises BuildError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from release.run import BuildError, run

_INSTALLED = re.compile(r"^Inst (\S+) \((\S+) ", re.MULTILINE)
_FIELD = re.compile(r"^(Package|Priority|Essential): (.*)$", re.MULTILINE)


class Apt:
    """apt with its state and cache in ``directory``, for amd64, on a system where nothing is installed."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        status = directory / "status"
        status.touch()
        for part in ("state/lists/partial", "cache/archives/partial"):
            (directory / part).mkdir(parents=True, exist_ok=True)
        settings = {
            "Dir::State": directory / "state",
            "Dir::State::status": status,
            "Dir::Cache": directory / "cache",
            "APT::Architecture": "amd64",
            "APT::Architectures": "amd64",
            "APT::Sandbox::User": "",
            "APT::Install-Recommends": "false",
            "Debug::NoLocking": "true",
            "Acquire::Languages": "none",
        }
        self._options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]

    def update(self) -> None:
        """Reads the package lists of this machine's sources."""
        run(["apt-get", *self._options, "--quiet", "--error-on=any", "update"])

    def closure(self, packages: Iterable[str]) -> dict[str, str]:
        """Returns, by package, the version of ``packages`` and all that they depend on."""
        planned = run(["apt-get", *self._options, "--simulate", "install", *packages])
        return dict(_INSTALLED.findall(planned))

    def minimal(self) -> list[str]:
        """Returns what every Debian system has: essential packages and those of priority required."""
        names = []
        for stanza in run(["apt-cache", *self._options, "dumpavail"]).split("\n\n"):
            fields = dict(_FIELD.findall(stanza))
            if fields.get("Priority") == "required" or fields.get("Essential") == "yes":
                names.append(fields["Package"])
        return sorted(set(names))

    def download(self, packages: dict[str, str], directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        named = [f"{name}={version}" for name, version in sorted(packages.items())]
        run(["apt-get", *self._options, "--quiet", "download", *named], directory=directory)


def fetch(wanted: Iterable[str], scratch: Path, directory: Path) -> None:
    """Puts into ``directory`` what an installation of required packages lacks for ``wanted``. Raises BuildError."""
    apt = Apt(scratch)
    apt.update()
    base = apt.closure(apt.minimal())
    lacking = {name: version for name, version in apt.closure(wanted).items() if name not in base}
    if not lacking:
        raise BuildError("apt plans nothing: is this machine's package source complete?")
    apt.download(lacking, directory)
