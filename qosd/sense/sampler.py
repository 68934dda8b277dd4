"""Takes one batch of samples per tick, and isolates the collectors from each other.

A collector that fails waits twice as long each time; one that has nothing to read on this node says why and is tried
again seldom; one that costs much CPU rests nine times as long as it computed. Time in which the thread waited for a CPU
does not count: on a node with full CPUs samples are needed most. None of this delays or hides another's samples.
Invariants: ``sample`` never raises for an error of a collector; a sample that was not renewed for long is withdrawn
(strategies see its age before that); an object that is gone leaves nothing behind.

``sample`` is for one thread at a time; ``health`` and the store may be read from others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from koord.model.slo import HostApplication
from qosd.model.metric import Kind, Scope
from qosd.model.snapshot import PodView
from qosd.sense.host import Clock
from qosd.sense.rates import NANOSECONDS
from qosd.sense.row import NO_SAMPLE, TICK_S, Column, Row
from qosd.sense.store import SampleStore
from qosd.sense.targets import SampleTargets, Tiers
from qosd.sense.tick import Collector, NotApplicable, Tick

_LONGEST_WAIT_S = 60.0
_EARLY_S = 0.1
"""A collector that is due runs in a tick that comes early by at most this."""
_REST = 10
_NEVER_REST = frozenset({"node", "usage", "node_pressure"})
"""The collectors by which strategies act within a second."""
_DEADLINE_SHARE = 0.1
_STALE_PERIODS, _STALE_S = 3, 10.0
_log = logging.getLogger(__name__)


class CollectorRow(Row, source="collectors", scope=Scope.COLLECTOR, period_s=TICK_S):
    duration_us: Column = Column("us", "What the last run took.", history=False)
    age_s: Column = Column("s", "Since the last run that succeeded.", history=False)
    failures: Column = Column("runs", "Runs that failed since the last one that succeeded.", history=False)
    overruns: Column = Column("runs", "Runs that took longer than their deadline.", Kind.COUNTER, history=False)
    disabled: Column = Column("", "1 where this node has nothing for the collector to read.", history=False)


@dataclass(frozen=True, slots=True)
class CollectorHealth:
    """The health of a collector. ``failures``: since the last success; ``overruns``: runs beyond the deadline.

    ``disabled_reason``: what this node lacks for it; "" = nothing.
    """

    last_success_ns: int | None = None
    failures: int = 0
    overruns: int = 0
    duration_us: float = 0.0
    last_error: str = ""
    disabled_reason: str = ""


@dataclass(slots=True)
class _Schedule:
    """A collector and when it is due. It never runs before ``rested_ns``, not even in an urgent tick."""

    collector: Collector
    health: CollectorHealth
    due_ns: int = 0
    rested_ns: int = 0


class Sampler:
    """Runs ``collectors`` in their order, which is that of their needs, and fills ``store``.

    ``clock``: monotonic nanoseconds; ``cpu_clock``: those that the calling thread has run. ``close`` ends all
    collectors.
    """

    def __init__(
        self,
        collectors: Sequence[Collector],
        store: SampleStore,
        clock: Clock,
        cpu_clock: Clock = time.thread_time_ns,
    ) -> None:
        self.store, self._clock, self._cpu_clock = store, clock, cpu_clock
        self._schedules = [_Schedule(collector, CollectorHealth()) for collector in collectors]
        self._targets = SampleTargets()
        self.sampled_ns = 0
        """The instant of the newest batch; 0 before the first."""

    @property
    def targets(self) -> SampleTargets:
        """The cgroups that the last batch measured."""
        return self._targets

    def sample(
        self,
        pods: Sequence[PodView],
        tiers: Tiers,
        host_apps: Sequence[HostApplication] = (),
        *,
        suppresses: bool = False,
        urgent: bool = False,
    ) -> None:
        """Takes a batch. The same ``pods`` object as before means no change; ``suppresses``: see ``Tick``.

        ``urgent``: between two beats; the collectors of every beat run, and keep their turn at the next.
        """
        before_ns, at_ns = self.sampled_ns, self._clock()
        self.sampled_ns = at_ns
        if not self._targets.made_of(pods, tiers, host_apps):
            self._follow(SampleTargets.of(pods, tiers, host_apps))
        tick = Tick(at_ns, self._targets, self.store, suppresses, before_ns)
        for schedule in self._schedules:
            if at_ns >= schedule.due_ns - int(_EARLY_S * NANOSECONDS):
                self._run(schedule, tick)
                _schedule(schedule, at_ns)
            elif urgent and schedule.collector.period_s <= TICK_S and at_ns >= schedule.rested_ns:
                self._run(schedule, tick)
                schedule.due_ns = max(schedule.due_ns, schedule.rested_ns)
        rows = {schedule.collector.name: _row(schedule.health, at_ns) for schedule in self._schedules}
        self.store.put(CollectorRow.panel, at_ns, rows)

    def health(self) -> Mapping[str, CollectorHealth]:
        return {schedule.collector.name: schedule.health for schedule in self._schedules}

    def ages_s(self, now_ns: int) -> Mapping[str, float]:
        """Returns the seconds since each collector last succeeded; absent = never."""
        return {
            schedule.collector.name: (now_ns - schedule.health.last_success_ns) / NANOSECONDS
            for schedule in self._schedules
            if schedule.health.last_success_ns is not None
        }

    def absent(self) -> Mapping[str, str]:
        """Returns the collectors that have nothing to read on this node, with the reason."""
        return {
            schedule.collector.name: schedule.health.disabled_reason
            for schedule in self._schedules
            if schedule.health.disabled_reason
        }

    def close(self) -> None:
        for schedule in self._schedules:
            schedule.collector.close()

    def _follow(self, targets: SampleTargets) -> None:
        for scope, subjects in targets.gone_since(self._targets).items():
            self.store.drop(scope, subjects)
        self._targets = targets

    def _run(self, schedule: _Schedule, tick: Tick) -> None:
        started_ns, cpu_started_ns = self._clock(), self._cpu_clock()
        try:
            for panel, rows in schedule.collector.collect(tick):
                self.store.put(panel, tick.at_ns, rows)
        except NotApplicable as reason:
            self._disable(schedule, str(reason))
            wait_s = _LONGEST_WAIT_S
        except Exception as error:  # noqa: BLE001 - a collector's root: it ends neither the batch nor the others
            self._fail(schedule, error, tick.at_ns)
            wait_s = min(schedule.collector.period_s * 2.0**schedule.health.failures, _LONGEST_WAIT_S)
        else:
            if schedule.health.failures:
                _log.info("collector %s works again", schedule.collector.name)
            schedule.health = replace(
                schedule.health, last_success_ns=tick.at_ns, failures=0, last_error="", disabled_reason=""
            )
            wait_s = 0.0
        self._note_cost(schedule, self._clock() - started_ns)
        if schedule.collector.name not in _NEVER_REST:
            wait_s = max(wait_s, _REST * (self._cpu_clock() - cpu_started_ns) / NANOSECONDS)
        schedule.rested_ns = tick.at_ns + int(wait_s * NANOSECONDS)

    def _note_cost(self, schedule: _Schedule, took_ns: int) -> None:
        overran = took_ns / 1000 > schedule.collector.period_s * _DEADLINE_SHARE * 1e6
        schedule.health = replace(
            schedule.health, duration_us=took_ns / 1000, overruns=schedule.health.overruns + overran
        )

    def _disable(self, schedule: _Schedule, reason: str) -> None:
        """Disables a collector until its next try, long after; closes its files, which would outlast their cgroups."""
        if schedule.health.disabled_reason != reason:
            _log.info("collector %s has nothing to read: %s", schedule.collector.name, reason)
        schedule.health = replace(schedule.health, failures=0, last_error="", disabled_reason=reason)
        self._withdraw(schedule)
        schedule.collector.close()

    def _fail(self, schedule: _Schedule, error: Exception, at_ns: int) -> None:
        text = f"{type(error).__name__}: {error}"
        if schedule.health.last_error != text:
            _log.warning("collector %s failed: %s", schedule.collector.name, text)
        schedule.health = replace(
            schedule.health, failures=schedule.health.failures + 1, last_error=text, disabled_reason=""
        )
        last = schedule.health.last_success_ns
        patience_s = max(_STALE_S, _STALE_PERIODS * schedule.collector.period_s)
        if last is None or at_ns - last > patience_s * NANOSECONDS:
            self._withdraw(schedule)

    def _withdraw(self, schedule: _Schedule) -> None:
        for panel in schedule.collector.panels:
            self.store.withdraw(panel)


def _schedule(schedule: _Schedule, at_ns: int) -> None:
    """Sets when the next run is due: at its beat, and not before its rest is over."""
    period_ns = int(schedule.collector.period_s * NANOSECONDS)
    on_time = schedule.due_ns + period_ns
    next_ns = on_time if on_time > at_ns + period_ns // 2 else at_ns + period_ns
    schedule.due_ns = max(next_ns, schedule.rested_ns)


def _row(health: CollectorHealth, at_ns: int) -> CollectorRow:
    return CollectorRow(
        duration_us=health.duration_us,
        age_s=NO_SAMPLE if health.last_success_ns is None else (at_ns - health.last_success_ns) / NANOSECONDS,
        failures=float(health.failures),
        overruns=float(health.overruns),
        disabled=1.0 if health.disabled_reason else 0.0,
    )
