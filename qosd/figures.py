"""The node's own gauges: what the daemon holds and keeps, and by which policy."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from koord.host.reader import KeptFiles
from koord.service.metrics import Family, Gauge, Kind
from qosd.act.journal import Journal
from qosd.loop import NodeLoop
from qosd.policy.provenance import Origin
from qosd.policy.rulesfile import RulesSource


def _gauge(name: str, help_text: str, value: Callable[[], float]) -> Gauge:
    return Family(name, Kind.GAUGE, help_text), value


def of(loop: NodeLoop, journal: Journal, kept_files: KeptFiles, rules_file: RulesSource) -> tuple[Gauge, ...]:
    return (
        _gauge("held_files", "Kernel files that Koord holds now.", lambda: len(loop.report.files.owned)),
        _gauge(
            "contested_files", "Kernel files left to another writer for now.", lambda: len(loop.report.files.contested)
        ),
        _gauge("journal_dropped_entries", "Journal entries lost since the start.", lambda: journal.dropped),
        _gauge("kept_files", "Descriptors kept open for sensing.", lambda: len(kept_files)),
        *_of_policy(rules_file),
    )


def _of_policy(source: RulesSource) -> tuple[Gauge, ...]:
    def age_s() -> float:
        found = source.overall.age_s(time.time())
        return math.nan if found is None else found

    return (
        _gauge(
            "policy_age_seconds",
            "Since the source of the policy in force last said it; NaN = no source ever did.",
            age_s,
        ),
        _gauge(
            "policy_is_last_good",
            "1 while the source of the policy is away or bad, and what it said last is in force.",
            lambda: source.overall.origin is Origin.LAST_GOOD,
        ),
        _gauge(
            "policy_is_unknown",
            "1 while nobody can tell the policy, and every strategy is frozen.",
            lambda: source.overall.origin is Origin.UNKNOWN,
        ),
    )
