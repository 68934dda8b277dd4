"""When a node writes its NodeMetric, and what it does when it cannot; hours pass in milliseconds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Self, cast

import msgspec
import pytest

from koord.host.reconcile.state import FileState, Phase
from koord.kube.client import Body, CallLimits, Client, PatchType
from koord.kube.errors import APIError, KubeError, Unreachable
from koord.kube.kind import NODE_METRIC, Key, Kind, T
from koord.model import core
from koord.model.core import ObjectMeta
from koord.model.nodemetric import CollectPolicy, NodeMetric, NodeMetricSpec
from koord.model.nodestate import ANNOTATION, NodeState
from koord.overcommit.amounts import CPUMemory
from qosd.cluster import reporter
from qosd.cluster.reporter import Reporter
from qosd.cluster.schedule import Schedule
from qosd.clusterstatus import PartState
from qosd.metrics import Metrics
from tests.kube import virtualtime
from tests.qosd.cluster.history import History, Use
from tests.qosd.cluster.test_nodestate import tick_report
from tests.support.waiting import until

CONFLICT = APIError(409, "Conflict", "the object has been modified")
TOO_MANY = APIError(429, "TooManyRequests", "please wait", retry_after_s=20.0)
DOWN = APIError(503, "ServiceUnavailable", "etcd is away")
NOT_FOUND = APIError(404, "NotFound", "no such NodeMetric")
FORBIDDEN = APIError(403, "Forbidden", "not this node's")
AWAY = Unreachable("connection refused", may_have_arrived=False)


class Inline(Executor):
    """A thread that has always just finished."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - as an executor
            future.set_exception(error)
        return future


@dataclass
class API:
    """``fails``: the error of a request that comes at that second, if any."""

    clock: Callable[[], float]
    fails: Callable[[float], KubeError | None] = lambda _: None
    tries: list[float] = field(default_factory=list)
    statuses: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    states: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    limits: CallLimits | None = None

    def with_limits(self, limits: CallLimits) -> Self:
        self.limits = limits
        return self

    async def patch(
        self,
        kind: Kind[T],
        key: Key,
        body: Body | Sequence[Mapping[str, Any]],
        type: PatchType = PatchType.MERGE,
        subresource: str = "",
    ) -> T:
        assert (kind, key) == (NODE_METRIC, Key("", "n1"))
        now_s = self.clock()
        self.tries.append(now_s)
        error = self.fails(now_s)
        if error is not None:
            raise error
        document = msgspec.to_builtins(body)
        if subresource:
            assert (type, subresource) == (PatchType.JSON, "status")
            (operation,) = document
            assert (operation["op"], operation["path"]) == ("add", "/status")
            self.statuses.append((now_s, operation["value"]))
        else:
            assert (type, set(document), set(document["metadata"])) == (PatchType.MERGE, {"metadata"}, {"annotations"})
            text = document["metadata"]["annotations"][ANNOTATION]
            self.states.append((now_s, msgspec.json.decode(text)))
        return kind.struct()

    @property
    def written_s(self) -> list[float]:
        return [at_s for at_s, _ in self.statuses]


class Cluster:
    """A node that ticks each second, its NodeMetric, and the API server between them. Instants are of the start on."""

    def __init__(self) -> None:
        self.loop_clock = asyncio.get_running_loop().time
        self.history = History()
        self.history.now_s = self.clock()
        self.use = Use(1, 4)
        self.is_ticking = True
        self.files: tuple[FileState, ...] = ()
        self.loop = SimpleNamespace(report=tick_report(None))
        self.metrics = Metrics(lambda: 0)
        self.disk: Executor | None = None
        self.after_tick: list[Callable[[], None]] = []
        self.metric: NodeMetric | None = metric()
        self.api = API(self.clock)
        self.client = cast(Client, self.api)
        self.reporter = Reporter(self.client, "n1", self, lambda: self.metric, self.clock, lambda: 1.0, Inline())

    @property
    def sense(self) -> History:
        return self.history

    def clock(self) -> float:
        return self.loop_clock()

    def tick(self) -> None:
        self.history.now_s = self.clock() - 1
        self.history.tick(self.use)
        self.loop.report = tick_report(self.history, *self.files)
        for look in self.after_tick:
            look()

    async def run(self, until_s: float, **at: Callable[[], None]) -> None:
        """Till that second. ``at``: what happens at which second ("s90")."""
        task = asyncio.create_task(self.reporter.run())
        for second in range(int(self.clock()) + 1, int(until_s) + 1):
            await asyncio.sleep(second - self.clock())
            at.get(f"s{second}", lambda: None)()
            if self.is_ticking:
                self.tick()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    @property
    def counts(self) -> dict[str, int]:
        counted = self.metrics.cluster_reports
        return {result: counted[NODE_METRIC.name, result] for result in ("written", "failed")}


def metric(uid: str = "1", annotation: str = "", **policy: Any) -> NodeMetric:
    annotations = {ANNOTATION: annotation} if annotation else {}
    spec = NodeMetricSpec(msgspec.convert(policy, CollectPolicy))
    return NodeMetric(ObjectMeta(name="n1", uid=uid, annotations=annotations), spec)


def seconds(api: API) -> list[int]:
    return [round(at_s) for at_s in api.written_s]


# intervals


def test_a_report_each_interval() -> None:
    async def story() -> None:
        cluster = Cluster()
        await cluster.run(250)
        assert seconds(cluster.api) == [60, 120, 180, 240]
        assert cluster.counts == {"written": 4, "failed": 0}
        first = cluster.api.statuses[0][1]
        assert first["nodeMetric"]["nodeUsage"]["resources"] == {"cpu": "1", "memory": "4Gi"}
        assert cluster.reporter.status().state is PartState.OK and cluster.reporter.status().age_s == pytest.approx(10)

    virtualtime.run(story())


def test_one_try_at_a_time() -> None:
    """The next one is the reporter's own, with newer figures."""

    async def story() -> None:
        api = Cluster().api
        assert api.limits is not None and (api.limits.tries, api.limits.timeout_s) == (1, 10.0)

    virtualtime.run(story())


def test_the_interval_of_the_spec_from_now_on() -> None:
    async def story() -> None:
        cluster = Cluster()

        def faster() -> None:
            cluster.metric = metric(reportIntervalSeconds=30)

        await cluster.run(200, s65=faster)
        assert seconds(cluster.api) == [60, 90, 120, 150, 180]

    virtualtime.run(story())


def test_a_bad_spec_is_said_and_followed_as_far_as_it_goes(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        cluster = Cluster()
        cluster.metric = metric(reportIntervalSeconds=1, nodeAggregatePolicy={"durations": ["soon"]})
        await cluster.run(95)
        assert seconds(cluster.api) == [30, 60, 90]
        assert "aggregatedNodeUsages" not in cluster.api.statuses[-1][1]["nodeMetric"]

    virtualtime.run(story())
    said = [each for each in caplog.messages if "metricCollectPolicy" in each]
    assert len(said) == 1 and "reportIntervalSeconds: 1 is less than 30" in said[0] and "'soon'" in said[0]


# change


@pytest.mark.parametrize(
    ("written", "now", "moved"),
    [
        (CPUMemory(1000, 1000), CPUMemory(1000, 1000), False),
        (CPUMemory(1000, 1000), CPUMemory(1400, 1000), False),  # 10 %
        (CPUMemory(1000, 1000), CPUMemory(1401, 1000), True),
        (CPUMemory(1401, 1000), CPUMemory(1000, 1000), True),
        (CPUMemory(1000, 1000), CPUMemory(1000, 1100), False),
        (CPUMemory(1000, 1000), CPUMemory(1000, 1101), True),
        (CPUMemory(1000, 1000), CPUMemory(1000, 899), True),
    ],
    ids=str,
)
def test_what_matters_is_more_than_a_tenth_of_allocatable(written: CPUMemory, now: CPUMemory, moved: bool) -> None:
    assert reporter.has_moved(written, now, CPUMemory(4000, 1000)) is moved
    assert not reporter.has_moved(written, now, CPUMemory())


def test_a_change_that_matters_is_written_before_its_time() -> None:
    """3 of 4 CPUs more are a tenth of the last minute's mean after 8 s; it is looked at each 10 s."""

    async def story() -> None:
        cluster = Cluster()
        cluster.metric = metric(aggregateDurationSeconds=60, reportIntervalSeconds=600)

        def busier() -> None:
            cluster.use = Use(4, 4)

        await cluster.run(640, s602=busier)
        first, *others = seconds(cluster.api)
        assert first == 600 and others == [620, 630]

    virtualtime.run(story())


def test_nothing_is_compared_before_there_was_a_report() -> None:
    async def story() -> None:
        cluster = Cluster()

        def busier() -> None:
            cluster.use = Use(4, 16)

        await cluster.run(59, s10=busier)
        assert cluster.api.statuses == []

    virtualtime.run(story())


# failures


@pytest.mark.parametrize("error", [CONFLICT, TOO_MANY, DOWN, NOT_FOUND, FORBIDDEN, AWAY], ids=str)
def test_what_cannot_be_written_once_is_written_within_the_interval(error: KubeError) -> None:
    async def story() -> None:
        cluster = Cluster()
        cluster.api.fails = lambda now_s: error if 55 < now_s < 65 else None
        await cluster.run(200)
        again, after, *_ = seconds(cluster.api)
        assert again in ((80,) if error is TOO_MANY else (70,)) and after == again + 60
        assert cluster.counts["failed"] == 1
        usage = core.unix_s(cluster.api.statuses[0][1]["updateTime"])
        later = core.unix_s(cluster.api.statuses[1][1]["updateTime"])
        assert usage is not None and later is not None and round(later - usage) == 60

    virtualtime.run(story())


async def test_a_disk_that_stalls_delays_no_report() -> None:
    """What waits for it is on another thread."""
    cluster, stalled, began_s = Cluster(), threading.Event(), -60.0
    with ThreadPoolExecutor(1) as cluster.disk:
        cluster.disk.submit(stalled.wait)
        try:
            reporter = Reporter(
                cluster.client, "n1", cluster, lambda: cluster.metric, lambda: cluster.clock() + began_s
            )
            began_s = 0.0
            cluster.tick()
            running = asyncio.create_task(reporter.run())
            await until(lambda: bool(cluster.api.statuses))
            running.cancel()
            await asyncio.wait([running])
        finally:
            stalled.set()


def test_two_hours_without_an_api_server(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        cluster = Cluster()
        cluster.api.fails = lambda now_s: AWAY if 100 < now_s < 7300 else None
        caplog.set_level(logging.INFO)
        await cluster.run(7500)
        before, *after = seconds(cluster.api)
        assert before == 60 and 7300 <= after[0] <= 7330
        assert all(later - earlier == 60 for earlier, later in pairwise(after))
        assert 235 <= cluster.counts["failed"] <= 245  # two a minute
        assert cluster.reporter.status().state is PartState.OK

    virtualtime.run(story())
    assert sum("cannot be written" in each and each.startswith("the NodeMetric") for each in caplog.messages) == 1
    assert sum("no longer so: the NodeMetric cannot be written" in each for each in caplog.messages) == 1


def test_never_more_than_a_write_in_ten_seconds() -> None:
    """Two at once after a rest; whatever fails, and however often what is held changes."""

    async def story() -> None:
        cluster = Cluster()
        cluster.metric = metric(aggregateDurationSeconds=60, reportIntervalSeconds=30)
        cluster.api.fails = lambda now_s: DOWN if int(now_s) % 2 else None

        def restless() -> None:
            cluster.files = () if cluster.files else (FileState(Phase.HELD, by="cpuBurst"),)
            cluster.use = Use(4, 16) if cluster.files else Use(0, 0)
            cluster.history.with_slo_generation(round(cluster.clock()))

        await cluster.run(600, **{f"s{second}": restless for second in range(1, 600)})
        tries = cluster.api.tries
        assert len(tries) > 50
        for number in range(len(tries) - 2):
            assert tries[number + 2] - tries[number] > 9.99
        assert len(tries) <= 2 + 600 / 10

    virtualtime.run(story())


def test_the_status_of_a_node_that_cannot_report() -> None:
    async def story() -> None:
        cluster = Cluster()
        cluster.api.fails = lambda _: FORBIDDEN
        await cluster.run(65)
        part = cluster.reporter.status()
        assert (part.name, part.state, part.age_s, part.failures) == ("NodeMetric", PartState.FAILING, None, 1)
        assert part.says == "the NodeMetric cannot be written: 403 Forbidden: not this node's"

    virtualtime.run(story())


@pytest.mark.parametrize(("failures", "pause_s"), [(1, 10), (2, 20), (3, 30), (4, 30), (50, 30)])
def test_pauses_double_up_to_half_a_minute(failures: int, pause_s: float) -> None:
    schedule = Schedule(0.0)
    for _ in range(failures):
        schedule.failed(100.0, lambda: 1.0, None)
    assert schedule.due_s(60) == 100 + pause_s
    assert schedule.due_s(20) == 100 + min(20, pause_s)
    schedule.written(200.0)
    assert schedule.due_s(60) == 260


# no object, no figures


def test_without_an_object_nothing_is_written_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        cluster = Cluster()
        cluster.metric = None

        def made() -> None:
            cluster.metric = metric()

        await cluster.run(200)
        assert cluster.api.tries == []
        assert cluster.reporter.status().state is PartState.WAITING
        await cluster.run(320, s205=made)
        first, *others = seconds(cluster.api)
        assert 205 <= first <= 215 and others == [first + 60]

    virtualtime.run(story())
    said = [each for each in caplog.messages if each.startswith("no NodeMetric")]
    assert said == ["no NodeMetric n1 is known here (koord-manager makes it): no report"]


def test_an_object_that_goes_and_comes_again() -> None:
    async def story() -> None:
        cluster = Cluster()

        def gone() -> None:
            cluster.metric = None

        def again() -> None:
            cluster.metric = metric("2")

        await cluster.run(200, s70=gone, s150=again)
        first, second = seconds(cluster.api)
        assert first == 60 and 150 <= second <= 160
        assert len(cluster.api.states) == 2  # the new one has no annotation

    virtualtime.run(story())


def test_a_node_that_stands_still_reports_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Its last report grows old instead, which says so to whoever reads it."""

    async def story() -> None:
        cluster = Cluster()

        def stop() -> None:
            cluster.is_ticking = False

        def go() -> None:
            cluster.is_ticking = True

        await cluster.run(400, s61=stop, s301=go)
        first, second, *_ = seconds(cluster.api)
        assert first == 60 and 301 <= second <= 311

    virtualtime.run(story())
    assert "no NodeMetric is written: the newest tick is 60 s old" in caplog.messages


def test_before_the_first_tick_there_is_nothing_to_report() -> None:
    async def story() -> None:
        cluster = Cluster()
        cluster.is_ticking = False
        await cluster.run(130)
        assert cluster.api.tries == []
        assert cluster.reporter.status().says == "no NodeMetric is written: there was no tick yet"

    virtualtime.run(story())


# the annotation


def test_the_state_is_written_when_somebody_waits_for_it() -> None:
    held = FileState(Phase.HELD, by="cpuBurst", speakers=((2, "cpuBurst"),))

    async def story() -> None:
        cluster = Cluster()

        def holds(count: int, generation: int) -> Callable[[], None]:
            def change() -> None:
                cluster.files = (held,) * count
                cluster.history.with_slo_generation(generation)

            return change

        await cluster.run(
            180, s1=holds(2, 6), s20=holds(3, 6), s70=holds(3, 7), s85=holds(1, 7), s95=holds(0, 7), s130=holds(2, 7)
        )
        found = [(round(at_s), state["heldFiles"], state["nodeSLOGeneration"]) for at_s, state in cluster.api.states]
        at = [at_s for at_s, _, _ in found]
        assert [rest for _, *rest in found] == [[2, 6], [3, 6], [3, 7], [0, 7], [2, 7]]
        assert at[0] == 1 and at[1] == 60 and 70 <= at[2] <= 80 and 95 <= at[3] <= 105 and at[4] == 180 - 60 + 60

    virtualtime.run(story())


def test_a_state_that_the_object_has_is_not_written_again() -> None:
    async def story() -> None:
        cluster = Cluster()
        cluster.metric = metric(annotation=NodeState(0, 0).encoded())
        await cluster.run(200)
        assert cluster.api.states == []

    virtualtime.run(story())


def test_a_state_that_cannot_be_written_delays_no_report_and_goes_with_the_next() -> None:
    async def story() -> None:
        cluster = Cluster()
        cluster.api.fails = lambda now_s: FORBIDDEN if now_s < 55 else None
        await cluster.run(130)
        assert seconds(cluster.api)[0] == 60
        assert [round(at_s) for at_s, _ in cluster.api.states] == [60]
        assert len(cluster.api.tries) == 4

    virtualtime.run(story())


def test_it_may_run_again() -> None:
    async def story() -> None:
        cluster = Cluster()
        await cluster.run(70)
        assert cluster.after_tick == []
        await cluster.run(190)
        assert seconds(cluster.api) == [60, 120, 180]

    virtualtime.run(story())
