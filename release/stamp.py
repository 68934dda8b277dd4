"""Makes a release of what is unreleased: ``python -m release.stamp 0.2.0`` (``make release VERSION=0.2.0``).

The change log's unreleased section becomes the release's, and the chart and all pages name the new version's files in
the place of the old one's. The tag is git's: the last line says what to run. What is no version, is not
newer or has no changes is refused before anything is written.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path

from packaging.version import Version

from hatch_build import newest_release

ROOT = Path(__file__).parents[1]
_VERSION = re.compile(r"\d+\.\d+\.\d+(rc\d+)?")
_UNRELEASED = "## [Unreleased]\n"


def pages(root: Path) -> Iterator[Path]:
    """Yields the files that name the released version: the chart's, the recipe of images and the users' pages."""
    yield root / "charts" / "koordinator" / "Chart.yaml"
    yield root / "release" / "images" / "Containerfile"
    yield root / "README.md"
    yield from sorted((root / "docs").glob("*.md"))


def named(version: str) -> re.Pattern[str]:
    """Returns what finds ``version`` where it is not a part of another number."""
    return re.compile(rf"(?<![\d.]){re.escape(version)}(?!\.?\d)")


def stamp(root: Path, version: str, today: date) -> None:
    """Writes ``version`` below ``root``. Raises ValueError, and writes nothing, if it cannot be the next release."""
    old = newest_release(root)
    if not _VERSION.fullmatch(version) or Version(version) <= Version(old):
        raise ValueError(f"{version} is no version after {old}: say it as 1.2.3 or 1.2.3rc1")
    log = root / "CHANGELOG.md"
    before, _, after = log.read_text(encoding="utf-8").partition(_UNRELEASED)
    if not after.partition("\n## [")[0].strip():
        raise ValueError("CHANGELOG.md says nothing under [Unreleased]")
    log.write_text(f"{before}{_UNRELEASED}\n## [{version}] - {today}\n{after}", encoding="utf-8")
    for page in pages(root):
        text = page.read_text(encoding="utf-8")
        page.write_text(named(old).sub(version, text), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m release.stamp", description="Name the next release everywhere.")
    parser.add_argument("version")
    version = parser.parse_args(arguments).version
    try:
        stamp(ROOT, version, datetime.now(UTC).date())
    except ValueError as error:
        print(f"no release: {error}", file=sys.stderr)
        return 1
    print(f"git commit -am 'Koord {version}' && git tag -a -m 'Koord {version}' v{version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
