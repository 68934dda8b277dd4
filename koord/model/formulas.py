"""The formulas behind kernel values, each named once, so that a printed result can be computed again.

Whoever decides a value records the name under ``FORMULA`` beside the inputs; ``koordctl explain`` prints both with the
formula's text. ``FORMULAS`` are those that several share; a strategy declares its own beside itself. Invariant:
``recompute(inputs)`` is the value that was decided from them. Arithmetic is the integer arithmetic of ``cfs``; amounts
carry their units in their names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from koord.model import cfs
from koord.model.lattice import CPUSets, Lattice, Numbers, Value
from koord.model.quantity import MilliCPU

FORMULA = "formula"
COMPOSED = "composed"
FACTOR, ADDED, AT_MOST, AT_LEAST = "_factor", "_added", "_at_most", "_at_least"
"""How the inputs of ``composed`` end, after their stages: ``burst_factor``, ``suppression_at_most``."""
Inputs = Mapping[str, Value | float | None]
NO_INPUTS: Inputs = MappingProxyType({})
"""Of a value that no formula made."""


class FormulaError(ValueError):
    """Inputs that name no formula of the table, or lack what it needs."""


@dataclass(frozen=True, slots=True)
class Formula:
    """``text`` says for people what ``compute`` does with the inputs."""

    name: str
    text: str
    compute: Callable[[Inputs], Value]


def recompute(inputs: Inputs, formulas: Mapping[str, Formula] | None = None) -> Value:
    """The value that the formula named in ``inputs`` makes of them. Raises FormulaError.

    ``formulas``: by name, ``FORMULAS`` if absent.
    """
    name, known = inputs.get(FORMULA), FORMULAS if formulas is None else formulas
    formula = known.get(str(name))
    if formula is None:
        raise FormulaError(f"{name!r} is no formula; there are {', '.join(known)}")
    return formula.compute(inputs)


def number(inputs: Inputs, name: str, default: int | None = None) -> int:
    """The whole number of that name. Raises FormulaError."""
    value = inputs.get(name, default)
    if not isinstance(value, int):
        raise FormulaError(f"input {name} of {inputs.get(FORMULA)} is {value!r}, which is no whole number")
    return value


def _value(inputs: Inputs) -> Value:
    value = inputs.get("value")
    if not isinstance(value, int | str):
        raise FormulaError(f"input value is {value!r}")
    return value


def _shares(inputs: Inputs) -> Value:
    return cfs.shares(MilliCPU(number(inputs, "request_milli")))


def _quota(inputs: Inputs) -> Value:
    return cfs.quota_us(MilliCPU(number(inputs, "limit_milli")), number(inputs, "period_us", cfs.PERIOD_US))


def _normalized(inputs: Inputs) -> Value:
    spec_us = number(inputs, "quota_us") if "quota_us" in inputs else int(_quota(inputs))
    return cfs.normalize_quota_us(spec_us, Fraction(str(inputs.get("ratio"))))


def _memory_share(inputs: Inputs) -> Value:
    share = number(inputs, "request_bytes") * number(inputs, "percent") // 100
    return max(share, number(inputs, "floor_bytes", 0)) if share else 0


def _memory_high(inputs: Inputs) -> Value:
    request, page = number(inputs, "request_bytes"), number(inputs, "page_bytes")
    room = max(0, number(inputs, "ceiling_bytes") - request) * number(inputs, "percent")
    return max((request * 100 + room) // (100 * page) * page, number(inputs, "floor_bytes", 0))


def _composed(inputs: Inputs) -> Value:
    value = _value(inputs)
    lattice: Lattice = CPUSets() if isinstance(value, str) else Numbers(number(inputs, "minimum", 0))
    for name, operand in inputs.items():
        if not isinstance(operand, int | str):
            continue
        if name.endswith(FACTOR):
            value = lattice.scale(value, Fraction(operand))
        elif name.endswith(ADDED):
            value = lattice.add(value, operand)
        elif name.endswith(AT_MOST):
            value = lattice.meet(value, operand)
        elif name.endswith(AT_LEAST):
            value = lattice.join(value, operand)
    return value


FORMULAS: Mapping[str, Formula] = {
    formula.name: formula
    for formula in (
        Formula("given", "value, as it stands", _value),
        Formula("cpu_shares", "floor(request_milli * 1024 / 1000), within 2..262144", _shares),
        Formula("cpu_quota", "floor(limit_milli * period_us / 1000), at least 1000; -1 if there is no limit", _quota),
        Formula(
            "cpu_quota_normalized",
            "ceil(quota / ratio), at least 1000, where quota is quota_us, or cpu_quota of limit_milli and period_us",
            _normalized,
        ),
        Formula(
            "memory_share", "floor(request_bytes * percent / 100), at least floor_bytes unless it is 0", _memory_share
        ),
        Formula(
            "memory_high",
            "request_bytes + (ceiling_bytes - request_bytes) * percent / 100, down to a multiple of page_bytes, "
            "at least floor_bytes",
            _memory_high,
        ),
        Formula(
            COMPOSED,
            "value * each factor (rounded towards what it was), plus each amount added, at most and at least each "
            "bound, in the order given; numbers are at least minimum, and -1 is no limit; of CPU sets at most is what "
            "both have, at least what either has",
            _composed,
        ),
    )
}
