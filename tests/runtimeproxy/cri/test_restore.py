"""Pods out of a checkpoint: RestorePod is heard of as a sandbox that is run and containers that are created in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from koord.pb.cri import api_pb2 as cri
from koord.pb.hooks import api_pb2 as hooks
from runtimeproxy.cri.record import RECORD
from runtimeproxy.cri.requested import RECORD as REQUESTED
from runtimeproxy.hooks import patch
from runtimeproxy.hooks.hookfile import FailurePolicy
from runtimeproxy.hooks.largemessages import LARGE_BYTES
from runtimeproxy.hooks.stages import STAGES
from runtimeproxy.intercept import Call, Forward, Treatment
from runtimeproxy.wire.protowire import bytes_field
from tests.runtimeproxy.cri.rig import PARENT, V1, Rig, container, pod
from tests.runtimeproxy.faultrig import DEADLINE_S, PASSED, running
from tests.runtimeproxy.hooks.doubles import failing, koordlet
from tests.support.waiting import HANG_S, until

MOVED = f"{PARENT}/koord"
NAMES = ("main", "side")
UNKNOWN = bytes_field(4000, b"\xffunknown")


def named(name: str) -> cri.ContainerConfig:
    config = container()
    config.metadata.name = name
    config.MergeFromString(UNKNOWN)
    return config


def request(names: Sequence[str] = NAMES) -> cri.RestorePodRequest:
    """As kubelet asks for a pod with these containers."""
    made = cri.RestorePodRequest(
        checkpoint_path="/var/lib/kubelet/pod-checkpoints/x",
        config=pod(),
        runtime_handler="runc",
        options={"o": "1"},
        container_configs=[named(name) for name in names],
    )
    made.MergeFromString(UNKNOWN)
    return made


def answer(names: Sequence[str] = NAMES) -> cri.RestorePodResponse:
    """In another order than that of the request: the names tell whose the ids are."""
    restored = [cri.RestoredContainer(name=name, container_id=f"id-{name}") for name in reversed(names)]
    return cri.RestorePodResponse(pod_sandbox_id="p1", restored_containers=restored)


def moving(request: hooks.PodSandboxHookRequest, said: hooks.PodSandboxHookResponse) -> None:
    said.cgroup_parent = MOVED
    said.annotations["class"] = "BE"
    said.labels["mark"] = "1"
    said.resources.cpu_shares = 7


def by_name(request: hooks.ContainerResourceHookRequest, said: hooks.ContainerResourceHookResponse) -> None:
    """Another value for each container; and what is not for editing."""
    said.container_resources.cpu_shares = 100 + len(request.container_meta.name)
    said.container_annotations["of"] = request.container_meta.name
    said.container_envs["NEW"] = b"1"
    said.pod_cgroup_parent = "/elsewhere"


def told(rig: Rig, stage: str) -> list[Any]:
    kind = hooks.PodSandboxHookRequest if "PodSandbox" in stage else hooks.ContainerResourceHookRequest
    return [kind.FromString(message) for path, message in rig.server().asked if path.endswith(f"/{stage}Hook")]


async def restored(rig: Rig) -> Rig:
    assert await rig.call("RestorePod", request(), answer()) is None
    return rig


async def test_servers_are_asked_as_for_a_pod_and_each_of_its_containers() -> None:
    rig = await restored(Rig({"a.json": koordlet(by_name, moving)}))
    [of_pod], of_containers = told(rig, "PreRunPodSandbox"), told(rig, "PreCreateContainer")
    assert (of_pod.pod_meta.name, of_pod.runtime_handler, of_pod.cgroup_parent) == ("pod", "runc", PARENT)
    assert [each.container_meta.name for each in of_containers] == list(NAMES)
    for each in of_containers:
        assert each.container_resources.cpu_shares == container().linux.resources.cpu_shares
        assert (each.pod_cgroup_parent, each.pod_annotations["class"]) == (MOVED, "BE")  # as it is about to be


async def test_what_they_say_is_edited_and_nothing_else() -> None:
    rig = await restored(Rig({"a.json": koordlet(by_name, moving)}))
    wanted = request()
    wanted.config.linux.cgroup_parent = MOVED
    wanted.config.annotations.update({"class": "BE", RECORD: '["class"]'})
    wanted.config.labels["mark"] = "1"
    wanted.config.linux.resources.cpu_shares = 7
    for config in wanted.container_configs:
        config.annotations["of"] = config.metadata.name
        config.linux.resources.cpu_shares = shares = 100 + len(config.metadata.name)
        config.annotations[REQUESTED] = f"cpu_shares:{shares}=2"
    assert rig.sent == wanted
    audited = {(subject, field): after for subject, field, _, after, _ in rig.recorder.audit}
    assert audited["pod ns/pod", "cgroup_parent"] == MOVED
    assert audited["container ns/pod/side", "cpu_shares"] == "104"
    assert rig.counted("edit", "RestorePod", "cpu_shares") == 1 + len(NAMES)


@pytest.mark.parametrize("stages", [{"PreRunPodSandbox"}, {"PreCreateContainer"}])
async def test_a_server_of_one_hook_alone_is_asked(stages: set[str]) -> None:
    rig = await restored(Rig({"a.json": koordlet(by_name, moving)}, stages=frozenset(stages)))
    asked = {stage for stage in STAGES if told(rig, stage)}
    assert asked == stages
    assert (rig.sent.config == pod()) == ("PreRunPodSandbox" not in stages)
    assert (rig.sent.container_configs[0] == named("main")) == ("PreCreateContainer" not in stages)


@pytest.mark.parametrize(
    ("stages", "treatment"),
    [(frozenset({"PreRunPodSandbox"}), Treatment.TAP), (STAGES, Treatment.HOLD)],
    ids=["tapped", "held"],
)
async def test_who_only_wants_to_know_of_sandboxes_is_told(stages: frozenset[str], treatment: Treatment) -> None:
    rig = Rig({"a.json": koordlet(by_name, moving)}, stages=stages)
    [loaded] = rig.loaded
    rig.interceptor.use((replace(loaded, spec=replace(loaded.spec, advice=frozenset({"PreRunPodSandbox"}))),))
    assert rig.interceptor.plan(V1 + "RestorePod").treatment is treatment
    await restored(rig)
    assert rig.sent.config == pod()
    async with asyncio.timeout(HANG_S):
        await until(lambda: len(told(rig, "PreRunPodSandbox")) == 1)
    rig.interceptor.close()


@pytest.mark.parametrize("edited", [True, False], ids=["held", "tapped"])
async def test_a_restored_pod_is_known(edited: bool) -> None:
    """The hooks of what follows are asked from the cache; the runtime is not."""
    rig = Rig({"a.json": koordlet(by_name, moving)})
    if not edited:
        rig.interceptor.use(())
    await restored(rig)
    rig.interceptor.use(rig.loaded)
    rig.runtime.calls.clear()
    for name in NAMES:
        await rig.call("StartContainer", cri.StartContainerRequest(container_id=f"id-{name}"))
        await rig.update(f"id-{name}", cpuset_cpus="1")
    await rig.call("RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id="p1"))
    started, updated = told(rig, "PreStartContainer"), told(rig, "PreUpdateContainerResources")
    assert [each.container_meta.name for each in started] == list(NAMES)
    assert [each.container_meta.id for each in updated] == ["id-main", "id-side"]
    shares = [104, 104] if edited else [2, 2]
    assert [each.container_resources.cpu_shares for each in updated] == shares
    assert {each.pod_cgroup_parent for each in started} == {MOVED if edited else PARENT}
    assert len(told(rig, "PreRemoveRunPodSandbox")) == 1
    assert rig.runtime.calls == []


async def test_the_edits_of_a_restored_sandbox_are_repeated_when_a_container_is_created_anew() -> None:
    rig = await restored(Rig({"a.json": koordlet(pod=moving)}))
    await rig.create()
    assert rig.sent.sandbox_config.linux.cgroup_parent == MOVED
    assert rig.sent.sandbox_config.annotations["class"] == "BE"


async def test_a_refused_restore_leaves_no_trace() -> None:
    rig = Rig({"a.json": koordlet(by_name, moving)})
    await rig.call("RestorePod", request(), answer(), status=2)
    assert rig.interceptor.dump()()["pods"] == {}


@pytest.mark.parametrize("stage", ["PreRunPodSandbox", "PreCreateContainer"])
async def test_under_fail_either_hook_refuses(stage: str) -> None:
    rig = Rig({"a.json": failing(13)}, stages=frozenset({stage}), policy=FailurePolicy.FAIL)
    assert rig.interceptor.plan(V1 + "RestorePod").fail_closed
    refused = await rig.call("RestorePod", request(), answer())
    assert refused is not None
    assert "a.json" in refused.message
    assert rig.interceptor.dump()()["pods"] == {}


async def test_under_ignore_a_failing_server_changes_nothing() -> None:
    rig = await restored(Rig({"a.json": failing(13)}))
    assert rig.sent == request()


async def test_an_exempt_pod_is_restored_as_it_is() -> None:
    rig = Rig({"a.json": koordlet(by_name, moving)})
    exempt = request()
    exempt.config.labels["runtimeproxy.koordinator.sh/skip-hookserver"] = "true"
    await rig.call("RestorePod", exempt, answer())
    assert rig.sent == exempt
    assert [path for path, _ in rig.server().asked if path.endswith("Hook")] == []


@pytest.mark.parametrize(
    "said",
    [
        cri.RestorePodResponse(),
        cri.RestorePodResponse(pod_sandbox_id="p1"),
        cri.RestorePodResponse(pod_sandbox_id="p1", restored_containers=[cri.RestoredContainer(name="main")]),
        cri.RestorePodResponse(
            pod_sandbox_id="p1", restored_containers=[cri.RestoredContainer(name="foreign", container_id="x")]
        ),
    ],
    ids=["nothing", "no containers", "no id", "another name"],
)
async def test_containers_that_the_answer_does_not_tell_are_read_from_the_runtime(said: cri.RestorePodResponse) -> None:
    rig = Rig({"a.json": koordlet()})
    await rig.call("RestorePod", request(), said)
    rig.runtime.pods["p1"], rig.runtime.containers["id-main"] = pod(), ("p1", named("main"))
    await rig.call("StartContainer", cri.StartContainerRequest(container_id="id-main"))
    assert "ContainerStatus" in rig.runtime.calls
    assert [each.container_meta.name for each in told(rig, "PreStartContainer")] == ["main"]


@pytest.mark.parametrize("edited", [True, False], ids=["held", "tapped"])
async def test_a_large_one_is_edited_and_its_pod_found_again(edited: bool) -> None:
    rig = Rig({"a.json": koordlet(by_name, moving)})
    if not edited:
        rig.interceptor.use(())
    large = request()
    large.container_configs[1].args.append("x" * LARGE_BYTES)
    await rig.call("RestorePod", large, answer())
    assert rig.sent.container_configs[1].args == large.container_configs[1].args
    assert rig.sent.container_configs[1].linux.resources.cpu_shares == (104 if edited else 2)
    rig.runtime.pods["p1"], rig.runtime.containers["id-side"] = rig.sent.config, ("p1", named("side"))
    rig.interceptor.use(rig.loaded)
    await rig.call("StartContainer", cri.StartContainerRequest(container_id="id-side"))
    assert [each.container_meta.name for each in told(rig, "PreStartContainer")] == ["side"]


async def test_an_unedited_request_is_the_very_object() -> None:
    message = request().SerializeToString()
    interceptor = Rig({"a.json": koordlet()}).interceptor
    decision = await interceptor.request(Call(V1 + "RestorePod", 10.0, time.monotonic()), message)
    assert isinstance(decision, Forward)
    assert decision.message is message


async def test_edits_of_all_containers_together_count_against_the_limit() -> None:
    def wordy(request: hooks.ContainerResourceHookRequest, said: hooks.ContainerResourceHookResponse) -> None:
        said.container_annotations["long"] = "x" * (patch.MAX_MESSAGE_BYTES // 2)

    rig = Rig({"a.json": koordlet(wordy)}, hook_timeout_s=30.0)
    with pytest.raises(patch.EditTooLarge):
        await rig.call("RestorePod", request(), answer())


@pytest.mark.parametrize("method", PASSED)
async def test_checkpoints_pass_byte_for_byte(method: str, tmp_path: Path) -> None:
    message = bytes_field(1, b"p") + bytes_field(2, b"/var/lib/kubelet/checkpoints/x.tar") + UNKNOWN
    async with running(tmp_path, FailurePolicy.FAIL) as node:
        await node.client.call(V1 + method, message, DEADLINE_S)
        assert node.received == [(V1 + method, message)]


async def test_a_container_out_of_a_checkpoint_image_is_created_as_any_other() -> None:
    """Runtimes take the checkpoint for its image."""
    rig = Rig({"a.json": koordlet(by_name)})
    await rig.run_pod()
    config = named("main")
    config.image.image = "/var/lib/kubelet/checkpoints/checkpoint-web.tar"
    await rig.create(config)
    config.annotations.update({"of": "main", REQUESTED: "cpu_shares:104=2"})
    config.linux.resources.cpu_shares = 104
    config.envs.add(key="NEW", value=b"1")
    assert rig.sent.config == config
