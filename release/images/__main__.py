"""``python -m release.images``: the images of this checkout, or of a wheel."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from release.images.making import build
from release.run import BuildError


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m release.images", description="Build Koord's container images.")
    parser.add_argument("wheel", type=Path, nargs="?", help="Koord's own wheel; none = made of this checkout")
    parser.add_argument("--output", type=Path, default=Path("dist/images"), help="directory of the archives")
    parser.add_argument("--cache", type=Path, help="directory that keeps what is not our own code")
    options = parser.parse_args(arguments)
    try:
        for made in build(options.output, options.wheel, options.cache):
            print(f"{made.archive}  {made.image.reference}  {made.digest}")
    except BuildError as error:
        print(f"no image: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
