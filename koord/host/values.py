"""The kernel's spelling of a value against CRI's: one meaning, one text.

cgroup v2 says ``max`` where CRI says -1, a weight where CRI says shares, and both kernels round a memory limit
down to whole pages. ``normalise`` gives CRI's text for a file's text; where one kernel text stands for several
CRI values, the desired one is chosen if it is among them. So equal texts mean equal effect.
"""

from __future__ import annotations

import math

from koord.host.cgroup import Row
from koord.model import cpuset
from koord.model.cfs import shares_from_weight, weight_linear

V1_UNLIMITED_BYTES = 0x7FFFFFFFFFFFF000
UNLIMITED = "-1"


def weight_quadratic(shares: int) -> int:
    """cpu.weight as newer OCI runtimes map shares: through (2, 1), (1024, 100) and (262144, 10000)."""
    if shares <= 2:
        return 1
    if shares >= 262144:
        return 10000
    exponent = math.log2(shares)
    return math.ceil(10 ** ((exponent * exponent + 125 * exponent) / 612 - 7 / 34))


def normalise(row: Row, version: int, text: str, desired: str | None, page_bytes: int) -> str:
    """CRI's text for the file text of ``row`` on cgroup ``version``; text of no known form comes back unchanged."""
    words = text.split()
    index = row.v2_word if version == 2 else 0
    word = words[index] if index < len(words) else ""
    if row.field.startswith("cpuset_"):
        return _cpu_list(word)
    if word == "max":
        return "max" if row.field.startswith("memory.") else UNLIMITED
    if not word.lstrip("-").isdigit():
        return word
    if row.field == "cpu_shares" and version == 2:
        return _shares(int(word), desired)
    return _bytes(row, int(word), desired, page_bytes) if row.unit == "bytes" else word


def _cpu_list(text: str) -> str:
    try:
        return str(cpuset.parse(text))
    except cpuset.CPUSetError:
        return text


def _shares(weight: int, desired: str | None) -> str:
    if (
        desired is not None
        and desired.isdigit()
        and weight in (weight_linear(int(desired)), weight_quadratic(int(desired)))
    ):
        return desired
    return str(shares_from_weight(weight))


def _bytes(row: Row, value: int, desired: str | None, page_bytes: int) -> str:
    if value >= V1_UNLIMITED_BYTES and row.field == "memory_limit_in_bytes":
        return UNLIMITED
    if desired is not None and desired.isdigit() and int(desired) // page_bytes * page_bytes == value:
        return desired
    return str(value)
