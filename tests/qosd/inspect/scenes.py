"""A daemon to be asked, on a cgroup tree of plain files: a test says what its strategies decided, and all else is real.

One tick acts on that, by the actors; then somebody else writes, then NodeInspect is served.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from koord.host.files import Target, Value
from koord.host.originals import Original
from koord.host.reconcile.plan import FOREIGN
from koord.host.reconcile.state import FileState
from koord.model.formulas import FORMULA, Inputs
from qosd.act.actuator import Actuator
from qosd.act.evictionreport import EvictionReport
from qosd.act.journal import JournalEntry
from qosd.act.moves import MoveReport
from qosd.act.ownership import Ownership
from qosd.assembly import assemble
from qosd.clusterstatus import ClusterStatus
from qosd.decide.decision import Decision, Opinion, Stage
from qosd.decide.runner import Decisions, StrategyResult, StrategyStatus
from qosd.hookserver import server as hookserver
from qosd.inspect.inspector import Inspector
from qosd.inspect.service import listening
from qosd.locator import CgroupLocator
from qosd.metrics import Metrics
from qosd.model.metric import Metric
from qosd.model.policy import HostFacts
from qosd.model.snapshot import EvictionState, NodeSnapshot
from qosd.node import Node
from qosd.policy.provenance import Origin, Provenance
from qosd.report import TickReport
from qosd.sense.node import NodeRow
from qosd.sense.row import NO_SAMPLE
from qosd.sense.sampler import CollectorHealth
from qosd.sense.store import SampleStore
from qosd.sense.table import PANELS
from tests.fakes.cgroups import Cgroups
from tests.qosd.contexts import extended, policy
from tests.qosd.machine import Machine
from tests.qosd.podviews import snapshot, view

SECOND = 1_000_000_000
NOW_NS = 1_000 * SECOND
UP_NS = 200 * SECOND  # monotonic
AGO_NS = 12 * SECOND  # the tick
V1 = HostFacts(memory_total_bytes=16 << 30)
POLICY = Provenance(Origin.SOURCE, "/etc/koord/qosd-rules.yaml", 880.0)


def entry(path: str, after: Value, result: str = FOREIGN, ago_s: int = 1, why: str = "unknown") -> JournalEntry:
    """A line of the journal about the quota of default/job's container."""
    when_ns, cgroup = NOW_NS - ago_s * SECOND, "/kubepods/besteffort/podjob/worker"
    return JournalEntry(when_ns, 0, 7, "hooks", "default/job", cgroup, "cpu_quota", path, 200_000, after, result, why)


@dataclass
class Scene:
    """What the newest tick decided, and what a test says of the rest; ``snapshot`` None: there was no tick."""

    root: Path
    snapshot: NodeSnapshot | None = None
    results: list[StrategyResult] = field(default_factory=list)
    states: dict[Target, FileState] = field(default_factory=dict)
    """Of files, instead of what the tick made of them."""
    originals: dict[str, dict[str, Original]] = field(default_factory=dict)
    placed: dict[str, str] = field(default_factory=dict)
    evictions: dict[str, EvictionState] = field(default_factory=dict)
    collectors: dict[str, CollectorHealth] = field(default_factory=dict)
    written: dict[Path, str] = field(default_factory=dict)
    """By somebody else, after the tick."""
    entries: list[JournalEntry] = field(default_factory=list)
    """More of the journal."""
    dropped: int = 0
    history: Mapping[Metric, Sequence[tuple[int, float]]] = field(default_factory=dict)
    """Of node metrics."""
    steady: Mapping[tuple[Metric, str], float] = field(default_factory=dict)
    """Figures of other objects that were so for the last two minutes, each second."""
    rules_file: str = ""
    """Its text; "": none, and ``policy`` is said to be in force."""
    policy: Provenance = POLICY
    cluster: ClusterStatus | None = None

    def report(self, node: Node) -> TickReport:
        """What the tick leaves."""
        if self.snapshot is None:
            return node.loop.report
        owners = {each.name: Ownership(each.stage, frozenset(t.name for t in each.opinions)) for each in self.results}
        actuator = Actuator(node.writer, node.undo, node.journal, owners)
        decisions = Decisions(1, NOW_NS - AGO_NS, UP_NS - AGO_NS, tuple(self.results))
        actuator.tick(decisions)
        files = actuator.files.report
        files = replace(files, states={**files.states, **self.states}, originals=self.originals)
        return TickReport(
            (files, MoveReport(node.writer.tree.resctrl, self.placed), EvictionReport(self.evictions)),
            self.collectors,
            self.snapshot,
            replace(decisions, wall_ns=NOW_NS, monotonic_ns=UP_NS),
        )


@asynccontextmanager
async def living(scene: Scene) -> AsyncIterator[Node]:
    """A node that is asked before its next tick."""
    machine = Machine(scene.root / "node")
    options = machine.options(cgroup_root=scene.root, runtime_endpoint="")
    node = assemble(options, Metrics(), CgroupLocator(options, scene.root / "host"))
    try:
        if scene.rules_file:
            machine.put("rules.yaml", scene.rules_file)
            node.policy.load()
        else:
            node.policy.file.provenance = scene.policy
        node.cluster_status = lambda: scene.cluster
        node.loop.report, node.loop.snapshot = scene.report(node), scene.snapshot
        for path, text in scene.written.items():
            path.write_text(f"{text}\n")
        for each in scene.entries:
            node.journal.record(each)
        assert node.journal.flush()
        node.journal.dropped = scene.dropped
        for metric, samples in scene.history.items():
            for at_ns, value in samples:
                row: Any = tuple(value if each is metric else NO_SAMPLE for each in NodeRow.panel.metrics)
                node.sense.store.put(NodeRow.panel, at_ns, {"": row})
        put_steady(node.sense.store, scene.steady)
        yield node
    finally:
        await node.close()


def put_steady(store: SampleStore, figures: Mapping[tuple[Metric, str], float], seconds: int = 120) -> None:
    """``figures`` by metric and object, each second until now."""
    for panel in PANELS:
        subjects = {subject for metric, subject in figures if metric in panel.metrics}
        rows: dict[str, Any] = {
            subject: tuple(figures.get((metric, subject), NO_SAMPLE) for metric in panel.metrics)
            for subject in subjects
        }
        for ago_s in range(seconds, -1, -1) if rows else ():
            store.put(panel, UP_NS - ago_s * SECOND, rows)


@asynccontextmanager
async def inspecting(socket: Path, scene: Scene) -> AsyncIterator[str]:
    """NodeInspect on ``socket`` of a node that one runtime proxy is connected to; yields the path."""
    async with living(scene) as node, hookserver.listening(node.options.hook_socket, node.hooks):
        _, proxy = await asyncio.open_unix_connection(node.options.hook_socket)
        try:
            async with listening(socket, Inspector(node, lambda: NOW_NS, lambda: UP_NS)):
                yield str(socket)
        finally:
            proxy.close()


def v1_files(root: Path, cgroup: str, quota: str = "-1") -> None:
    """A container's cgroup on v1, 1536 shares and 4 GiB, in a pod that may use CPUs 0-1."""
    cgroups, cpus = Cgroups(root), {"cpuset.cpus": "0-1", "cpuset.mems": "0"}
    cpu = {"cpu.cfs_quota_us": quota, "cpu.cfs_period_us": "100000", "cpu.shares": "1536"}
    cgroups.put(cgroup, {**cpu, **cpus, "memory.limit_in_bytes": str(4 << 30)})
    cgroups.put(cgroup.rpartition("/")[0], cpus)


def batch_scene(tmp_path: Path, quota: str = "200000", qos: str = "BE") -> Scene:
    """One pod ``default/job``, BE unless ``qos`` says otherwise, on cgroup v1. Koord holds its quota at 200000.

    ``quota``: what the file holds by now.
    """
    job = view(
        "job",
        qos,
        "BestEffort",
        containers=[("worker", "CONTAINER_RUNNING")],
        EXTENDED=extended("worker", request="1500", limit="2000", memory="4Gi"),
    )
    cgroup = job.containers[1].cgroup
    v1_files(tmp_path, cgroup)
    quota_of = Target(cgroup, "cpu_quota")
    fed: Inputs = {FORMULA: "cpu_quota", "limit_milli": 2000, "period_us": 100_000}
    opinions = {quota_of: Opinion.set(200_000, "batchResource: batch-cpu limit 2000m", fed, job.key)}
    return Scene(
        tmp_path,
        replace(snapshot(policy(V1), job), wall_ns=NOW_NS, monotonic_ns=UP_NS),
        [
            StrategyResult("hooks", Stage.SPEC, StrategyStatus.ACTIVE, Decision("1 value of 1 pod", opinions)),
            StrategyResult("burst", Stage.BURST, StrategyStatus.DISABLED, Decision("disabled by configuration")),
        ],
        collectors={"node": CollectorHealth(UP_NS - 9 * SECOND // 10, duration_us=850.0)},
        written={tmp_path / f"cpu{cgroup}/cpu.cfs_quota_us": quota},
    )
