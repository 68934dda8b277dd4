"""Writes the pages and says which changed: ``python -m release.pages``."""

from __future__ import annotations

import sys
from pathlib import Path

from release.pages import PAGES

DOCS = Path(__file__).parents[2] / "docs"


def main() -> int:
    for name, text in PAGES.items():
        file = DOCS / name
        changed = not file.exists() or file.read_text(encoding="utf-8") != text
        if changed:
            file.write_text(text, encoding="utf-8")
        print(f"docs/{name}: {'written' if changed else 'unchanged'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
