"""Checks what Koord needs of a node. Checks are pure functions of the node's facts, so that recorded trees of other
nodes can be judged as well; ``checks`` names them and puts them in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class CheckStatus(StrEnum):
    OK = "ok"
    INFO = "info"  # worth knowing; nothing to do
    WARN = "warn"  # Koord works, with less than it could
    FAIL = "fail"  # something that Koord is for does not work


class Judgement(NamedTuple):
    """``sentence``: what a check found; ``remedy``: what to do about it, "" = nothing."""

    status: CheckStatus
    sentence: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A judgement with the name of its check: one line of the report."""

    check: str
    status: CheckStatus
    sentence: str
    remedy: str = ""


def ok(sentence: str) -> Judgement:
    return Judgement(CheckStatus.OK, sentence)


def info(sentence: str, remedy: str = "") -> Judgement:
    return Judgement(CheckStatus.INFO, sentence, remedy)


def warn(sentence: str, remedy: str) -> Judgement:
    return Judgement(CheckStatus.WARN, sentence, remedy)


def fail(sentence: str, remedy: str) -> Judgement:
    return Judgement(CheckStatus.FAIL, sentence, remedy)
