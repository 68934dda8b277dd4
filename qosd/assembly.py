"""Makes all parts of koord-qosd and hands each the parts that it needs.

A part is handed over as an object; a function is handed over in place of a part that is made later, or for an answer
that may be another at each call.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from koord.host import sched, systemd_units, temporary, topology
from koord.host.cgroup import Tree
from koord.host.reader import KeptFiles
from koord.host.systemd_units import Units
from koord.host.undo import UNKNOWN_BOOT, UndoError, UndoRecord, boot_id
from koord.host.writer import Writer
from qosd import gauges
from qosd.act.actor import entry_of
from qosd.act.actuator import Actuator
from qosd.act.cristop import CRIStop
from qosd.act.evictor import Evictor
from qosd.act.journal import Journal
from qosd.act.leftovers import LOOK_FOR_S
from qosd.decide.runner import Decisions
from qosd.frontends import FrontEnds
from qosd.hookserver.server import HookServer
from qosd.hostwatch import HostWatch
from qosd.locator import CgroupLocator, cfs_period_in
from qosd.loop import NodeLoop
from qosd.metrics import Metrics
from qosd.model.besteffort import BestEffortLimits
from qosd.model.policy import HostFacts
from qosd.node import BEST_EFFORT, JOURNAL, MODELS, NODE_OBJECT, NODE_SLO, POLICY, UNDO, Node
from qosd.nri.plugin import NRIPlugin
from qosd.nri.service import Hooks
from qosd.options import Options
from qosd.originals import OriginalsRecorder
from qosd.pods.cpumanager import CPUManagerFile
from qosd.pods.cri import CRIClient
from qosd.pods.http import KubeletAccess
from qosd.pods.kubelet import SERVING_CERTIFICATES, KubeletClient
from qosd.pods.kubeletconfig import KubeletConfigSource
from qosd.pods.podlists import PodLists
from qosd.pods.source import PodSource
from qosd.policy import besteffort, hostfacts, kubeletpolicy
from qosd.policy.clusterpolicy import ClusterPolicy
from qosd.policy.kept import Keeper
from qosd.policy.source import PolicySource
from qosd.policy.tiercpus import TierCPUs
from qosd.predict import checkpoint
from qosd.predict.predictor import Predictor
from qosd.pressuretriggers import PressureTriggers
from qosd.sense.build import Sense, build
from qosd.sense.host import CollectorHost
from qosd.strategies import STRATEGIES
from qosd.strategies.reconciler import HookReconciler
from qosd.tickscheduler import TickScheduler

KUBELET_TIMEOUT_S = 3.0
_SPARE_DESCRIPTORS = 256
_log = logging.getLogger(__name__)


def assemble(
    options: Options, metrics: Metrics, locator: CgroupLocator | None = None, lock_fd: int | None = None
) -> Node:
    """Makes the node, in the running event loop. ``lock_fd``: the lock of the undo record, if it is held already.

    Raises ConfigError, and UndoError if another koord-qosd runs or there is no room for even an empty file.
    """
    event_loop, scheduler = asyncio.get_running_loop(), TickScheduler(options.tick_interval)
    disk = ThreadPoolExecutor(1, thread_name_prefix="disk")
    locator = locator or CgroupLocator(options)
    runtime, kubelet = _runtime(options, event_loop), _kubelet(options, metrics)
    pod_lists = PodLists(kubelet) if kubelet is not None or options.kubeconfig else None

    def kubelet_policy_changed() -> None:
        pods.hint()
        scheduler.wake()

    def cluster_policy_changed() -> None:
        if policy.recompose():
            scheduler.wake()

    def set_limits(limits: BestEffortLimits) -> None:
        besteffort.save(options.run_dir / BEST_EFFORT, limits.by_strategy)
        policy.set_best_effort_limits(limits)

    kept_policy, kept_slo, kept_node = (
        Keeper(options.state_dir / name, disk, event_loop) for name in (POLICY, NODE_SLO, NODE_OBJECT)
    )
    cluster_policy = ClusterPolicy(
        cluster_policy_changed, is_expected=bool(options.kubeconfig), kept_slo=kept_slo, kept_node=kept_node
    )
    cpu_manager = CPUManagerFile(event_loop, options.kubelet_state_dir / "cpu_manager_state", kubelet_policy_changed)
    kubelet_config = KubeletConfigSource(kubelet, lambda: policy.current.host.memory_total_bytes, scheduler.wake)
    policy = PolicySource(
        options.rules_file, partial(_host_facts, locator), metrics, kept_policy, gate_flags=options.feature_gates,
        cluster=cluster_policy, kubelet=partial(kubeletpolicy.said_by, cpu_manager, kubelet_config),
    )  # fmt: skip

    undo, read_only = _undo_record(options, lock_fd)
    if undo.entries:  # else there was no best-effort pod, or all was given back meanwhile
        policy.set_best_effort_limits(BestEffortLimits(by_strategy=besteffort.load(options.run_dir / BEST_EFFORT)))
    writer = undo.writer(locator.tree)  # as the run before, until the containers show how the runtime spells
    journal = Journal(_directory(options.state_dir) / JOURNAL, options.journal_rows)
    units = systemd_units.of_host(writer, undo)
    end_temporary = partial(_end_temporary, writer, undo, journal, units)
    if not read_only:
        end_temporary()  # of a run that could not do it itself
    stop = None if runtime is None else CRIStop(runtime, locator.tree.exists)
    evictor = Evictor(undo, journal, stop, event_loop)
    actuator = Actuator(writer, undo, journal, units=units, evictor=evictor)

    kept_files, sense = _sense(locator.tree)
    predictor = Predictor(lambda bank: disk.submit(checkpoint.save, bank, options.state_dir / MODELS))
    loop = NodeLoop(
        sense, STRATEGIES, actuator, predictor,
        wall=time.time_ns, monotonic=time.monotonic_ns, dry=bool(read_only), set_limits=set_limits,
    )  # fmt: skip
    pods = PodSource(
        runtime, pod_lists, lambda: policy.current.node.derivation, scheduler.wake,
        modified=actuator.files.touched, owns=actuator.files.owns, period_us=partial(cfs_period_in, locator.tree),
    )  # fmt: skip
    pressure_triggers = PressureTriggers(event_loop, locator.tree, scheduler.urge)
    node = Node(
        options=options, metrics=metrics, scheduler=scheduler, locator=locator,
        kept_policies=(kept_policy, kept_slo, kept_node), cluster_policy=cluster_policy,
        cpu_manager=cpu_manager, kubelet_config=kubelet_config, pod_lists=pod_lists, policy=policy, undo=undo,
        read_only=read_only, writer=writer, journal=journal, actuator=actuator, files=kept_files, sense=sense,
        predictor=predictor, loop=loop, pods=pods, disk=disk, end_temporary=end_temporary,
        tier_cpus=TierCPUs(locator.tree, LOOK_FOR_S),
        host=HostWatch(locator, policy, cpu_manager, pods, actuator.files, scheduler, pressure_triggers),
    )  # fmt: skip
    _add_front_ends(node)
    metrics.gauges = gauges.of(loop, journal, kept_files, policy)
    return node


def _add_front_ends(node: Node) -> None:
    """Gives the node the front ends that edit containers while they are created: hook server and NRI plugin."""
    tree, options, policy = node.locator.tree, node.options, node.policy
    originals = OriginalsRecorder(node.undo, node.writer, node.metrics)

    node.front_ends = FrontEnds(
        lambda: node.hooks.server.connections,
        lambda: node.plugin.runtime if node.plugin else "",
        enabled=lambda: HookReconciler.name not in node.loop.off,
    )
    node.hooks = HookServer(
        policy.in_force, node.metrics, acts=node.front_ends.proxy_acts, seen=node.expect,
        room_for=node.start_gate.room_for, originals=originals, as_listed=node.pods.as_listed,
    )  # fmt: skip
    if options.nri_socket:
        served = Hooks(
            policy.in_force, node.metrics, node.front_ends.nri_acts, partial(hostfacts.text_of, tree),
            announced=node.expect, pods_changed=node.pods.hint, later=node.event_loop.call_soon, originals=originals,
            has_resctrl_group=partial(hostfacts.has_resctrl_group, tree), as_listed=node.pods.as_listed,
        )  # fmt: skip
        socket = Path(options.nri_socket)
        node.plugin = NRIPlugin(socket, served, lambda attached: None, index=options.nri_plugin_index)


def _undo_record(options: Options, lock_fd: int | None) -> tuple[UndoRecord, str]:
    """Returns the undo record, and why no kernel file may be written ("" = all may). Raises UndoError."""
    this_boot = boot_id(options.proc_root) or UNKNOWN_BOOT
    read_only = "by --dry-run" if options.dry_run else ""
    try:
        undo = UndoRecord(_directory(options.run_dir) / UNDO, this_boot, lock_fd=lock_fd)
    except UndoError as error:
        if error.errno == errno.EAGAIN:
            raise  # a second koord-qosd: the two would put right each other's values for ever
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise  # not even an empty file can be made: the next start may find room, and this one would not look
        read_only = f"what to put back cannot be noted: {error}"
        _log.error("no kernel file is written: %s", read_only)
        with tempfile.TemporaryDirectory(prefix="koord-qosd-") as directory:
            undo = UndoRecord(Path(directory) / UNDO, this_boot)  # nothing is written, so its file may be gone at once
    for problem in undo.problems:
        _log.warning("%s", problem)
    return undo, read_only


def _end_temporary(writer: Writer, undo: UndoRecord, journal: Journal, units: Units | None) -> None:
    """Takes temporary values back, and journals that like any other write.

    A reconciler that was made before must not be used on the record afterwards.
    """
    now = Decisions(0, time.time_ns(), time.monotonic_ns(), ())
    for outcome in temporary.take_back(writer, undo, units):
        journal.record(entry_of(now, outcome.write, outcome.result, outcome.sentence))


def _sense(tree: Tree) -> tuple[KeptFiles, Sense]:
    kept_files = KeptFiles(max(_raised_limit() - _SPARE_DESCRIPTORS, 0), lambda line: _log.warning("%s", line))
    units = os.sysconf("SC_CLK_TCK"), resource.getpagesize()

    def online() -> list[int]:
        return [cpu.id for cpu in topology.read(tree.sys).cpus]

    return kept_files, build(CollectorHost(tree, kept_files, time.monotonic_ns, online, *units))


def _host_facts(locator: CgroupLocator) -> HostFacts:
    try:
        text = (locator.tree.proc / "meminfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    page_bytes = resource.getpagesize()
    return hostfacts.look(locator.tree, locator.tiers.values(), text, page_bytes, sched.has_slices())


def _directory(path: Path) -> Path:
    """Makes the directory ``path`` and returns it. A failure is logged, and met again where a file there is opened."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o755)
    except OSError as error:
        _log.error("%s cannot be made: %s", path, error.strerror)
    return path


def _raised_limit() -> int:
    """Raises the limit of open files as far as this process may, and returns it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 1 << 20) if hard != resource.RLIM_INFINITY else 1 << 20
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def _runtime(options: Options, loop: asyncio.AbstractEventLoop) -> CRIClient | None:
    if not options.runtime_endpoint:
        return None
    return CRIClient(options.runtime_endpoint, options.runtime_timeout, loop)


def _kubelet(options: Options, metrics: Metrics) -> KubeletClient | None:
    if not options.kubelet_endpoint:
        return None
    own = SERVING_CERTIFICATES if options.kubelet_insecure_tls else ()
    access = KubeletAccess(
        options.kubelet_endpoint,
        token_file=_file(options.kubelet_token_file),
        cert_file=_file(options.kubelet_cert_file),
        key_file=_file(options.kubelet_key_file),
        ca_file=_file(options.kubelet_ca_file),
        certificates=tuple([options.kubelet_state_dir / name for name in own]),
    )

    def observe(path: str, status: int, seconds: float) -> None:
        metrics.kubelet_seconds[path, str(status)].observe(seconds)

    return KubeletClient(access, KUBELET_TIMEOUT_S, observe)


def _file(text: str) -> Path | None:
    return Path(text) if text else None
