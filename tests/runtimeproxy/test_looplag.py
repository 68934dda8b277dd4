"""How late the loop is: what is seen of a stall, and that there is no timer without work."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtimeproxy.looplag import PERIOD_S, LoopLag
from runtimeproxy.metrics import Metrics
from tests.runtimeproxy.relay.rig import CREATE, VERSION, holding, rigged
from tests.support.waiting import until


class Loop:
    """A loop whose time is what the test says; its clock stands still within an iteration, as libuv's does."""

    def __init__(self) -> None:
        self.now_s = self.iteration_s = 100.0
        self.timers: list[tuple[float, object]] = []

    def time(self) -> float:
        return self.iteration_s

    def call_at(self, when_s: float, call: object) -> Loop:
        self.timers.append((when_s, call))
        return self

    def work(self, seconds: float) -> None:
        self.now_s += seconds

    def turn(self) -> None:
        """The next iteration: at once if a timer is due, else when it is."""
        when_s, call = self.timers.pop(0)
        self.now_s = self.iteration_s = max(self.now_s, when_s)
        assert callable(call)
        call()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def lag_of(loop: Loop, metrics: Metrics, *, busy: bool = False) -> LoopLag:
    return LoopLag(loop, metrics, lambda: busy, lambda: loop.now_s)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before_s", "after_s"), [(0.0, 0.3), (0.3, 0.0), (0.15, 0.15)], ids=["after", "before", "around"]
)
def test_a_stall_in_the_iteration_that_armed_it_is_seen_whole(
    loop: Loop, metrics: Metrics, before_s: float, after_s: float
) -> None:
    lag = lag_of(loop, metrics)
    loop.work(before_s)
    lag.arm()
    loop.work(after_s)
    loop.turn()
    assert metrics.loop_lag_longest_seconds == pytest.approx(0.3 - PERIOD_S)
    assert sum(metrics.loop_lag_seconds.counts) == 1
    assert metrics.loop_lag_seconds.sum == pytest.approx(metrics.loop_lag_longest_seconds)


def test_without_work_there_is_no_timer(loop: Loop, metrics: Metrics) -> None:
    lag = lag_of(loop, metrics)
    assert loop.timers == []
    lag.arm()
    lag.arm()
    assert len(loop.timers) == 1
    loop.turn()
    loop.turn()  # there was work after the first arming
    assert loop.timers == []
    assert (metrics.loop_lag_longest_seconds, sum(metrics.loop_lag_seconds.counts)) == (0.0, 2)


def test_what_is_in_flight_keeps_it_going(loop: Loop, metrics: Metrics) -> None:
    lag = lag_of(loop, metrics, busy=True)
    lag.arm()
    for _ in range(5):
        loop.turn()
    loop.work(0.2)
    loop.turn()
    assert metrics.loop_lag_longest_seconds == pytest.approx(0.2 - PERIOD_S)
    assert len(loop.timers) == 1


async def test_calls_are_timed_by_method_and_held_ones_by_the_decision(tmp_path: Path) -> None:
    async with rigged(tmp_path, holding(bytes, opened=True)) as rig:
        for path in (VERSION, VERSION, CREATE, "/other.Service/Call", "/another.Service/Call"):
            await rig.client.call(path, b"")
        metrics = rig.relay.metrics
        assert {path: sum(times.counts) for path, times in metrics.call_duration_seconds.items()} == {
            VERSION: 2,
            CREATE: 1,
            "other": 2,
        }
        assert {path: sum(times.counts) for path, times in metrics.hold_duration_seconds.items()} == {CREATE: 1}
        assert metrics.hold_duration_seconds[CREATE].sum <= metrics.call_duration_seconds[CREATE].sum
        await until(lambda: not rig.relay.lag.is_armed)
        assert sum(rig.relay.metrics.loop_lag_seconds.counts) > 0


async def test_a_call_that_is_cut_off_is_timed_too(tmp_path: Path) -> None:
    async with rigged(tmp_path, holding(bytes), settle=False) as rig:
        rig.client.open(CREATE)
        rig.client.open(VERSION)
        await rig.arrived(1)
        await rig.client.endpoint.close()
        await until(lambda: rig.relay.metrics.connections == 0)
        timed = rig.relay.metrics.call_duration_seconds
        timed = rig.relay.metrics.call_duration_seconds
        assert {path: sum(times.counts) for path, times in timed.items() if path != "other"} == {VERSION: 1, CREATE: 1}
