"""All that qosd does on its node, put together: who is given what, and what a tick is fed.

Built inside the running event loop. Pods, hooks, NRI and koordctl live in the event loop; sampling, deciding and
writing in one thread of their own. Invariant: nothing but ``TickInputs`` goes from the first to the second, and nothing
but whole snapshots and decisions comes back.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from koord.host import systemd_units, topology
from koord.host.reader import KeptFiles
from koord.host.undo import UndoError, UndoRecord
from koord.host.weights import Weights
from koord.host.writer import Writer
from koord.model.qos import DerivationRules
from koord.service import wholefile
from qosd import figures
from qosd.act.actuator import Actuator
from qosd.act.cristop import CRIStop
from qosd.act.evictor import Evictor
from qosd.act.journal import Journal
from qosd.act.plan import Plan, Result
from qosd.frontends import FrontEnds
from qosd.hooks.context import PodContext
from qosd.hooks.rules import HostFacts
from qosd.hookserver.server import HookServer
from qosd.locator import USUAL, CgroupLocator, cfs_period_of, weights_of
from qosd.loop import NodeLoop, TickInputs
from qosd.metrics import Metrics
from qosd.nri.plugin import Plugin
from qosd.nri.service import Hooks
from qosd.options import Options
from qosd.originals import OriginalsRecorder
from qosd.pace import Pace
from qosd.pods.cpumanager import CPUManagerFile
from qosd.pods.cri import Runtime
from qosd.pods.http import Access
from qosd.pods.kubelet import KubeletClient
from qosd.pods.reservation import ReservationSource
from qosd.pods.source import PodSource
from qosd.pods.watch import CgroupWatch
from qosd.policy import besteffort, hostfacts
from qosd.policy.kept import Keeper
from qosd.policy.kubeletpolicy import PolicyRules
from qosd.policy.pooledrules import PooledRules
from qosd.policy.resctrlwatch import ResctrlWatch
from qosd.policy.rulesfile import RulesSource
from qosd.predict import checkpoint
from qosd.predict.bank import Bank
from qosd.predict.predictor import Predictor
from qosd.sense.build import Host, build
from qosd.snapshot import PodView
from qosd.startgate import StartGate
from qosd.strategies import STRATEGIES
from qosd.strategies.reconciler import HookReconciler

KUBELET_TIMEOUT_S = 3.0
JOURNAL, MODELS, POLICY, UNDO = "journal.db", "models.json", "policy.yaml", "undo.jsonl"
BEST_EFFORT = "besteffort.json"
_SPARE_DESCRIPTORS = 256
_LOOK_AGAIN_S = 10.0
_NEVER_S = float("-inf")
T = TypeVar("T")
_log = logging.getLogger(__name__)


class Node:
    """Made and used in the event loop, but for ``loop``, which belongs to its thread. ``locator``: else made anew."""

    def __init__(self, options: Options, metrics: Metrics, locator: CgroupLocator | None = None) -> None:
        self.options, self.metrics = options, metrics
        self.event_loop = asyncio.get_running_loop()
        self.pace = Pace(options.tick_interval)
        self.locator = locator or CgroupLocator(options)
        self.runtime = _runtime(options, self.event_loop)
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="disk")
        self.kept_policy = Keeper(options.state_dir / POLICY, self._disk, self.event_loop)
        self.rules_file = RulesSource(options.rules_file, self._host_facts, metrics, self.kept_policy)
        state_file = options.kubelet_state_dir / "cpu_manager_state"
        self.cpu_manager = CPUManagerFile(self.event_loop, state_file, self._kubelet_policy_changed)
        self.kubelet = _kubelet(options)
        self.reservation = ReservationSource(
            self.kubelet, lambda: self.rules_file.current.host.memory_total_bytes, self.pace.wake
        )
        self.rules = PooledRules(PolicyRules(self.rules_file, self.cpu_manager, self.reservation))
        self._make_acting()
        self._best_effort_file = options.run_dir / BEST_EFFORT
        if self.undo.entries:  # else there was no best-effort pod, or all was given back meanwhile
            self.rules.narrow(besteffort.load(self._best_effort_file))
        self._make_loop()
        self._make_pods()
        self._make_front_ends()
        metrics.follow(figures.of(self.loop, self.journal, self.files, self.rules_file))
        self._looked_s = self._counted_s = _NEVER_S
        self._resctrl: ResctrlWatch | None = None
        self._weights: Weights | None = None
        self._cfs_period_us: int | None = None
        self._learnt_of: tuple[PodView, ...] = ()
        self._said: tuple[str, ...] = ()

    # putting together

    def _make_acting(self) -> None:
        options = self.options
        self.writer = Writer(self.locator.tree)
        self.read_only = "by --dry-run" if options.dry_run else ""
        try:
            self.undo = UndoRecord(_directory(options.run_dir) / UNDO, _boot_id(options.proc_root))
        except UndoError as error:
            if error.errno == errno.EAGAIN:
                raise  # a second koord-qosd: the two would put right each other's values for ever
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise  # not even an empty file can be made: the next start may find room, and this one would not look
            self.read_only = f"what to put back cannot be noted: {error}"
            _log.error("no kernel file is written: %s", self.read_only)
            self.undo = _unused_record(_boot_id(options.proc_root))
        for problem in self.undo.problems:
            _log.warning("%s", problem)
        self.writer.weights = self.undo.weights or self.writer.weights
        self.writer.cfs_period_us = self.undo.cfs_period_us
        self.journal = Journal(_directory(options.state_dir) / JOURNAL, options.journal_rows)
        units = systemd_units.of_host(self.writer, self.undo)
        stop = None if self.runtime is None else CRIStop(self.runtime, self.locator.tree.exists)
        evictor = Evictor(self.undo, self.journal, stop, self.event_loop)
        self.actuator = Actuator(self.writer, self.undo, self.journal, units=units, evictor=evictor)
        self.originals = OriginalsRecorder(self.undo, self.writer, self.metrics.unrecorded_edits.labels().inc)

    def _make_loop(self) -> None:
        tree, limit = self.locator.tree, _raised_limit()
        self.files = KeptFiles(max(limit - _SPARE_DESCRIPTORS, 0), lambda line: _log.warning("%s", line))
        host = Host(tree, self._online, os.sysconf("SC_CLK_TCK"), resource.getpagesize())
        self.sense = build(host, self.files, time.monotonic_ns)
        self.predictor = Predictor(self._keep_models)
        self.loop = NodeLoop(
            self.sense, STRATEGIES, self.actuator, self.predictor,
            wall=time.time_ns, monotonic=time.monotonic_ns, dry=bool(self.read_only),
        )  # fmt: skip
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="node")

    def _make_pods(self) -> None:
        self.pods = PodSource(
            self.runtime,
            self.kubelet,
            self._derivation,
            self.pace.wake,
            modified=self._touched,
            owns=self._owns,
        )
        self._watches: list[CgroupWatch] = []

    def _make_front_ends(self) -> None:
        options = self.options
        self.start_gate = StartGate()
        self.front_ends = FrontEnds(
            lambda: self.hooks.server.connections,
            lambda: self.plugin.runtime if self.plugin else "",
            enabled=lambda: HookReconciler.name not in self.loop.switched_off,
        )
        self.hooks = HookServer(
            lambda: self.rules.current, self.metrics, acts=self.front_ends.proxy_acts, seen=self._expect,
            room_for=self.start_gate.room_for, originals=self.originals,
        )  # fmt: skip
        self.plugin: Plugin | None = None
        if options.nri_socket:
            served = Hooks(
                lambda: self.rules.current, self.metrics, self.front_ends.nri_acts, self._parent_cpus,
                announced=self._expect, pods_changed=self.pods.hint, later=self.event_loop.call_soon,
                originals=self.originals,
                has_resctrl_group=lambda name: hostfacts.has_resctrl_group(self.locator.tree, name),
            )  # fmt: skip
            socket = Path(options.nri_socket)
            self.plugin = Plugin(socket, served, lambda attached: None, index=options.nri_plugin_index)

    # life

    def start(self) -> None:
        """Read what is there and begin to follow it."""
        self.rules_file.load()
        self.cpu_manager.start()
        self._resctrl = ResctrlWatch(self.event_loop, self.locator.tree.resctrl, self._host_changed)
        for lost in self.predictor.load(self.options.state_dir / MODELS):
            _log.warning("%s", lost)
        self._follow()
        self.pods.start()
        self.reservation.start()

    async def close(self) -> None:
        """Stop looking; every value stays as it is."""
        await self.reservation.close()
        await self.actuator.evictions.close()
        await self.pods.close()
        for watch in self._watches:
            watch.close()
        self.cpu_manager.close()
        if self._resctrl is not None:
            self._resctrl.close()
        self._thread.shutdown(wait=True)
        self.actuator.orders.close()
        self._disk.shutdown(wait=True)
        self.kept_policy.close()
        self.sense.sampler.close()
        self.files.close()
        self._write_models(self.predictor.bank)
        self.undo.close()
        self.journal.close()

    def reload(self) -> None:
        """Read the rules file and kubelet's CPU manager's again."""
        self.cpu_manager.load()
        self.pods.hint()
        self.reload_policy()

    def reload_policy(self) -> None:
        """Read the rules file again."""
        self.rules_file.load()
        self.pace.wake()

    async def tick(self, is_beat: bool) -> Result | None:
        """One turn of the loop, in its thread; what it came to is counted and said."""
        inputs, arriving = self._tick_inputs(), self.start_gate.begun()
        try:
            result = await self.in_thread(lambda: self.loop.tick(inputs, sample=is_beat))
        finally:
            self.start_gate.ended(arriving)
        self._narrow()
        if result is not None and result.results:
            for each in result.results:
                self.metrics.writes.labels(each).inc()
            _log.info("tick: %s", result.sentence)
        return result

    def _narrow(self) -> None:
        """What the tick left to best-effort pods is theirs from the next hook call on."""
        left = None if self.read_only else self.loop.report.decisions.best_effort
        if left is not None and left != self.rules.left:
            self._disk.submit(besteffort.save, self._best_effort_file, left)
            if self.rules.narrow(left):
                self.pace.wake()

    async def plan(self) -> Plan | None:
        """What the next tick would write."""
        return await self.in_thread(self.loop.plan)

    async def switch(self, enabled: bool, names: Iterable[str]) -> None:
        """Enable or disable strategies by name until the process ends; returns after the tick that does it."""
        chosen, off = frozenset(names), frozenset(self.loop.switched_off)
        self.loop.switched_off = off - chosen if enabled else off | chosen
        await self.tick(False)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """``work`` between two ticks."""
        return await self.event_loop.run_in_executor(self._thread, work)

    # what a tick is fed

    def _tick_inputs(self) -> TickInputs:
        pods, now_ns = self.pods.current, time.monotonic_ns()
        self._look_for_layout()
        self._count_cpus()
        exclusive = self.cpu_manager.current.exclusive
        known = self.pods.age_s is not None
        rules = self.rules.update(self.locator.topology, pods, exclusive, now_ns) if known else self.rules.current
        if known and pods is not self._learnt_of:
            self._learn(pods)
        ages_s = dict(self.pods.ages_s)
        if self.pods.age_s is not None:
            ages_s["pods"] = self.pods.age_s
        self._say(self.rules.pools.warnings)
        return TickInputs(pods, rules, self.locator.topology, self.locator.tiers, exclusive, ages_s)

    def _learn(self, pods: tuple[PodView, ...]) -> None:
        """How the runtime spells shares as weights (v2), and kubelet's CFS period: from what the containers show."""
        self._learnt_of = pods
        if self.rules.current.host.files is None:
            self.rules_file.look_at_host()  # the first pods' cgroups show what kubelet's have
        known = self._weights, self._cfs_period_us
        self._weights = self._weights or weights_of(self.writer, pods)
        self._cfs_period_us = self._cfs_period_us or cfs_period_of(pods)
        if known != (self._weights, self._cfs_period_us):
            self._thread.submit(self._spell, self._weights, self._cfs_period_us)

    def _spell(self, weights: Weights | None, cfs_period_us: int | None) -> None:
        self.writer.weights = weights or self.writer.weights
        self.writer.cfs_period_us = cfs_period_us or self.writer.cfs_period_us
        try:
            self.undo.spell(weights or self.undo.weights, self.writer.cfs_period_us)
        except UndoError as error:
            _log.warning("koordctl restore must be told --weights %s: %s", self.writer.weights.value, error)
        self.actuator.files.respelled()

    def _count_cpus(self) -> None:
        """No event tells of a CPU that went on- or offline, so one small file is read every ten seconds.

        kubelet's CPU manager's is looked at with it, and resctrl's mount, which costs nothing where those are watched.
        """
        if time.monotonic() - self._counted_s >= _LOOK_AGAIN_S:
            self._counted_s = time.monotonic()
            self.cpu_manager.look_again()
            if self._resctrl is not None:
                self._resctrl.look_again()
            if self.locator.count_cpus():
                _log.info("the node's CPUs are %s now", self.locator.topology.online)

    def _look_for_layout(self) -> None:
        waited = time.monotonic() - self._looked_s >= _LOOK_AGAIN_S
        news = self.pods.cgroup_driver != self.locator.runtime_driver
        if news or (waited and not self.locator.holds(self.pods.current)):
            self.locator.runtime_driver = self.pods.cgroup_driver
            self._look()

    def _look(self, announced: Sequence[str] = ()) -> None:
        """``announced``: the cgroup parents of pods that are about to be made."""
        self._looked_s = time.monotonic()
        if self.locator.find((*announced, *(pod.group for pod in self.pods.current))):
            self._follow()
            self.rules_file.look_at_host()  # what the host supports shows below kubelet's cgroups

    def _host_changed(self) -> None:
        if self.rules_file.look_at_host():
            self.pace.wake()

    def _look_soon(self) -> None:
        self._looked_s = _NEVER_S
        self.pace.wake()

    def _follow(self) -> None:
        """Watch the directories in which pods appear, and those in which values are written."""
        for problem in self.locator.layout.problems:
            _log.warning("%s", problem)
        for watch in self._watches:
            watch.close()
        self._watches.clear()
        roots = self.locator.watched_roots()
        if not roots:
            _log.warning(
                "%s: no cgroups are mounted there: no pod is measured and nothing is written", self.locator.tree.root
            )
        elif not self.locator.watched:
            self._watch(CgroupWatch(self.event_loop, roots[0], USUAL, self._look_soon))
        else:
            self.pods.follow(roots[0], self.locator.watched)
            for root in roots[1:]:
                self._watch(CgroupWatch(self.event_loop, root, self.locator.watched, _nothing, self._touched))
            _log.info("pods are below %s (%s)", self.locator.layout.kubepods, roots[0])

    def _watch(self, watch: CgroupWatch) -> None:
        watch.start()
        self._watches.append(watch)

    def _say(self, warnings: tuple[str, ...]) -> None:
        """Each of the pools' warnings once."""
        for warning in warnings:
            if warning not in self._said:
                _log.warning("%s", warning)
        self._said = warnings

    # what others ask

    def _host_facts(self) -> HostFacts:
        try:
            text = (self.options.proc_root / "meminfo").read_text(encoding="utf-8", errors="replace")
        except OSError:
            text = ""
        return hostfacts.look(self.locator.tree, self.locator.tiers.values(), text, resource.getpagesize())

    def _derivation(self) -> DerivationRules:
        return self.rules.current.node.derivation

    def _kubelet_policy_changed(self) -> None:
        self.pods.hint()
        self.pace.wake()

    def _online(self) -> Sequence[int]:
        return [cpu.id for cpu in topology.read(self.locator.tree.sys).cpus]

    def _touched(self, path: str) -> None:
        self.actuator.files.touched(path)

    def _owns(self, path: str) -> bool:
        return self.actuator.files.owns(path)

    def _expect(self, pod: PodContext) -> None:
        """A sandbox is about to be made: whoever runs on its CPUs leaves them now."""
        if not self.locator.explains(pod.request.cgroup_parent):
            self._look([pod.request.cgroup_parent])
        if self.rules.expect(pod, time.monotonic_ns()):
            self.start_gate.expect(pod.request.uid)
            self.pace.wake()

    def _parent_cpus(self, group: str) -> str:
        return hostfacts.cpus_of(self.locator.tree, group)

    def _keep_models(self, bank: Bank) -> None:
        self.event_loop.call_soon_threadsafe(self.event_loop.run_in_executor, self._disk, self._write_models, bank)

    def _write_models(self, bank: Bank) -> None:
        try:
            wholefile.write(checkpoint.encode(bank), self.options.state_dir / MODELS)
        except OSError as error:
            _log.warning("the models are not kept: %s: %s", error.filename, error.strerror)


def _nothing() -> None:
    return None


def _directory(path: Path) -> Path:
    """``path``, made if it can be; who opens a file there says what is wrong with it."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o755)
    except OSError as error:
        _log.error("%s cannot be made: %s", path, error.strerror)
    return path


def _unused_record(boot_id: str) -> UndoRecord:
    """A record for a daemon that will not write: its files are gone as soon as they are open."""
    with tempfile.TemporaryDirectory(prefix="koord-qosd-") as directory:
        return UndoRecord(Path(directory) / UNDO, boot_id)


def _boot_id(proc: Path) -> str:
    try:
        return (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def _raised_limit() -> int:
    """The limit of open files, raised as far as this process may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 1 << 20) if hard != resource.RLIM_INFINITY else 1 << 20
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def _runtime(options: Options, loop: asyncio.AbstractEventLoop) -> Runtime | None:
    if not options.runtime_endpoint:
        return None
    return Runtime(options.runtime_endpoint, options.runtime_timeout, loop)


def _kubelet(options: Options) -> KubeletClient | None:
    if not options.kubelet_endpoint:
        return None
    access = Access(
        options.kubelet_endpoint,
        token_file=Path(options.kubelet_token_file) if options.kubelet_token_file else None,
        ca_file=Path(options.kubelet_ca_file) if options.kubelet_ca_file else None,
        verify=not options.kubelet_insecure_tls,
    )
    return KubeletClient(access, KUBELET_TIMEOUT_S)
