"""Whose pods Events tell of, by the names that controllers generate."""

from __future__ import annotations

import pytest

from koordctl.cluster.evictions import is_pod_of


@pytest.mark.parametrize(
    ("controller", "name", "is_its"),
    [
        ("data", "data-pipeline-x7k2p", False),
        ("data", "data-pipeline-0-x7k2p", False),
        ("data", "database-x7k2p", False),
        ("data", "data", False),
        ("data", "data-", False),
        ("data", "my-data-x7k2p", False),
        ("da.a", "data-x7k2p", False),
        ("", "data-x7k2p", False),
        ("data", "data-x7k2p", True),
        ("data", "data-3-x7k2p", True),
        ("data", "data-0", True),
        ("data-7d9f", "data-7d9f-x7k2p", True),
    ],
)
def test_is_pod_of(controller: str, name: str, is_its: bool) -> None:
    assert is_pod_of(controller, name) is is_its
