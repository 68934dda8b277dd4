"""The interceptor with the proxy's own client and a hook server on grpcio: the wire, not a double of it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from koord.http2.client import UnaryClient
from koord.pb.cri import api_pb2 as cri
from koord.pb.hooks import api_pb2 as hooks
from runtimeproxy.cri.handlercontext import HookOptions
from runtimeproxy.cri.interceptor import CriInterceptor
from runtimeproxy.hooks.directory import HookDirectory
from runtimeproxy.intercept import Call, Forward
from tests.runtimeproxy.cri.rig import V1, container, pod
from tests.runtimeproxy.hooks.doubles import Recorder


class HookService(grpc.GenericRpcHandler):
    """Sets the quota to an explicit 0 and declares presence; keeps the metadata it was called with."""

    def __init__(self) -> None:
        self.metadata: dict[str, str | bytes] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        if handler_call_details.method.endswith("PreCreateContainerHook"):
            return grpc.unary_unary_rpc_method_handler(self._create)
        return None

    async def _create(self, message: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        self.metadata = dict(context.invocation_metadata() or ())
        await context.send_initial_metadata((("koord-presence", "1"),))
        resources = hooks.LinuxContainerResources(cpu_quota=0, cpuset_cpus="1")
        return hooks.ContainerResourceHookResponse(container_resources=resources).SerializeToString()


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[HookService]:
    found = HookService()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((found,))
    server.add_insecure_port(f"unix://{tmp_path}/hooks.sock")
    await server.start()
    yield found
    await server.stop(None)


async def test_a_create_through_a_real_server_found_in_a_real_directory(service: HookService, tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    recorder = Recorder()
    interceptor = CriInterceptor(
        HookOptions(version="9.9"),
        lambda path: UnaryClient(path, loop),
        f"{tmp_path}/no-runtime.sock",
        audit=recorder,
        metrics=recorder,
    )
    hook_directory = tmp_path / "hookserver.d"
    HookDirectory(str(hook_directory), interceptor.use, recorder).rescan()
    (hook_directory / "a.json").write_text(
        f'{{"remote-endpoint": "{tmp_path}/hooks.sock", "failure-policy": "Fail", "runtime-hooks": ["*"]}}'
    )
    HookDirectory(str(hook_directory), interceptor.use, recorder).rescan()
    request = cri.CreateContainerRequest(pod_sandbox_id="p", config=container(cpu_quota=50_000), sandbox_config=pod())
    call = Call(V1 + "CreateContainer", 10.0, time.monotonic())
    with pytest.raises(Exception, match=r"no-runtime\.sock"):  # under Fail an unknown sandbox is no reason to guess
        await interceptor.request(call, request.SerializeToString())
    run = cri.RunPodSandboxRequest(config=pod())
    ran = Call(V1 + "RunPodSandbox", 10.0, time.monotonic())
    decision = await interceptor.request(ran, message := run.SerializeToString())
    assert decision == Forward(message)  # UNIMPLEMENTED is no opinion
    interceptor.answered(ran, 0, cri.RunPodSandboxResponse(pod_sandbox_id="p").SerializeToString())
    decision = await interceptor.request(call, request.SerializeToString())
    assert isinstance(decision, Forward)
    got = cri.CreateContainerRequest.FromString(decision.message).config.linux.resources
    assert (got.cpu_quota, got.cpuset_cpus, got.cpu_shares) == (0, "1", 2)
    assert service.metadata["koord-runtime-proxy"] == "9.9"
    interceptor.close()


def test_the_start_needs_neither_protobuf_nor_json() -> None:
    code = (
        "import sys, runtimeproxy.cri.interceptor; "
        "print([name for name in sys.modules if name.startswith(('google', 'json', 'koord.pb', 'grpc'))])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
