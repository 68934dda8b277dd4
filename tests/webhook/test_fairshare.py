"""Whose share is how large."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.webhook.fairshare import FairShare


def taken(share: FairShare, source: str) -> int:
    """As much as it gets."""
    count = 0
    while share.has_room(source):
        share.hold(source)
        count += 1
    return count


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (["10.0.0.1"], [50]),
        (["10.0.0.1", "10.1.0.1"], [50, 25]),
        (["10.0.0.1", "10.0.0.2", "10.0.0.3"], [50, 13, 3]),
        (["10.0.0.1", "10.0.0.2", "10.1.0.1"], [50, 13, 19]),
        (["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"], [50, 13, 19]),
    ],
)
def test_shares(sources: list[str], expected: list[int]) -> None:
    share = FairShare(100)
    assert [taken(share, source) for source in sources] == expected
    for source, count in zip(sources, expected, strict=True):
        share.hold(source, -count)
    assert share.held == 0 and taken(share, "10.9.9.9") == 50


@given(st.lists(st.integers(0, 300), max_size=60))
def test_a_newcomer_has_room_whoever_takes_all_he_can(networks: list[int]) -> None:
    share = FairShare(2000)
    for number in networks[:5]:
        taken(share, f"10.{number // 256}.{number % 256}.1")
    assert share.has_room("192.168.0.1")
    assert share.held <= 2000
