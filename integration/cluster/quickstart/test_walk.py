"""What a reader of a guide takes for the same output, and what not."""

from __future__ import annotations

import pytest

from integration.cluster.quickstart.walk import shape


@pytest.mark.parametrize(
    ("shown", "printed", "varies", "same"),
    [
        ("koordlet-l6rct  1/1  17s", "koordlet-x4x2k  1/1  2m3s", False, True),
        ("koordlet-l6rct  1/1  17s", "koordlet-x4x2k  0/1  17s", False, False),
        ("node-1   2     9760", "node-1   2     8k", False, False),
        ("node-1   2     9760", "node-1   2     8k", True, True),
        ("node-1   2     15303412791", "node-1   2     14Gi", True, True),
        ("node-1   241m   1156143943", "node-1   2   1156143943", True, True),
        ("node-1   241m", "node-1   <none>", True, False),
        ("requests 400000m", "asks for 400000m", True, False),
    ],
)
def test_shape(shown: str, printed: str, varies: bool, same: bool) -> None:
    assert (shape(shown, varies) == shape(printed, varies)) is same
