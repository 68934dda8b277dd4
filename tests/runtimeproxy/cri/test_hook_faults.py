"""Whatever comes out of asking a hook server costs that request its editing, or is its refusal under policy Fail."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from koord.http2.client import UnaryError
from koord.pb.cri import api_pb2 as cri
from runtimeproxy.hooks.hookfile import FailurePolicy
from tests.runtimeproxy.cri.rig import V1, Rig, container, pod
from tests.runtimeproxy.hooks.doubles import koordlet, raising
from tests.runtimeproxy.relay.rig import VERSION, rigged
from tests.support.waiting import HANG_S

ERRORS = {
    "unavailable": UnaryError(14, "not there"),
    "connection reset": ConnectionResetError(104, "Connection reset by peer"),
    "broken pipe": BrokenPipeError(32, "Broken pipe"),
    "out of descriptors": OSError(24, "Too many open files"),
    "out of memory": MemoryError(),
    "a bug": RuntimeError("bug"),
    "a missing module": ImportError("koord.pb"),
    "a recursion": RecursionError(),
    "cancelled": asyncio.CancelledError(),
    "a timeout of its own": TimeoutError(),
    "a group": ExceptionGroup("several", [OSError(5, "Input/output error"), RuntimeError("bug")]),
}
REQUESTS = {
    "RunPodSandbox": cri.RunPodSandboxRequest(config=pod()),
    "CreateContainer": cri.CreateContainerRequest(pod_sandbox_id="p1", config=container(), sandbox_config=pod()),
    "UpdateContainerResources": cri.UpdateContainerResourcesRequest(container_id="c1"),
}


@pytest.mark.parametrize("policy", FailurePolicy)
@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
async def test_a_hook_server_s_call_may_raise_anything(
    tmp_path: Path, error: BaseException, policy: FailurePolicy
) -> None:
    rig = Rig({"a.json": raising(error), "b.json": koordlet()}, policy=policy)
    async with asyncio.timeout(HANG_S), rigged(tmp_path, rig.interceptor) as relay:
        for method, request in REQUESTS.items():
            message = request.SerializeToString()
            reply = await relay.client.call(V1 + method, message)
            if policy is FailurePolicy.IGNORE or method == "UpdateContainerResources":  # of an object that nobody knows
                assert (reply.grpc_status, reply.messages) == (0, [message]), method
            else:
                assert (reply.grpc_status or 0) > 0, method
                assert reply.messages == [], method
        assert (await relay.client.call(VERSION, b"x")).messages == [b"x"]
        assert relay.relay.metrics.held_streams == 0
