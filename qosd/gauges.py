"""The daemon's gauges of its own state: files held, journal, descriptors, age of the policy."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from koord.host.reader import KeptFiles
from koord.service.metrics import Family, Gauge, MetricType
from qosd.act.journal import Journal
from qosd.loop import NodeLoop
from qosd.policy.provenance import Origin
from qosd.policy.source import PolicySource


class _Sources(NamedTuple):
    loop: NodeLoop
    journal: Journal
    kept_files: KeptFiles
    policy: PolicySource

    def policy_age_s(self) -> float:
        found = self.policy.overall.age_s(time.time())
        return math.nan if found is None else found


def _gauge(name: str, help_text: str, value: Callable[[_Sources], float]) -> tuple[Family, Callable[[_Sources], float]]:
    return Family(name, MetricType.GAUGE, help_text), value


_GAUGES = (
    _gauge("held_files", "Kernel files that Koord holds now.", lambda of: len(of.loop.report.files.owned)),
    _gauge(
        "contested_files",
        "Kernel files left to another writer for now.",
        lambda of: len(of.loop.report.files.contested),
    ),
    _gauge("journal_dropped_entries", "Journal entries lost since the start.", lambda of: of.journal.dropped),
    _gauge("kept_files", "Descriptors kept open for sensing.", lambda of: len(of.kept_files)),
    _gauge(
        "policy_age_seconds",
        "Since the source of the policy in force last said it; NaN = no source ever did.",
        _Sources.policy_age_s,
    ),
    _gauge(
        "policy_is_last_good",
        "1 while the source of the policy is away or bad, and what it said last is in force.",
        lambda of: of.policy.overall.origin is Origin.LAST_GOOD,
    ),
    _gauge(
        "policy_is_unknown",
        "1 while the policy cannot be told, and every strategy is frozen.",
        lambda of: of.policy.overall.origin is Origin.UNKNOWN,
    ),
)
FAMILIES: tuple[Family, ...] = tuple([family for family, _ in _GAUGES])


def of(loop: NodeLoop, journal: Journal, kept_files: KeptFiles, policy: PolicySource) -> tuple[Gauge, ...]:
    sources = _Sources(loop, journal, kept_files, policy)
    return tuple([(family, partial(value, sources)) for family, value in _GAUGES])
