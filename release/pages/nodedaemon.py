"""docs/node-daemon.md: its last table, of all metrics; what stands before it people write."""

from __future__ import annotations

from pathlib import Path

from qosd.sense.exposition import docs_table

NAME = "node-daemon.md"
_FILE = Path(__file__).parents[2] / "docs" / NAME


def text() -> str:
    table = docs_table()
    header = table.partition("\n")[0]
    before, _, _ = _FILE.read_text(encoding="utf-8").partition(header)
    return before + table
