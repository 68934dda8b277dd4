"""The pages of docs/ that are made of the code's own tables: ``python -m release.pages`` (``make docs``) writes them.

Each page is a module with ``NAME``, its file in docs/, and ``text()``. Tests compare what is committed with what would
be written, so a table and its page cannot part. Nothing here is shipped.
"""

from __future__ import annotations

from collections.abc import Mapping

from release.pages import koordletmetrics, metrics, nodeslo

PAGES: Mapping[str, str] = {page.NAME: page.text() for page in (nodeslo, koordletmetrics, metrics)}
"""The text of every page by the name of its file in docs/."""
