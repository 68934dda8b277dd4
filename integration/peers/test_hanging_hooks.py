"""A hook server that hangs costs its timeout and no more: the real proxy, a client, a simulated runtime.

It may hang in two ways: it reads the call and never answers, or it does not even accept the connection.
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from integration.harness import hookserver
from integration.harness.cri import Cri
from integration.harness.hookserver import Question, Reply
from integration.harness.pods import POD_ROOT, Container, Pod, container_config, sandbox_config
from integration.harness.proxy import socket_of, start_proxy
from integration.harness.simulated import SimulatedRuntime
from koord.pb.cri import api_pb2 as pb
from runtimeproxy.hooks.breaker import FAILURES

HOOK_TIMEOUT_S = 0.5
SLACK_S = 0.4  # what a busy machine may add
POD = Pod("a", (Container("main", cpu_limit_milli=500, memory_limit_bytes=64 << 20),), cgroup_root=POD_ROOT)


@contextlib.contextmanager
def answers_nothing(path: Path) -> Iterator[None]:
    """A gRPC server that keeps each call for ever."""
    over = threading.Event()

    def wait(question: Question) -> Reply:
        over.wait()
        return Reply(b"")

    with hookserver.serving(path, wait):
        try:
            yield
        finally:
            over.set()


@contextlib.contextmanager
def accepts_nothing(path: Path) -> Iterator[None]:
    """A socket on which no process accepts; connections wait in its backlog."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(8)
        yield


@dataclass(frozen=True, slots=True)
class Node:
    runtime: SimulatedRuntime
    through: Cri
    direct: Cri

    def create(self, sandbox_id: str) -> str:
        return self.through.create_container(sandbox_id, POD, POD.containers[0])


@contextlib.contextmanager
def node(
    hanging: Callable[[Path], contextlib.AbstractContextManager[None]], policy: str, stages: Sequence[str],
    *, hook_timeout_s: float = HOOK_TIMEOUT_S, deadline_s: float = 30.0,
) -> Iterator[Node]:  # fmt: skip
    """The proxy with a hanging hook server; ``deadline_s`` is what the client gives each of its calls."""
    with tempfile.TemporaryDirectory(prefix="koord-hanging-") as name, contextlib.ExitStack() as stack:
        directory = Path(name)
        runtime = SimulatedRuntime(directory / "cgroup", "0")
        stack.enter_context(runtime.serving(directory / "runtime.sock"))
        stack.enter_context(hanging(directory / "hooks.sock"))
        hookserver.write_file(directory / "hooks.d", directory / "hooks.sock", stages, policy)
        flags = ("--hook-timeout", f"{hook_timeout_s * 1000:.0f}ms")
        stack.callback(start_proxy(directory / "runtime.sock", directory, directory / "hooks.d", flags).stop)
        yield Node(
            runtime,
            stack.enter_context(Cri(socket_of(directory), deadline_s)),
            stack.enter_context(Cri(directory / "runtime.sock")),
        )


ways = pytest.mark.parametrize("hanging", [answers_nothing, accepts_nothing])
costs = pytest.mark.parametrize(
    ("hook_timeout_s", "deadline_s", "cost_s"),
    [
        pytest.param(0.5, 30.0, 0.5, id="the hook's timeout"),
        pytest.param(3.0, 1.0, 0.5, id="half of the caller's deadline"),
    ],
)


@ways
@costs
def test_under_ignore_the_request_goes_on_unedited(
    hanging: Callable[[Path], contextlib.AbstractContextManager[None]], hook_timeout_s: float, deadline_s: float,
    cost_s: float,
) -> None:  # fmt: skip
    with node(hanging, "Ignore", ["PreCreateContainer"], hook_timeout_s=hook_timeout_s, deadline_s=deadline_s) as here:
        sandbox_id = here.through.run_pod(POD)
        began = time.monotonic()
        container_id = here.create(sandbox_id)
        took_s = time.monotonic() - began
        sent = pb.CreateContainerRequest(
            pod_sandbox_id=sandbox_id, config=container_config(POD, POD.containers[0]),
            sandbox_config=sandbox_config(POD),
        )  # fmt: skip
        assert here.runtime.created(container_id) == sent
    _check(took_s, cost_s)


@ways
@costs
def test_under_fail_the_request_is_refused_and_the_runtime_not_asked(
    hanging: Callable[[Path], contextlib.AbstractContextManager[None]], hook_timeout_s: float, deadline_s: float,
    cost_s: float,
) -> None:  # fmt: skip
    with node(hanging, "Fail", ["PreCreateContainer"], hook_timeout_s=hook_timeout_s, deadline_s=deadline_s) as here:
        sandbox_id = here.through.run_pod(POD)
        began = time.monotonic()
        with pytest.raises(grpc.RpcError) as refused:
            here.create(sandbox_id)
        took_s = time.monotonic() - began
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "double.json" in (refused.value.details() or "")
        assert here.direct.containers() == []
    _check(took_s, cost_s)


@ways
def test_other_calls_on_the_connection_do_not_wait(
    hanging: Callable[[Path], contextlib.AbstractContextManager[None]],
) -> None:
    with node(hanging, "Ignore", ["PreCreateContainer"]) as here, ThreadPoolExecutor(1) as pool:
        sandbox_id = here.through.run_pod(POD)
        held = pool.submit(here.create, sandbox_id)
        longest_s, calls = 0.0, 0
        while not held.done():
            began = time.monotonic()
            here.through.version()
            longest_s, calls = max(longest_s, time.monotonic() - began), calls + 1
            time.sleep(0.005)
        assert held.result()
    print(f"{calls} Version calls while a create was held: the longest took {longest_s * 1000:.1f} ms")
    assert calls > 10
    assert longest_s < HOOK_TIMEOUT_S / 2


@ways
def test_a_post_hook_costs_nothing(hanging: Callable[[Path], contextlib.AbstractContextManager[None]]) -> None:
    with node(hanging, "Fail", ["PostStopPodSandbox"]) as here:
        sandbox_id = here.through.run_pod(POD)
        began = time.monotonic()
        here.through.stop_pod(sandbox_id)
        assert time.monotonic() - began < HOOK_TIMEOUT_S


def test_a_server_that_keeps_hanging_is_not_waited_for_any_more() -> None:
    timeout_s = 0.1
    with node(answers_nothing, "Ignore", ["PreCreateContainer"], hook_timeout_s=timeout_s) as here:
        sandbox_id = here.through.run_pod(POD)
        took_s = []
        for _ in range(FAILURES + 5):
            began = time.monotonic()
            here.create(sandbox_id)
            took_s.append(time.monotonic() - began)
    print("creates one after another: " + " ".join(f"{each * 1000:.0f}" for each in took_s) + " ms")
    assert min(took_s[:FAILURES]) >= timeout_s
    assert max(took_s[FAILURES:]) < timeout_s


def _check(took_s: float, cost_s: float) -> None:
    print(f"the create took {took_s * 1000:.0f} ms; the hook may cost {cost_s * 1000:.0f} ms")
    assert 0.95 * cost_s <= took_s < cost_s + SLACK_S
