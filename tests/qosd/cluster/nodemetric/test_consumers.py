"""koord-manager reads the report, and makes its offer and its demand of it."""

from __future__ import annotations

import msgspec

from koord.model import core
from koord.model.nodemetric import NodeMetric
from koord.model.priority import PriorityClass
from koord.model.problem import Problem
from koord.model.qos import QoSClass
from koord.overcommit import demand, report
from koord.overcommit.amounts import CPUMemory
from koord.overcommit.offer import offer
from koord.overcommit.strategy import DEFAULTS
from tests.qosd.cluster.history import GIB, START_S, WALL_S, History, Use, pod
from tests.qosd.cluster.nodemetric.reports import APP, gib, reported


def consumed() -> NodeMetric:
    web, job, cache = pod("web"), pod("job", "batch", QoSClass.BE, PriorityClass.BATCH), pod("cache", qos=QoSClass.LSR)
    history = History(web, job, cache, apps=[APP])
    for _ in range(60):
        history.tick(
            Use(0.25, 0.5), orphans=Use(0.25, 0.5), apps={"nginx": Use(0.5, 0.25)},
            web=Use(0.5, 1), job=Use(1, 1), cache=Use(0.25, 0.5),
        )  # fmt: skip
    history.predict(Use(1.5, 2), Use(2, 2))
    status = msgspec.json.encode({"status": reported(history).status})
    return core.read(NodeMetric, status)


def test_the_managers_figures_are_ours() -> None:
    metric, problems = consumed(), list[Problem]()
    usage = report.usage(metric, problems.append)
    assert usage is not None and problems == []
    assert usage.system_usage == gib(500, 1)
    assert usage.prod_host_applications == gib(500, 0.25)
    assert usage.node_usage == gib(2750, 3.75)
    assert usage.prod_reclaimable == gib(1500, 2)
    now_s = WALL_S + START_S + 60.0
    assert report.freshness(metric, 900, now_s, now_s) == report.Freshness(0.0)


def kube_pod(name: str, namespace: str, cpu: str, memory: str, **labels: str) -> core.Pod:
    document = {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]},
        "status": {"phase": "Running", "qosClass": "Burstable"},
    }
    return core.read(core.Pod, msgspec.json.encode(document))


def test_the_manager_makes_its_offer_of_it() -> None:
    """By hand: 8000 - 3200 - (500 + 500) - (500 + 250 + 1000), where ``new`` is not in the report yet."""
    pods = [
        kube_pod("web", "shop", "2", "4Gi"),
        kube_pod("cache", "shop", "1", "1Gi"),
        kube_pod("new", "shop", "1", "1Gi"),
    ]
    has = {"cpu": "8", "memory": "16Gi"}
    node = core.read(core.Node, msgspec.json.encode({"status": {"capacity": has, "allocatable": has}}))
    now_s = WALL_S + START_S + 60.0
    made = offer(node, pods, consumed(), DEFAULTS, now_s, now_s)
    assert made.degraded == "" and made.problems == () and made.batch is not None and made.mid is not None
    assert made.batch.cpu_milli == 8000 - 3200 - 1000 - (500 + 250 + 1000)
    assert made.batch.memory_bytes == 16 * GIB - 16 * GIB * 35 // 100 - int(1.25 * GIB) - int(2.5 * GIB)
    assert made.mid == gib(1500, 2)


def test_demand_knows_every_pod_of_it() -> None:
    problems: list[Problem] = []
    pods = [demand.of_pod(kube_pod("web", "shop", "2", "4Gi")), demand.of_pod(kube_pod("cache", "shop", "1", "1Gi"))]
    total = demand.total(pods, consumed().status.pods_metric, problems.append)
    assert (total.used, total.dangling, problems) == (gib(750, 1.5), CPUMemory(), [])
