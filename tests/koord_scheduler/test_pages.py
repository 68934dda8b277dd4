"""The scheduler's pages: who waits, why, and why a pod is where it is; for the leader, and at a bounded cost."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from koord.kube.kind import Key
from koord.model.schedulerpages import POD_PAGE, QUEUE_PAGE, PodPage, QueuePage
from koord.service.statusserver import Page, PageRequest
from koord_scheduler.configuration import Configuration
from koord_scheduler.explaining import Explainer
from koord_scheduler.options import PROGRAM
from koord_scheduler.pages import CONFIG_PAGE, NODE_PAGE, SERVICES_PAGE, SchedulerPages, Turns, configuration_page
from tests.koord_scheduler.extenderserver import ExtenderServer, names
from tests.koord_scheduler.rig import NAME, Rig, running
from tests.kube.server import Fault
from tests.scheduling.clusters import pod
from tests.support.waiting import until

OWNER = {"ownerReferences": [{"kind": "Job", "name": "train", "uid": "j", "controller": True}]}
TAINT = {"key": "gpu", "value": "only", "effect": "NoSchedule"}


class Reader:
    def __init__(self, rig: Rig, leads: Callable[[], bool] = lambda: True) -> None:
        explainer = Explainer(rig.view, rig.scheduler.decisions, rig.scheduler._monotonic_s, time.time)
        options = PROGRAM.load(PROGRAM.parse([]))
        pages = SchedulerPages(explainer, rig.view.state, leads)
        self.pages = pages.makers(configuration_page(options, Configuration()))

    async def get(self, path: str, rest: str = "", **query: str) -> tuple[int, Any]:
        made = self.pages[path](PageRequest(rest, query))
        page = made if isinstance(made, Page) else await made
        return page.status, msgspec.json.decode(page.body)

    async def pod(self, name: str = "p") -> PodPage:
        status, said = await self.get(POD_PAGE, f"default/{name}")
        assert status == 200, said
        return msgspec.convert(said, PodPage)

    async def queue(self, **query: str) -> QueuePage:
        status, said = await self.get(QUEUE_PAGE, **query)
        assert status == 200, said
        return msgspec.convert(said, QueuePage)


@contextlib.asynccontextmanager
async def reading(prepare: Callable[[Rig], object], leads: bool = True) -> AsyncIterator[tuple[Rig, Reader]]:
    async with running(prepare, best_count=3) as rig:
        if leads:
            await rig.lead()
        yield rig, Reader(rig)


def known(rig: Rig, name: str) -> bool:
    """Whether the scheduler has seen the pod's condition."""
    queued = rig.view.queue.get(rig.view.pods.objects[Key("default", name)].metadata.uid)
    return queued is not None and queued.pod.pod.status.condition("PodScheduled") is not None


async def test_why_a_pod_is_where_it_is() -> None:
    async with reading(lambda rig: rig.node("n1").node("n2", "2").node("n3", unschedulable=True).pod()) as (
        rig,
        reader,
    ):
        await rig.placed("p")
        await until(lambda: not rig.view.state.assumed)
        page = await reader.pod()
        assert (page.state, page.scheduler, page.waiting) == ("placed", NAME, None)
        placed = page.placed
        assert placed is not None
        assert (placed.node, placed.node_count, placed.feasible_count, placed.attempts) == ("n1", 3, 2, 1)
        assert [each.node for each in placed.best] == ["n1", "n2"]
        for each in placed.best:
            assert each.total == sum(score * placed.weights[name] for name, score in each.scores.items())
        assert abs(time.time() - time.mktime(time.strptime(placed.at, "%Y-%m-%dT%H:%M:%SZ")) + time.timezone) < 30


async def test_a_decision_of_somebody_else_is_not_explained() -> None:
    async with reading(lambda rig: rig.node("n1").pod(nodeName="n1")) as (_, reader):
        page = await reader.pod()
        assert (page.state, page.placed and (page.placed.node, page.placed.at)) == ("placed", ("n1", ""))


async def test_a_pod_that_is_being_bound_is_not_confirmed() -> None:
    held = asyncio.Event()
    async with running(lambda rig: rig.node("n1").node("n2").pod(), best_count=3) as rig:
        rig.server.faults.append(Fault("bind", until=held))
        await rig.lead()
        await until(lambda: rig.view.state.assumed)
        page = await Reader(rig).pod()
        assert (page.state, page.placed is not None and len(page.placed.best)) == ("binding", 2)
        held.set()
        await rig.placed("p")


async def test_why_a_pod_waits() -> None:
    def prepare(rig: Rig) -> None:
        rig.node("n1", "2").node("n2", "8", taints=[TAINT]).pod("p", cpu="4")

    async with reading(prepare) as (rig, reader):
        await until(lambda: known(rig, "p"))
        page = await reader.pod()
        waiting = page.waiting
        assert page.state == "waiting"
        assert waiting is not None
        assert (waiting.queue, waiting.attempts, waiting.feasible_count, waiting.node_count) == (
            "unschedulable",
            1,
            0,
            2,
        )
        assert [(each.plugin, each.node_count) for each in waiting.obstacles] == [
            ("TaintToleration", 1),
            ("NodeResourcesFit", 1),
        ]
        assert waiting.obstacles[0].examples[0].detail == "gpu=only:NoSchedule"
        assert waiting.helps == (
            "1 node would do but for a taint, which the pod may tolerate: gpu=only:NoSchedule (n2)",
            "a node with 4 cpu free: of 1 node that would do else, n1 lacks least: 2 cpu",
        )
        assert waiting.preemption == "no pods of a priority below 0 would leave enough behind on any node"
        assert waiting.message == rig.condition()[2]
        rig.node("n2", "8")
        await until(lambda: rig.view.queue.counts()["backoff"] or rig.node_of())


@pytest.mark.parametrize(
    ("spec", "leads", "state", "says"),
    [
        ({"schedulingGates": [{"name": "a"}, {"name": "b"}]}, True, "waiting", "scheduling gates a, b are removed"),
        ({}, False, "waiting", "only to wait: 1 node would do now, it is tried when its turn comes"),
        ({"cpu": "9", "preemptionPolicy": "Never"}, True, "waiting", "its preemptionPolicy is Never"),
        ({"scheduler": "other"}, True, "other", "it is a pod of other, which is not this scheduler"),
        ({"scheduler": "other", "nodeName": "n1"}, True, "other", "it is a pod of other, which is not this scheduler"),
        ({"cpu": "many"}, True, "unreadable", "'many' is not a quantity"),
        ({"status": {"phase": "Succeeded"}}, True, "ended", "it has ended: Succeeded"),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, True, "ended", "it is being deleted"),
        (
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
            True,
            "waiting",
            'persistentvolumeclaim "c" not found',
        ),
    ],
)
async def test_in_which_state_a_pod_is(spec: dict[str, Any], leads: bool, state: str, says: str) -> None:
    async with reading(lambda rig: rig.node("n1").pod("p", **spec), leads) as (rig, reader):
        if leads:
            rig.pod("last")
            await rig.placed("last")
            await until(lambda: rig.view.queue.counts()["active"] == 0)
        page = await reader.pod()
        assert page.state == state
        said = (page.remark, *((*page.waiting.helps, page.waiting.preemption) if page.waiting else ()))
        assert [each for each in said if says in each], said


async def test_a_nominated_pod_waits_for_its_victims() -> None:
    def prepare(rig: Rig) -> None:
        rig.node("n1", "1").pod("promised", priority=5, cpu="2", status={"nominatedNodeName": "n1"})

    async with reading(prepare, leads=False) as (_, reader):
        waiting = (await reader.pod("promised")).waiting
        assert waiting is not None
        assert waiting.nominated_node == "n1"
        assert waiting.helps[0] == "that the pods leave which make room for it on n1"


async def test_a_pod_that_an_extender_keeps_from_all_nodes(extender: ExtenderServer) -> None:
    extender.answers["filter"] = names()
    async with running(lambda rig: rig.nodes("n1", "n2").pod(), extenders=[extender.settings()]) as rig:
        await rig.lead()
        await until(lambda: rig.view.queue.counts()["unschedulable"] == 1)
        waiting = (await Reader(rig).pod()).waiting
        assert waiting is not None
        assert waiting.helps == ("that an extender lets one of 2 nodes pass, which would do for all plugins",)


async def test_the_queue_in_rows() -> None:
    def prepare(rig: Rig) -> None:
        rig.node("n1", "1").pod("gated", schedulingGates=[{"name": "g"}])
        for index in range(5):
            rig.pod(f"train-{index}", "2", metadata={**OWNER, "creationTimestamp": f"2026-01-01T00:00:0{5 - index}Z"})
        rig.pod("high", "3", priority=7).pod("none")

    async with reading(prepare) as (rig, reader):
        await until(lambda: rig.view.queue.counts()["unschedulable"] == 6)
        await until(lambda: all(known(rig, f"train-{index}") for index in range(5)))
        page = await reader.queue()
        assert page.counts == {"active": 0, "backoff": 0, "unschedulable": 6, "gated": 1}
        assert (page.rows[0].name, len(page.rows)) == ("high", 3)
        by_name = {row.name: row for row in page.rows}
        assert by_name["train-4"].since == "2026-01-01T00:00:01Z"
        assert (by_name["train-4"].pod_count, by_name["train-4"].owner) == (5, "Job/train")
        assert by_name["train-4"].waiting_for == rig.condition("train-4")[2]
        assert by_name["gated"].waiting_for == "its gates: g"
        limited = await reader.queue(limit="1")
        assert ([row.name for row in limited.rows], limited.left_out_count) == (["high"], 6)


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "x", "", "1e3", "٣", "9" * 50])
async def test_a_limit_that_is_none(limit: str) -> None:
    async with reading(lambda rig: rig.node("n1"), leads=False) as (_, reader):
        status, said = await reader.get(QUEUE_PAGE, limit=limit)
        assert (status, said) == (400, {"message": f"limit={limit}: is not a number from 1 to 1000"})


async def test_the_event_loop_goes_on_while_a_long_queue_is_looked_through() -> None:
    """20,000 pods, of which no more than ten rows are made."""
    async with reading(lambda rig: rig.node("n1"), leads=False) as (rig, reader):
        for index in range(20_000):
            rig.view.queue.put(pod(f"p{index}", schedulerName=NAME), float(index))
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        page = await reader.queue(limit="10")
        counting.cancel()
        assert (len(page.rows), page.left_out_count) == (10, 19_990)
        assert page.rows[0].name == "p0"
        assert turns >= 40


async def test_who_does_not_lead_says_so() -> None:
    async with running(lambda rig: rig.node("n1").pod()) as rig:
        reader = Reader(rig, lambda: False)
        for path, rest in ((POD_PAGE, "default/p"), (QUEUE_PAGE, ""), (NODE_PAGE, "n1"), (SERVICES_PAGE, "")):
            assert await reader.get(path, rest) == (503, {"message": "the instance is not leader"})
        status, said = await reader.get(CONFIG_PAGE)
        assert (status, list(said)) == (200, ["kubescheduler.config.k8s.io"])


async def test_upstreams_pages() -> None:
    async with reading(lambda rig: rig.node("n1").pod(nodeName="n1"), leads=False) as (_, reader):
        status, node = await reader.get(NODE_PAGE, "n1")
        assert status == 200
        assert node["allocatable"]["MilliCPU"] == 4000
        assert (node["requested"]["MilliCPU"], node["nonZeroRequested"]["Memory"]) == (1000, 200 << 20)
        assert (node["remaining"]["MilliCPU"], node["remaining"]["AllowedPodNumber"]) == (3000, 9)
        assert [each["Pod"]["metadata"]["name"] for each in node["pods"]] == ["p"]
        assert await reader.get(NODE_PAGE, "n9") == (404, {"message": "cannot find node n9"})
        assert (await reader.get(POD_PAGE, "default/q"))[0] == 404
        assert (await reader.get(POD_PAGE, "q"))[0] == 404
        _, services = await reader.get(SERVICES_PAGE)
        assert "/apis/v1/nodes/:nodeName" in services["GET"]
        _, configuration = await reader.get(CONFIG_PAGE)
        found = configuration["kubescheduler.config.k8s.io"]
        assert found["kind"] == "KubeSchedulerConfiguration"
        scores = found["profiles"][0]["plugins"]["score"]["enabled"]
        assert {"name": "TaintToleration", "weight": 3} in scores


async def test_pages_take_a_tenth_of_the_time_whoever_asks() -> None:
    """Of a clock of its own: twenty callers at once, each page takes 10 ms."""
    now_s = 0.0
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds
        slept.append(seconds)

    turns = Turns(lambda: now_s, sleep)

    async def page() -> None:
        nonlocal now_s
        async with turns.one():
            now_s += 0.01

    await asyncio.gather(*(page() for _ in range(20)))
    assert slept[0] == 0.0
    assert slept[1:] == pytest.approx([0.09] * 19)
    async with turns.one():
        now_s += 5.0
    await page()
    assert slept[-1] == 2.0
