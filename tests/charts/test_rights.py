"""docs/security.md has every right that a manifest or a template gives, and no other, in order."""

from __future__ import annotations

from tests.charts import rights


def test_the_page_has_each_right_and_no_other() -> None:
    """integration/cluster/test_rights.py asks an API server, which knows of the bindings' effect."""
    assert rights.table() == rights.rows(rights.of_roles())


def test_the_table_is_read_as_it_was_made() -> None:
    assert rights.of_table() == rights.of_roles()
