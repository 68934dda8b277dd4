"""Links between the pages."""

from __future__ import annotations

import re

from tests.support.docpages import ROOT, broken_links

TOP = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = (*TOP, "bench/README.md", *(f"docs/{file.name}" for file in sorted((ROOT / "docs").glob("*.md"))))


def test_every_link_leads_somewhere() -> None:
    assert broken_links(PAGES) == []


def test_the_index_leads_to_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {file.name for file in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert pages == set(re.findall(r"\]\(([\w-]+\.md)\)", index))


def test_every_target_that_a_page_names_is_one() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = re.compile(r"`make ([a-z-]+[a-z])(?![a-z-])")
    unknown = {
        (name, target)
        for name in PAGES
        for target in named.findall((ROOT / name).read_text(encoding="utf-8"))
        if target not in targets
    }
    assert unknown == set()
