"""Evictions through an API server and a container runtime on real sockets: each way to end, a fault at every step."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from koord.host.undo import UndoRecord
from koord.kube.client import Client
from koord.kube.kind import Key, Kind
from koord.kube.recorder import EventType, Recorder, Subject
from koord.pb.cri import api_pb2 as cri
from qosd.act.cristop import CRIStop
from qosd.act.evictor import Evictor
from qosd.act.executor import EvictionFailed, EvictionRefused, Executor
from qosd.act.journal import Entry
from qosd.cluster.apieviction import APIEviction, evicting_by_api
from qosd.cluster.evictionrequest import Bounds
from qosd.decide.decision import Eviction
from qosd.pods.cri import Container, Detail, Runtime, Sandbox
from tests.fakes.runtime import FakeRuntime
from tests.kube.server import Fault, JSONObject, Server
from tests.kube.support import PODS, client, until

Answer = TypeVar("Answer")
KEY = Key("default", "web")
ORDER = Eviction("uid-web", "default/web", "beMemoryEvict: memory is short", "/kubepods/burstable/poduid-web")


class Events:
    def __init__(self) -> None:
        self.said: list[tuple[str, str, str, str]] = []

    def record(self, subject: Subject, type: EventType, reason: str, message: str) -> None:
        self.said.append((f"{subject.key} {subject.uid}", str(type), reason, message))


class Cluster(Server):
    """Pod ``web`` of two containers on the node and in the API. ``kubelet``: what it does when the API's pod goes."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.fake = FakeRuntime(directory / "cgroups")
        self.sandbox = self.fake.pod("web")
        for name in "ab":
            self.fake.start(self.fake.container(self.sandbox, name))
        self.put(PODS, "default", "web", metadata={"uid": "uid-web"})
        self.kubelet: Callable[[], object] = self.end_pod
        self.steps: list[tuple[str, str]] = []
        self.step_told: Callable[[], object] = lambda: None
        self.emergency = ""
        self.grace_end_s = 0.0
        """By the loop's clock."""

    def _evict(self, collection: tuple[str, str], key: tuple[str, str], body: JSONObject) -> JSONObject:
        answer = super()._evict(collection, key, body)
        self.kubelet()
        return answer

    def end_pod(self) -> None:
        """Some time later: its containers end, then everything of it is gone."""
        loop = asyncio.get_running_loop()
        for name in list(self.fake.containers):
            loop.call_later(0.02, self.fake.stop, name)
        loop.call_later(0.04, self.fake.remove, self.sandbox)

    def exists(self, cgroup: str) -> bool:
        return (self.fake.tree / cgroup.lstrip("/")).is_dir()

    def tell(self, eviction: Eviction, result: str, why: str) -> None:
        assert eviction == ORDER
        self.steps.append((str(result), why))
        self.step_told()

    def left_s(self, uid: str) -> float:
        assert uid == "uid-web"
        return self.grace_end_s - asyncio.get_running_loop().time()

    @property
    def running(self) -> int:
        return sum(each.state == cri.CONTAINER_RUNNING for each in self.fake.containers.values())


BOUNDS = Bounds(refused_s=0.2, unanswered_s=0.2, gone_s=0.2, pause_s=0.01)
LONG = Bounds(refused_s=9, unanswered_s=9, gone_s=9, pause_s=0.01)
ENDS = "the API server has agreed, and kubelet ends the pod"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path)
    async with cluster.serving():
        yield cluster


@asynccontextmanager
async def executor(
    cluster: Cluster, directory: Path, bounds: Bounds = BOUNDS, events: Any = None, url: str = ""
) -> AsyncIterator[tuple[APIEviction, Events]]:
    events = events or Events()
    async with cluster.fake.serving(directory / "s") as endpoint, client(url or cluster.url, tries=1) as api:
        runtime = Runtime(endpoint, 2.0, asyncio.get_running_loop())
        stop = CRIStop(runtime, cluster.exists, exit_s=0.3, settle_s=0.3)
        try:
            yield (
                APIEviction(api, stop, events, lambda: cluster.emergency, cluster.left_s, cluster.tell, bounds),
                events,
            )
        finally:
            runtime.close()


async def test_an_eviction_that_the_api_server_agrees_to(cluster: Cluster, tmp_path: Path) -> None:
    async with executor(cluster, tmp_path, LONG) as (by_api, events):
        await by_api.evict(ORDER)
    assert (cluster.running, cluster.fake.stops, cluster.count("evict")) == (0, [], 1)
    assert cluster.steps == [("stopping", ENDS)]
    assert events.said == [("default/web uid-web", "Warning", "evictPodSuccess", ORDER.why)]


async def test_it_has_not_come_about_before_the_cgroups_are_gone(cluster: Cluster, tmp_path: Path) -> None:
    """kubelet has removed the pod, and the runtime has forgotten it, but a cgroup of it is left."""

    def forget() -> None:
        for id_ in list(cluster.fake.containers):
            del cluster.fake.containers[id_]

    cluster.kubelet = forget
    async with executor(cluster, tmp_path) as (by_api, _):
        with pytest.raises(EvictionFailed, match=r"its cgroup .* is still there") as caught:
            await by_api.evict(ORDER)
    assert not isinstance(caught.value, EvictionRefused)


async def test_a_budgets_refusal_is_waited_on_and_nothing_is_stopped(cluster: Cluster, tmp_path: Path) -> None:
    cluster.protected.add("web")
    async with executor(cluster, tmp_path) as (by_api, events):
        with pytest.raises(EvictionRefused, match=r"refused by a PodDisruptionBudget: needs 2 pods, for 0.2 s"):
            await by_api.evict(ORDER)
    refusal = "api eviction refused by a PodDisruptionBudget: needs 2 pods"
    assert (cluster.running, cluster.fake.stops, cluster.steps) == (2, [], [("refused", refusal)])
    assert events.said == [
        ("default/web uid-web", "Warning", "evictPodFail", f"{ORDER.why}; {refusal}, for 0.2 s"),
    ]


async def test_a_budget_that_gives_way(cluster: Cluster, tmp_path: Path) -> None:
    cluster.protected.add("web")
    cluster.step_told = cluster.protected.clear
    async with executor(cluster, tmp_path) as (by_api, events):
        await by_api.evict(ORDER)
    assert [result for result, _ in cluster.steps] == ["refused", "stopping"]
    assert (cluster.count("evict"), events.said[0][2], cluster.fake.stops) == (2, "evictPodSuccess", [])


def _pod_is_gone(cluster: Cluster) -> None:
    cluster.delete(PODS, "default", "web")
    cluster.end_pod()


def _pod_is_another(cluster: Cluster) -> None:
    _pod_is_gone(cluster)
    cluster.put(PODS, "default", "web", metadata={"uid": "uid-new"})


@pytest.mark.parametrize(
    ("setting", "says"),
    [(_pod_is_gone, "no longer has the pod"), (_pod_is_another, "has another pod of that name")],
)
async def test_a_pod_that_the_api_server_does_not_have_is_kubelets_to_end(
    cluster: Cluster, tmp_path: Path, setting: Callable[[Cluster], None], says: str
) -> None:
    setting(cluster)
    async with executor(cluster, tmp_path) as (by_api, _):
        await by_api.evict(ORDER)
    assert (cluster.running, cluster.fake.stops) == (0, [])
    assert cluster.steps == [("stopping", f"the API server {says}, and kubelet ends the pod")]
    assert len(cluster.objects.get(("/api/v1", "pods"), {})) == (setting is _pod_is_another), "the other one stays"


FALLEN_BACK = "fell back to CRI because"


def _no_server(cluster: Cluster) -> str:
    return "http://127.0.0.1:9"


def _lasting(status: int, reason: str) -> Callable[[Cluster], str]:
    def setting(cluster: Cluster) -> str:
        cluster.faults = [Fault("evict", status=status, reason=reason)] * 50
        return ""

    return setting


def _hanging(cluster: Cluster) -> str:
    """kubelet does not end the pod."""
    cluster.kubelet = lambda: None
    return ""


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        (_no_server, "the API server has not done it in 0.2 s: Cannot connect"),
        (_lasting(503, "ServiceUnavailable"), "the API server has not done it in 0.2 s: 503 ServiceUnavailable"),
        (_lasting(401, "Unauthorized"), "the API server does not do it: 401 Unauthorized"),
        (_lasting(403, "Forbidden"), "the API server does not do it: 403 Forbidden"),
        (_hanging, "kubelet has not ended it in 0."),
    ],
)
async def test_without_the_api_the_runtime_stops_the_containers(
    cluster: Cluster, tmp_path: Path, setting: Callable[[Cluster], str], says: str
) -> None:
    url = setting(cluster)
    async with executor(cluster, tmp_path, url=url) as (by_api, events):
        await by_api.evict(ORDER)
    assert (cluster.running, len(cluster.fake.stops)) == (0, 2)
    assert cluster.steps[-1][1].startswith(f"{FALLEN_BACK} {says.partition('(')[0]}")
    assert events.said[0][2:] == ("evictPodSuccess", f"{ORDER.why}; {cluster.steps[-1][1]}")


class GracefulPod:
    """kubelet ends the pod ``ends_s`` after the agreement; its grace period ends after ``grace_s``."""

    def __init__(self, cluster: Cluster, grace_s: float, ends_s: float) -> None:
        self._cluster, self._grace_s, self._ends_s = cluster, grace_s, ends_s
        cluster.kubelet = self.terminate

    def terminate(self) -> None:
        loop = asyncio.get_running_loop()
        self._cluster.grace_end_s = loop.time() + self._grace_s
        loop.call_later(self._ends_s, self._cluster.end_pod)


@pytest.mark.parametrize(
    ("grace_s", "ends_s", "stops"),
    [
        (9, 0.5, 0),  # longer than gone_s
        (0.05, 0.12, 0),  # over before gone_s is
        (0.5, 9, 2),  # kubelet does not keep to it
    ],
)
async def test_the_runtime_stops_nothing_before_the_pods_own_grace_period_is_over(
    cluster: Cluster, tmp_path: Path, grace_s: float, ends_s: float, stops: int
) -> None:
    GracefulPod(cluster, grace_s, ends_s)
    begin_s = asyncio.get_running_loop().time()
    async with executor(cluster, tmp_path) as (by_api, _):
        await by_api.evict(ORDER)
    assert (cluster.running, len(cluster.fake.stops)) == (0, stops)
    assert asyncio.get_running_loop().time() - begin_s >= min(grace_s, ends_s)


async def test_an_emergency_waits_for_no_grace_period(cluster: Cluster, tmp_path: Path) -> None:
    GracefulPod(cluster, grace_s=9, ends_s=9)
    cluster.step_told = lambda: setattr(cluster, "emergency", LATE)
    async with executor(cluster, tmp_path) as (by_api, _):
        async with asyncio.timeout(5):
            await by_api.evict(ORDER)
    assert (cluster.running, len(cluster.fake.stops)) == (0, 2)


async def test_an_api_server_that_comes_back_in_the_middle(cluster: Cluster, tmp_path: Path) -> None:
    cluster.faults = [Fault("evict", drop=True), Fault("evict", status=503), Fault("evict", drop=True)]
    async with executor(cluster, tmp_path, LONG) as (by_api, _):
        await by_api.evict(ORDER)
    assert (cluster.running, cluster.fake.stops, cluster.steps) == (0, [], [("stopping", ENDS)])


async def test_a_lost_answer_is_an_eviction_all_the_same(cluster: Cluster, tmp_path: Path) -> None:
    cluster.faults = [Fault("evict", drop=True, done=True)]
    async with executor(cluster, tmp_path, LONG) as (by_api, _):
        await by_api.evict(ORDER)
    assert (cluster.running, cluster.fake.stops) == (0, [])


LATE = "it is too late in 3 s (beMemoryEvict: 97 % of the node's memory are in use)"


async def test_in_an_emergency_nobody_is_asked(cluster: Cluster, tmp_path: Path) -> None:
    cluster.protected.add("web")
    cluster.emergency = LATE
    async with executor(cluster, tmp_path, LONG) as (by_api, events):
        await by_api.evict(ORDER)
    assert (cluster.running, len(cluster.fake.stops), cluster.count("evict")) == (0, 2, 0)
    assert cluster.steps == [("stopping", f"{FALLEN_BACK} {LATE}")]
    assert events.said[0][3] == f"{ORDER.why}; {FALLEN_BACK} {LATE}"


def _while_refused(cluster: Cluster) -> None:
    cluster.protected.add("web")


def _while_kubelet_ends_it(cluster: Cluster) -> None:
    cluster.kubelet = lambda: None


@pytest.mark.parametrize("setting", [_while_refused, _while_kubelet_ends_it])
async def test_an_emergency_in_the_middle_ends_the_wait(
    cluster: Cluster, tmp_path: Path, setting: Callable[[Cluster], None]
) -> None:
    setting(cluster)
    cluster.step_told = lambda: setattr(cluster, "emergency", LATE)
    async with executor(cluster, tmp_path, LONG) as (by_api, _):
        async with asyncio.timeout(5):
            await by_api.evict(ORDER)
    assert (cluster.running, len(cluster.fake.stops)) == (0, 2)
    assert cluster.steps[-1] == ("stopping", f"{FALLEN_BACK} {LATE}")


async def test_an_emergency_while_the_api_server_does_not_answer(cluster: Cluster, tmp_path: Path) -> None:
    cluster.faults = [Fault("evict", hang=True)]
    async with executor(cluster, tmp_path, LONG) as (by_api, _):
        task = asyncio.create_task(by_api.evict(ORDER))
        await until(lambda: cluster.count("evict") == 1)
        cluster.emergency = LATE
        async with asyncio.timeout(5):
            await task
    assert (cluster.running, len(cluster.fake.stops)) == (0, 2)


async def test_what_the_runtime_cannot_stop_either_is_said_with_both_reasons(cluster: Cluster, tmp_path: Path) -> None:
    cluster.emergency = LATE
    cluster.fake.endless.update(cluster.fake.containers)
    async with executor(cluster, tmp_path) as (by_api, events):
        with pytest.raises(EvictionFailed, match=r"is running: .*no answer in time"):
            await by_api.evict(ORDER)
    assert events.said[0][2] == "evictPodFail"


@pytest.mark.parametrize(
    ("order", "says"),
    [
        (Eviction("", "default/web", "why"), "pod default/web has no UID"),
        (Eviction("uid-web", "web", "why"), "pod 'web' is not namespace/name"),
    ],
)
async def test_an_order_for_nobody(cluster: Cluster, tmp_path: Path, order: Eviction, says: str) -> None:
    async with executor(cluster, tmp_path) as (by_api, events):
        with pytest.raises(EvictionFailed, match=says):
            await by_api.evict(order)
    assert (cluster.running, cluster.requests, events.said) == (2, [], [])


async def test_an_event_that_cannot_be_written_costs_no_eviction(cluster: Cluster, tmp_path: Path) -> None:
    cluster.faults = [Fault("create", status=403, reason="Forbidden")]
    async with client(cluster.url, tries=1) as api:
        recorder = Recorder(api, "koordlet", "n1", time.time)
        task = asyncio.create_task(recorder.run())
        async with executor(cluster, tmp_path, LONG, events=recorder) as (by_api, _):
            await by_api.evict(ORDER)
        recorder.close()
        await task
    assert (recorder.failed, recorder.written, cluster.running) == (1, 0, 0)


# a fault at every step


class Step:
    """Counts what an eviction awaits, and does ``fault`` at step ``last``."""

    def __init__(self, last: int) -> None:
        self._left = last
        self.fault: Callable[[], object] = lambda: None
        self.is_reached = False

    async def around(self, call: Callable[[], Awaitable[Answer]]) -> Answer:
        await self.take()
        answer = await call()
        await self.take()
        return answer

    async def take(self) -> None:
        self._left -= 1
        if self._left == -1:
            self.is_reached = True
            self.fault()
            await asyncio.sleep(0)


class SteppedRuntime(Runtime):
    step: Step

    async def sandboxes(self, uid: str = "") -> list[Sandbox]:
        return await self.step.around(lambda: super(SteppedRuntime, self).sandboxes(uid))

    async def containers(self, sandbox_id: str = "") -> list[Container]:
        return await self.step.around(lambda: super(SteppedRuntime, self).containers(sandbox_id))

    async def container_detail(self, container_id: str) -> Detail | None:
        return await self.step.around(lambda: super(SteppedRuntime, self).container_detail(container_id))

    async def stop_container(self, container_id: str, grace_s: int, exit_s: float) -> None:
        await self.step.around(lambda: super(SteppedRuntime, self).stop_container(container_id, grace_s, exit_s))


class SteppedAPI:
    def __init__(self, api: Client, step: Step) -> None:
        self._api, self._step = api, step

    async def evict(self, key: Key, uid: str) -> None:
        await self._step.around(lambda: self._api.evict(key, uid))

    async def get(self, kind: Kind[Any], key: Key) -> Any:
        return await self._step.around(lambda: self._api.get(kind, key))


@asynccontextmanager
async def stepped(cluster: Cluster, endpoint: str, step: Step) -> AsyncIterator[APIEviction]:
    runtime = SteppedRuntime(endpoint, 2.0, asyncio.get_running_loop())
    runtime.step = step
    async with client(cluster.url, tries=1) as api:
        stop = CRIStop(runtime, cluster.exists, exit_s=0.3, settle_s=0.3)
        try:
            yield APIEviction(
                SteppedAPI(api, step), stop, Events(), lambda: cluster.emergency, cluster.left_s, cluster.tell, LONG
            )
        finally:
            runtime.close()


def _as_it_is(cluster: Cluster) -> None: ...


def _refused_once(cluster: Cluster) -> None:
    cluster.faults = [Fault("evict", status=429, reason="TooManyRequests")]


def _forbidden(cluster: Cluster) -> None:
    cluster.faults = [Fault("evict", status=403, reason="Forbidden")] * 2


async def steps_of(is_reached: Callable[[int], Awaitable[bool]]) -> int:
    """How many steps there are, after each of them had its fault."""
    last = 0
    while await is_reached(last):
        last += 1
    return last


COURSES = [_as_it_is, _refused_once, _forbidden, _pod_is_another]


@pytest.mark.parametrize("course", COURSES)
async def test_cancelled_at_any_step_it_can_be_done_again(tmp_path: Path, course: Callable[[Cluster], None]) -> None:
    async def is_cut(last: int) -> bool:
        cluster = Cluster(tmp_path / str(last))
        async with cluster.serving(), cluster.fake.serving(tmp_path / "s") as endpoint:
            course(cluster)
            step = Step(last)
            async with stepped(cluster, endpoint, step) as by_api:
                task = asyncio.create_task(by_api.evict(ORDER))
                step.fault = task.cancel
                await asyncio.wait((task,))
                assert task.cancelled() is step.is_reached
                assert not [each for each in asyncio.all_tasks() if "APIEviction" in repr(each.get_coro())]
                await by_api.evict(ORDER)
        assert cluster.running == 0
        return step.is_reached

    assert await steps_of(is_cut) > 8


@pytest.mark.parametrize("course", COURSES)
async def test_an_emergency_at_any_step(tmp_path: Path, course: Callable[[Cluster], None]) -> None:
    async def is_met(last: int) -> bool:
        cluster = Cluster(tmp_path / str(last))
        async with cluster.serving(), cluster.fake.serving(tmp_path / "s") as endpoint:
            course(cluster)
            step = Step(last)
            step.fault = lambda: setattr(cluster, "emergency", LATE)
            async with stepped(cluster, endpoint, step) as by_api:
                async with asyncio.timeout(5):
                    await by_api.evict(ORDER)
        assert cluster.running == 0
        return step.is_reached

    assert await steps_of(is_met) > 8


# in force for a while


class Journal:
    def record(self, entry: Entry) -> None: ...


class NoNotes:
    def all(self, kind: type[Any]) -> tuple[Any, ...]:
        return ()


def evictor_of(executor: Executor | None) -> Evictor:
    return Evictor(cast("UndoRecord", NoNotes()), Journal(), executor)


async def test_an_evictor_evicts_by_the_api_for_as_long_as_the_session_lasts(cluster: Cluster, tmp_path: Path) -> None:
    stop = CRIStop(Runtime(f"unix://{tmp_path}/s", 1.0, asyncio.get_running_loop()), cluster.exists)
    evictor = evictor_of(stop)
    async with client(cluster.url) as api:
        with (
            pytest.raises(ZeroDivisionError),
            evicting_by_api(evictor, api, Recorder(api, "koordlet", "n1", time.time)),
        ):
            assert isinstance(evictor.executor, APIEviction)
            raise ZeroDivisionError
    assert evictor.executor is stop


async def test_without_a_runtime_nobody_evicts(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    evictor = evictor_of(None)
    async with client(cluster.url) as api:
        with evicting_by_api(evictor, api, Recorder(api, "koordlet", "n1", time.time)):
            assert evictor.executor is None
    assert "without a runtime endpoint nobody sees its end" in caplog.text
