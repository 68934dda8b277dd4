"""Build hook: generates ``koord/pb`` from ``protos/``.

The generated modules are part of the wheel and of an editable install, and never of the repository. Each
``protos/<dir>/<name>.proto`` becomes ``koord.pb.<dir>.<name>_pb2`` (with a ``.pyi`` for type checkers).
A missing or failing compiler fails the build.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def generate(root: Path) -> list[Path]:
    """Compile every ``protos/**/*.proto`` below ``root`` into ``root/koord/pb``; returns the sources, sorted."""
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


class GenerateProtobuf(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        generate(Path(self.root))
