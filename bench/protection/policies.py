"""The policies that are measured: rules of koord-qosd, and the tier in which kubelet has the batch pods under them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import yaml

from bench.protection.node import Node
from integration.node.daemon import Daemon, Row

Rules = Mapping[str, Any]
TRIALS_S = 60.0
"""In which each step of the policy ``pressure`` can have been tried."""
NO_RULES: Rules = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Policy:
    """Without ``rules`` no koord-qosd runs. ``learns_s``: how long it is left alone with service and storm at first."""

    name: str
    place: str
    rules: Rules = field(default_factory=lambda: NO_RULES)
    learns_s: float = 12.0

    @contextlib.contextmanager
    def applied(self, node: Node) -> Iterator[Daemon | None]:
        """The node with its storms placed, and koord-qosd acting by the policy."""
        node.blow(None)
        node.place(self.place)
        if not self.rules:
            yield None
            return
        daemon = Daemon(node.runtime, node.directory / self.name.replace(" ", "-"), yaml.safe_dump(dict(self.rules)))
        daemon.start()
        try:
            yield daemon
        finally:
            daemon.stop()
            daemon.restore()


def _by_slo(policy: str) -> Rules:
    return {"spec": {"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": policy}}}


_PRESSURE: Rules = {
    "spec": {"resourceUsedThresholdWithBE": {"enable": True}},
    "node": {"cpuSuppress": {"policy": "pressure"}},
}
UNPROTECTED = (Policy("none, batch in Burstable", "burstable"), Policy("none, batch in BestEffort", "besteffort"))
PROTECTED = (
    Policy("cpuset", "besteffort", _by_slo("cpuset")),
    Policy("cfsQuota", "besteffort", _by_slo("cfsQuota")),
    Policy("pressure", "besteffort", _PRESSURE, TRIALS_S),
    Policy("pressure, batch in Burstable", "burstable", _PRESSURE, TRIALS_S),
)


def reversals(rows: Sequence[Row], since_tick: int) -> int:
    """How often a quota of best-effort pods has turned round since then: of the file where it did most."""
    limits: dict[str, list[int]] = {}
    for row in rows:
        is_limit = row.owner == "bestEffort" and row.name == "cpu_quota" and row.result == "done"
        if is_limit and row.tick > since_tick and isinstance(row.after, int):
            limits.setdefault(row.path, []).append(row.after)
    return max((_turned(values) for values in limits.values()), default=0)


def _turned(values: Sequence[int]) -> int:
    moves = [after - before for before, after in pairwise(values) if after != before]
    return sum((before > 0) != (after > 0) for before, after in pairwise(moves))
