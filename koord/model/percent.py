"""A share of the node's bandwidth: a whole percentage, or an absolute quantity of bits per second.

Kubernetes writes it as int-or-string: the number 40 is 40 %, the string "50M" is 50 Mbit/s. Exactly one is set.
"""

from __future__ import annotations

from dataclasses import dataclass

from koord.model import quantity
from koord.model.quantity import Quantity, QuantityError


@dataclass(frozen=True, slots=True)
class PercentOrQuantity:
    """``percent`` in 0..100 of the node's total, or ``bits_per_s``; one of them is None."""

    percent: int | None = None
    bits_per_s: Quantity | None = None

    @classmethod
    def from_json(cls, value: object) -> PercentOrQuantity:
        """Read an int-or-string; raises QuantityError."""
        if isinstance(value, int) and not isinstance(value, bool):
            if not 0 <= value <= 100:
                raise QuantityError(value, "is not in 0..100 percent")
            return cls(percent=value)
        if not isinstance(value, str):
            raise QuantityError(value, "is neither a whole percentage nor a quantity of bits/s")
        amount = quantity.parse(value)
        if amount.nano < 0:
            raise QuantityError(value, "is negative")
        return cls(bits_per_s=amount)

    def of_total(self, total_bits_per_s: int) -> int:
        """Bits per second when the node's total is ``total_bits_per_s``."""
        if self.bits_per_s is not None:
            return self.bits_per_s.value()
        return total_bits_per_s * (self.percent or 0) // 100

    def __str__(self) -> str:
        return str(self.bits_per_s) if self.bits_per_s is not None else f"{self.percent}%"
