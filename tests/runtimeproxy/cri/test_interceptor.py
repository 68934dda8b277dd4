"""Requests through the interceptor: what the runtime gets, what servers are told, and what is remembered."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from koord.pb.cri import api_pb2 as cri
from koord.pb.hooks import api_pb2 as hooks
from runtimeproxy.cri.exempt import SkipRules
from runtimeproxy.cri.record import RECORD
from runtimeproxy.hooks.hookfile import Policy
from runtimeproxy.intercept import PASS, Call, Plan, Treatment
from runtimeproxy.wire.protowire import MalformedMessage
from tests.runtimeproxy.cri.rig import PARENT, UID, V1, V1ALPHA2, Rig, Runtime, container, pod
from tests.runtimeproxy.hooks.doubles import Handler, failing, garbage, hanging, koordlet, saying

MOVED = f"{PARENT}/koord"
NO_STAGES: frozenset[str] = frozenset()


def best_effort(request: hooks.ContainerResourceHookRequest, said: hooks.ContainerResourceHookResponse) -> None:
    """koordlet's plugins for a batch pod: amounts of its own, and kubelet's CPU set dropped."""
    said.container_resources.cpu_shares = 1024
    said.container_resources.cpu_quota = 200_000
    said.container_resources.memory_limit_in_bytes = 1 << 30
    said.container_resources.cpuset_cpus = ""


def exclusive(request: hooks.ContainerResourceHookRequest, said: hooks.ContainerResourceHookResponse) -> None:
    """koordlet's plugins for an LSR pod."""
    said.container_resources.cpuset_cpus = "2-3"
    said.container_resources.cpu_quota = -1


def moving(request: hooks.PodSandboxHookRequest, said: hooks.PodSandboxHookResponse) -> None:
    said.cgroup_parent = MOVED
    said.annotations["rdt.resources.beta.kubernetes.io/pod"] = "BE"


def answer(**fields: Any) -> hooks.ContainerResourceHookResponse:
    return hooks.ContainerResourceHookResponse(container_resources=hooks.LinuxContainerResources(**fields))


def told(rig: Rig, call: str, file: str = "a.json") -> list[Any]:
    """What the server was told at that stage."""
    kind = hooks.PodSandboxHookRequest if "PodSandbox" in call else hooks.ContainerResourceHookRequest
    return [kind.FromString(message) for path, message in rig.server(file).asked if path.endswith(f"/{call}Hook")]


def hooks_asked(rig: Rig) -> list[str]:
    return [path for path, _ in rig.server().asked if path.endswith("Hook")]


async def eventually(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.002)


# plans


@pytest.mark.parametrize(
    ("method", "idle", "asked"),
    [
        ("Version", PASS, PASS),
        ("ListContainers", PASS, PASS),
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
    await eventually(lambda: rig.interceptor.plan(create).treatment is Treatment.TAP)
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


# what goes wrong


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
    rig = Rig({"a.json": handler}, policy=Policy.FAIL, hook_timeout_s=0.02)
    refused = await rig.run_pod()
    assert refused is not None
    assert refused.code == 14
    assert refused.message.startswith("hook server a.json: ")


@pytest.mark.parametrize(
    ("policy", "at_create", "refused"),
    [
        (Policy.IGNORE, Policy.FAIL, {"CreateContainer"}),
        (Policy.FAIL, Policy.IGNORE, {"RunPodSandbox"}),
    ],
)
async def test_a_stages_own_policy_decides(policy: Policy, at_create: Policy, refused: set[str]) -> None:
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
    rig = Rig({"a.json": koordlet(best_effort)}, policy=Policy.FAIL)
    assert await rig.update("nobody", cpuset_cpus="1") is None
    assert await rig.call("StartContainer", cri.StartContainerRequest(container_id="nobody")) is None
    assert await rig.call("RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id="nobody")) is None
    assert await rig.update("", cpuset_cpus="1") is None
    assert hooks_asked(rig) == []


@pytest.mark.parametrize("policy", list(Policy))
async def test_a_runtime_that_cannot_say_what_an_object_is(policy: Policy) -> None:
    rig = Rig(
        {"a.json": koordlet(best_effort)},
        policy=policy,
        runtime=Runtime(failing=True),
    )
    with pytest.raises(Exception, match="not initialized"):  # the relay fails open or closed, as planned
        await rig.update("c9", cpuset_cpus="1")
    if policy is Policy.FAIL:
        with pytest.raises(Exception, match="not initialized"):
            await rig.create()
    else:
        await rig.create()
        assert rig.sent.config.linux.resources.cpu_shares == 1024
    rig.interceptor.close()


# edits


async def test_an_echo_edits_nothing() -> None:
    rig = Rig({"a.json": koordlet()})
    request = cri.CreateContainerRequest(pod_sandbox_id="p1", config=container(), sandbox_config=pod())
    message = request.SerializeToString()
    decision = await rig.interceptor.request(Call(V1 + "CreateContainer", None, time.monotonic()), message)
    assert decision.message is message  # type: ignore[union-attr]
    assert rig.recorder.audit == []


@pytest.mark.parametrize("service", [V1, V1ALPHA2])
async def test_a_batch_container_gets_its_own_amounts(service: str) -> None:
    rig = Rig({"a.json": koordlet(best_effort)})
    await rig.create(container(cpuset_cpus="0-7"), service=service)
    got = rig.sent.config.linux.resources
    assert (got.cpu_shares, got.cpu_quota, got.memory_limit_in_bytes) == (1024, 200_000, 1 << 30)
    assert (got.cpuset_cpus, got.oom_score_adj, got.cpu_period) == ("", 1000, 100_000)
    assert rig.counted("edit", "CreateContainer", "cpuset_cpus") == 1
    assert ("container ns/pod/main", "cpu_shares", "2", "1024", "a.json") in rig.recorder.audit


async def test_presence_sets_zeros_and_deletes_entries() -> None:
    said = answer(cpu_quota=0, cpuset_cpus="", oom_score_adj=0)
    said.container_envs["ADDED"] = b"1"
    said.removed_container_envs.append("LANG")
    rig = Rig({"a.json": saying(said)})
    await rig.create(container(cpu_quota=50_000, cpuset_cpus="0-7"))
    got = rig.sent.config
    assert [(each.key, each.value) for each in got.envs] == [("PATH", b"/bin"), ("RAW", b"\xff\xfe"), ("ADDED", b"1")]
    assert (got.linux.resources.cpu_quota, got.linux.resources.cpuset_cpus) == (0, "")
    assert got.linux.resources.oom_score_adj == 0
    assert got.linux.resources.cpu_shares == 2


async def test_values_that_are_not_utf8_are_never_shown_and_never_lost() -> None:
    said = answer()
    said.container_envs["RAW"] = b"seen?"
    rig = Rig({"a.json": saying(said), "b.json": koordlet()})
    await rig.create()
    assert "RAW" not in told(rig, "PreCreateContainer")[0].container_envs
    assert [each.value for each in rig.sent.config.envs if each.key == "RAW"] == [b"\xff\xfe"]
    assert rig.counted("guard", "hidden_env") == 1


async def test_environment_values_and_foreign_annotations_are_not_audited() -> None:
    said = answer()
    said.container_envs["TOKEN"] = b"s3cret"
    said.container_annotations["example.com/key"] = "s3cret"
    said.container_annotations["node.koordinator.sh/x"] = "shown"
    rig = Rig({"a.json": saying(said)})
    await rig.create()
    lines = {line[1]: line for line in rig.recorder.audit}
    assert "s3cret" not in str(rig.recorder.audit)
    assert lines["annotations[node.koordinator.sh/x]"][3] == "shown"
    assert "envs[TOKEN]" in lines


async def test_what_hooks_are_told_of_a_container() -> None:
    rig = Rig({"a.json": koordlet()})
    await rig.run_pod()
    sandbox = pod()
    sandbox.annotations["new"] = "since the sandbox was made"
    sandbox.linux.resources.cpu_shares = 77
    await rig.create(sandbox=sandbox)
    asked = told(rig, "PreCreateContainer")[0]
    assert (asked.pod_meta.name, asked.pod_meta.uid, asked.pod_meta.namespace) == ("pod", UID, "ns")
    assert (asked.container_meta.name, asked.container_meta.id) == ("main", "")
    assert asked.pod_annotations["new"] == "since the sandbox was made"
    assert asked.pod_labels["app"] == "batch"
    assert asked.pod_cgroup_parent == PARENT
    assert asked.pod_resources.cpu_shares == 77
    assert asked.container_resources.oom_score_adj == 1000
    assert dict(asked.container_envs) == {"PATH": b"/bin", "LANG": b"C"}


# sandboxes


async def test_an_edited_sandbox_is_repeated_in_each_of_its_containers() -> None:
    rig = Rig({"a.json": koordlet(pod=moving)})
    await rig.run_pod()
    assert rig.sent.config.linux.cgroup_parent == MOVED
    await rig.create()
    got = rig.sent.sandbox_config
    assert got.linux.cgroup_parent == MOVED
    assert got.annotations["rdt.resources.beta.kubernetes.io/pod"] == "BE"
    assert told(rig, "PreCreateContainer")[0].pod_cgroup_parent == MOVED
    assert ("pod ns/pod", "cgroup_parent", PARENT, MOVED, "sandbox") in rig.recorder.audit


SLICES = "/kubepods.slice/kubepods-besteffort.slice"
SLICE, OTHER = "kubepods-besteffort-podx.slice", "kubepods-besteffort-pody.slice"


@pytest.mark.parametrize(
    ("runtimes", "kubelets", "sent"),
    [
        (f"{SLICES}/{SLICE}", f"{SLICES}/{SLICE}", None),
        (SLICE, f"{SLICES}/{SLICE}", None),
        (OTHER, f"{SLICES}/{SLICE}", OTHER),
        (MOVED, PARENT, MOVED),
    ],
    ids=["the same", "its short form", "another slice", "another path"],
)
async def test_a_parent_that_a_predecessor_edited_is_repeated(runtimes: str, kubelets: str, sent: str | None) -> None:
    rig = Rig({"a.json": koordlet()}, runtime=Runtime(pods={"p1": pod(runtimes)}))
    await rig.create(sandbox=pod(kubelets))
    assert rig.sent.sandbox_config.linux.cgroup_parent == (sent or kubelets)
    assert ([line[1] for line in rig.recorder.audit] == ["cgroup_parent"]) == (sent is not None)


async def test_a_parent_outside_the_pods_tree_is_refused() -> None:
    def away(request: hooks.PodSandboxHookRequest, said: hooks.PodSandboxHookResponse) -> None:
        said.cgroup_parent = "/elsewhere"
        said.labels["io.kubernetes.pod.uid"] = "another"

    rig = Rig({"a.json": koordlet(pod=away)})
    await rig.run_pod()
    assert rig.sent.config == pod()
    assert (rig.counted("guard", "cgroup_parent"), rig.counted("guard", "key")) == (1, 1)
    allowed = Rig({"a.json": koordlet(pod=away)}, foreign_parents=True)
    await allowed.run_pod()
    assert allowed.sent.config.linux.cgroup_parent == "/elsewhere"


async def test_pod_resources_are_edited_at_run_and_at_update() -> None:
    said = hooks.PodSandboxHookResponse(resources=hooks.LinuxContainerResources(cpu_shares=5, cpu_quota=0))
    rig = Rig({"a.json": saying(said)})
    await rig.run_pod()
    assert rig.sent.config.linux.resources.cpu_shares == 5
    request = cri.UpdatePodSandboxResourcesRequest(
        pod_sandbox_id="p1", resources=cri.LinuxContainerResources(cpu_quota=7, cpu_shares=9)
    )
    await rig.call("UpdatePodSandboxResources", request)
    assert rig.sent.resources == cri.LinuxContainerResources(cpu_quota=7, cpu_shares=5)
    assert told(rig, "PreUpdatePodSandboxResources")[0].resources.cpu_shares == 9


async def test_hooks_may_refuse_starts_and_removals_only() -> None:
    rig = Rig({"a.json": koordlet(best_effort, moving)})
    await rig.run_pod()
    await rig.create()
    await rig.call("StartContainer", cri.StartContainerRequest(container_id="c1"))
    assert rig.sent == cri.StartContainerRequest(container_id="c1")
    rig.server().handler = failing()
    await rig.call("StartContainer", cri.StartContainerRequest(container_id="c1"))
    failing_closed = Rig({"a.json": failing()}, policy=Policy.FAIL, runtime=rig.runtime)
    assert await failing_closed.call("StartContainer", cri.StartContainerRequest(container_id="c1"))
    assert await failing_closed.call("RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id="p1"))


# updates


async def test_an_update_of_the_cpu_set_stays_one() -> None:
    rig = Rig({"a.json": koordlet(exclusive)})
    await rig.run_pod()
    await rig.create()
    await rig.update(cpuset_cpus="0-7")
    assert rig.sent.linux == cri.LinuxContainerResources(cpuset_cpus="2-3")
    asked = told(rig, "PreUpdateContainerResources")[0]
    assert asked.container_meta.id == "c1"
    assert (asked.container_resources.cpu_quota, asked.container_resources.cpuset_cpus) == (-1, "0-7")
    assert (asked.container_resources.cpu_shares, asked.container_envs["PATH"]) == (2, b"/bin")


async def test_an_update_never_brings_back_what_kubelet_asked_for_at_first() -> None:
    rig = Rig({"a.json": koordlet(best_effort)})
    await rig.create(container(cpuset_cpus="0-7"))
    rig.server().handler = koordlet()
    await rig.update(cpuset_mems="0")
    assert rig.sent.linux == cri.LinuxContainerResources(cpuset_mems="0")
    asked = told(rig, "PreUpdateContainerResources")[0].container_resources
    assert (asked.cpu_shares, asked.cpu_quota, asked.cpuset_cpus) == (1024, 200_000, "")


async def test_a_cpu_set_that_the_server_drops_is_withdrawn_from_the_update() -> None:
    rig = Rig({"a.json": koordlet(best_effort)})
    await rig.create()
    await rig.update(cpuset_cpus="0-7")
    assert rig.sent.linux.cpuset_cpus == ""
    assert told(rig, "PreUpdateContainerResources")[0].container_resources.cpu_shares == 1024
    assert not rig.sent.linux.HasField("cpu_shares")
    await rig.update(cpu_shares=1024)
    assert told(rig, "PreUpdateContainerResources")[1].container_resources.cpuset_cpus == ""


async def test_a_resize_gets_the_hooks_values_again() -> None:
    rig = Rig({"a.json": koordlet(exclusive)})
    await rig.create()
    await rig.update(cpu_quota=300_000, cpu_shares=3072, memory_limit_in_bytes=1 << 31)
    assert rig.sent.linux == cri.LinuxContainerResources(cpu_quota=-1, cpu_shares=3072, memory_limit_in_bytes=1 << 31)


async def test_zero_means_leave_alone_in_an_update() -> None:
    rig = Rig({"a.json": saying(answer(cpu_quota=0, memory_limit_in_bytes=0, cpuset_mems=""))})
    await rig.create(container(cpu_quota=5, memory_limit_in_bytes=6, cpuset_mems="0"))
    await rig.update(cpu_quota=9000, cpuset_cpus="1")
    assert rig.sent.linux == cri.LinuxContainerResources(cpu_quota=9000, cpuset_cpus="1")


async def test_what_the_runtime_did_not_accept_was_not_asserted() -> None:
    rig = Rig({"a.json": koordlet()})
    await rig.create()
    request = cri.UpdateContainerResourcesRequest(container_id="c1", linux=cri.LinuxContainerResources(cpu_shares=999))
    await rig.call("UpdateContainerResources", request, status=13)
    await rig.update(cpuset_cpus="1")
    assert told(rig, "PreUpdateContainerResources")[1].container_resources.cpu_shares == 2


async def test_updates_without_a_server_are_remembered() -> None:
    rig = Rig({})
    await rig.create()
    await rig.update(cpu_shares=999)
    rig.callers["/run/a.json"] = rig.callers["/run/containerd.sock"].__class__(koordlet())
    rig.interceptor.use(Rig({"a.json": koordlet()}).loaded)
    await rig.update(cpuset_cpus="1")
    assert told(rig, "PreUpdateContainerResources")[0].container_resources.cpu_shares == 999
    rig.interceptor.close()


# post hooks


@pytest.mark.parametrize(
    ("method", "request_", "hook"),
    [
        ("StartContainer", cri.StartContainerRequest(container_id="c1"), "PostStartContainer"),
        ("StopContainer", cri.StopContainerRequest(container_id="c1"), "PostStopContainer"),
        ("RemoveContainer", cri.RemoveContainerRequest(container_id="c1"), "PostRemoveContainer"),
        ("StopPodSandbox", cri.StopPodSandboxRequest(pod_sandbox_id="p1"), "PostStopPodSandbox"),
    ],
)
async def test_post_hooks_hear_of_successes_only(method: str, request_: Any, hook: str) -> None:
    rig = Rig({"a.json": koordlet()})
    await rig.run_pod()
    await rig.create()
    await rig.call(method, request_, status=5)
    await asyncio.sleep(0.01)
    assert told(rig, hook) == []
    await rig.call(method, request_)
    await eventually(lambda: told(rig, hook))
    assert told(rig, hook)[0].pod_meta.name == "pod"
    rig.interceptor.close()


async def test_a_hanging_post_hook_delays_nothing() -> None:
    rig = Rig({"a.json": hanging}, stages=frozenset({"PostStopContainer"}), hook_timeout_s=10.0)
    begun = time.monotonic()
    for _ in range(300):
        await rig.call("StopContainer", cri.StopContainerRequest(container_id="c1"))
    assert time.monotonic() - begun < 1.0
    rig.interceptor.close()


async def test_a_slow_server_hears_of_what_is_gone_by_then() -> None:
    may_go = asyncio.Event()

    async def slow(path: str, message: bytes) -> tuple[bytes, dict[str, str]]:
        await may_go.wait()
        return b"", {}

    rig = Rig({"a.json": slow}, stages=frozenset({"PostStopContainer", "PostStopPodSandbox"}), hook_timeout_s=10.0)
    await rig.run_pod()
    for name in ("c1", "c2"):
        await rig.create(container_id=name)
    for name in ("c1", "c2"):
        await rig.call("StopContainer", cri.StopContainerRequest(container_id=name))
        await rig.call("RemoveContainer", cri.RemoveContainerRequest(container_id=name))
    await rig.call("StopPodSandbox", cri.StopPodSandboxRequest(pod_sandbox_id="p1"))
    await rig.call("RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id="p1"))
    rig.runtime.pods.clear()
    rig.runtime.containers.clear()
    may_go.set()
    await eventually(lambda: told(rig, "PostStopPodSandbox"))
    assert [(each.container_meta.id, each.pod_meta.name) for each in told(rig, "PostStopContainer")] == [
        ("c1", "pod"),
        ("c2", "pod"),
    ]
    rig.interceptor.close()


# what passed unseen


async def test_what_is_remembered_is_read_again_after_a_bypass() -> None:
    """kubelet set a quota meanwhile: a hook that is shown its own old answer instead would seem to change nothing."""
    rig = Rig({"a.json": koordlet(exclusive)})
    await rig.run_pod()
    await rig.create(container(cpu_quota=50_000))
    rig.runtime.specs["c1"] = {"linux": {"resources": {"cpu": {"quota": 200_000, "period": 100_000}}}}
    rig.interceptor.forget()
    await rig.update(cpuset_cpus="0-7")
    assert told(rig, "PreUpdateContainerResources")[-1].container_resources.cpu_quota == 200_000
    assert rig.sent.linux.cpu_quota == -1
    rig.interceptor.close()


# exemptions


@pytest.mark.parametrize("where", ["labels", "annotations"])
@pytest.mark.parametrize(("policy", "privileged"), [(Policy.FAIL, ("ns",)), (Policy.FAIL, ("*",)), (Policy.IGNORE, ())])
async def test_marked_pods_are_left_alone(where: str, policy: Policy, privileged: tuple[str, ...]) -> None:
    marked = pod()
    getattr(marked, where)["runtimeproxy.koordinator.sh/skip-hookserver"] = "true"
    rig = Rig({"a.json": failing()}, policy=policy, skip=SkipRules(privileged_namespaces=privileged))
    assert await rig.run_pod(marked) is None
    assert await rig.create(sandbox=marked) is None
    assert await rig.update(cpuset_cpus="1") is None
    assert await rig.call("StartContainer", cri.StartContainerRequest(container_id="c1")) is None
    assert hooks_asked(rig) == []
    assert rig.counted("exempt", "mark") > 2


async def test_a_pod_cannot_withdraw_itself_from_a_server_that_must_be_heard() -> None:
    """Elsewhere than in the operator's namespaces: the calls are refused as any other's."""
    marked = pod()
    marked.labels["runtimeproxy.koordinator.sh/skip-hookserver"] = "true"
    rig = Rig({"a.json": failing()}, policy=Policy.FAIL)
    assert await rig.run_pod(marked) is not None
    assert await rig.create(sandbox=marked) is not None
    assert rig.counted("exempt", "mark") == 0


async def test_static_pods_are_left_alone_if_the_operator_says_so() -> None:
    static = pod()
    static.annotations["kubernetes.io/config.source"] = "file"
    for rules, refused in ((SkipRules(), True), (SkipRules(static_pods=True), False)):
        rig = Rig({"a.json": failing()}, policy=Policy.FAIL, skip=rules)
        assert (await rig.run_pod(static) is not None) == refused
        assert rig.counted("exempt", "static_pod") == (not refused)


async def test_namespaces_are_left_alone() -> None:
    rig = Rig({"a.json": failing()}, policy=Policy.FAIL, skip=SkipRules(namespaces=("kube-system", "ns")))
    assert await rig.run_pod() is None
    assert rig.counted("exempt", "namespace") == 1


async def served_from_a_pod(proc: Path, peer_pid: int | None) -> Rig:
    """A proxy that has greeted its hook server, which runs in a pod as process 77."""
    own_uid = "aaaaaaaa-1111-2222-3333-444455556666"
    (proc / "77").mkdir()
    (proc / "77" / "cgroup").write_text(
        f"4:cpu:/kubepods.slice/kubepods-pod{own_uid.replace('-', '_')}.slice/cri-containerd-x.scope\n"
    )
    own = pod(labels={"k8s-app": "koordlet", "controller-revision-hash": "1"})
    own.metadata.uid = own_uid
    rig = Rig({"a.json": koordlet()}, policy=Policy.FAIL, proc=str(proc))
    rig.server().peer_pid = peer_pid
    rig.runtime.pods["p0"] = own
    await rig.interceptor.warm_up()
    await eventually(lambda: rig.server().asked)  # greeted
    await asyncio.sleep(0.01)
    return rig


async def comes_back(rig: Rig) -> bool:
    """The server is gone; is its pod's next generation let through, and no other?"""
    rig.server().peer_pid = None
    rig.server().handler = failing()
    reborn = pod(labels={"k8s-app": "koordlet", "controller-revision-hash": "2"})
    reborn.metadata.uid = "bbbbbbbb-1111-2222-3333-444455556666"
    let_through = await rig.run_pod(reborn, "p2") is None
    assert await rig.run_pod(pod(), "p3") is not None
    assert rig.counted("exempt", "own_pod") == let_through
    return let_through


async def test_a_servers_own_pod_can_come_back_without_it(tmp_path: Path) -> None:
    rig = await served_from_a_pod(tmp_path, 77)
    assert await comes_back(rig)
    rig.interceptor.close()


@pytest.mark.parametrize("status", [0, 13])
async def test_a_server_that_came_later_is_known_once_a_call_was_answered(tmp_path: Path, status: int) -> None:
    rig = await served_from_a_pod(tmp_path, None)
    rig.server().peer_pid = 77
    await rig.call("RunPodSandbox", cri.RunPodSandboxRequest(config=pod()), status=status)
    assert await comes_back(rig)
    rig.interceptor.close()


# after a restart


async def restarted(rig: Rig, handler: Handler, **options: Any) -> Rig:
    return Rig({"a.json": handler}, runtime=rig.runtime, **options)


async def test_after_a_restart_a_sandboxs_edits_are_read_from_the_runtime() -> None:
    before = Rig({"a.json": koordlet(pod=moving)})
    await before.run_pod()
    rig = await restarted(before, koordlet(), stages=NO_STAGES)
    sandbox = pod()
    sandbox.annotations["note"] = "changed since"
    await rig.create(sandbox=sandbox)
    got = rig.sent.sandbox_config
    assert got.linux.cgroup_parent == MOVED
    assert got.annotations["rdt.resources.beta.kubernetes.io/pod"] == "BE"
    assert got.annotations["note"] == "changed since"
    await rig.create(container_id="c2")
    assert rig.sent.sandbox_config.linux.cgroup_parent == MOVED
    assert rig.runtime.calls.count("PodSandboxStatus") == 1
    rig.interceptor.close()


def noting(request: hooks.PodSandboxHookRequest, said: hooks.PodSandboxHookResponse) -> None:
    said.annotations["by-hook"] = "new"


@pytest.mark.parametrize("rule", [moving, noting, lambda request, said: None])
async def test_after_a_restart_an_annotation_that_the_user_removed_stays_removed(rule: Any) -> None:
    before = Rig({"a.json": koordlet(pod=rule)})
    sandbox = pod()
    sandbox.annotations.update({"removed": "x", "by-user": "1"})
    await before.run_pod(sandbox)
    rig = await restarted(before, koordlet())
    now = pod()
    now.annotations["by-user"] = "2"
    for container_id in ("c1", "c2"):
        await rig.create(sandbox=now, container_id=container_id)
        assert "removed" not in rig.sent.sandbox_config.annotations
        assert RECORD not in rig.sent.sandbox_config.annotations
    assert all(RECORD not in each.pod_annotations for each in told(rig, "PreCreateContainer"))
    rig.interceptor.close()


async def test_after_a_restart_annotations_are_as_they_would_be_without_it() -> None:
    """Set, replaced and deleted ones."""
    handler = saying(
        hooks.PodSandboxHookResponse(annotations={"set": "1", "changed": "hook"}, removed_annotations=["gone"])
    )
    before = Rig({"a.json": handler})
    sandbox = pod()
    sandbox.annotations.update({"changed": "user", "gone": "x"})
    await before.run_pod(sandbox)
    after = await restarted(before, koordlet())
    for rig in (before, after):
        await rig.create(sandbox=sandbox)
    assert after.sent.sandbox_config == before.sent.sandbox_config
    assert dict(after.sent.sandbox_config.annotations)["changed"] == "hook"
    assert "gone" not in after.sent.sandbox_config.annotations
    after.interceptor.close()


async def test_after_a_restart_a_containers_resources_are_read_from_the_runtimes_spec() -> None:
    before = Rig({"a.json": koordlet()})
    await before.run_pod()
    await before.create()
    before.runtime.specs["c1"] = {
        "process": {"env": ["PATH=/bin", "HOSTNAME=x", "RAW=\ufffd\ufffd"], "oomScoreAdj": 1000},
        "linux": {"resources": {"cpu": {"shares": 1024, "quota": -1, "cpus": "2-3"}, "memory": {"limit": 5}}},
    }
    rig = await restarted(before, koordlet(exclusive))
    await rig.update(cpuset_cpus="0-7")
    asked = told(rig, "PreUpdateContainerResources")[0]
    assert dict(asked.container_envs) == {"PATH": b"/bin"}
    assert asked.pod_labels["app"] == "batch"
    assert (asked.container_resources.cpu_shares, asked.container_resources.cpu_quota) == (1024, -1)
    assert rig.sent.linux == cri.LinuxContainerResources(cpuset_cpus="2-3")
    rig.interceptor.close()


# how a call ended


STOPPED = cri.StopPodSandboxRequest(pod_sandbox_id="p1")


@pytest.mark.parametrize(("failed_calls", "outcomes"), [(False, ["0"]), (True, ["5", "0"])])
@pytest.mark.parametrize(
    ("method", "request_", "stage"),
    [
        ("StartContainer", cri.StartContainerRequest(container_id="c1"), "PostStartContainer"),
        ("StopContainer", cri.StopContainerRequest(container_id="c1"), "PostStopContainer"),
        ("StopPodSandbox", STOPPED, "PostStopPodSandbox"),
        ("RemoveContainer", cri.RemoveContainerRequest(container_id="c1"), "PostRemoveContainer"),
    ],
)
async def test_after_hooks_learn_the_outcome_and_of_failures_if_they_want(
    method: str, request_: Any, stage: str, failed_calls: bool, outcomes: list[str]
) -> None:
    rig = Rig({"a.json": koordlet()})
    rig.interceptor.use(tuple(replace(each, spec=replace(each.spec, failed_calls=failed_calls)) for each in rig.loaded))
    await rig.run_pod()
    await rig.create()
    for status in (5, 0):
        await rig.call(method, request_, status=status)
    await rig.interceptor.finish(5.0)
    questions = zip(rig.server().asked, rig.server().metadata, strict=True)
    assert [dict(metadata)["koord-outcome"] for (path, _), metadata in questions if stage in path] == outcomes


async def test_at_the_end_after_hooks_are_heard_within_a_bound_or_counted_as_dropped() -> None:
    for handler, dropped in ((koordlet(), 0), (hanging, 3)):
        rig = Rig({"a.json": koordlet()}, hook_timeout_s=10.0)
        await rig.run_pod()
        rig.server().handler = handler
        for _ in range(3):
            await rig.call("StopPodSandbox", STOPPED)
        await rig.interceptor.finish(0.05 if dropped else 5.0)
        assert rig.counted("dropped", "a.json") == dropped
        assert len(told(rig, "PostStopPodSandbox")) == (1 if dropped else 3)
        assert rig.server().closed


async def test_after_hooks_of_a_server_whose_file_changed_are_heard_by_the_end() -> None:
    rig = Rig({"a.json": koordlet()})
    await rig.run_pod()
    await rig.call("StopPodSandbox", STOPPED)
    rig.interceptor.use(())
    await rig.interceptor.finish(5.0)
    assert len(told(rig, "PostStopPodSandbox")) == 1
    assert rig.counted("dropped", "a.json") == 0


# servers that come and go


async def test_an_unchanged_file_keeps_its_server_and_a_changed_one_gets_a_new_one() -> None:
    rig = Rig({"a.json": koordlet(), "b.json": koordlet()})
    first, second = rig.interceptor.servers
    changed = rig.loaded[1].__class__(rig.loaded[1].spec, (2, 2, 2))
    rig.interceptor.use((rig.loaded[0], changed))
    assert rig.interceptor.servers[0] is first
    assert rig.interceptor.servers[1] is not second
    assert not rig.server("b.json").closed
    rig.interceptor.close()
    assert rig.server("b.json").closed


async def test_settings_change_for_servers_that_have_none_of_their_own() -> None:
    rig = Rig({"a.json": hanging}, hook_timeout_s=10.0)
    options = Rig({}, hook_timeout_s=0.02, skip=SkipRules(namespaces=("other",))).interceptor
    rig.interceptor.configure(options._world.options)
    begun = time.monotonic()
    await rig.run_pod()
    assert time.monotonic() - begun < 1.0


async def test_the_dump_is_json_without_secrets() -> None:
    rig = Rig({"a.json": koordlet(best_effort, moving)})
    assert list(rig.interceptor.dump()()) == ["servers"]
    secret = container()
    secret.envs.add(key="TOKEN", value=b"s3cret")
    secret.annotations["example.com/key"] = "s3cret"
    await rig.run_pod()
    await rig.create(secret)
    text = json.dumps(rig.interceptor.dump()())
    assert "s3cret" not in text
    assert "envs[TOKEN]" in text
    assert '"cpu_shares": "1024"' in text
    assert MOVED in text
    rig.interceptor.close()
