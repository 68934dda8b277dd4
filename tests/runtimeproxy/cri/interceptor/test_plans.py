"""Which requests pass, are tapped or are held."""

from __future__ import annotations

import asyncio

import pytest

from koord.pb.cri import api_pb2 as cri
from runtimeproxy.hooks.hookfile import FailurePolicy
from runtimeproxy.intercept import PASS, StreamPlan, Treatment
from tests.runtimeproxy.cri.interceptor.servers import MOVED, moving
from tests.runtimeproxy.cri.rig import V1, V1ALPHA2, Rig
from tests.runtimeproxy.hooks.doubles import koordlet
from tests.support.waiting import until


@pytest.mark.parametrize(
    ("method", "idle", "asked"),
    [
        ("Version", PASS, PASS),
        ("ListContainers", PASS, PASS),
        ("ContainerStatus", StreamPlan(Treatment.REWRITE), StreamPlan(Treatment.REWRITE)),
        ("PodSandboxStatus", StreamPlan(Treatment.REWRITE), StreamPlan(Treatment.REWRITE)),
        ("GetContainerEvents", StreamPlan(Treatment.REWRITE), StreamPlan(Treatment.REWRITE)),
        ("RunPodSandbox", StreamPlan(Treatment.TAP, True), StreamPlan(Treatment.HOLD, True, True)),
        ("RestorePod", StreamPlan(Treatment.TAP, True), StreamPlan(Treatment.HOLD, True, True)),
        ("CheckpointPod", PASS, PASS),
        ("CheckpointContainer", PASS, PASS),
        ("CreateContainer", StreamPlan(Treatment.HOLD, True), StreamPlan(Treatment.HOLD, True, True)),
        ("StartContainer", PASS, StreamPlan(Treatment.HOLD, False, True)),
        ("UpdateContainerResources", StreamPlan(Treatment.TAP), StreamPlan(Treatment.HOLD, False, True)),
        ("UpdatePodSandboxResources", StreamPlan(Treatment.TAP), StreamPlan(Treatment.HOLD, False, True)),
        ("RemovePodSandbox", StreamPlan(Treatment.TAP), StreamPlan(Treatment.HOLD, False, True)),
        ("RemoveContainer", StreamPlan(Treatment.TAP), StreamPlan(Treatment.TAP)),
        ("StopContainer", StreamPlan(Treatment.TAP), StreamPlan(Treatment.TAP)),
        ("StopPodSandbox", StreamPlan(Treatment.TAP), StreamPlan(Treatment.TAP)),
    ],
)
@pytest.mark.parametrize("service", [V1, V1ALPHA2])
def test_plans(method: str, idle: StreamPlan, asked: StreamPlan, service: str) -> None:
    assert Rig({}).interceptor.plan(service + method) == idle
    assert Rig({"a.json": koordlet()}, policy=FailurePolicy.FAIL).interceptor.plan(service + method) == asked


@pytest.mark.parametrize(
    "path", ["", "/", "RunPodSandbox", "/other.Service/RunPodSandbox", "/runtime.v1.ImageService/PullImage"]
)
def test_other_paths_pass(path: str) -> None:
    assert Rig({"a.json": koordlet()}).interceptor.plan(path) == PASS


def test_start_is_tapped_for_a_post_hook_only() -> None:
    rig = Rig({"a.json": koordlet()}, stages=frozenset({"PostStartContainer"}))
    assert rig.interceptor.plan(V1 + "StartContainer") == StreamPlan(Treatment.TAP)


async def test_creates_are_held_until_it_is_known_that_no_sandbox_was_edited() -> None:
    rig = Rig({})
    create = V1 + "CreateContainer"
    assert rig.interceptor.plan(create).treatment is Treatment.HOLD
    await rig.interceptor.warm_up()
    await until(lambda: rig.interceptor.plan(create).treatment is Treatment.TAP)
    rig.interceptor.close()


async def test_an_edited_sandbox_holds_its_creates_until_it_is_gone() -> None:
    rig = Rig({"a.json": koordlet(pod=moving)})
    await rig.interceptor.warm_up()
    await rig.run_pod()
    rig.interceptor.use(())
    create = V1 + "CreateContainer"
    await asyncio.sleep(0.01)
    assert rig.interceptor.plan(create).treatment is Treatment.HOLD
    await rig.create()
    assert rig.sent.sandbox_config.linux.cgroup_parent == MOVED
    await rig.call("RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id="p1"))
    assert rig.interceptor.plan(create).treatment is Treatment.TAP
    rig.interceptor.close()
