"""A daemon's sources without a daemon: a snapshot, a cgroup tree on disk, what actuator and journal would say."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from koord.host import cgroup
from koord.host.files import Target, Value
from koord.host.originals import Original
from koord.host.reconcile import plan as files
from koord.host.reconcile.due import Due
from koord.host.reconcile.plan import DONE, PlannedWrite
from koord.host.reconcile.state import FileState, Phase
from koord.host.writer import Writer
from koord.model.formulas import FORMULA, Inputs
from qosd.act.composition import Composed, compose
from qosd.act.journal import Entry
from qosd.act.ownership import Ownership, arbitrate
from qosd.act.plan import Plan
from qosd.decide.decision import Decision, Opinion, Stage
from qosd.decide.runner import Decisions, State, StrategyResult
from qosd.hooks.rules import HostFacts
from qosd.inspect.service import Inspector, listening
from qosd.inspect.sources import About, Feature, FrontEndState, LoopState, PolicyState, Sources
from qosd.metric import Metric
from qosd.sense.table import METRICS
from qosd.snapshot import NodeSnapshot, Window
from tests.qosd.pods import extended, rules
from tests.qosd.podviews import snapshot, view

SECOND = 1_000_000_000
NOW_NS = 1_000 * SECOND
UP_NS = 100 * SECOND  # monotonic
V1 = HostFacts(memory_total_bytes=16 << 30)


POLICY = PolicyState("source", "/etc/koord/qosd-rules.yaml", 120.0)


@dataclass(frozen=True)
class Named:
    """A strategy of which only name and needs matter."""

    name: str
    stage: Stage = Stage.SPEC
    rows: frozenset[str] = frozenset()
    needs: Mapping[str, float] = field(default_factory=lambda: {"pods": 60.0})
    windows: tuple[Window, ...] = ()

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        return True

    def decide(self, snapshot: NodeSnapshot, memory: object) -> tuple[Decision, object]:
        return Decision(""), memory


def held(path: str, base: Value, ours: Value, by: str = "hooks") -> FileState:
    return FileState(Phase.HELD, path, 1, base, ours, by, UP_NS - 12 * SECOND)


def write(target: Target, path: str, before: Value, after: Value, inputs: Inputs) -> PlannedWrite:
    return PlannedWrite(
        target, path, before, after, True, "hooks", "batchResource: batch-cpu limit 2000m", inputs, "default/job"
    )


def entry(path: str, before: Value, after: Value, result: str = DONE, ago_s: int = 12, **more: Any) -> Entry:
    """A line of the journal about the quota of default/job's container."""
    when_ns = NOW_NS - ago_s * SECOND
    said = {"who": "hooks", "why": "batchResource: batch-cpu limit 2000m", **more}
    group = "/kubepods/besteffort/podjob/worker"
    return Entry(
        when_ns, 0, 7, pod="default/job", group=group, name="cpu_quota", path=path, before=before, after=after,
        result=result, **said,
    )  # fmt: skip


@dataclass
class FakeActuator:
    """Composes what ``results`` say, as the actors do."""

    owned: dict[Target, FileState] = field(default_factory=dict)
    contested: dict[Target, str] = field(default_factory=dict)
    placed: dict[str, str] = field(default_factory=dict)
    refused: dict[Target, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    results: list[StrategyResult] = field(default_factory=list)
    originals: dict[Target, Original] = field(default_factory=dict)

    def original(self, target: Target) -> Original | None:
        return self.originals.get(target)

    def composed(self, target: Target) -> Composed | None:
        owners = {result.name: Ownership(result.stage, frozenset({target.name})) for result in self.results}
        arbitration = arbitrate(target, self.results, owners)
        holding = self.owned.get(target)
        self.refused[target] = arbitration.refused
        return (
            compose(target.name, arbitration.accepted, holding.base if holding else None)
            if arbitration.accepted
            else None
        )


@dataclass
class FakeJournal:
    entries: list[Entry] = field(default_factory=list)
    dropped: int = 0
    problem: str = ""

    def query(
        self, *, pod: str = "", file: str = "", strategy: str = "", since_ns: int = 0, limit: int = 100
    ) -> Sequence[Entry]:
        found = [
            one
            for one in self.entries
            if pod in ("", one.pod) and file in ("", one.path) and strategy in ("", one.who) and one.wall_ns >= since_ns
        ]
        return found[:limit]


@dataclass
class FakeStore:
    histories: Mapping[tuple[Metric, str], Sequence[tuple[int, float]]] = field(default_factory=dict)

    def series(self, metric: Metric, subject: str) -> Sequence[tuple[int, float]]:
        return self.histories.get((metric, subject), ())


@dataclass
class FakeNode:
    """Everything a test may set before it asks."""

    root: Path
    snapshot: NodeSnapshot | None
    actuator: FakeActuator = field(default_factory=FakeActuator)
    journal: FakeJournal = field(default_factory=FakeJournal)
    store: FakeStore = field(default_factory=FakeStore)
    writes: list[PlannedWrite] = field(default_factory=list)
    planned: list[StrategyResult] = field(default_factory=list)
    """What the next tick decides; nothing: the same as the last."""
    loops: list[LoopState] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    policy: PolicyState = POLICY
    switched: list[tuple[bool, tuple[str, ...]]] = field(default_factory=list)

    @property
    def results(self) -> list[StrategyResult]:
        return self.actuator.results

    async def switch(self, enabled: bool, names: Sequence[str]) -> None:
        self.switched.append((enabled, tuple(names)))

    async def plan(self) -> Plan | None:
        decisions = Decisions(2, NOW_NS, UP_NS, tuple(self.planned or self.results))
        return Plan(decisions, (files.Plan(0, UP_NS, Due((), {}, 0), tuple(self.writes), (), {}, {}, {}, {}),))

    def sources(self) -> Sources:
        return Sources(
            writer=Writer(cgroup.detect(self.root, "")),
            metrics=METRICS,
            store=self.store,
            files=self.actuator,
            placed=lambda: self.actuator.placed,
            journal=self.journal,
            snapshot=lambda: self.snapshot,
            decisions=lambda: Decisions(1, NOW_NS, UP_NS, tuple(self.results)),
            strategies=[Named(result.name) for result in self.results],
            plan=self.plan,
            switch=self.switch,
            loops=lambda: self.loops,
            front_ends=lambda: [
                FrontEndState("proxy", attached=True, acting=True, detail="1 hook connection"),
                FrontEndState("nri", attached=False, acting=False),
            ],
            features=lambda: [Feature("cpu.idle", True, "in kubelet's cgroups"), Feature("resctrl", False, "no RDT")],
            about=lambda: ABOUT,
            policy=lambda: self.policy,
            warnings=lambda: self.warnings,
        )


ABOUT = About(
    version="0.1.0",
    pid=42,
    uptime_s=3700.0,
    rss_bytes=60 << 20,
    open_files=900,
    open_files_limit=65536,
    rules_file="/etc/koord/qosd-rules.yaml",
    runtime_endpoint="unix:///run/containerd/containerd.sock",
    cgroup_root="/sys/fs/cgroup",
    journal_file="/var/lib/koord/journal.db",
    undo_file="/run/koord/undo.jsonl",
)


def fill(directory: Path, files: Mapping[str, str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text + "\n")


def v1_files(root: Path, group: str, quota: str = "200000") -> None:
    """A container's cgroup on v1, 1536 shares and 4 GiB, in a pod that may use CPUs 0-1."""
    path = group.lstrip("/")
    fill(root / "cpu" / path, {"cpu.cfs_quota_us": quota, "cpu.cfs_period_us": "100000", "cpu.shares": "1536"})
    fill(root / "cpuset" / path, {"cpuset.cpus": "0-1", "cpuset.mems": "0"})
    fill(root / "cpuset" / path.rpartition("/")[0], {"cpuset.cpus": "0-1", "cpuset.mems": "0"})
    fill(root / "memory" / path, {"memory.limit_in_bytes": str(4 << 30)})


def batch_node(tmp_path: Path, quota: str = "200000") -> FakeNode:
    """One BE pod ``default/job`` on cgroup v1 with one container, whose quota Koord holds at 200000."""
    job = view(
        "job",
        "BE",
        "BestEffort",
        containers=[("worker", "CONTAINER_RUNNING")],
        EXTENDED=extended("worker", request="1500", limit="2000", memory="4Gi"),
    )
    group = job.containers[1].group
    v1_files(tmp_path, group, quota)
    quota_of = Target(group, "cpu_quota")
    fed: Inputs = {FORMULA: "cpu_quota", "limit_milli": 2000, "period_us": 100_000}
    opinions = {quota_of: Opinion.set(200_000, "batchResource: batch-cpu limit 2000m", fed, job.key)}
    results = [
        StrategyResult("hooks", Stage.SPEC, State.ACTIVE, "1 value of 1 pod", opinions),
        StrategyResult("burst", Stage.BURST, State.DISABLED, "disabled by configuration"),
    ]
    path = f"{tmp_path}/cpu{group}/cpu.cfs_quota_us"
    return FakeNode(
        tmp_path,
        replace(snapshot(rules(V1), job), wall_ns=NOW_NS, monotonic_ns=UP_NS),
        FakeActuator({quota_of: held(path, -1, 200_000)}, results=results),
        FakeJournal([entry(path, -1, 200_000, inputs=fed)]),
        loops=[LoopState("pods", 0.4), LoopState("node", 0.9, duration_us=850.0)],
    )


@asynccontextmanager
async def inspecting(socket: Path, node: FakeNode, now_ns: Callable[[], int] = lambda: NOW_NS) -> AsyncIterator[str]:
    """NodeInspect on ``socket``; yields the path."""
    async with listening(socket, Inspector(node.sources(), now_ns)):
        yield str(socket)
