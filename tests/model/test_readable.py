"""Amounts in sentences."""

from __future__ import annotations

import pytest

from koord.model import readable


@pytest.mark.parametrize(
    ("amount_bytes", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (505530286, "482.1 MiB"),
        (256 << 20, "256 MiB"),
        (100 << 30, "100 GiB"),
        (-(5 << 30), "-5 GiB"),
        (3 << 41, "6 TiB"),
    ],
)
def test_memory(amount_bytes: int, text: str) -> None:
    assert readable.memory(amount_bytes) == text


@pytest.mark.parametrize(
    ("milli", "text"),
    [(0, "0 CPUs"), (1, "0.001 CPUs"), (250, "0.25 CPUs"), (1000, "1 CPU"), (32000, "32 CPUs")],
)
def test_cpus(milli: int, text: str) -> None:
    assert readable.cpus(milli) == text
