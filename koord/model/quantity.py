"""Kubernetes quantities ("500m", "2k", "4Gi", "1e3"), read and written exactly, and the two units Koord counts in.

A ``Quantity`` is a whole number of nano-units: Kubernetes itself keeps nothing finer and rounds what is finer away
from zero, so no value is ever approximated. ``MilliCPU`` and ``Bytes`` are what the rest of Koord computes with.
The grammar and the canonical text are those of k8s.io/apimachinery's ``resource.Quantity``.

Invariant: work and memory are bounded whatever the text says, so annotations of strangers may be fed to it.
Fails with ``QuantityError``, which names the text and the reason.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

MilliCPU = NewType("MilliCPU", int)
"""CPU time per time, in thousandths of one CPU."""

Bytes = NewType("Bytes", int)

MAX_INT64 = 2**63 - 1
MAX_TEXT = 64
MAX_EXPONENT = 32
_NANO = 10**9
_SYNTAX = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([a-zA-Z]*[+-]?[0-9]*)", re.ASCII)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {power: suffix for suffix, power in _DECIMAL.items()}
_BINARY_SUFFIX = {power: suffix for suffix, power in _BINARY.items()}


class QuantityError(ValueError):
    """``text`` is not a quantity, or not one that fits where it is wanted; ``why`` says which rule it breaks."""

    def __init__(self, text: object, why: str) -> None:
        self.text, self.why = text, why
        super().__init__(f"{_clip(text)} {why}")


class Format(StrEnum):
    """The family of suffixes a quantity was written with; its canonical text stays in that family."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


@dataclass(frozen=True, slots=True)
class Quantity:
    """An exact amount of ``nano`` / 10**9 units. Two quantities of the same amount and another format are unequal."""

    nano: int
    format: Format = Format.DECIMAL_SI

    def value(self) -> int:
        """Returns whole units, rounded up away from zero as Kubernetes' ``Value()``."""
        return _away_from_zero(self.nano, _NANO)

    def milli_value(self) -> int:
        """Thousandths of a unit, rounded up away from zero as Kubernetes' ``MilliValue()``."""
        return _away_from_zero(self.nano, 10**6)

    def __str__(self) -> str:
        """The canonical text: a whole mantissa with the largest suffix of the family that keeps it whole."""
        if self.nano == 0:
            return "0"
        if self.format is Format.BINARY_SI and abs(self.nano) >= 1024 * _NANO and self.nano % _NANO == 0:
            return _binary_text(self.nano // _NANO)
        return _decimal_text(self.nano, self.format is Format.DECIMAL_EXPONENT)


@functools.lru_cache(maxsize=1024)  # a node's pods say the same few again and again
def parse(text: str) -> Quantity:
    """The quantity that ``text`` spells. Exponents beyond 10**±32 and texts over 64 characters are refused."""
    if len(text) > MAX_TEXT:
        raise QuantityError(text, f"is not a quantity: longer than {MAX_TEXT} characters")
    match = _SYNTAX.fullmatch(text)
    if match is None:
        raise QuantityError(text, "is not a quantity: expected a number and a suffix such as m, k, Mi or e3")
    sign, whole, fraction, suffix = match.group(1), match.group(2), match.group(3) or "", match.group(4)
    if not whole and not fraction:
        raise QuantityError(text, "is not a quantity: no digits")
    numerator, denominator, form = _scale(text, suffix)
    digits = int(whole + fraction)
    nano = _away_from_zero(digits * numerator * _NANO, denominator * 10 ** len(fraction))
    if form is Format.BINARY_SI:
        nano = min(nano, MAX_INT64 * _NANO)
        form = form if nano >= _NANO else Format.DECIMAL_SI
    return Quantity(-nano if sign == "-" else nano, form)


def from_json(value: object) -> Quantity:
    """The quantity in a JSON or YAML document, where both ``"2k"`` and the bare number ``2000`` are allowed."""
    if isinstance(value, str):
        return parse(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise QuantityError(value, "is not a quantity: expected a string or a number")
    if isinstance(value, int) and abs(value) > 10**MAX_EXPONENT:
        raise QuantityError("a number", f"is not a quantity: beyond 10^{MAX_EXPONENT}")
    return parse(repr(value))


def of(units: int, form: Format = Format.DECIMAL_SI) -> Quantity:
    """A quantity of whole ``units``."""
    return Quantity(units * _NANO, form)


def of_milli(milli: int) -> Quantity:
    """A quantity of ``milli`` thousandths."""
    return Quantity(milli * 10**6)


def cpu_milli(quantity: Quantity) -> MilliCPU:
    """The amount of the native resource ``cpu``: "1.5" and "1500m" are 1500."""
    return MilliCPU(_amount(quantity, quantity.milli_value()))


def extended_cpu_milli(quantity: Quantity) -> MilliCPU:
    """The amount of ``batch-cpu`` or ``mid-cpu``, which count whole thousandths: "2k" and 2000 are 2000, two CPUs."""
    return MilliCPU(_amount(quantity, quantity.value()))


def memory_bytes(quantity: Quantity) -> Bytes:
    """The amount of any memory resource: "4Gi" is 4294967296."""
    return Bytes(_amount(quantity, quantity.value()))


def _amount(quantity: Quantity, number: int) -> int:
    if number < 0:
        raise QuantityError(str(quantity), "is negative")
    if number > MAX_INT64:
        raise QuantityError(str(quantity), "does not fit 64 bits")
    return number


def _scale(text: str, suffix: str) -> tuple[int, int, Format]:
    """Returns the factor of ``suffix`` as numerator and denominator, and its family."""
    if suffix in _BINARY:
        return 1 << _BINARY[suffix], 1, Format.BINARY_SI
    if suffix in _DECIMAL:
        power, form = _DECIMAL[suffix], Format.DECIMAL_SI
    else:
        match = _EXPONENT.fullmatch(suffix)
        if match is None:
            raise QuantityError(text, f"is not a quantity: unknown suffix {suffix!r}")
        power, form = int(match.group(1)), Format.DECIMAL_EXPONENT
        if abs(power) > MAX_EXPONENT:
            raise QuantityError(text, f"is not a quantity: exponent is not in -{MAX_EXPONENT}..{MAX_EXPONENT}")
    return (10**power, 1, form) if power >= 0 else (1, 10**-power, form)


def _away_from_zero(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator) if numerator > 0 else numerator // denominator


def _decimal_text(nano: int, exponents: bool) -> str:
    """Powers of ten in steps of three; suffixes end at E, so larger numbers keep their zeros there."""
    power = -9
    while nano % 1000 == 0 and (exponents or power < 18):
        nano //= 1000
        power += 3
    if exponents:
        return f"{nano}e{power}" if power else str(nano)
    return f"{nano}{_DECIMAL_SUFFIX[power]}"


def _binary_text(units: int) -> str:
    power = 0
    while units % 1024 == 0 and power < 60:
        units //= 1024
        power += 10
    return f"{units}{_BINARY_SUFFIX[power]}" if power else str(units)


def _clip(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}…"
