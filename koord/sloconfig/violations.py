"""Why a ConfigMap or a node is refused: values for a webhook, and the text that upstream's clients parse."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec


class Reason(StrEnum):
    """Upstream's words, misspelling included."""

    PARSE = "ParseConfigFail"
    PARAMETER = "ConfigParamInvalid"
    OVERLAP = "NodeStrategiesOverlap"
    EXISTING_NODE = "ExistNodeConfict"


@dataclass(frozen=True, slots=True)
class Violation:
    """``message`` begins with ``path``. ``strategies`` and ``example_nodes``: the names of those in conflict."""

    reason: Reason
    key: str
    path: str
    message: str
    strategies: tuple[str, ...] = ()
    example_nodes: tuple[str, ...] = ()

    def upstream_form(self) -> str:
        """``___{"reason":…,"message":…}___``; of a conflict the message is an object."""
        conflict = {"config": self.key, "strategies": self.strategies, "exampleNodes": self.example_nodes}
        message: object = conflict if self.reason is Reason.EXISTING_NODE else self.message
        return f"___{msgspec.json.encode({'reason': self.reason, 'message': message}).decode()}___"
