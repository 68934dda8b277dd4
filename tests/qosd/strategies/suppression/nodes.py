"""A node of plain files on which best-effort work is suppressed, and one daemon after another.

    burstable    web (LS), batch (BE label, with requests)
    besteffort   job (BE label), mid (a guest: mid resources with a limit of 1.5 CPUs)

What the service waits for best-effort work follows from what the kernel's files leave to it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from koord.host.files import Target, Value
from koord.host.undo import UndoRecord
from koord.host.writer import Writer
from koord.model import cpuset
from koord.model.qos import KubeQoS
from qosd.act.actuator import Actuator
from qosd.act.journal import JournalEntry
from qosd.act.ownership import OWNERS
from qosd.act.plan import TickResult
from qosd.loop import NodeLoop, TickInputs
from qosd.metrics import Metrics
from qosd.model.besteffort import BestEffortLimits
from qosd.model.metric import Metric, Scope
from qosd.model.pod import Resources
from qosd.model.policy import HostFacts
from qosd.model.snapshot import PodView
from qosd.policy import besteffort
from qosd.policy.source import PolicySource
from qosd.predict.predictor import Predictor
from qosd.sense.build import Sense
from qosd.sense.node import NodeRow
from qosd.sense.pids import PIDS
from qosd.sense.row import NO_SAMPLE
from qosd.sense.sampler import Sampler
from qosd.sense.stalls import STALLS
from qosd.sense.store import SampleStore
from qosd.sense.system import SystemCollector
from qosd.sense.table import PANELS
from qosd.sense.tick import Batch, Tick
from qosd.sense.usage import USAGE
from qosd.strategies import STRATEGIES
from qosd.tickscheduler import TickReason
from tests.fakes.clock import Clock, S
from tests.fakes.kernelwriter import KernelWriter
from tests.qosd.contexts import extended
from tests.qosd.machine import Machine
from tests.qosd.podviews import machine, view

BURSTABLE, BESTEFFORT = "/kubepods/burstable", "/kubepods/besteffort"
WEB = view("web", "LS", container_requested=Resources(cpu_shares=1024))
BATCH = view("batch", "BE", container_requested=Resources(cpu_shares=512))
JOB = view("job", "BE", "BestEffort", EXTENDED=extended("main", request="1000"))
MID = view("mid", "LS", "BestEffort", EXTENDED=extended("main", "mid", limit="1500"))
LIMITED = view("job", "BE", "BestEffort", EXTENDED=extended("main", request="1000", limit="1000"))
PODS = (WEB, BATCH, JOB, MID)
TIERS = {KubeQoS.GUARANTEED: "/kubepods", KubeQoS.BURSTABLE: BURSTABLE, KubeQoS.BEST_EFFORT: BESTEFFORT}
GROUPS = (
    "/kubepods", BURSTABLE, BESTEFFORT,
    *(cgroup for pod in PODS for cgroup in (pod.cgroup, *(each.cgroup for each in pod.containers))),
)  # fmt: skip
NAMES = ("cpu_quota", "cpu_shares", "cpu.idle", "cpuset_cpus")
CPUS = "0-3"
SHARES = {
    "/kubepods": 4096, BURSTABLE: 1536, WEB.cgroup: 1024, f"{WEB.cgroup}/main": 1024, BATCH.cgroup: 512,
    f"{BATCH.cgroup}/main": 512,
}  # fmt: skip


@dataclass(frozen=True)
class Load:
    """``web_cores`` of the service; ``wait_ms``: what it waits per second for each CPU that best-effort work uses."""

    web_cores: float
    wait_ms: float = 0.0


QUIET, BUSY = Load(0.2), Load(1.5, 30.0)
BEST_EFFORT_CORES = 3.0
"""What best-effort work uses where nobody bounds it."""


@dataclass
class NodeMeter:
    """The collector of the node's use. ``cores`` is asked at each second."""

    cores: Callable[[], float]
    name: str = "node"
    period_s: float = 1.0
    panels = (NodeRow.panel,)

    def collect(self, tick: Tick) -> Batch:
        panel = self.panels[0]
        return [(panel, {"": _row(panel.metrics, {NodeRow.cpu_usage_cores: self.cores()})})]

    def close(self) -> None:
        pass


@dataclass
class PodMeter:
    """The collector of what pods and containers use, and of what the service waits."""

    cores: Callable[[], Mapping[str, float]]
    waited_ms: Callable[[], float]
    name: str = "usage"
    period_s: float = 1.0
    panels = (
        USAGE[Scope.POD].panel,
        USAGE[Scope.CONTAINER].panel,
        STALLS[Scope.CONTAINER].panel,
        PIDS[Scope.CONTAINER].panel,
    )

    def collect(self, tick: Tick) -> Batch:
        pods, containers, stalls, pids = self.panels
        used, web = self.cores(), f"{WEB.cgroup}/main"
        row = USAGE[Scope.CONTAINER]
        zeros = {row.cpu_throttled_us_per_s: 0.0}
        waited = {STALLS[Scope.CONTAINER].cpu_stall_some_us_per_s: 1000 * self.waited_ms()}
        return [
            (pods, {pod: _row(pods.metrics, {USAGE[Scope.POD].cpu_usage_cores: it}) for pod, it in used.items()}),
            (
                containers,
                {
                    f"{pod}/main": _row(containers.metrics, {row.cpu_usage_cores: it, **zeros})
                    for pod, it in used.items()
                },
            ),
            (stalls, {web: _row(stalls.metrics, waited)}),
            (pids, {web: _row(pids.metrics, {PIDS[Scope.CONTAINER].pids: 1.0})}),
        ]

    def close(self) -> None:
        pass


def _row(metrics: Sequence[Metric], values: Mapping[Metric, float]) -> Any:
    return tuple(values.get(metric, NO_SAMPLE) for metric in metrics)


@dataclass
class Node:
    """``loop``, ``undo`` and the rest belong to the daemon that runs now."""

    root: Path
    version: int
    policy: str
    entries: list[JournalEntry] = field(default_factory=list)
    pods: tuple[PodView, ...] = PODS

    def __post_init__(self) -> None:
        self.machine, self.clock = Machine(self.root, self.version), Clock()
        for cgroup in GROUPS:
            self.machine.cgroups.make(cgroup)
            self.machine.cgroups.put(cgroup, {"cpu.idle": "0"})
        self.tree = dataclasses.replace(self.machine.locator().tree, resctrl=self.root / "resctrl")
        for cgroup in GROUPS:
            Writer(self.tree).write(Target(cgroup, "cpuset_cpus"), CPUS)
            Writer(self.tree).write(Target(cgroup, "cpu_shares"), SHARES.get(cgroup, 2))
        self.host = HostFacts(self.version, files=frozenset({"cpu.idle"}))
        self.machine.put("rules.yaml", json.dumps(_suppressing(self.policy)))
        self.before = self.state()
        self.load = QUIET
        self.start()

    def start(self) -> None:
        """The next daemon, as ``qosd.node`` makes it."""
        self.undo = UndoRecord(self.root / "undo", "6f1d")
        self.writer = KernelWriter(self.tree, GROUPS, NAMES)
        self.actuator = Actuator(self.writer, self.undo, self, OWNERS)
        self.source = PolicySource(self.machine.root / "rules.yaml", lambda: self.host, Metrics())
        self.source.load()
        left = besteffort.load(self.root / "besteffort.json")
        self.source.set_best_effort_limits(BestEffortLimits(by_strategy=left))
        store = SampleStore(PANELS)
        meters = [NodeMeter(lambda: sum(self._used().values()) + 0.2), PodMeter(self._used, self._waited_ms)]
        sense = Sense(Sampler(meters, store, self.clock), store, SystemCollector(None))  # type: ignore[arg-type]
        self.topology = machine(4)
        self.loop = NodeLoop(
            sense, STRATEGIES, self.actuator, Predictor(lambda bank: None), wall=self.clock, monotonic=self.clock,
            set_limits=self._set_limits,
        )  # fmt: skip

    def _set_limits(self, limits: BestEffortLimits) -> None:
        besteffort.save(self.root / "besteffort.json", limits.by_strategy)
        self.source.set_best_effort_limits(limits)
        self.acts_when_limited = self.writer.acts

    def record(self, entry: JournalEntry) -> None:
        self.entries.append(entry)

    def tick(self, load: Load | None = None) -> list[tuple[str, str, Value]]:
        """A second, and what is written then."""
        self.load = load or self.load
        self.clock.ns += S
        return self._tick(TickReason.BEAT)

    def tick_between(self) -> list[tuple[str, str, Value]]:
        """A tick between two seconds, that takes no samples."""
        return self._tick(TickReason.CHANGE)

    def _tick(self, reason: TickReason) -> list[tuple[str, str, Value]]:
        by = self.source.update(self.topology, self.pods, {}, self.clock.ns)
        result = self.loop.tick(
            TickInputs(self.pods, by, self.topology, TIERS, {}, {"pods": 0.5}, limits=self.source.limits), reason
        )
        assert isinstance(result, TickResult)
        assert set(result.results) <= {"done"}, result.sentence
        writes = [each.write for each in result.outcomes]
        return [(each.target.cgroup, each.target.name, each.after) for each in writes]

    def seconds(self, count: int, load: Load) -> None:
        for _ in range(count):
            self.tick(load)

    def stop_suppressing(self, by_gate: bool) -> None:
        """By the feature gate, or by NodeSLO."""
        thresholds = {"resourceUsedThresholdWithBE": {"enable": by_gate}}
        features = {"BECPUSuppress": not by_gate}
        self.machine.put("rules.yaml", json.dumps({"spec": thresholds, "node": {"features": features}}))
        self.source.load()

    def switched_off(self) -> None:
        self.loop.switched_off = frozenset(OWNERS)
        self.tick(), self.tick()

    def _used(self) -> Mapping[str, float]:
        """By pod, in cores."""
        best_effort = self.best_effort_cores() / 2
        used = {WEB.cgroup: self.load.web_cores, BATCH.cgroup: best_effort, JOB.cgroup: best_effort, MID.cgroup: 0.1}
        return {pod.cgroup: used[pod.cgroup] for pod in self.pods}

    def _waited_ms(self) -> float:
        return self.load.wait_ms * self.best_effort_cores()

    def best_effort_cores(self) -> float:
        """What best-effort work uses: by quotas and CPU sets of its containers, and by the tier's quota."""
        left = sum(self._bound_cores(f"{pod.cgroup}/main") for pod in (BATCH, JOB))
        return min(left, BEST_EFFORT_CORES, len(cpuset.parse(str(self.holds(f"{JOB.cgroup}/main", "cpuset_cpus")))))

    def _bound_cores(self, cgroup: str) -> float:
        quotas = [int(self.holds(each, "cpu_quota") or -1) for each in (cgroup, BESTEFFORT) if cgroup.startswith(each)]
        return min([quota_us / 100_000 for quota_us in quotas if quota_us > 0], default=BEST_EFFORT_CORES)

    def holds(self, cgroup: str, name: str) -> Value | None:
        return Writer(self.tree).read(Target(cgroup, name))

    def state(self) -> dict[tuple[str, str], Value | None]:
        return {(cgroup, name): self.holds(cgroup, name) for cgroup in GROUPS for name in NAMES}

    def close(self) -> None:
        self.undo.close()


def _suppressing(by: str) -> dict[str, Any]:
    thresholds = {"enable": True, "cpuSuppressPolicy": "cpuset" if by == "pressure" else by}
    node = {"cpuSuppress": {"policy": "pressure"}} if by == "pressure" else {}
    return {"spec": {"resourceUsedThresholdWithBE": thresholds}, "node": node}
