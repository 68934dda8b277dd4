"""Evictions through StopContainer, against a runtime on a real socket: what is stopped, and every way to fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from koord.http2.grpc import NOT_FOUND
from koord.http2.server import Refusal
from koord.pb.cri import api_pb2 as cri
from qosd.act.cristop import ROUNDS, CRIStop
from qosd.act.evictor import EvictionFailed
from qosd.decide.decision import Eviction
from qosd.pods.cri import CRIClient
from tests.fakes.runtime import FakeRuntime
from tests.support.waiting import HANG_S

PERMISSION_DENIED = 7
EXIT_S = SETTLE_S = 0.2
ORDER = Eviction("uid-web", "default/web", "memory is short", "/kubepods/burstable/poduid-web", grace_s=0)


class Node:
    """Pod ``web`` with three running containers and ``other`` with one."""

    def __init__(self, directory: Path, runtime: type[FakeRuntime] = FakeRuntime) -> None:
        self.fake = runtime(directory / "cgroups")
        self.sandbox = self.fake.pod("web")
        self.a, self.b, self.c = (self.run(self.sandbox, name) for name in "abc")
        self.other = self.run(self.fake.pod("other"), "main")

    def run(self, sandbox: str, name: str, attempt: int = 0) -> str:
        container = self.fake.container(sandbox, name, attempt=attempt)
        self.fake.start(container)
        return container

    def states(self, *containers: str) -> list[str]:
        return [cri.ContainerState.Name(self.fake.containers[each].state) for each in containers]

    def exists(self, cgroup: str) -> bool:
        return (self.fake.tree / cgroup.lstrip("/")).is_dir()

    @asynccontextmanager
    async def served(self, socket: Path, timeout_s: float = 2.0) -> AsyncIterator[CRIStop]:
        async with self.fake.serving(socket) as endpoint:
            runtime = CRIClient(endpoint, timeout_s, asyncio.get_running_loop())
            try:
                yield CRIStop(runtime, self.exists, exit_s=EXIT_S, settle_s=SETTLE_S)
            finally:
                runtime.close()


EXITED, RUNNING, CREATED = "CONTAINER_EXITED", "CONTAINER_RUNNING", "CONTAINER_CREATED"


async def test_all_containers_of_the_pod_are_stopped_and_no_other(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.fake.stop(node.c)
    order = Eviction("uid-web", "default/web", "memory is short", grace_s=7)
    async with node.served(tmp_path / "s") as executor:
        await executor.evict(order)
        assert node.states(node.a, node.b, node.c, node.other) == [EXITED, EXITED, EXITED, RUNNING]
        assert sorted((one.container_id, one.timeout) for one in node.fake.stops) == [(node.a, 7), (node.b, 7)]
        assert node.exists(node.fake.cgroup(node.other)) and node.exists(node.fake.cgroup(node.sandbox))
        await executor.evict(order)
        assert len(node.fake.stops) == 2, "what has exited is not stopped again"


async def test_nothing_of_other_pods_is_listed(tmp_path: Path) -> None:
    node = Node(tmp_path)
    _new_sandbox(node)
    async with node.served(tmp_path / "s") as executor:
        await executor.evict(ORDER)
    of_pod = {id_ for id_, one in node.fake.sandboxes.items() if one.metadata.uid == "uid-web"}
    containers = {id_ for id_, one in node.fake.containers.items() if one.pod_sandbox_id in of_pod}
    assert (len(of_pod), len(containers)) == (2, 4)
    assert node.fake.listed == of_pod | containers


class Unfiltered(FakeRuntime):
    """A runtime that heeds no filter."""

    def ListPodSandbox(self, request: cri.ListPodSandboxRequest) -> cri.ListPodSandboxResponse:
        return super().ListPodSandbox(cri.ListPodSandboxRequest())

    def ListContainers(self, request: cri.ListContainersRequest) -> cri.ListContainersResponse:
        return super().ListContainers(cri.ListContainersRequest())


async def test_a_runtime_that_lists_other_pods_too_stops_none_of_them(tmp_path: Path) -> None:
    node = Node(tmp_path, Unfiltered)
    _new_sandbox(node)
    async with node.served(tmp_path / "s") as executor:
        await executor.evict(ORDER)
    assert node.states(node.a, node.b, node.c, node.other) == [EXITED, EXITED, EXITED, RUNNING]
    assert len(node.fake.stops) == 4


async def test_containers_are_stopped_at_the_same_time(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.fake.endless.update((node.a, node.b, node.c))
    async with node.served(tmp_path / "s") as executor:
        task = asyncio.create_task(executor.evict(ORDER))
        async with asyncio.timeout(2):
            while len(node.fake.stops) < 3:  # noqa: ASYNC110 - a server in the same loop
                await asyncio.sleep(0.001)
        assert node.states(node.a, node.b, node.c) == [RUNNING] * 3
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def _removed(node: Node) -> None:
    """kubelet removes it between the list and the stop."""

    def refuse(id_: str) -> None:
        if node.b in node.fake.containers and id_ != node.b:
            node.fake.unmake(node.fake.cgroup(node.b))
            del node.fake.containers[node.b]

    node.fake.stop_refusals[node.b] = Refusal(NOT_FOUND, "not found")
    node.fake.stopped = refuse


def _ended(node: Node) -> None:
    """It ends by itself between the list and the stop, which the runtime then cannot do."""
    node.fake.stop_refusals[node.b] = Refusal(PERMISSION_DENIED, "process already finished")
    node.fake.stopped = lambda id_: node.fake.stop(node.b) if id_ == node.a else None


def _slow_cgroup(node: Node) -> None:
    node.fake.lingering.add(node.b)
    loop = asyncio.get_running_loop()
    loop.call_later(SETTLE_S / 2, node.fake.unmake, node.fake.cgroup(node.b))


def _slow_exit(node: Node) -> None:
    """It exits a while after the runtime has given up waiting."""
    node.fake.endless.add(node.b)
    asyncio.get_running_loop().call_later(EXIT_S + SETTLE_S / 2, node.fake.stop, node.b)


def _created(node: Node) -> None:
    """Without a process it is left as it is."""
    node.fake.container(node.sandbox, "d")


def _starting(node: Node) -> None:
    """It begins to run while the others are stopped."""
    container = node.fake.container(node.sandbox, "d")
    order = iter((True,))
    node.fake.stopped = lambda id_: node.fake.start(container) if id_ == container and next(order, False) else None


def _restarted(node: Node) -> None:
    """kubelet starts another in its place while the others are stopped."""
    node.fake.stopped = lambda id_: node.run(node.sandbox, "a", attempt=1) if id_ == node.a else None


def _new_sandbox(node: Node) -> None:
    """Made anew under the same UID: what runs in either is the pod's."""
    node.fake.sandboxes[node.sandbox].state = cri.SANDBOX_NOTREADY
    sandbox = node.fake.pod("web", attempt=1)
    node.run(sandbox, "a")


def _unknown_state(node: Node) -> None:
    """containerd lost its shim: it may run, and has been running when it is stopped."""
    node.fake.containers[node.b].state = cri.CONTAINER_UNKNOWN
    node.fake.stopped = lambda id_: node.fake.stop(node.b) if id_ == node.b else None


def _runtime_restarts(node: Node) -> None:
    """It does not answer for a moment after the stops."""

    def fail(id_: str) -> None:
        if len(node.fake.stops) == 3:
            node.fake.failing = True
            asyncio.get_running_loop().call_later(SETTLE_S / 2, setattr, node.fake, "failing", False)

    node.fake.stopped = fail


def _silent(node: Node) -> None:
    """The runtime does not tell cgroups: that the containers have exited must do."""
    node.fake.silent = True


@pytest.mark.parametrize(
    "setting",
    [
        _removed,
        _ended,
        _slow_cgroup,
        _slow_exit,
        _created,
        _starting,
        _restarted,
        _new_sandbox,
        _unknown_state,
        _runtime_restarts,
        _silent,
    ],
)
async def test_it_comes_about_all_the_same(tmp_path: Path, setting: Callable[[Node], None]) -> None:
    node = Node(tmp_path)
    setting(node)
    async with node.served(tmp_path / "s") as executor:
        async with asyncio.timeout(HANG_S):
            await executor.evict(ORDER)
    of_pod = {id_ for id_, one in node.fake.sandboxes.items() if one.metadata.uid == "uid-web"}
    left = [one for one in node.fake.containers.values() if one.pod_sandbox_id in of_pod]
    assert not [one for one in left if one.state in (cri.CONTAINER_RUNNING, cri.CONTAINER_UNKNOWN)]
    assert not [one for one in left if node.exists(node.fake.cgroup(one.id))]
    assert node.states(node.other) == [RUNNING]


def _unstoppable(node: Node) -> None:
    node.fake.stop_refusals[node.b] = Refusal(PERMISSION_DENIED, "permission denied")


def _endless(node: Node) -> None:
    node.fake.endless.add(node.b)


def _lingering(node: Node) -> None:
    node.fake.lingering.add(node.b)


def _unlistable(node: Node) -> None:
    """The runtime goes away within the eviction, and stays away."""
    node.fake.stopped = lambda id_: setattr(node.fake, "failing", len(node.fake.stops) == 3)


def _unknown_cgroup(node: Node) -> None:
    """Its status cannot be had: nobody knows whether its cgroup is gone."""
    node.fake.status_refusals[node.b] = Refusal(PERMISSION_DENIED, "no status")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (_unstoppable, r"^container b \([0-9a-f]{12}\): is running: \S+: StopContainer: .*permission denied$"),
        (_endless, r"^container b \([0-9a-f]{12}\): is running: \S+: StopContainer: .*no answer in time$"),
        (_lingering, r"^container b \([0-9a-f]{12}\): its cgroup /kubepods/burstable/poduid-web/\w+ is still there$"),
        (_unlistable, r"List\w+: gRPC status 14: server is not initialized yet$"),
        (_unknown_cgroup, r"^container b \([0-9a-f]{12}\): its cgroup is not known: .*no status$"),
    ],
)
async def test_what_is_left_is_named_and_the_others_are_stopped(
    tmp_path: Path, setting: Callable[[Node], None], message: str
) -> None:
    node = Node(tmp_path)
    setting(node)
    loop = asyncio.get_running_loop()
    async with node.served(tmp_path / "s") as executor:
        begin_s = loop.time()
        with pytest.raises(EvictionFailed, match=message):
            await executor.evict(ORDER)
        assert loop.time() - begin_s < EXIT_S + SETTLE_S + 2
        assert node.states(node.a, node.c, node.other) == [EXITED, EXITED, RUNNING]


async def test_containers_that_kubelet_starts_again_and_again_are_stopped_a_few_times(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.fake.stopped = lambda id_: node.run(node.sandbox, "a", attempt=len(node.fake.stops))
    async with node.served(tmp_path / "s") as executor:
        with pytest.raises(EvictionFailed, match=r"^container a .*: is running: kubelet has made it since"):
            await executor.evict(ORDER)
    assert len(node.fake.stops) == 3 * ROUNDS


@pytest.mark.parametrize("failing", [True, False])
async def test_a_runtime_that_is_away(tmp_path: Path, failing: bool) -> None:
    node = Node(tmp_path)
    async with node.served(tmp_path / "s") as served:
        node.fake.failing = failing
        absent = CRIClient(f"unix://{tmp_path}/absent", 0.1, asyncio.get_running_loop())
        executor = served if failing else CRIStop(absent, node.exists, settle_s=SETTLE_S)
        with pytest.raises(EvictionFailed, match="not initialized yet" if failing else "absent: .*cannot connect"):
            await executor.evict(ORDER)
    assert not node.fake.stops


async def test_without_a_uid_nothing_is_stopped(tmp_path: Path) -> None:
    node = Node(tmp_path)
    for sandbox in node.fake.sandboxes.values():
        sandbox.metadata.uid = ""
    async with node.served(tmp_path / "s") as executor:
        with pytest.raises(EvictionFailed, match="no UID"):
            await executor.evict(Eviction("", "default/web", "memory is short"))
    assert not node.fake.stops
