"""Reasons to refuse a ConfigMap or a node: values for a webhook, and the text that upstream's clients parse."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from koord.model.problem import Problem


class Reason(StrEnum):
    """Upstream's words, misspelling included."""

    PARSE = "ParseConfigFail"
    PARAMETER = "ConfigParamInvalid"
    OVERLAP = "NodeStrategiesOverlap"
    EXISTING_NODE = "ExistNodeConfict"


@dataclass(frozen=True, slots=True)
class Violation:
    """A reason to refuse. ``strategies`` and ``example_nodes``: the names of those in conflict."""

    reason: Reason
    key: str
    problem: Problem
    strategies: tuple[str, ...] = ()
    example_nodes: tuple[str, ...] = ()

    def upstream_form(self) -> str:
        """Returns ``___{"reason":…,"message":…}___``; of a conflict the message is an object."""
        conflict = {"config": self.key, "strategies": self.strategies, "exampleNodes": self.example_nodes}
        message: object = conflict if self.reason is Reason.EXISTING_NODE else str(self.problem)
        return f"___{msgspec.json.encode({'reason': self.reason, 'message': message}).decode()}___"
