"""Writes the node's use to its NodeMetric: each report interval, and sooner when it has changed much.

The manager makes the object, and its spec says how to measure and how often. Without an object there is no report.
Beside the report stands the node's own state (``nodestate``), written when it changes.

Invariants: the writes keep to the rate of ``ObjectWriter`` in any case; a report that cannot be written is tried again
within the interval, with the newest figures, and never costs the one after it. A report is computed in a thread that
does nothing else, so a disk that stalls delays none. It fails with nothing: a problem is logged once, until there is
another.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from random import random as uniform
from typing import TypeVar

from koord.kube.backoff import Random
from koord.kube.client import Client
from koord.kube.errors import APIError, KubeError
from koord.kube.kind import NODE_METRIC, Key
from koord.model import nodestate
from koord.model.nodemetric import NodeMetric
from koord.model.nodestate import NodeState
from koord.overcommit.amounts import CPUMemory
from qosd.cluster import collectpolicy, nodemetric
from qosd.cluster.collectpolicy import EffectiveCollectPolicy
from qosd.cluster.nodemetric import NodeReport, NotMeasured
from qosd.cluster.nodestate import of as node_state
from qosd.cluster.objectwriter import ObjectWriter
from qosd.cluster.schedule import Schedule
from qosd.cluster.ticks import MeasuredNode, after_each_tick, set_within
from qosd.clusterstatus import ClusterPart, PartState

LOOK_EVERY_S = 10.0
"""How often the use is compared with the last report, and the shortest time after it."""

MOVED_PERCENT = 10
"""A change of the use by this share of allocatable is worth a report of its own."""

TICK_MAX_AGE_S = 30.0
"""The figures of an older tick are not reported as the present ones."""

_NANOSECONDS = 1_000_000_000
T = TypeVar("T")
_log = logging.getLogger(__name__)


def has_moved(written: CPUMemory, now: CPUMemory, allocatable: CPUMemory) -> bool:
    """Returns whether ``now`` is worth a report before its time: never for a resource whose total is not known."""
    figures = (
        (written.cpu_milli, now.cpu_milli, allocatable.cpu_milli),
        (written.memory_bytes, now.memory_bytes, allocatable.memory_bytes),
    )
    return any(total > 0 and 100 * abs(after - before) > MOVED_PERCENT * total for before, after, total in figures)


class Reporter:
    """``metric``: the node's NodeMetric as it is now; None: there is none. ``clock`` is monotonic, as the node's.
    ``thread``: computes; None: one of its own."""

    def __init__(
        self,
        client: Client,
        node_name: str,
        node: MeasuredNode,
        metric: Callable[[], NodeMetric | None],
        clock: Callable[[], float] = time.monotonic,
        random: Random = uniform,
        thread: Executor | None = None,
    ) -> None:
        self._name, self._node, self._metric = node_name, node, metric
        self._writer = ObjectWriter(client, NODE_METRIC, Key("", node_name), clock)
        self._clock, self._random = clock, random
        self._thread = thread or ThreadPoolExecutor(1, thread_name_prefix="report")
        self._schedule = Schedule(clock())
        self._written_s: float | None = None
        self._usage: CPUMemory | None = None
        self._state = _WrittenState()
        self._seen: tuple[object, int] | None = None
        self._woken = asyncio.Event()
        self._said: dict[str, str] = {}

    async def run(self) -> None:
        """Runs until it is cancelled."""
        with after_each_tick(self._node.after_tick, self._look):
            while True:
                await set_within(self._woken, min(LOOK_EVERY_S, self._due_s() - self._clock()))
                self._woken.clear()
                await self._turn()

    def status(self) -> ClusterPart:
        """Returns the report's state, for people."""
        age_s = None if self._written_s is None else self._clock() - self._written_s
        says = self._said.get("object") or self._said.get("figures") or self._said.get("write") or ""
        state = PartState.OK if age_s is not None and not says else PartState.WAITING
        return ClusterPart(
            NODE_METRIC.name, PartState.FAILING if self._schedule.failures else state, age_s,
            self._schedule.failures, says,
        )  # fmt: skip

    # when it reports

    def _look(self) -> None:
        """Wakes the report after a tick if another component waits for the state that it has come to."""
        report = self._node.loop.report
        if report.snapshot is None:
            return
        states, generation = report.files.states, report.snapshot.policy.slo_generation
        if self._seen is None or self._seen[0] is not states or self._seen[1] != generation:
            self._seen = states, generation
            if self._state.is_waited_for(node_state(report)):
                self._woken.set()

    def _due_s(self) -> float:
        return self._schedule.due_s(self._policy().report_interval_s)

    def _policy(self) -> EffectiveCollectPolicy:
        metric = self._metric()
        return collectpolicy.effective(None if metric is None else metric.spec.metric_collect_policy)

    # what it reports

    async def _turn(self) -> None:
        metric, is_due = self._metric(), self._clock() >= self._due_s()
        if metric is None:
            if is_due:  # before that it may not have been listed, and the manager takes a moment to make it
                self._say("object", f"no NodeMetric {self._name} is known here (koord-manager makes it): no report")
                self._schedule.put_off(self._clock(), LOOK_EVERY_S)
            return
        self._say("object", "")
        await self._write_state(metric, is_due)
        if is_due or await self._has_moved():
            await self._write_report()

    async def _has_moved(self) -> bool:
        written, tried_s, snapshot = self._usage, self._schedule.tried_s, self._node.loop.report.snapshot
        if written is None or snapshot is None or tried_s is None or self._schedule.failures:
            return False
        if self._clock() - tried_s < LOOK_EVERY_S:
            return False
        policy, store = self._policy(), self._node.sense.store
        now = await self._in_thread(lambda: nodemetric.node_usage(snapshot, store, policy))
        allocatable = CPUMemory(snapshot.allocatable_cpu_milli, snapshot.policy.allocatable_memory_bytes)
        return now is not None and has_moved(written, now, allocatable)

    async def _write_report(self) -> None:
        await self._writer.turn()
        policy = self._policy()
        try:
            report = await self._in_thread(lambda: self._measured(policy))
        except NotMeasured as error:
            self._say("figures", f"no NodeMetric is written: {error}")
            self._schedule.put_off(self._clock(), LOOK_EVERY_S)
            return
        self._say("figures", "")
        self._say("policy", "; ".join((*policy.problems, *report.problems)))
        try:
            await self._writer.replace_status(report.status)
        except KubeError as error:
            self._fail(error)
            return
        self._node.metrics.cluster_reports[NODE_METRIC.name, "written"] += 1
        self._say("write", "")
        self._written_s, self._usage = self._clock(), report.node_usage
        self._schedule.written(self._written_s)

    def _fail(self, error: KubeError) -> None:
        self._node.metrics.cluster_reports[NODE_METRIC.name, "failed"] += 1
        self._say("write", f"the NodeMetric cannot be written: {error}")
        retry_after_s = error.retry_after_s if isinstance(error, APIError) else None
        self._schedule.failed(self._clock(), self._random, retry_after_s)

    def _measured(self, policy: EffectiveCollectPolicy) -> NodeReport:
        snapshot = self._node.loop.report.snapshot
        if snapshot is None:
            raise NotMeasured("there was no tick yet")
        age_s = self._clock() - snapshot.monotonic_ns / _NANOSECONDS
        if age_s > TICK_MAX_AGE_S:
            raise NotMeasured(f"the newest tick is {age_s:.0f} s old")
        return nodemetric.report(snapshot, self._node.sense.store, policy)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _write_state(self, metric: NodeMetric, is_due: bool) -> None:
        """Writes the node's state if it is due; one that could not be written is tried again with the next report."""
        state = node_state(self._node.loop.report)
        self._state.follow(metric)
        if state is None or not self._state.is_worth_writing(state, is_due):
            return
        await self._writer.turn()
        try:
            await self._writer.annotate(nodestate.ANNOTATION, state.encoded())
        except KubeError as error:
            self._state.failed = state
            self._say("state", f"annotation {nodestate.ANNOTATION} of the NodeMetric cannot be written: {error}")
            return
        self._say("state", "")
        self._state.write(state)

    def _say(self, subject: str, text: str) -> None:
        """Logs ``text`` once, until there is something else to say."""
        if text and text != self._said.get(subject):
            _log.warning("%s", text)
        elif not text and self._said.get(subject):
            _log.info("no longer so: %s", self._said[subject])
        self._said[subject] = text


class _WrittenState:
    """The node's state in the object, as far as is known: written here, or read from it."""

    def __init__(self) -> None:
        self._uid: str | None = None
        self._written: NodeState | None = None
        self.failed: NodeState | None = None

    def follow(self, metric: NodeMetric) -> None:
        """Takes the state that the object says, once per object: later the cache may be behind our writes."""
        if metric.metadata.uid != self._uid:
            self._uid, self.failed = metric.metadata.uid, None
            self._written = nodestate.decoded(metric.metadata.annotations.get(nodestate.ANNOTATION))

    def write(self, state: NodeState) -> None:
        self._written, self.failed = state, None

    def is_waited_for(self, state: NodeState | None) -> bool:
        return state is not None and state != self.failed and state.is_urgent_after(self._written)

    def is_worth_writing(self, state: NodeState, is_due: bool) -> bool:
        return self.is_waited_for(state) or (is_due and state != self._written)
