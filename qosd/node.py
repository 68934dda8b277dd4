"""koord-qosd on its node: how it starts and ends, the inputs of a tick, and what follows from a tick.

``assembly`` makes it, inside the running event loop. Pods, hooks, NRI and koordctl live in the event loop; sampling,
deciding and writing in one thread of their own. Invariant: the event loop gives the thread nothing but ``TickInputs``;
the thread gives back nothing but whole reports, plans and results and, before a tick writes, the limits of best-effort
pods that it decided, by one assignment.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from koord.host.files import Target
from koord.host.reader import KeptFiles
from koord.host.reconcile.state import FileState
from koord.host.undo import UndoError, UndoRecord
from koord.host.weights import Weights
from koord.host.writer import Writer
from koord.model.locations import LAST_NODE_SLO_FILE_NAME, LAST_POLICY_FILE_NAME, UNDO_FILE_NAME
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
from qosd.nri.plugin import NRIPlugin
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

JOURNAL, MODELS, POLICY, UNDO = "journal.db", "models.json", LAST_POLICY_FILE_NAME, UNDO_FILE_NAME
BEST_EFFORT = "besteffort.json"
NODE_SLO, NODE_OBJECT = LAST_NODE_SLO_FILE_NAME, "node.yaml"
T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(eq=False, kw_only=True)
class Node:
    """Lives in the event loop, but for ``loop`` and ``actuator``, which belong to ``thread``.

    ``loop.report`` may be read from any thread. ``read_only``: why no kernel file is written, "" = all are. ``disk``: a
    thread that writes state files. ``end_temporary``: takes temporary values back.
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
    plugin: NRIPlugin | None = None
    cluster_status: Callable[[], ClusterStatus | None] = field(default=lambda: None)
    """None without a cluster, and until the connection to it is made."""
    is_uninstalled: Callable[[], bool] = field(default=lambda: False)
    """Has the cluster said that Koord is uninstalled from this node?"""
    is_dismissed: Callable[[], bool | None] = field(default=lambda: None)
    """Is the cluster about to remove this pod of the agent? None: the agent is a unit of the host."""
    after_tick: list[Callable[[], None]] = field(default_factory=list)
    """Called after each tick, in the event loop; they must return at once."""

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
        """Reads what is there and begins to follow it."""
        self.policy.load()
        self.host.start()
        self._bound_tier()
        for lost in self.predictor.load(self.options.state_dir / MODELS):
            _log.warning("%s", lost)
        self.pods.start()
        self.kubelet_config.start()

    async def end(self) -> None:
        """Ends deciding and writing, and takes temporary values back, before the rest closes, which may take long."""
        self._is_ending = True
        try:
            if not self.read_only:
                await self.in_thread(self.end_temporary)
        except Exception:  # noqa: BLE001 - whatever is wrong, the rest is to be closed
            _log.exception("what is for a time only is left to koord-qosd give-back")

    async def close(self, clear_away: Callable[[], None] = lambda: None) -> None:
        """Closes all parts. Values stay as they are, but for temporary ones.

        ``clear_away`` is called last, while the lock is held: no other koord-qosd acts on the node before it returns.
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
        """Reads the rules file and the file of kubelet's CPU manager again."""
        self.cpu_manager.load()
        self.pods.hint()
        self.reload_policy()

    def reload_policy(self) -> None:
        """Reads the rules file again."""
        self.policy.load()
        self.scheduler.wake()

    async def tick(self, reason: TickReason) -> TickResult | None:
        """Runs a tick in the loop's thread; counts, logs and returns its result. None once the node ends."""
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
        """Returns what the next tick would write."""
        return await self.in_thread(self.loop.plan)

    async def switch(self, enabled: bool, names: Iterable[str]) -> None:
        """Enables or disables strategies by name until the process ends; returns after the tick that does it."""
        chosen, off = frozenset(names), frozenset(self.loop.switched_off)
        self.loop.switched_off = off - chosen if enabled else off | chosen
        await self.tick(TickReason.CHANGE)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Runs ``work`` in the loop's thread, between two ticks."""
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
        """Returns ``fought_cpus`` of the files, worked out anew if states changed or a fight may have ended.

        An equal result is the same object as before.
        """
        files = self.loop.report.files
        if files.states is not self._fought_in or self._fought:
            self._fought_in, fought = files.states, files.fought_cpus(now_ns)
            self._fought = self._fought if self._fought == fought else fought
        return self._fought

    def _stated_allocatable(self) -> ParsedAmounts:
        """Returns the Node's allocatable amounts, parsed once for each Node: every tick asks for them."""
        facts = self.cluster_policy.node
        if facts is not self._allocatable_of:
            self._allocatable_of = facts
            self._allocatable = NOT_STATED if facts is None else facts.kubelets_allocatable()
        return self._allocatable

    def _learn(self, pods: tuple[PodView, ...]) -> None:
        """Learns from containers how the runtime maps shares to weights (v2), and kubelet's CFS period."""
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
        """Prepares for a sandbox that is about to be created: others leave the CPUs that are its own."""
        if not self.locator.explains(pod.request.cgroup_parent):
            self.host.look([pod.request.cgroup_parent])
        if self.policy.expect(pod, time.monotonic_ns()):
            self.start_gate.expect(pod.request.uid)
            self.scheduler.wake()
