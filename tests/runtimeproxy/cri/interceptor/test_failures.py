"""Servers that fail or hang, requests and answers that are malformed, objects that nobody knows."""

from __future__ import annotations

import json
import time

import pytest

from koord.pb.cri import api_pb2 as cri
from runtimeproxy.hooks.hookfile import FailurePolicy
from runtimeproxy.intercept import Call
from runtimeproxy.wire.protowire import MalformedMessage
from tests.runtimeproxy.cri.interceptor.servers import best_effort, hooks_asked, moving
from tests.runtimeproxy.cri.rig import V1, Rig, Runtime, container, pod
from tests.runtimeproxy.hooks.doubles import Handler, failing, garbage, hanging, koordlet


@pytest.mark.parametrize("handler", [failing(), failing(13), hanging, garbage])
async def test_under_ignore_a_failing_server_changes_nothing(handler: Handler) -> None:
    rig = Rig({"a.json": handler}, hook_timeout_s=0.02)
    await rig.run_pod()
    assert rig.sent.config == pod()
    await rig.create()
    assert rig.sent.config == container()
    await rig.update(cpuset_cpus="1")
    assert rig.sent.linux == cri.LinuxContainerResources(cpuset_cpus="1")


@pytest.mark.parametrize("handler", [failing(), failing(13), hanging, garbage])
async def test_under_fail_a_failing_server_refuses(handler: Handler) -> None:
    rig = Rig({"a.json": handler}, policy=FailurePolicy.FAIL, hook_timeout_s=0.02)
    refused = await rig.run_pod()
    assert refused is not None
    assert refused.code == 14
    assert refused.message.startswith("hook server a.json: ")


@pytest.mark.parametrize(
    ("policy", "at_create", "refused"),
    [
        (FailurePolicy.IGNORE, FailurePolicy.FAIL, {"CreateContainer"}),
        (FailurePolicy.FAIL, FailurePolicy.IGNORE, {"RunPodSandbox"}),
    ],
)
async def test_a_stages_own_policy_decides(policy: FailurePolicy, at_create: FailurePolicy, refused: set[str]) -> None:
    rig = Rig({"a.json": failing()}, policy=policy, stage_policies=(("PreCreateContainer", at_create),))
    outcomes = {"RunPodSandbox": await rig.run_pod(), "CreateContainer": await rig.create(sandbox=pod())}
    assert {method for method, outcome in outcomes.items() if outcome is not None} == refused
    plans = {method: rig.interceptor.plan(V1 + method).fail_closed for method in outcomes}
    assert {method for method, fail_closed in plans.items() if fail_closed} == refused


async def test_hooks_take_at_most_half_of_the_callers_deadline() -> None:
    rig = Rig({"a.json": hanging, "b.json": hanging}, hook_timeout_s=10.0)
    begun = time.monotonic()
    await rig.call("RunPodSandbox", cri.RunPodSandboxRequest(config=pod()), timeout_s=0.2)
    assert 0.09 < time.monotonic() - begun < 1.0


@pytest.mark.parametrize("method", ["RunPodSandbox", "CreateContainer", "UpdateContainerResources"])
async def test_malformed_requests_are_typed_errors_for_the_relay(method: str) -> None:
    rig = Rig({"a.json": koordlet()})
    with pytest.raises(MalformedMessage):
        await rig.interceptor.request(Call(V1 + method, None, time.monotonic()), b"\x0a\xff")


ANSWERS = {
    "RunPodSandbox": cri.RunPodSandboxResponse(pod_sandbox_id="p2"),
    "CreateContainer": cri.CreateContainerResponse(container_id="c2"),
    "StopContainer": cri.StopContainerResponse(),
    "RemovePodSandbox": cri.RemovePodSandboxResponse(),
}


async def rig_with_one_pod() -> tuple[Rig, object]:
    """And what its cache holds."""
    rig = Rig({"a.json": koordlet()})
    await rig.run_pod()
    await rig.create()
    cached = rig.interceptor.dump()()
    assert '"p1"' in json.dumps(cached) and '"c1"' in json.dumps(cached)
    return rig, cached


@pytest.mark.parametrize("method", ANSWERS)
async def test_malformed_requests_that_only_pass_leave_nothing_in_the_cache(method: str) -> None:
    """Not even when the runtime understands them after all, and says which object it made."""
    rig, cached = await rig_with_one_pod()
    call = Call(V1 + method, None, time.monotonic())
    rig.interceptor.tapped(call, b"\x0a\xff")
    rig.interceptor.answered(call, 0, ANSWERS[method].SerializeToString())
    assert rig.interceptor.dump()() == cached


async def test_malformed_answers_leave_nothing_in_the_cache() -> None:
    rig, cached = await rig_with_one_pod()
    call = Call(V1 + "RunPodSandbox", None, time.monotonic())
    await rig.interceptor.request(call, cri.RunPodSandboxRequest(config=pod()).SerializeToString())
    rig.interceptor.answered(call, 0, b"\x0a\xff")
    assert rig.interceptor.dump()() == cached


async def test_what_the_runtime_refused_is_not_remembered() -> None:
    rig = Rig({"a.json": koordlet(pod=moving)})
    await rig.call(
        "RunPodSandbox",
        cri.RunPodSandboxRequest(config=pod()),
        cri.RunPodSandboxResponse(pod_sandbox_id="p1"),
        status=13,
    )
    await rig.create()
    assert rig.sent.sandbox_config == pod()


async def test_an_unknown_object_is_forwarded_also_under_fail() -> None:
    rig = Rig({"a.json": koordlet(best_effort)}, policy=FailurePolicy.FAIL)
    assert await rig.update("nobody", cpuset_cpus="1") is None
    assert await rig.call("StartContainer", cri.StartContainerRequest(container_id="nobody")) is None
    assert await rig.call("RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id="nobody")) is None
    assert await rig.update("", cpuset_cpus="1") is None
    assert hooks_asked(rig) == []


@pytest.mark.parametrize("policy", list(FailurePolicy))
async def test_a_runtime_that_cannot_say_what_an_object_is(policy: FailurePolicy) -> None:
    rig = Rig(
        {"a.json": koordlet(best_effort)},
        policy=policy,
        runtime=Runtime(failing=True),
    )
    with pytest.raises(Exception, match="not initialized"):  # the relay fails open or closed, as planned
        await rig.update("c9", cpuset_cpus="1")
    if policy is FailurePolicy.FAIL:
        with pytest.raises(Exception, match="not initialized"):
            await rig.create()
    else:
        await rig.create()
        assert rig.sent.config.linux.resources.cpu_shares == 1024
    rig.interceptor.close()
