"""What a page of docs/ says, for tests that hold it against the tables of the code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def page(name: str) -> str:
    """The text of ``docs/<name>``, or of another Markdown file by its path from the root."""
    return (ROOT / name if "/" in name or name == "README.md" else ROOT / "docs" / name).read_text(encoding="utf-8")


def rows(text: str, first: str) -> Mapping[str, tuple[str, ...]]:
    """The cells after the first of every table row whose first cell is code that matches ``first``, by that."""
    found = re.finditer(rf"^\| `({first})` \|(.*)\|$", text, re.MULTILINE)
    return {match[1]: tuple(cell.strip() for cell in match[2].split("|")) for match in found}


def flags(text: str) -> Mapping[str, tuple[str, ...]]:
    """The rows of a table of flags, without the dashes."""
    return {flag[2:]: cells for flag, cells in rows(text, "--[a-z-]+").items()}


def mentioned_flags(text: str) -> set[str]:
    """Every flag in the text, without the dashes."""
    return set(re.findall(r"(?<![\w-])--([a-z][a-z-]+)", text))


def mentioned_metrics(text: str, prefix: str) -> set[str]:
    """Every metric name in the text that begins with ``prefix``, without ``_total``."""
    return {name.removesuffix("_total") for name in re.findall(rf"\b{prefix}\w+", text)}


def code(text: str) -> set[str]:
    """The words in code."""
    return set(re.findall(r"`(\w+)`", text))


def anchors(text: str) -> set[str]:
    """The headings of a page as links name them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(names: Iterable[str]) -> list[str]:
    """Links of these pages to files that are not there, or to headings that the page lacks."""
    broken = []
    for name in names:
        source = ROOT / name
        for target in re.findall(r"\]\(([^)\s]+)\)", source.read_text(encoding="utf-8")):
            file, _, anchor = target.partition("#")
            path = (source.parent / file) if file else source
            if file.startswith("http"):
                continue
            known = path.exists() and (not anchor or anchor in anchors(path.read_text(encoding="utf-8")))
            broken += [] if known else [f"{name}: {target}"]
    return broken
