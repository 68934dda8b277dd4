"""After hooks that still wait when the process is told to end."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from koord.pb.cri import api_pb2 as cri
from tests.runtimeproxy.processes import Node, unary

SERVICE = "/runtime.v1.RuntimeService/"
STOPS = 5


class Ear(grpc.GenericRpcHandler):
    """A hook server that answers when ``release`` is set, and keeps the outcomes that it was told."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.heard: list[str] = []

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        return grpc.unary_unary_rpc_method_handler(self._hear)

    def _hear(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        outcome = dict(context.invocation_metadata()).get("koord-outcome")
        if isinstance(outcome, str):
            self.release.wait(20)
            self.heard.append(outcome)
        return b""


@pytest.fixture
def ear(node: Node) -> Iterator[Ear]:
    ear = Ear()
    server = grpc.server(ThreadPoolExecutor(1), handlers=[ear])
    server.add_insecure_port(f"unix:{node.directory}/hooks.sock")
    server.start()
    (node.directory / "hooks").mkdir(mode=0o755)
    file = {"remote-endpoint": f"{node.directory}/hooks.sock", "runtime-hooks": ["PostStopPodSandbox"]}
    (node.directory / "hooks" / "a.json").write_text(json.dumps(file))
    (node.directory / "hooks" / "a.json").chmod(0o644)
    yield ear
    ear.release.set()
    server.stop(None).wait()


def stop_pods(node: Node) -> None:
    """A sandbox that is known, and stopped several times. The backend answers with the request itself, so that the
    sandbox's id is its own configuration."""
    config = cri.PodSandboxConfig(metadata=cri.PodSandboxMetadata(name="pod", uid="u", namespace="ns"))
    stop = cri.StopPodSandboxRequest(pod_sandbox_id=config.SerializeToString().decode())
    with node.channel() as channel:
        unary(channel, SERVICE + "RunPodSandbox")(
            cri.RunPodSandboxRequest(config=config).SerializeToString(), timeout=5
        )
        for _ in range(STOPS):
            unary(channel, SERVICE + "StopPodSandbox")(stop.SerializeToString(), timeout=5)


@pytest.mark.parametrize(
    ("answers", "says"), [(True, []), (False, [f"a.json: {STOPS} after hooks were not delivered"])]
)
def test_they_are_heard_within_a_bound_or_counted(node: Node, ear: Ear, answers: bool, says: list[str]) -> None:
    process = node.start()
    node.told("READY=1")
    stop_pods(node)
    process.send_signal(signal.SIGTERM)
    node.told("STOPPING=1")
    if answers:
        ear.release.set()
    _, log = process.communicate(timeout=20)
    assert process.returncode == 0
    assert [line for line in says if line not in log] == []
    assert ear.heard == ["0"] * (STOPS if answers else 0)
