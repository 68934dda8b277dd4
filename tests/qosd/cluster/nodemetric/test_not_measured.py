"""A node without fresh and whole samples makes no report, and a NUMA node without them is left out."""

from __future__ import annotations

import pytest

from qosd.cluster import nodemetric
from qosd.cluster.collectpolicy import effective
from qosd.cluster.nodemetric import MAX_AGE_S, NotMeasured
from qosd.sense.node import NodeRow, NumaRow
from qosd.sense.row import NO_SAMPLE
from tests.qosd.cluster.history import GIB, History, Use, row
from tests.qosd.cluster.nodemetric.reports import node_of, reported


@pytest.mark.parametrize("collector", ["node", "usage", "system"])
@pytest.mark.parametrize(
    ("age_s", "why"),
    [(None, "has not measured yet"), (MAX_AGE_S, ""), (MAX_AGE_S + 1, "are 11 s old")],
    ids=["never", "old", "too old"],
)
def test_old_samples_are_no_report(collector: str, age_s: float | None, why: str) -> None:
    history = History()
    history.tick(Use(1, 1))
    del history.ages_s[collector]
    if age_s is not None:
        history.ages_s[collector] = age_s
    if not why:
        assert reported(history)
        return
    with pytest.raises(NotMeasured, match=why):
        reported(history)
    assert nodemetric.node_usage(history.snapshot(), history.store, effective(None)) is None


@pytest.mark.parametrize(
    ("cores", "memory_bytes", "why"),
    [(NO_SAMPLE, GIB, "node's use"), (1, NO_SAMPLE, "node's use"), (1, GIB, "system's use")],
    ids=["no CPU", "no memory", "nothing of the system"],
)
def test_half_of_the_figures_is_no_report(cores: float, memory_bytes: float, why: str) -> None:
    history = History()
    figures = row(NodeRow, cpu_usage_cores=cores, memory_usage_bytes=memory_bytes)
    history.store.put(NodeRow.panel, history.at_ns, {"": figures})
    with pytest.raises(NotMeasured, match=f"no samples of the {why} in 300 s"):
        reported(history)


def test_a_numa_node_without_samples_is_left_out() -> None:
    history = History()
    history.tick(Use(1, 1))
    rows = {
        "0": row(NumaRow, cpu_usage_cores=1.0, memory_usage_bytes=GIB),
        "1": row(NumaRow, memory_usage_bytes=GIB),
    }
    history.store.put(NumaRow.panel, history.at_ns, rows)
    assert [each.numa_node_id for each in node_of(history).numa_usages] == [0]
