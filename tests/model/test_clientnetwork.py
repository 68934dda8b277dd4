"""Which clients share what one may cost."""

from __future__ import annotations

import pytest

from koord.model.clientnetwork import network_of


@pytest.mark.parametrize(
    ("source", "network"),
    [
        ("10.1.2.3", "10.1.2.0/24"),
        ("::ffff:10.1.2.3", "10.1.2.0/24"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", ""),
        ("a name", "a name"),
    ],
)
def test_the_network_of_an_address(source: str, network: str) -> None:
    assert network_of(source) == network
