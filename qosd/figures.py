"""The node's own gauges: what the daemon holds and keeps, and by which policy."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from koord.host.reader import KeptFiles
from qosd.act.journal import Journal
from qosd.loop import NodeLoop
from qosd.policy.provenance import Origin
from qosd.policy.rulesfile import RulesSource

Figure = tuple[str, str, Callable[[], float]]
"""Name, help, and who is asked."""


def of(loop: NodeLoop, journal: Journal, kept_files: KeptFiles, rules_file: RulesSource) -> tuple[Figure, ...]:
    return (
        ("koord_qosd_held_files", "Kernel files that Koord holds now.", lambda: len(loop.report.files.owned)),
        (
            "koord_qosd_contested_files",
            "Kernel files left to another writer for now.",
            lambda: len(loop.report.files.contested),
        ),
        ("koord_qosd_journal_dropped_entries", "Journal entries lost since the start.", lambda: journal.dropped),
        ("koord_qosd_kept_files", "Descriptors kept open for sensing.", lambda: len(kept_files)),
        *_of_policy(rules_file),
    )


def _of_policy(source: RulesSource) -> tuple[Figure, ...]:
    def age_s() -> float:
        found = source.provenance.age_s(time.time())
        return math.nan if found is None else found

    return (
        (
            "koord_qosd_policy_age_seconds",
            "Since the source of the policy in force last said it; NaN = no source ever did.",
            age_s,
        ),
        (
            "koord_qosd_policy_is_last_good",
            "1 while the source of the policy is away or bad, and what it said last is in force.",
            lambda: source.provenance.origin is Origin.LAST_GOOD,
        ),
        (
            "koord_qosd_policy_is_unknown",
            "1 while nobody can tell the policy, and every strategy is frozen.",
            lambda: source.provenance.origin is Origin.UNKNOWN,
        ),
    )
