"""The life of qosd on its node: how it starts and ends, what a tick is fed, and what follows from a tick.

``assembly`` makes it, inside the running event loop. Pods, hooks, NRI and koordctl live in the event loop; sampling,
deciding and writing in one thread of their own. Invariant: nothing but ``TickInputs`` goes from the first to the
second, and nothing comes back but whole reports, plans and results, and, before a tick writes, the limits of
best-effort pods that it decided, by one assignment.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from koord.host import undo
from koord.host.files import Target
from koord.host.reader import KeptFiles
from koord.host.reconcile.state import FileState
from koord.host.undo import UndoError, UndoRecord
from koord.host.weights import Weights
from koord.host.writer import Writer
from koord.overcommit.amounts import ParsedAmounts
from qosd.accounting import account_writes
from qosd.act.actuator import Actuator
from qosd.act.journal import Journal
from qosd.act.leftovers import KubeletSays
from qosd.act.plan import TickPlan, TickResult
from qosd.clusterstatus import ClusterStatus
from qosd.frontends import FrontEnds
from qosd.hookserver.server import HookServer
from qosd.hostwatch import HostWatch
from qosd.locator import CgroupLocator, weights_of
from qosd.loop import NodeLoop, TickInputs
from qosd.metrics import Metrics
from qosd.model.pod import PodContext
from qosd.model.snapshot import PodView
from qosd.nri.plugin import Plugin
from qosd.options import Options
from qosd.pods.cpumanager import CPUManagerFile
from qosd.pods.kubeletconfig import KubeletConfigSource
from qosd.pods.podlists import PodLists
from qosd.pods.source import PodSource
from qosd.policy.clusterpolicy import ClusterPolicy
from qosd.policy.kept import Keeper
from qosd.policy.nodeobject import NodeFacts
from qosd.policy.source import PolicySource
from qosd.policy.tiercpus import TierCPUs
from qosd.predict import checkpoint
from qosd.predict.predictor import NOT_STATED, Predictor
from qosd.sense.build import Sense
from qosd.startgate import StartGate
from qosd.tickscheduler import TickReason, TickScheduler

JOURNAL, MODELS, POLICY, UNDO = "journal.db", "models.json", "policy.yaml", undo.FILE_NAME
BEST_EFFORT = "besteffort.json"
NODE_SLO, NODE_OBJECT = "nodeslo.yaml", "node.yaml"
T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(eq=False, kw_only=True)
class Node:
    """Lives in the event loop, but for ``loop`` and ``actuator``, which belong to ``thread``.

    ``loop.report`` is for anyone. ``read_only``: why no kernel file is written, "" = all are. ``disk``: a thread for
    what is kept there. ``end_temporary``: takes back what is for a time only.
    """

    options: Options
    metrics: Metrics
    scheduler: TickScheduler
    locator: CgroupLocator
    kept_policies: tuple[Keeper, ...]
    cluster_policy: ClusterPolicy
    cpu_manager: CPUManagerFile
    kubelet_config: KubeletConfigSource
    pod_lists: PodLists | None
    policy: PolicySource
    undo: UndoRecord
    read_only: str
    writer: Writer
    journal: Journal
    actuator: Actuator
    files: KeptFiles
    sense: Sense
    predictor: Predictor
    loop: NodeLoop
    pods: PodSource
    host: HostWatch
    tier_cpus: TierCPUs
    disk: ThreadPoolExecutor
    end_temporary: Callable[[], None]
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="node"))
    event_loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    start_gate: StartGate = field(default_factory=StartGate)
    front_ends: FrontEnds = field(init=False)
    hooks: HookServer = field(init=False)
    plugin: Plugin | None = None
    cluster_status: Callable[[], ClusterStatus | None] = field(default=lambda: None)
    """None without a cluster, and until the connection to it is made."""
    is_uninstalled: Callable[[], bool] = field(default=lambda: False)
    """Has the cluster said that Koord is not coming back to this node?"""
    is_dismissed: Callable[[], bool | None] = field(default=lambda: None)
    """The same, where the cluster made this agent and is about to remove it; None: it is a unit of the host."""
    after_tick: list[Callable[[], None]] = field(default_factory=list)
    """Called after each tick, in the event loop: for who follows what ticks are fed. They take no time."""

    def __post_init__(self) -> None:
        self._weights: Weights | None = None
        self._cfs_period_us: int | None = None
        self._learnt_of: tuple[PodView, ...] = ()
        self._fought: Mapping[str, str] = {}
        self._fought_in: Mapping[Target, FileState] | None = None
        self._allocatable_of: NodeFacts | None = None
        self._allocatable = NOT_STATED
        self._is_ending = False

    # life

    def start(self) -> None:
        """Read what is there and begin to follow it."""
        self.policy.load()
        self.host.start()
        self._bound_tier()
        for lost in self.predictor.load(self.options.state_dir / MODELS):
            _log.warning("%s", lost)
        self.pods.start()
        self.kubelet_config.start()

    async def end(self) -> None:
        """Decide and write no more, and take back what is for a time only, however long the rest takes to close."""
        self._is_ending = True
        try:
            if not self.read_only:
                await self.in_thread(self.end_temporary)
        except Exception:  # noqa: BLE001 - whatever is wrong, the rest is to be closed
            _log.exception("what is for a time only is left to koord-qosd give-back")

    async def close(self, clear_away: Callable[[], None] = lambda: None) -> None:
        """Stop looking; every value stays as it is, but for those of a time only.

        ``clear_away`` is called last of all but the lock: no other koord-qosd acts on the node before it returns.
        """
        await self.end()
        await self.kubelet_config.close()
        await self.actuator.evictions.close()
        await self.pods.close()
        self.host.close()
        self.thread.shutdown(wait=True)
        self.actuator.one_shots.close()
        self.cluster_policy.close()
        self.disk.shutdown(wait=True)
        for kept in self.kept_policies:
            kept.close()
        self.sense.sampler.close()
        self.files.close()
        self.tier_cpus.close()
        checkpoint.save(self.predictor.bank, self.options.state_dir / MODELS)
        self.journal.close()
        clear_away()
        self.undo.close()

    def reload(self) -> None:
        """Read the rules file and kubelet's CPU manager's again."""
        self.cpu_manager.load()
        self.pods.hint()
        self.reload_policy()

    def reload_policy(self) -> None:
        """Read the rules file again."""
        self.policy.load()
        self.scheduler.wake()

    async def tick(self, reason: TickReason) -> TickResult | None:
        """One turn of the loop, in its thread; what it came to is counted and said. None once it is to end."""
        if self._is_ending:
            return None
        inputs, arriving = self._tick_inputs(), self.start_gate.begun()
        try:
            result = await self.in_thread(lambda: self.loop.tick(inputs, reason))
        finally:
            self.start_gate.ended(arriving)
        self._bound_tier()
        self.host.watch_pressure(self.loop.report.triggers)
        if result is not None and result.results:
            account_writes(self.metrics, result)
            _log.info("tick: %s", result.sentence)
        self._tell_followers()
        return result

    def _tell_followers(self) -> None:
        for look in tuple(self.after_tick):
            try:
                look()
            except Exception:  # noqa: BLE001 - the tick is done, whatever they make of it
                _log.exception("who follows the ticks failed")

    def _bound_tier(self) -> None:
        if self.policy.bound_tier(self.tier_cpus.read(self.locator.tiers, time.monotonic_ns())):
            self.scheduler.wake()

    async def plan(self) -> TickPlan | None:
        """What the next tick would write."""
        return await self.in_thread(self.loop.plan)

    async def switch(self, enabled: bool, names: Iterable[str]) -> None:
        """Enable or disable strategies by name until the process ends; returns after the tick that does it."""
        chosen, off = frozenset(names), frozenset(self.loop.switched_off)
        self.loop.switched_off = off - chosen if enabled else off | chosen
        await self.tick(TickReason.CHANGE)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """``work`` between two ticks."""
        return await self.event_loop.run_in_executor(self.thread, work)

    # what a tick is fed

    def _tick_inputs(self) -> TickInputs:
        pods, now_ns = self.pods.current, time.monotonic_ns()
        self.host.look_again()
        exclusive = self.cpu_manager.exclusive(self.locator.topology.online)
        known = self.pods.age_s is not None
        fought = self._fought_cpus(now_ns)
        policy = (
            self.policy.update(self.locator.topology, pods, exclusive, now_ns, fought) if known else self.policy.current
        )
        if known and pods is not self._learnt_of:
            self._learn(pods)
        ages_s = dict(self.pods.ages_s)
        if self.pods.age_s is not None:
            ages_s["pods"] = self.pods.age_s
        config = self.kubelet_config.current
        says = KubeletSays(
            self.cpu_manager.current.default_cpus, None if config is None else config.writes_memory_protection
        )
        return TickInputs(
            pods, policy, self.locator.topology, self.locator.tiers, exclusive, ages_s, self._stated_allocatable(),
            says, self.is_dismissed(), self.policy.limits,
        )  # fmt: skip

    def _fought_cpus(self, now_ns: int) -> Mapping[str, str]:
        """Looked for anew where files are in another state, or a fight may have ended; the same object while equal."""
        files = self.loop.report.files
        if files.states is not self._fought_in or self._fought:
            self._fought_in, fought = files.states, files.fought_cpus(now_ns)
            self._fought = self._fought if self._fought == fought else fought
        return self._fought

    def _stated_allocatable(self) -> ParsedAmounts:
        """Read once of each Node: a tick asks for it each second."""
        facts = self.cluster_policy.node
        if facts is not self._allocatable_of:
            self._allocatable_of = facts
            self._allocatable = NOT_STATED if facts is None else facts.kubelets_allocatable()
        return self._allocatable

    def _learn(self, pods: tuple[PodView, ...]) -> None:
        """How the runtime spells shares as weights (v2), and kubelet's CFS period: from what the containers show."""
        self._learnt_of = pods
        if self.policy.current.host.files is None:
            self.policy.look_at_host()  # the first pods' cgroups show what kubelet's have
        known = self._weights, self._cfs_period_us
        self._weights = self._weights or weights_of(self.writer, pods)
        periods_us = (period_us for pod in pods if (period_us := pod.cfs_period_us))  # kubelet's, the same for all
        self._cfs_period_us = self._cfs_period_us or next(periods_us, None)
        if known != (self._weights, self._cfs_period_us):
            self.thread.submit(self._spell, self._weights, self._cfs_period_us)

    def _spell(self, weights: Weights | None, cfs_period_us: int | None) -> None:
        self.writer.weights = weights or self.writer.weights
        self.writer.cfs_period_us = cfs_period_us or self.writer.cfs_period_us
        try:
            self.undo.spell(weights or self.undo.weights, self.writer.cfs_period_us)
        except UndoError as error:
            _log.warning("koordctl restore must be told --weights %s: %s", self.writer.weights.value, error)
        self.actuator.files.respelled()

    # what front ends tell

    def expect(self, pod: PodContext) -> None:
        """A sandbox is about to be made: whoever runs on its CPUs leaves them now."""
        if not self.locator.explains(pod.request.cgroup_parent):
            self.host.look([pod.request.cgroup_parent])
        if self.policy.expect(pod, time.monotonic_ns()):
            self.start_gate.expect(pod.request.uid)
            self.scheduler.wake()
