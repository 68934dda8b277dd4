"""The state of the connection to the cluster, for koordctl; plain values, so that showing it imports no client."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class PartState(StrEnum):
    OK = "ok"
    WAITING = "waiting"
    """It has not done its work yet."""
    FAILING = "failing"
    """It did, or never could, and cannot now; ``says`` has the reason."""
    OFF = "off"
    """This cluster has nothing for it to do."""


@dataclass(frozen=True, slots=True)
class ClusterPart:
    """One thing that is read, written or done. ``age_s``: since it last succeeded; None: never."""

    name: str
    state: PartState
    age_s: float | None = None
    failures: int = 0
    says: str = ""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """``server``: its URL, "" before it is known. ``silent_s``: seconds since it last answered; None: it never did."""

    server: str
    node_name: str
    is_reachable: bool
    silent_s: float | None
    parts: tuple[ClusterPart, ...]

    @property
    def sentence(self) -> str:
        """For one line."""
        where = f"{self.server or 'the API server'} as node {self.node_name}"
        if self.is_reachable:
            return f"{where}: answers"
        if self.silent_s is None:
            return f"{where}: has not answered yet"
        return f"{where}: silent for {self.silent_s:.0f} s"
