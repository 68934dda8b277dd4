"""RuntimeHookService over a real socket, as both kinds of proxy call it."""

from __future__ import annotations

import asyncio
import json
import logging
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from koord.http2.server import ServerReply
from koord.model.locations import HOOK_SERVER_FILE_NAME
from koord.pb.hooks import api_pb2 as hooks
from qosd.hooks.normalization import ANNOTATION
from qosd.hookserver import registration
from qosd.hookserver.server import (
    CONTAINER_STAGES,
    PROXY_METADATA,
    REGISTERED,
    SANDBOX_STAGES,
    SERVICE,
    HookServer,
    listening,
)
from qosd.metrics import Metrics
from qosd.model.besteffort import NO_LIMITS
from qosd.model.policy import EffectivePolicy
from tests.qosd.contexts import EXTENDED, QOS, STATUS, V2, extended, policy

OURS = (("koord-runtime-proxy", "0.1.0"), ("koord-restores-status", "1"))
OLDER = (("koord-runtime-proxy", "0.1.0"),)
"""Of a proxy that tells kubelet what the runtime was told."""
BE_POD: dict[str, Any] = {
    "pod_meta": {"namespace": "default", "name": "job"},
    "container_meta": {"name": "main"},
    "pod_labels": {QOS: "BE"},
    "pod_annotations": {EXTENDED: json.dumps(extended(request="1500", limit="2000", memory="4Gi"))},
    "pod_cgroup_parent": "/kubepods/besteffort/pod1",
    "container_annotations": {"io.kubernetes.container.hash": "abc"},
    "container_envs": {"BINARY": b"\xff\x00", "EMPTY": b""},
    "container_resources": {
        "cpu_shares": 2,
        "oom_score_adj": 1000,
        "cpuset_cpus": "0-15",
        "cpuset_mems": "0",
        "hugepage_limits": [{"page_size": "2MB", "limit": 0}],
        "unified": {"memory.oom.group": "1"},
    },
}


@asynccontextmanager
async def calling(tmp_path: Path, by: EffectivePolicy, metrics: Metrics | None = None) -> AsyncIterator[Any]:
    """A started server, and ``call(method, request, metadata) -> (answer, initial metadata)``."""
    unlimited = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
    channel = grpc.aio.insecure_channel(f"unix:{tmp_path}/hooks.sock", options=unlimited)

    async def call(method: str, request: Any, metadata: Any = ()) -> tuple[Any, dict[str, str | bytes]]:
        response = hooks.PodSandboxHookResponse if method in SANDBOX_STAGES else hooks.ContainerResourceHookResponse
        unary = channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        running = unary(request, timeout=5, metadata=metadata)
        initial = dict(await running.initial_metadata())
        return await running, initial

    async with listening(tmp_path / "hooks.sock", HookServer(lambda: (by, NO_LIMITS), metrics or Metrics())):
        try:
            yield call
        finally:
            await channel.close()


async def test_our_proxy_gets_only_what_was_decided(tmp_path: Path) -> None:
    async with calling(tmp_path, policy(V2)) as call:
        answer, initial = await call("PreCreateContainerHook", hooks.ContainerResourceHookRequest(**BE_POD), OURS)
    assert initial["koord-presence"] == "1"
    want = {"cpu_quota": 200000, "cpu_shares": 1536, "memory_limit_in_bytes": 4 << 30, "cpuset_cpus": ""}
    assert answer == hooks.ContainerResourceHookResponse(container_resources=want)
    assert answer.container_resources.HasField("cpuset_cpus")


@pytest.mark.parametrize(("limits_in_cri", "metadata"), [(False, OURS), (None, OLDER)])
async def test_limits_are_left_as_kubelet_sent_them_where_kubelet_would_read_ours_back(
    tmp_path: Path, limits_in_cri: bool | None, metadata: Any
) -> None:
    async with calling(tmp_path, policy(V2, limitsInCRI=limits_in_cri)) as call:
        answer, _ = await call("PreCreateContainerHook", hooks.ContainerResourceHookRequest(**BE_POD), metadata)
    assert answer == hooks.ContainerResourceHookResponse(container_resources={"cpuset_cpus": ""})


async def test_another_proxy_gets_the_whole_request_back_edited(tmp_path: Path) -> None:
    request = hooks.ContainerResourceHookRequest(**BE_POD)
    async with calling(tmp_path, policy(V2, limitsInCRI=True)) as call:
        answer, initial = await call("PreCreateContainerHook", request)
    assert "koord-presence" not in initial
    want = hooks.LinuxContainerResources()
    want.CopyFrom(request.container_resources)
    want.cpu_quota, want.cpu_shares, want.memory_limit_in_bytes, want.cpuset_cpus = 200000, 1536, 4 << 30, ""
    assert answer == hooks.ContainerResourceHookResponse(
        container_annotations=request.container_annotations,
        container_resources=want,
        pod_cgroup_parent=request.pod_cgroup_parent,
        container_envs=request.container_envs,
    )


async def test_sandboxes_in_both_forms(tmp_path: Path) -> None:
    request = hooks.PodSandboxHookRequest(
        labels={QOS: "LSR"}, annotations={STATUS: '{"cpuset":"2-3"}'}, cgroup_parent="/kubepods/pod1"
    )
    async with calling(tmp_path, policy(V2)) as call:
        ours, _ = await call("PreRunPodSandboxHook", request, OURS)
        theirs, _ = await call("PreRunPodSandboxHook", request)
    assert ours == hooks.PodSandboxHookResponse(resources={"cpu_quota": -1})
    assert theirs == hooks.PodSandboxHookResponse(
        labels=request.labels,
        annotations=request.annotations,
        cgroup_parent="/kubepods/pod1",
        resources={"cpu_quota": -1},
    )


@pytest.mark.parametrize(
    "method", [name for name, stage in {**SANDBOX_STAGES, **CONTAINER_STAGES}.items() if not stage]
)
async def test_stages_without_hooks_change_nothing(tmp_path: Path, method: str) -> None:
    kind = hooks.PodSandboxHookRequest if method in SANDBOX_STAGES else hooks.ContainerResourceHookRequest
    async with calling(tmp_path, policy(V2)) as call:
        answer, initial = await call(method, kind(pod_meta={"name": "p"}), OURS)
    assert (answer.ByteSize(), initial["koord-presence"]) == (0, "1")


async def test_a_bad_pod_is_answered_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    request = hooks.ContainerResourceHookRequest(**{**BE_POD, "pod_annotations": {EXTENDED: "{"}})
    with caplog.at_level(logging.WARNING, "qosd"):
        async with calling(tmp_path, policy(V2), metrics) as call:
            answer, _ = await call("PreCreateContainerHook", request, OURS)
    assert answer.container_resources.cpuset_cpus == ""
    assert "pod default/job container main" in caplog.text
    assert EXTENDED in caplog.text
    assert metrics.pod_problems["PreCreateContainer"] == 1


async def test_an_error_of_ours_is_no_edit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    request = hooks.ContainerResourceHookRequest(**BE_POD)
    async with calling(tmp_path, None, metrics) as call:  # type: ignore[arg-type]
        answer, _ = await call("PreCreateContainerHook", request)
    assert answer.container_resources == request.container_resources
    assert "answered without edits" in caplog.text
    counted = metrics.hook_calls["PreCreateContainer", "other", "error"]
    assert counted == 1


async def test_large_messages_pass_both_ways(tmp_path: Path) -> None:
    request = hooks.ContainerResourceHookRequest(container_envs={"BIG": b"x" * (15 << 20)})
    async with calling(tmp_path, policy(V2)) as call:
        answer, _ = await call("PreCreateContainerHook", request)
    assert answer.container_envs["BIG"] == request.container_envs["BIG"]


def test_registration_is_what_both_proxies_read(tmp_path: Path) -> None:
    directory = tmp_path / "hookserver.d"
    held = registration.SandboxAdvice(False, frozenset({"kata"}))
    file = registration.write(directory, registration.content(Path("/run/koord/h.sock"), "Fail", REGISTERED, held))
    assert json.loads(file.read_text()) == {
        "remote-endpoint": "/run/koord/h.sock",
        "failure-policy": "Fail",
        "runtime-hooks": [
            "PreRunPodSandbox",
            "PreUpdatePodSandboxResources",
            "PreCreateContainer",
            "PreUpdateContainerResources",
        ],
    }
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert [entry.name for entry in directory.iterdir()] == ["koord-qosd.json"]
    registration.remove(directory)
    registration.remove(directory)
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize(
    ("node", "advice", "handlers"),
    [
        ({}, ["PreRunPodSandbox"], []),
        ({"sandboxSizingHandlers": ["kata", "kata-qemu"]}, ["PreRunPodSandbox"], ["kata", "kata-qemu"]),
        ({"resctrl": {"runtimeVerified": True}}, None, None),
        ({"resctrl": {"runtimeVerified": True}, "hooks": {"resctrl": False}}, ["PreRunPodSandbox"], []),
    ],
)
def test_a_sandbox_waits_only_where_an_edit_of_it_counts(
    node: dict[str, Any], advice: list[str] | None, handlers: list[str] | None, tmp_path: Path
) -> None:
    kept = registration.Registration(tmp_path, Path("/run/h.sock"), "Ignore", REGISTERED)
    kept.keep(policy(V2, **node))
    written = json.loads((tmp_path / HOOK_SERVER_FILE_NAME).read_text())
    assert (written.get("advice"), written.get("await-handlers")) == (advice, handlers)


def test_the_file_is_written_again_when_the_rules_ask_for_another(tmp_path: Path) -> None:
    file = tmp_path / HOOK_SERVER_FILE_NAME
    kept = registration.Registration(tmp_path, Path("/run/h.sock"), "Ignore", REGISTERED)
    kept.keep(policy(V2))
    first = file.stat().st_ino
    kept.keep(policy(V2, hooks={"cpuIdle": False}))
    assert file.stat().st_ino == first
    kept.keep(policy(V2, resctrl={"runtimeVerified": True}))
    assert "advice" not in json.loads(file.read_text())
    file.unlink()
    kept.keep(policy(V2, resctrl={"runtimeVerified": True}))
    assert not file.exists()


def test_a_directory_that_refuses_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / HOOK_SERVER_FILE_NAME).mkdir()
    with pytest.raises(OSError, match=r"koord-qosd\.json"):
        registration.write(tmp_path, "{}")
    assert [entry.name for entry in tmp_path.iterdir()] == [HOOK_SERVER_FILE_NAME]


async def test_a_container_waits_for_the_room_that_it_needs_and_no_other_does() -> None:
    free = asyncio.Event()
    server = HookServer(
        lambda: (policy(V2), NO_LIMITS), Metrics(), room_for=lambda uid: free.wait() if uid == "new" else None
    )
    create = server.methods()[f"/{SERVICE}/PreCreateContainerHook"]

    def request(uid: str) -> bytes:
        pod: dict[str, Any] = {**BE_POD, "pod_meta": {"namespace": "default", "name": "job", "uid": uid}}
        return hooks.ContainerResourceHookRequest(**pod).SerializeToString()

    at_once = create(request("other"), {PROXY_METADATA: b"0.1.0"})
    later = create(request("new"), {PROXY_METADATA: b"0.1.0"})
    assert isinstance(at_once, ServerReply) and not isinstance(later, ServerReply)
    waiting = asyncio.ensure_future(later)
    await asyncio.sleep(0.01)
    assert not waiting.done()
    free.set()
    assert await asyncio.wait_for(waiting, 1) == at_once


def bound(cpus: str, pod_shares: int, shares: int, container: str = "main") -> hooks.ContainerResourceHookRequest:
    return hooks.ContainerResourceHookRequest(
        pod_meta={"namespace": "default", "name": "p", "uid": "u"},
        container_meta={"name": container},
        pod_annotations={STATUS: json.dumps({"cpuset": cpus})},
        pod_labels={QOS: "LSE"},
        pod_cgroup_parent="/kubepods/burstable/podu",
        pod_resources={"cpu_shares": pod_shares},
        container_resources={"cpu_shares": shares},
    )


@pytest.mark.parametrize(
    ("request_", "cpus", "quota_us"),
    [
        (bound("1-63", 10, 10), "1", -1),
        (bound("1-63", 2, 2), "", 0),
        (bound("1-63", 0, 10), "1", -1),
        (bound("2-3", 2048, 1024, "one"), "2-3", -1),
        (bound("2-3", 2048, 1024, "other"), "2-3", -1),
        (bound("2-3", 2048, 2, "sidecar"), "2-3", -1),
    ],
    ids=["a claim", "requests nothing", "a proxy that tells no pod's resources", "shared", "by both", "by a sidecar"],
)
async def test_no_container_is_made_with_more_cpus_than_its_pod_requests(
    tmp_path: Path, request_: hooks.ContainerResourceHookRequest, cpus: str, quota_us: int
) -> None:
    async with calling(tmp_path, policy(V2, limitsInCRI=True)) as call:
        answer, _ = await call("PreCreateContainerHook", request_, OURS)
    assert (answer.container_resources.cpuset_cpus, answer.container_resources.cpu_quota) == (cpus, quota_us)


@pytest.mark.parametrize("metadata", [OURS, ()])
@pytest.mark.parametrize(
    ("method", "quota_us"), [("PreCreateContainerHook", 83334), ("PreUpdateContainerResourcesHook", 100000)]
)
async def test_a_quota_is_normalized_at_creation_only(
    tmp_path: Path, method: str, quota_us: int, metadata: Any
) -> None:
    """No runtime keeps an update's annotations, so what it stores after one must be what kubelet asked for."""
    asked = {"cpu_quota": 100000, "cpu_period": 100000}
    request = hooks.ContainerResourceHookRequest(**{**BE_POD, "pod_labels": {QOS: "LS"}, "container_resources": asked})
    async with calling(tmp_path, policy(V2, cpuNormalizationRatio=1.2, limitsInCRI=True)) as call:
        answer, _ = await call(method, request, metadata)
    is_marked = ANNOTATION in answer.container_annotations
    assert (answer.container_resources.cpu_quota or 100000, is_marked) == (quota_us, quota_us != 100000)
