"""Links between the pages."""

from __future__ import annotations

from tests.docpages import ROOT, broken_links

TOP = ("README.md", "CHANGELOG.md", "SECURITY.md")
PAGES = (*TOP, "bench/README.md", *(f"docs/{file.name}" for file in sorted((ROOT / "docs").glob("*.md"))))


def test_every_link_leads_somewhere() -> None:
    assert broken_links(PAGES) == []
