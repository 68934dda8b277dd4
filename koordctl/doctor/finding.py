"""One line of the doctor's report."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    OK = "ok"
    INFO = "info"  # worth knowing; nothing to do
    WARN = "warn"  # Koord works, with less than it could
    FAIL = "fail"  # something that Koord is for does not work


@dataclass(frozen=True, slots=True)
class Finding:
    """``sentence`` is what was found, ``remedy`` what to do about it ("" = nothing)."""

    check: str
    status: Status
    sentence: str
    remedy: str = ""
