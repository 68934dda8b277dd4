"""What the build makes that the repository does not hold: ``koord/pb`` from ``protos/``, and ``koord/_version.py``.

Both are part of the wheel and of an editable install. Each ``protos/<dir>/<name>.proto`` becomes
``koord.pb.<dir>.<name>_pb2`` (with a ``.pyi`` for type checkers). A missing or failing compiler fails the build.

The version is that of the newest release's tag, ``v0.2.0``; five commits later it is ``0.2.0+5.g1a2b3c4``. Where git
knows no tag, as in an archive of the sources or a shallow clone, it is the newest release of ``CHANGELOG.md``.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_DESCRIPTION = re.compile(r"v(?P<release>.+)-(?P<commits>\d+)-(?P<commit>g[0-9a-f]+)\n")
_RELEASE_HEADING = re.compile(r"^## \[(\d[^\]]*)\]", re.MULTILINE)


def version(root: Path) -> str:
    """Returns the version of the sources in ``root``. Raises ValueError if neither git nor the change log has one."""
    described = _DESCRIPTION.fullmatch(_git_describe(root))
    if not described:
        return newest_release(root)
    release, commits, commit = described.group("release", "commits", "commit")
    return release if commits == "0" else f"{release}+{commits}.{commit}"


def newest_release(root: Path) -> str:
    """Returns the version under the first heading of a release in ``CHANGELOG.md``. Raises ValueError without one."""
    heading = _RELEASE_HEADING.search((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    if heading is None:
        raise ValueError("CHANGELOG.md has no heading of a release, such as ## [0.1.0]")
    return heading[1]


def _git_describe(root: Path) -> str:
    """Returns what git says of the newest tag of a release; "" without git, without a repository or without a tag.

    The repository is named, so that git looks for no other one above ``root``, and reads it whoever owns it.
    """
    repository = root / ".git"
    if not repository.exists():
        return ""
    command = ["git", f"--git-dir={repository}", "describe", "--tags", "--long", "--match=v[0-9]*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


def generate(root: Path) -> list[Path]:
    """Compile every ``protos/**/*.proto`` into ``koord/pb`` below ``root``. Returns the ``.proto`` files, sorted."""
    from grpc_tools import protoc  # noqa: PLC0415 - only the build has it

    out = root / "koord" / "pb"
    sources = sorted((root / "protos").rglob("*.proto"))
    for source in sources:
        package = out / source.relative_to(root / "protos").parent
        package.mkdir(parents=True, exist_ok=True)
        for directory in {out, package}:
            (directory / "__init__.py").touch()
        (package / "py.typed").touch()
    names = [f"koord/pb/{source.relative_to(root / 'protos')}" for source in sources]
    arguments = ["protoc", f"-Ikoord/pb={root / 'protos'}", f"--python_out={root}", f"--pyi_out={root}", *names]
    if protoc.main(arguments) != 0:
        raise RuntimeError(f"protoc failed on {', '.join(names)}")
    return sources


def write_version(root: Path, version: str) -> None:
    """Write ``koord/_version.py`` below ``root``."""
    (root / "koord" / "_version.py").write_text(f'__version__ = "{version}"\n', encoding="utf-8")


class GenerateSources(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        generate(root)
        write_version(root, self.metadata.version)
