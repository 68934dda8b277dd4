"""Pressure files of new and old kernels."""

from __future__ import annotations

import pytest

from koord.host import psi
from koord.host.kernelfile import ParseError
from koord.host.psi import Pressure, Stall

SOME = b"some avg10=1.50 avg60=2.25 avg300=0.00 total=1234567\n"
FULL = b"full avg10=0.10 avg60=0.00 avg300=0.00 total=89\n"
STALL = Stall(1.5, 2.25, 0.0, 1234567)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "has no line some"),
        (FULL, "has no line some"),
        (b"some avg10=1.50 total=3\n", "has no avg60"),
        (b"some avg10=x avg60=0 avg300=0 total=1\n", "could not convert"),
        (b"some\n", "has no avg10"),
    ],
)
def test_broken_files_are_named(data: bytes, why: str) -> None:
    with pytest.raises(ParseError, match=why) as caught:
        psi.parse("cpu.pressure", data)
    assert caught.value.file == "cpu.pressure"


@pytest.mark.parametrize("data", [b"", FULL, b"some avg10=0.00\n", b"some avg10=0.00 total=\n"])
def test_totals_of_broken_files(data: bytes) -> None:
    with pytest.raises(ParseError):
        psi.totals_us("cpu.pressure", data)


@pytest.mark.parametrize(
    ("data", "pressure"),
    [(SOME + FULL, Pressure(STALL, Stall(0.1, 0.0, 0.0, 89))), (SOME, Pressure(STALL, None))],
)
def test_both_lines_and_the_old_kernels_one(data: bytes, pressure: Pressure) -> None:
    assert psi.parse("cpu.pressure", data) == pressure
    full = pressure.full
    assert psi.totals_us("cpu.pressure", data) == (1234567, None if full is None else full.total_us)
