"""Which layer speaks for the policy as a whole."""

from __future__ import annotations

import pytest

from qosd.policy.provenance import Origin, Provenance, overall

FILE, SLO, NODE = "file", "slo", "node"
SOURCE, OLD, NONE, DEFAULTS, UNKNOWN = (
    Origin.SOURCE,
    Origin.LAST_GOOD,
    Origin.NONE,
    Origin.DEFAULTS,
    Origin.UNKNOWN,
)


@pytest.mark.parametrize(
    ("origins", "speaker"),
    [
        ((SOURCE, SOURCE, SOURCE), NODE),
        ((SOURCE, OLD, SOURCE), SLO),
        ((OLD, SOURCE, SOURCE), FILE),
        ((OLD, OLD, SOURCE), SLO),
        ((SOURCE, OLD, OLD), NODE),
        ((SOURCE, UNKNOWN, UNKNOWN), FILE),
        ((OLD, UNKNOWN, UNKNOWN), FILE),
        ((DEFAULTS, SOURCE, UNKNOWN), SLO),
        ((DEFAULTS, NONE, SOURCE), NODE),
        ((SOURCE, NONE, UNKNOWN), FILE),
    ],
)
def test_the_highest_that_is_old_else_the_highest_there_is(origins: tuple[Origin, ...], speaker: str) -> None:
    layers = [Provenance(origin, source) for origin, source in zip(origins, (FILE, SLO, NODE), strict=True)]
    assert overall(layers).source == speaker


def test_an_age_is_never_less_than_nothing() -> None:
    assert [Provenance(SOURCE, FILE, taken).age_s(100) for taken in (40, 160, None)] == [60, 0, None]
