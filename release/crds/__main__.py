"""``python -m release.crds`` writes ``manifests/crds/``; with ``--check`` it names what differs there, and exits 1."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from release.crds import manifest

DIRECTORY = Path(__file__).parents[2] / "manifests" / "crds"


def main(arguments: list[str], directory: Path = DIRECTORY) -> int:
    parser = argparse.ArgumentParser(prog="python -m release.crds", description="Write the CRDs of Koord's own kinds.")
    parser.add_argument("--check", action="store_true", help="write nothing; name each file that differs, and fail")
    if parser.parse_args(arguments).check:
        differing = differences(directory)
        for name in differing:
            print(f"{name} is not what python -m release.crds writes", file=sys.stderr)
        return 1 if differing else 0
    write(directory)
    return 0


def write(directory: Path) -> None:
    """Makes ``directory`` hold the CRDs, and no other."""
    texts = manifest.texts()
    directory.mkdir(parents=True, exist_ok=True)
    for stale in _files(directory) - texts.keys():
        (directory / stale).unlink()
    for name, text in texts.items():
        (directory / name).write_text(text, encoding="utf-8")


def differences(directory: Path) -> list[str]:
    """Returns the files in ``directory`` that are missing, have another text, or belong to no kind."""
    texts = manifest.texts()
    committed = {name: (directory / name).read_text(encoding="utf-8") for name in _files(directory)}
    return sorted(name for name in texts.keys() | committed.keys() if texts.get(name) != committed.get(name))


def _files(directory: Path) -> set[str]:
    return {file.name for file in directory.glob("*.yaml")}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
