"""Overcommit equals an oracle that was written separately, to the milli-core and byte."""

from __future__ import annotations

import pytest

from tests.oracles.overcommit_run import differences

COUNT, CHUNK = 2000, 200


@pytest.mark.parametrize("first", range(0, COUNT, CHUNK), ids="seeds from {}".format)
def test_generated_nodes(first: int) -> None:
    assert [str(difference) for seed in range(first, first + CHUNK) for difference in differences(seed)] == []
