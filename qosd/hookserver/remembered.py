"""Decisions made before, by all that they depended on.

A pod waits for the answer of a process that slept until it was asked, so what an answer costs is the code and the data
that have to come into the CPU's caches again: to decide is a hundred calls of functions, to look up is one. The pods of
a workload say the same and ask for the same, and so do most pods of a node.

Invariant: a decision is remembered only as long as the rules are the same object (``PooledRules``); what else it
depends on is in the key. Bounded: when there are too many, all are forgotten.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from koord.host.asked import Given
from qosd.hooks.context import PodContext, Request, Stage
from qosd.hooks.edits import Edits, Resources
from qosd.hooks.rules import Rules

MAX_DECISIONS = 256


@dataclass(frozen=True, slots=True)
class Decision:
    """``pod``: as it was read of whoever asked first; ``sparse``: the encoded answer to our own proxy; ``replaced``: of
    a creation, what the container would hold if nothing were edited; ``acts``: False where another front end edits."""

    pod: PodContext
    edits: Edits
    sparse: bytes
    replaced: dict[str, Given]
    acts: bool = True


class Remembered:
    """The decisions by the rules that were given last."""

    def __init__(self) -> None:
        self._rules: Rules | None = None
        self._decisions: dict[Hashable, Decision] = {}

    def get(self, key: Hashable, rules: Rules) -> Decision | None:
        if rules is not self._rules:
            self._rules = rules
            self._decisions.clear()
        return self._decisions.get(key)

    def put(self, key: Hashable, decision: Decision) -> None:
        """Keep a decision by the rules of the last ``get``."""
        if len(self._decisions) >= MAX_DECISIONS:
            self._decisions.clear()
        self._decisions[key] = decision


_NO_TEXTS: Mapping[str, str] = {}
NOTHING = Decision(
    PodContext.read(Request(Stage.RUN_SANDBOX, "", "", "", _NO_TEXTS, _NO_TEXTS, "", Resources())), Edits(), b"", {}
)
"""No edits."""
