"""Quantities: what Kubernetes refuses, what it rounds, what it prints, and that nothing is lost on the way."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model import quantity
from koord.model.quantity import Format, Quantity, QuantityError


@pytest.mark.parametrize(
    "text",
    ["", " ", "1 ", " 1", "1 k", "+", "-", ".", "1..2", "1.2.3", "--1", "1K", "1ki", "1KI", "1Mib", "1mm", "1kM",
     "1e", "1e+", "1e1.5", "1E2i", "e3", "k", "Mi", "0x10", "1_000", "1,000", "1/2", "NaN", "inf", "٣", "1\n",
     "1e33", "1e-33", "1e999999999999", "9" * 65],
)  # fmt: skip
def test_refuses(text: str) -> None:
    with pytest.raises(QuantityError) as caught:
        quantity.parse(text)
    assert repr(text)[:20] in str(caught.value)
    assert "is not a quantity" in caught.value.why


@pytest.mark.parametrize("value", [None, True, [], {}, b"1", float("nan"), float("inf"), 10**40, -(10**400), 1e300])
def test_refuses_json_values(value: object) -> None:
    with pytest.raises(QuantityError):
        quantity.from_json(value)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"), ("0Ki", "0"), ("-0", "0"), ("0e5", "0"), ("00012", "12"), ("+5", "5"), ("5.", "5"), (".5", "500m"),
        ("1000", "1k"), ("2000", "2k"), ("2800", "2800"), ("14.4", "14400m"), ("1500m", "1500m"), ("1.5", "1500m"),
        ("1000m", "1"), ("100", "100"), ("1000000", "1M"), ("1E", "1E"), ("1000E", "1000E"), ("1e3", "1e3"),
        ("1E3", "1e3"), ("1500e-3", "1500e-3"), ("10e20", "1e21"), ("12e-6", "12e-6"), ("1e0", "1"),
        ("4096Mi", "4Gi"), ("1024", "1024"), ("1024Ki", "1Mi"), ("1.5Gi", "1536Mi"), ("1000Ki", "1000Ki"),
        ("1Ki", "1Ki"), ("0.5Ki", "512"), ("0.5Mi", "512Ki"), ("0.0001Ki", "102400u"), ("1.1Ki", "1126400m"),
        ("7945689498", "7945689498"), ("-1500m", "-1500m"), ("-4096Mi", "-4Gi"), ("1n", "1n"), ("0.1n", "1n"),
        ("-0.1n", "-1n"), ("1u", "1u"), ("1001u", "1001u"), ("9223372036854775807", "9223372036854775807"),
        ("8Ei", "9223372036854775807"), ("1P", "1P"), ("3T", "3T"), ("2G", "2G"),
    ],
)  # fmt: skip
def test_canonical_text(text: str, canonical: str) -> None:
    assert str(quantity.parse(text)) == canonical


@pytest.mark.parametrize(
    ("text", "value", "milli"),
    [
        ("0", 0, 0), ("1", 1, 1000), ("1500m", 2, 1500), ("1m", 1, 1), ("1u", 1, 1), ("1n", 1, 1), ("1001m", 2, 1001),
        ("-1500m", -2, -1500), ("-1u", -1, -1), ("2k", 2000, 2_000_000), ("0.0015", 1, 2), ("4Gi", 4 << 30, 4000 << 30),
        ("100e-1", 10, 10000), ("1.0000001", 2, 1001),
    ],
)  # fmt: skip
def test_rounds_up_away_from_zero(text: str, value: int, milli: int) -> None:
    parsed = quantity.parse(text)
    assert (parsed.value(), parsed.milli_value()) == (value, milli)


@pytest.mark.parametrize(
    ("value", "canonical"), [(2000, "2k"), ("2k", "2k"), (1.5, "1500m"), (0, "0"), (1e-05, "10e-6")]
)
def test_json_values(value: object, canonical: str) -> None:
    assert str(quantity.from_json(value)) == canonical


@pytest.mark.parametrize(
    ("convert", "text", "amount"),
    [
        (quantity.cpu_milli, "1.5", 1500),
        (quantity.cpu_milli, "1500m", 1500),
        (quantity.extended_cpu_milli, "2k", 2000),
        (quantity.extended_cpu_milli, "2000", 2000),
        (quantity.extended_cpu_milli, "1500.5", 1501),
        (quantity.memory_bytes, "4Gi", 4294967296),
        (quantity.memory_bytes, "1.5", 2),
    ],
)
def test_amounts_in_koords_units(convert: object, text: str, amount: int) -> None:
    assert callable(convert)
    assert convert(quantity.parse(text)) == amount


@pytest.mark.parametrize("convert", [quantity.cpu_milli, quantity.extended_cpu_milli, quantity.memory_bytes])
@pytest.mark.parametrize("text", ["-1", "-1n", "1e30", "9300E"])
def test_amounts_fit_64_bits_and_are_not_negative(convert: object, text: str) -> None:
    assert callable(convert)
    with pytest.raises(QuantityError, match=r"negative|64 bits"):
        convert(quantity.parse(text))


_FACTORS = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1), "k": Fraction(1000),
    "M": Fraction(10**6), "Ki": Fraction(1024), "Mi": Fraction(1 << 20), "e3": Fraction(1000), "E-2": Fraction(1, 100),
}  # fmt: skip


@given(st.integers(0, 10**12), st.integers(0, 10**6), st.sampled_from(sorted(_FACTORS)), st.booleans())
def test_parse_is_exact_to_the_nano(whole: int, thousandths: int, suffix: str, negative: bool) -> None:
    text = f"{'-' if negative else ''}{whole}.{thousandths:07d}{suffix}"
    exact = (whole + Fraction(thousandths, 10**7)) * _FACTORS[suffix] * 10**9
    nano = quantity.parse(text).nano
    assert 0 <= (-nano if negative else nano) - exact < 1


@given(st.builds(Quantity, st.integers(-(10**28), 10**28), st.sampled_from(Format)))
def test_canonical_text_reads_back(amount: Quantity) -> None:
    again = quantity.parse(str(amount))
    if amount.format is not Format.BINARY_SI or abs(amount.nano) <= quantity.MAX_INT64 * 10**9:
        assert again.nano == amount.nano
    assert str(quantity.parse(str(again))) == str(again)


def test_a_number_too_long_to_print_is_still_an_error() -> None:
    with pytest.raises(QuantityError):
        quantity.from_json(-(10**5000))


@given(st.text(max_size=80) | st.text("0123456789.eEkKMGimnu+-", max_size=20))
def test_never_fails_otherwise(text: str) -> None:
    try:
        quantity.parse(text)
    except QuantityError as error:
        assert len(str(error)) < 300
