"""A status has upstream's fields and spellings, is read back as it was written, and is the same twice of one tick."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from koord.model import core
from koord.model.nodemetric import AGGREGATIONS, NodeMetricStatus
from koord.model.priority import PriorityClass
from koord.model.qos import QoSClass
from qosd.cluster import nodemetric
from qosd.cluster.collectpolicy import effective
from tests.qosd.cluster.history import START_S, WALL_S, History, Use, pod
from tests.qosd.cluster.nodemetric.reports import APP, node_of, reported


def test_every_field_of_upstreams_listing() -> None:
    """The names and spellings are those of a NodeMetric that upstream's koordlet wrote."""
    web, job = pod("web", cores=1, gib=2), pod("job", "batch", QoSClass.BE, PriorityClass.BATCH)
    history = History(web, job, apps=[APP])
    for _ in range(200):
        history.tick(Use(0.25, 1), web=Use(0.5, 2), job=Use(0.75, 1.5), apps={"nginx": Use(0.125, 0.5)})
    history.predict(Use(2.5, 0), Use(3, 4))
    status = reported(history, durations=["5m", "30m"]).status
    of_node = {"cpu": "1625m", "memory": "5Gi"}
    of_system = {"cpu": "250m", "memory": "1Gi"}

    def all_of(resources: dict[str, str]) -> dict[str, Any]:
        return {name: {"resources": resources} for name in AGGREGATIONS}

    assert msgspec.json.decode(msgspec.json.encode(status)) == {
        "updateTime": "2026-09-21T14:33:20Z",
        "nodeMetric": {
            "nodeUsage": {"resources": of_node},
            "systemUsage": {"resources": of_system},
            "aggregatedNodeUsages": [{"duration": "5m0s", "usage": all_of(of_node)}, {"duration": "30m0s"}],
            "aggregatedSystemUsages": [{"duration": "5m0s", "usage": all_of(of_system)}, {"duration": "30m0s"}],
            "numaUsages": [
                {
                    "numaNodeID": 0, "nodeUsage": {"resources": of_node},
                    "systemUsage": {"resources": {"cpu": "250m", "memory": "1536Mi"}},  # with host applications
                }
            ],
        },
        "podsMetric": [
            {
                "name": "job", "namespace": "batch", "priority": "koord-batch", "qos": "BE",
                "podUsage": {"resources": {"cpu": "750m", "memory": "1536Mi"}},
            },
            {
                "name": "web", "namespace": "shop", "priority": "koord-prod", "qos": "LS",
                "podUsage": {"resources": {"cpu": "500m", "memory": "2Gi"}},
            },
        ],
        "hostApplicationMetric": [
            {
                "name": "nginx", "priority": "koord-prod", "qos": "LS",
                "usage": {"resources": {"cpu": "125m", "memory": "512Mi"}},
            }
        ],
        "prodReclaimableMetric": {"resource": {"resources": {"cpu": "2500m", "memory": "0"}}},
        "prodPeakMetric": {"resource": {"resources": {"cpu": "3", "memory": "4Gi"}}},
    }  # fmt: skip
    assert core.unix_s(status.update_time) == WALL_S + START_S + 200


def test_it_is_read_back_as_it_was_written() -> None:
    history = History(pod("web"))
    for _ in range(10):
        history.tick(Use(1, 1), web=Use(1, 1))
    status = reported(history).status
    assert core.read(NodeMetricStatus, msgspec.json.encode(status)) == status


def test_a_report_that_changed_nothing_moves_nothing() -> None:
    """Of one tick, twice the same."""
    history = History(pod("web"))
    for _ in range(100):
        history.tick(Use(1, 1), web=Use(1, 1))
    assert reported(history) == reported(history)
    assert reported(history).node_usage == nodemetric.node_usage(history.snapshot(), history.store, effective(None))


@pytest.mark.parametrize(
    ("gib_used", "text"),
    [(0.0, "0"), (1.0, "1Gi"), (1.5, "1536Mi"), (5 / 2**18, "20Ki"), (5 / 2**30, "5")],
)
def test_memory_is_spelled_as_kubernetes_does(gib_used: float, text: str) -> None:
    history = History()
    history.tick(Use(0.5, gib_used))
    assert node_of(history).node_usage.resources["memory"] == text


@pytest.mark.parametrize(("cores", "text"), [(0.0, "0"), (0.0009, "0"), (0.5, "500m"), (2.0, "2"), (1.9999, "1999m")])
def test_cpu_is_in_whole_thousandths(cores: float, text: str) -> None:
    history = History()
    history.tick(Use(cores, 1))
    assert node_of(history).node_usage.resources["cpu"] == text
