"""What is counted of decisions, by the names that kube-scheduler's dashboards ask for."""

from __future__ import annotations

import asyncio

from koord.cluster import pages
from koord.cluster.frame import Frame
from koord.service import metrics
from koord_scheduler.component import SchedulerComponent
from koord_scheduler.configuration import Configuration
from koord_scheduler.metrics import PREFIX, UPSTREAMS_PREFIX, Metrics
from koord_scheduler.options import PROGRAM
from koord_scheduler.window import FIRST
from tests.koord_scheduler.extenderserver import ExtenderServer
from tests.koord_scheduler.rig import NAME, Rig, running
from tests.kube.server import Fault, Server
from tests.kube.support import client
from tests.support.waiting import until

PLACED = 'profile="koord-scheduler",result="scheduled"'


def page(rig: Rig) -> list[str]:
    return metrics.render(UPSTREAMS_PREFIX, metrics.take(rig.scheduler.metrics)).decode().splitlines()


async def test_a_pod_that_is_bound_at_its_second_try() -> None:
    async with running(lambda rig: rig.node("n1", "1").node("n2", "1").pod("p", "2")) as rig:
        await rig.lead()
        await until(lambda: rig.attempts("unschedulable") == 1)
        rig.node("n2", "2")
        rig.offset_s += 20
        await rig.placed("p")
        await until(lambda: rig.attempts("scheduled") == 1)
        lines = page(rig)
    for line in (
        f"scheduler_schedule_attempts_total{{{PLACED}}} 1.0",
        f"scheduler_scheduling_attempt_duration_seconds_count{{{PLACED}}} 1.0",
        'scheduler_schedule_attempts_total{profile="koord-scheduler",result="unschedulable"} 1.0',
        'scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="2",le="10.24"} 0.0',
        'scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts="2",le="40.96"} 1.0',
        'scheduler_pod_scheduling_attempts_bucket{le="1.0"} 0.0',
        'scheduler_pod_scheduling_attempts_bucket{le="2.0"} 1.0',
        "scheduler_scheduling_algorithm_duration_seconds_count 1.0",
        "scheduler_pod_scheduling_evaluated_nodes_sum 2.0",
        "scheduler_pod_scheduling_feasible_nodes_sum 1.0",
        "scheduler_preemption_attempts_total 0.0",
    ):
        assert line in lines


async def test_requests_to_extenders_are_timed(extender: ExtenderServer) -> None:
    own, answers = Metrics(), iter((500, {"NodeNames": ["n1"]}, {"Error": "no license"}))
    extender.answers["filter"] = lambda _: next(answers)
    said = [extender.settings("filter", "prioritize", weight=1)]
    async with running(lambda rig: rig.node(), extenders=said, told=own.extender_told) as rig:
        rig.pod("p")
        await rig.lead()
        await until(lambda: rig.attempts("error") == 1)
        rig.offset_s += 20
        rig.view.changed()
        await rig.placed("p")
        rig.pod("q")
        await until(lambda: rig.attempts("error") == 2)
    lines = metrics.render(PREFIX, metrics.take(own)).decode().splitlines()
    name, at = f"{PREFIX}extender_duration_seconds_count", f'extender="{extender.url}"'
    assert sorted(each for each in lines if each.startswith(name)) == [
        f'{name}{{{at},result="answered",verb="filter"}} 2.0',
        f'{name}{{{at},result="failed",verb="filter"}} 1.0',
    ]


async def test_an_attempt_that_the_api_server_refuses_is_an_error() -> None:
    async with running(lambda rig: rig.node("n1").pod()) as rig:
        rig.server.faults.append(Fault("bind", status=403, reason="Forbidden"))
        await rig.lead()
        await until(lambda: rig.attempts("error") == 1)
        assert rig.attempts("scheduled") == 0
        rig.offset_s += 20
        rig.view.changed()
        await rig.placed("p")
        await until(lambda: rig.attempts("scheduled") == 1)


async def test_victims_are_counted() -> None:
    async with running(lambda rig: rig.node("n1", "2").pod("low", nodeName="n1", priority=0, cpu="2")) as rig:
        await rig.lead()
        rig.pod("high", priority=10)
        await rig.placed("high")
        lines = page(rig)
    assert "scheduler_preemption_attempts_total 1.0" in lines
    assert "scheduler_preemption_victims_sum 1.0" in lines


async def test_what_the_queue_and_the_state_know_is_asked_for_the_page() -> None:
    server = Server()
    async with server.serving() as url, client(url) as api:
        options = PROGRAM.load(PROGRAM.parse([]))
        component = SchedulerComponent(Frame(api, NAME, NAME, options, {"HOSTNAME": "a"}), options, Configuration())
        rig = Rig(server, component._view, component._scheduler, None)  # type: ignore[arg-type]
        rig.node("n1").pod("large", "8").pod("gated", schedulingGates=[{"name": "wait"}])
        following = asyncio.create_task(component.follow())
        await component.synced()
        leading = asyncio.create_task(component.lead())
        await until(lambda: rig.attempts("unschedulable") == 1)
        counted = {pages.metric_prefix(NAME): component.metrics, **component.upstream}

        async def ready() -> str:
            return ""

        text = (await pages.makers(counted, ready)["/metrics"]()).body.decode().splitlines()  # type: ignore[misc]
        for task in (leading, following):
            task.cancel()
        await asyncio.wait((leading, following))
    for line in (
        'scheduler_pending_pods{queue="gated"} 1.0',
        'scheduler_pending_pods{queue="unschedulable"} 1.0',
        'scheduler_pending_pods{queue="active"} 0.0',
        'scheduler_unschedulable_pods{plugin="NodeResourcesFit",profile="koord-scheduler"} 1.0',
        'scheduler_queue_incoming_pods_total{event="PodAdd",queue="active"} 1.0',
        'scheduler_queue_incoming_pods_total{event="PodAdd",queue="gated"} 1.0',
        'scheduler_queue_incoming_pods_total{event="ScheduleAttemptFailure",queue="unschedulable"} 1.0',
        'scheduler_cache_size{type="nodes"} 1.0',
        f"koord_scheduler_binding_window {FIRST}",
        "koord_scheduler_unreadable_pods 0.0",
    ):
        assert line in text
