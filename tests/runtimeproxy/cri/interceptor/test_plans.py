"""Which requests pass, are tapped or are held."""

from __future__ import annotations

import asyncio

import pytest

from koord.pb.cri import api_pb2 as cri
from runtimeproxy.hooks.hookfile import Policy
from runtimeproxy.intercept import PASS, Plan, Treatment
from tests.runtimeproxy.cri.interceptor.servers import MOVED, moving
from tests.runtimeproxy.cri.rig import V1, V1ALPHA2, Rig
from tests.runtimeproxy.hooks.doubles import koordlet
from tests.support.waiting import until


@pytest.mark.parametrize(
    ("method", "idle", "asked"),
    [
        ("Version", PASS, PASS),
        ("ListContainers", PASS, PASS),
        ("ContainerStatus", Plan(Treatment.REWRITE), Plan(Treatment.REWRITE)),
        ("PodSandboxStatus", Plan(Treatment.REWRITE), Plan(Treatment.REWRITE)),
        ("GetContainerEvents", Plan(Treatment.REWRITE), Plan(Treatment.REWRITE)),
        ("RunPodSandbox", Plan(Treatment.TAP, True), Plan(Treatment.HOLD, True, True)),
        ("RestorePod", Plan(Treatment.TAP, True), Plan(Treatment.HOLD, True, True)),
        ("CheckpointPod", PASS, PASS),
        ("CheckpointContainer", PASS, PASS),
        ("CreateContainer", Plan(Treatment.HOLD, True), Plan(Treatment.HOLD, True, True)),
        ("StartContainer", PASS, Plan(Treatment.HOLD, False, True)),
        ("UpdateContainerResources", Plan(Treatment.TAP), Plan(Treatment.HOLD, False, True)),
        ("UpdatePodSandboxResources", Plan(Treatment.TAP), Plan(Treatment.HOLD, False, True)),
        ("RemovePodSandbox", Plan(Treatment.TAP), Plan(Treatment.HOLD, False, True)),
        ("RemoveContainer", Plan(Treatment.TAP), Plan(Treatment.TAP)),
        ("StopContainer", Plan(Treatment.TAP), Plan(Treatment.TAP)),
        ("StopPodSandbox", Plan(Treatment.TAP), Plan(Treatment.TAP)),
    ],
)
@pytest.mark.parametrize("service", [V1, V1ALPHA2])
def test_plans(method: str, idle: Plan, asked: Plan, service: str) -> None:
    assert Rig({}).interceptor.plan(service + method) == idle
    assert Rig({"a.json": koordlet()}, policy=Policy.FAIL).interceptor.plan(service + method) == asked


@pytest.mark.parametrize(
    "path", ["", "/", "RunPodSandbox", "/other.Service/RunPodSandbox", "/runtime.v1.ImageService/PullImage"]
)
def test_other_paths_pass(path: str) -> None:
    assert Rig({"a.json": koordlet()}).interceptor.plan(path) == PASS


def test_start_is_tapped_for_a_post_hook_only() -> None:
    rig = Rig({"a.json": koordlet()}, stages=frozenset({"PostStartContainer"}))
    assert rig.interceptor.plan(V1 + "StartContainer") == Plan(Treatment.TAP)


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
