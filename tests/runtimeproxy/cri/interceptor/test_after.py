"""What servers hear of calls that have ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from koord.pb.cri import api_pb2 as cri
from tests.runtimeproxy.cri.interceptor.servers import told
from tests.runtimeproxy.cri.rig import Rig
from tests.runtimeproxy.hooks.doubles import hanging, koordlet
from tests.support.waiting import until


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
    await until(lambda: told(rig, hook))
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

    async def slow(path: str, message: bytes) -> tuple[bytes, Mapping[bytes, bytes]]:
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
    await until(lambda: told(rig, "PostStopPodSandbox"))
    assert [(each.container_meta.id, each.pod_meta.name) for each in told(rig, "PostStopContainer")] == [
        ("c1", "pod"),
        ("c2", "pod"),
    ]
    rig.interceptor.close()


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
