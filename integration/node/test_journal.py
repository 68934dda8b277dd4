"""The journal is the truth: what strace sees written below the cgroup root is what it tells, and the reverse."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from integration.harness.pods import Pod
from integration.node import kinds, settings, straced
from integration.node.churn import Node, churning
from integration.node.conftest import MakeDaemon
from integration.node.daemon import Row
from integration.node.straced import Attempt

CHURN_S = 20 * settings.MINUTES
NO_WRITES = ("foreign", "yielded", "unreadable", "unsupported", "refused", "adopted", "leftover")
_GONE = ("ENOENT", "ENODEV")


def test_the_journal_is_what_was_written(
    make_daemon: MakeDaemon,
    anchor: Pod,
    runtime: Path,
    kubepods: str,
    tmp_path: Path,
    figure: Callable[[str], None],
) -> None:
    daemon = make_daemon(kinds.RULES, ("--tick-interval", "0.1"))
    traces = tmp_path / "traces"
    daemon.start(straced.prefix(traces))
    node = Node(runtime, kubepods, settings.SEED)
    with churning(node, 30, foreign_hz=20):
        time.sleep(CHURN_S)
    assert daemon.page("/healthz")[0] == 200
    dropped = daemon.koordctl("journal")["dropped"]
    assert daemon.stop() == 0
    rows, seen = daemon.journal(), straced.attempts(traces)
    results = Counter(row.result for row in rows)
    figure(
        f"{node.tally.text()} (SEED={settings.SEED}); {len(seen)} writes seen by strace, {len(rows)} journal rows:"
        f" {', '.join(f'{count} {result}' for result, count in results.most_common())}"
    )
    assert dropped == 0
    assert not daemon.complaints()
    assert {"done", "foreign"} <= set(results)
    assert differences(seen, [row for row in rows if row.result not in NO_WRITES]) == []


def differences(seen: Sequence[Attempt], told: Sequence[Row]) -> list[str]:
    """Files whose attempts are not, in this order, what the journal tells; one line each."""
    attempts, rows = defaultdict[str, list[Attempt]](list), defaultdict[str, list[Row]](list)
    for attempt in seen:
        attempts[attempt.path].append(attempt)
    for row in told:
        rows[row.path].append(row)
    return [
        f"{path}: strace {attempts[path]}, journal {rows[path]}"
        for path in {**attempts, **rows}
        if len(attempts[path]) != len(rows[path]) or not all(map(_agree, attempts[path], rows[path]))
    ]


def _agree(attempt: Attempt, row: Row) -> bool:
    """Is the row's value what was written, and its result the kernel's answer?"""
    if attempt.text is not None and attempt.text != str(row.after):
        return False
    if not attempt.errno:
        return row.result in ("done", "failed readback")
    return row.result == ("vanished" if attempt.errno in _GONE else f"failed {attempt.errno}")
