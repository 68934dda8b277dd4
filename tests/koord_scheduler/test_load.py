"""Placement by load on an API server: NodeMetrics are followed, and a node that uses less wakes whom it was too full
for."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from koord.kube.stream import EventStream
from koord.scheduling.defaults import default_plugins
from koord.scheduling.framework import WeightedPlugin
from koord.scheduling.loadsettings import LoadSettings
from koord.scheduling.plugins.loadaware import LoadAwareScheduling
from koord.scheduling.state import ClusterState
from koord_scheduler.nodereports import UsageView
from koord_scheduler.pages import LOAD_PAGE
from koord_scheduler.profiles import Profile
from tests.koord_scheduler.rig import Rig, running
from tests.koord_scheduler.test_pages import Reader
from tests.kube.server import Fault, Server
from tests.kube.support import client
from tests.support.waiting import until

NODE_METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
ABOVE = "node(s) cpu usage exceed threshold"


def by_load(**settings: Any) -> list[Profile]:
    plugin = LoadAwareScheduling(LoadSettings(**settings))
    return [Profile(plugins=(*default_plugins(), WeightedPlugin(plugin)))]


def measured(rig: Rig, name: str, cpu: str, age_s: float = 5) -> Rig:
    at = datetime.fromtimestamp(time.time() - age_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    usage = {"nodeUsage": {"resources": {"cpu": cpu, "memory": "1Gi"}}}
    rig.server.put(NODE_METRICS, "", name, status={"updateTime": at, "nodeMetric": usage})
    return rig


async def test_a_pod_goes_where_less_is_used() -> None:
    def prepare(rig: Rig) -> None:
        measured(measured(rig.nodes("n1", "n2"), "n1", "2"), "n2", "1").pod()

    async with running(prepare, profiles=by_load()) as rig:
        await rig.lead()
        assert await rig.placed("p") == ["n2"]


async def test_a_node_that_uses_less_wakes_who_waits_and_says_why_it_waited() -> None:
    def prepare(rig: Rig) -> None:
        measured(measured(rig.nodes("n1", "n2"), "n1", "3500m"), "n2", "3500m").pod()

    async with running(prepare, profiles=by_load()) as rig:
        await rig.lead()
        await until(lambda: bool(rig.condition()[2]))
        assert rig.condition()[2].startswith(f"0/2 nodes are available: 2 {ABOVE}.")
        page = await Reader(rig).pod()
        assert page.waiting is not None
        (obstacle,) = page.waiting.obstacles
        detail = obstacle.examples[0].detail
        assert (obstacle.plugin, obstacle.reason) == ("LoadAwareScheduling", ABOVE)
        assert detail.startswith("109 % of 4 cpu, above 65 %: 0.85 for this pod + 3.5 measured ")
        assert detail.endswith("s ago by NodeMetric")
        measured(rig, "n2", "100m")
        rig.later()
        assert await rig.placed("p") == ["n2"]


async def test_the_page_of_a_nodes_load_says_by_which_source() -> None:
    async with running(lambda rig: measured(rig.nodes("n1", "n2"), "n1", "1"), profiles=by_load()) as rig:
        await rig.lead()
        status, said = await Reader(rig).get(LOAD_PAGE, "n1")
        assert (status, said["source"], said["usage"]["node"]["cpu"]) == (200, "NodeMetric", 1000)
        (judged,) = said["settings"]
        assert (judged["thresholds"], judged["capacity"]["cpu"]) == ({"cpu": 65, "memory": 95}, 4000)
        assert (judged["others"]["used"]["cpu"], judged["others"]["most"]["cpu"]) == (1000, 2619)
        rig.view.state.loads.put_fresh("n1", None, "its clock is 90s late")
        _, said = await Reader(rig).get(LOAD_PAGE, "n1")
        assert said["anomaly"] == "its clock is 90s late"
        _, said = await Reader(rig).get(LOAD_PAGE, "n2")
        assert (said["source"], said["usage"], said["settings"][0]["others"]["most"]["cpu"]) == ("", None, None)
        assert (await Reader(rig).get(LOAD_PAGE, "n9"))[0] == 404


async def test_a_cluster_without_the_kind_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    server, state = Server(), ClusterState()
    server.faults.extend(Fault("any", status=404, reason="NotFound") for _ in range(4))
    async with server.serving() as url, client(url) as api:
        view = UsageView(api, state.loads, EventStream(), time.monotonic)
        following = asyncio.create_task(view.informer.run())
        async with asyncio.timeout(5):
            await view.synced()
        following.cancel()
    assert "no node is measured" in caplog.text


async def test_what_cannot_be_read_of_a_metric_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async with running(lambda rig: measured(rig.nodes("n1"), "n1", "x"), profiles=by_load()) as rig:
        measured(rig, "n1", "y z")
        measured(rig, "n1", "1")
        await until(lambda: (found := rig.view.state.loads.measurements("n1").metric) is not None and bool(found.node))
    said = [each.getMessage() for each in caplog.records if "NodeMetric n1" in each.getMessage()]
    assert said[0].startswith("NodeMetric n1: status.nodeMetric.nodeUsage.resources.cpu: 'x'")
