"""Memory QoS and OOM scores through the whole loop, on trees of files: v1 and v2, of mainline and of vendor kernels.

A recorded run switches it on, changes it, lets pods come and go and another writer write, and has memory reclaimed. A
SIGKILL at every act of it, then a restart that switches everything off, or ``koordctl restore``: zero difference.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from koord.host.files import Target, Value
from koord.host.notes import KINDS
from koord.host.restoring import restore
from koord.host.undo import UndoRecord
from koord.host.writer import Writer
from koord.model.podtotal import Role
from koord.model.qos import KubeQoS
from koord.model.quantity import Bytes
from koord.model.requirements import ContainerAmounts
from qosd.act.actuator import Actuator
from qosd.act.journal import JournalEntry
from qosd.act.oneshots import OneShotWriter
from qosd.decide.runner import StrategyStatus
from qosd.hooks import memory
from qosd.loop import NodeLoop, TickInputs
from qosd.model.metric import Scope
from qosd.model.pod import Resources, SpecContainer
from qosd.model.policy import EffectivePolicy
from qosd.model.snapshot import PodView
from qosd.policy import hostfacts
from qosd.predict.predictor import Predictor
from qosd.sense.build import Sense
from qosd.sense.pids import PIDS
from qosd.sense.pressure import PRESSURE
from qosd.sense.sampler import Sampler
from qosd.sense.store import SampleStore
from qosd.sense.system import SystemCollector
from qosd.sense.table import PANELS
from qosd.sense.tick import Batch, Tick
from qosd.sense.usage import USAGE
from qosd.strategies import STRATEGIES, speakers
from qosd.tickscheduler import TickReason
from tests.fakes.clock import Clock, S
from tests.fakes.processes import Processes, ScoreWriter
from tests.fakes.runtime import TIERS
from tests.qosd.contexts import EXTENDED, extended, policy
from tests.qosd.machine import Machine
from tests.qosd.podviews import machine as cpus
from tests.qosd.podviews import view

MIB, GIB = 1 << 20, 1 << 30
ROOT, BURSTABLE, BESTEFFORT = TIERS
WEB, DAEMON, JOB = f"{BURSTABLE}/podweb", f"{ROOT}/poddaemon", f"{BESTEFFORT}/podjob"
PODS = (WEB, DAEMON, JOB)
OF_VENDORS = {**dict.fromkeys(sorted(memory.ROWS), "0"), "memory.wmark_scale_factor": "50", "memory.high": "max"}
KERNELS: Mapping[str, tuple[int, Mapping[str, str]]] = {
    "v2": (2, {"memory.oom.group": "0", "memory.reclaim": ""}),
    "v2 vendor": (2, {**OF_VENDORS, "memory.reclaim": ""}),
    "v1": (1, {"memory.soft_limit_in_bytes": "9223372036854771712", "memory.force_empty": ""}),
    "v1 vendor": (
        1,
        {name: text.replace("max", "-1") for name, text in OF_VENDORS.items() if "pagecache" not in name},
    ),
}
"""Cgroup version, and the files that a new cgroup has beside those of every kernel."""
PERCENTS = {"minLimitPercent": 20, "lowLimitPercent": 50, "throttlingPercent": 80}
ALL = {**PERCENTS, "oomKillGroup": 1, "priority": 3, "pageCacheLimitSize": 100 * MIB}
GATES = {"CgroupReconcile": True, "OOMScoreAdj": True}
BOTH = (False, True)
CPUS, TIERS_BY_QOS = cpus(4), dict(zip(KubeQoS, TIERS, strict=True))


_LARGEST = re.compile(r"\A92233720368547[0-9]{5}\Z")


class Killed(BaseException):
    """SIGKILL."""


class Dying(ScoreWriter):
    killed = Killed


class Inline(Executor):
    """The thread of the orders is the tick's own."""

    def submit(self, work: Callable[..., Any], /, *_: Any, **__: Any) -> Future[Any]:
        work()
        return Future()


class Memory:
    """A collector: every pod uses 1000 MiB, of which 600 are file pages; nobody waits for memory."""

    name, period_s = "usage", 1.0
    panels = tuple(rows[scope].panel for rows in (USAGE, PRESSURE, PIDS) for scope in (Scope.POD, Scope.CONTAINER))

    def collect(self, tick: Tick) -> Batch:
        batch: list[Any] = []
        for panel in self.panels:
            subjects = [cgroup.subject for cgroup in tick.targets.cgroups[panel.scope]]
            batch.append((panel, dict.fromkeys(subjects, tuple(map(_figure, panel.metrics)))))
        return batch

    def close(self) -> None:
        pass


class Pressure(Memory):
    """Stands for the collector of that name, so that it has an age."""

    name, panels = "pressure", ()


def _figure(metric: Any) -> float:
    if metric.name.endswith("memory_with_page_cache_bytes"):
        return 1000.0 * MIB
    return 400.0 * MIB if metric.name.endswith("memory_usage_bytes") else 0.0


def pod(name: str, qos: str, tier: str, cgroup: str, **said: Any) -> PodView:
    native = ContainerAmounts("main", memory_request=Bytes(2 * GIB), memory_limit=Bytes(6 * GIB))
    spec = None if qos == "BE" else (SpecContainer("main", Role.MAIN, native),)
    limit = Resources() if qos == "BE" else Resources(memory_limit_bytes=6 * GIB)
    amounts: dict[str, Any] = {EXTENDED: extended(memory_request="1Gi", memory="4Gi")} if qos == "BE" else {}
    request = None if qos == "BE" else 2 * GIB
    made = view(
        name, qos, tier, spec=spec, memory_request_bytes=request, container_requested=limit, requested=limit,
        **amounts, **said,
    )  # fmt: skip
    containers = tuple(replace(each, cgroup=f"{cgroup}/{each.name}") for each in made.containers[1:])
    return replace(made, cgroup=cgroup, containers=containers)


class Node:
    """One daemon after another over the same files."""

    def __init__(self, root: Path, kernel: str) -> None:
        self.root, (self.version, self.files) = root, KERNELS[kernel]
        self.machine = Machine(root, self.version)
        self.machine.kubepods()
        self.machine.put("proc/sys/kernel/osrelease", "6.1.0-32\n")
        self.cgroups = [*TIERS, *PODS, *(f"{cgroup}/main" for cgroup in PODS)]
        for cgroup in self.cgroups:
            self.machine.cgroups.make(cgroup)
            for name, text in {"cgroup.procs": "", **self.files}.items():
                hierarchy = "" if self.version == 2 else "cpu" if name == "cgroup.procs" else "memory"
                (self.machine.cgroup_root / hierarchy / cgroup.lstrip("/") / name).write_text(text)
        self.tree = dataclasses.replace(self.machine.locator().tree, resctrl=root / "resctrl")
        self.processes = Processes(self.tree)
        for cgroup, score in ((WEB, 985), (DAEMON, -998), (JOB, 1000)):
            self.processes.start(f"{cgroup}/main", score)
            self.processes.start(f"{cgroup}/main", 0)
        self.clock = Clock()
        self.entries: list[JournalEntry] = []
        self.before = self.state()
        self.settings: Mapping[str, Any] = {}
        self.gates: Mapping[str, bool] = {}
        self.hooks = {"batchResource": False}
        self.host = hostfacts.look(self.tree, TIERS, (root / "proc/meminfo").read_text(), 4096)
        self._said: Any = None
        self.pods: dict[str, PodView] = {
            "web": pod("web", "LS", "Burstable", WEB),
            "daemon": pod("daemon", "SYSTEM", "Guaranteed", DAEMON),
            "job": pod("job", "BE", "BestEffort", JOB),
        }
        self.start()

    def start(self) -> None:
        self.undo = UndoRecord(self.root / "undo", "6f1d")
        self.writer = Dying(self.tree)
        orders = OneShotWriter(self.writer, self, Inline())
        self.actuator = Actuator(self.writer, self.undo, self, one_shots=orders)
        store = SampleStore(PANELS)
        sense = Sense(Sampler([Memory(), Pressure()], store, self.clock), store, SystemCollector(None))  # type: ignore[arg-type]
        self.loop = NodeLoop(
            sense, STRATEGIES, self.actuator, Predictor(lambda bank: None), wall=self.clock, monotonic=self.clock
        )

    def record(self, entry: JournalEntry) -> None:
        self.entries.append(entry)

    def policy(self) -> EffectivePolicy:
        """The same object while they are the same."""
        said = self.settings, self.gates, self.hooks
        if said != self._said:
            strategy = {f"{name}Class": {"memoryQOS": self.settings} for name in ("lsr", "ls", "be", "system")}
            spec = {"resourceQOSStrategy": strategy} if self.settings else {}
            node = {"features": dict(self.gates), "hooks": self.hooks, "allocatableMemory": "12Gi"}
            self._said, self._policy = said, policy(self.host, spec, **node)
        return self._policy

    def tick(self, reason: TickReason = TickReason.BEAT) -> None:
        self.clock.ns += S if reason is TickReason.BEAT else S // 50
        if reason is TickReason.BEAT:
            self.inputs = TickInputs(tuple(self.pods.values()), self.policy(), CPUS, TIERS_BY_QOS, {}, {"pods": 0.5})
        self.loop.tick(self.inputs, reason)

    def ticks(self, count: int) -> None:
        for _ in range(count):
            self.tick()

    def put(self, cgroup: str, name: str, value: Value) -> None:
        """Another writer, of whom inotify tells."""
        Writer(self.tree).write(Target(cgroup, name), value)
        self.actuator.files.touched(str(self.writer.path(Target(cgroup, name))))

    def state(self) -> dict[str, object]:
        """All that Koord may change: every file of a cgroup but those of orders, and every score.

        Plain files keep -1 where a kernel of v1 shows its largest number.
        """
        orders = ("memory.reclaim", "memory.force_empty")
        found: dict[str, object] = {
            str(file.relative_to(self.root)): _LARGEST.sub("-1", file.read_text().strip())
            for file in sorted(self.machine.cgroup_root.rglob("*"))
            if file.is_file() and file.name not in orders
        }
        return found | {f"process {pid}": score for pid, score in self.processes.scores().items()}

    def holds(self, cgroup: str, name: str) -> Value | None:
        return Writer(self.tree).read(Target(cgroup, name))

    def close(self) -> None:
        self.undo.close()


def recorded_run(node: Node) -> None:
    """On, changed, a pod that goes and comes, an annotation that comes and goes, another writer, more and off."""
    node.gates, node.settings = GATES, {"enable": True, **PERCENTS}
    node.ticks(2)
    node.settings = {"enable": True, **ALL}
    node.pods["web"] = pod("web", "LS", "Burstable", WEB, **{"koordinator.sh/oom-score-adj": "-500"})
    node.ticks(2)
    job = node.pods.pop("job")
    node.ticks(1)
    node.pods["job"] = job
    none = {"koordinator.sh/memoryQOS": {"policy": "none"}}
    node.pods["daemon"] = pod("daemon", "SYSTEM", "Guaranteed", DAEMON, **none)
    node.pods["web"] = pod("web", "LS", "Burstable", WEB, **{"koordinator.sh/oom-score-adj-spec": '{"main": 300}'})
    node.ticks(2)
    node.gates = {"CgroupReconcile": True}
    node.settings = {"enable": True, "lowLimitPercent": 10}
    node.ticks(2)


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> str:
    return str(request.param)


SHARE_MIN, SHARE_LOW = 429496729, GIB
"""20 % and 50 % of 2 GiB; the job's 1 GiB of batch-memory gives half."""


def expected(node: Node) -> dict[tuple[str, str], Value]:
    """What files hold with PERCENTS, a request of 2 GiB and a limit of 6, by kernel."""
    if not ("memory.min" in node.files or node.version == 2):
        soft = "memory.soft_limit_in_bytes"
        return {(WEB, soft): SHARE_LOW, (DAEMON, soft): SHARE_LOW, (JOB, soft): SHARE_LOW // 2, (BURSTABLE, soft): -1}
    found: dict[tuple[str, str], Value] = {
        (ROOT, "memory.min"): 2 * SHARE_MIN + GIB // 5,
        (ROOT, "memory.low"): 2 * SHARE_LOW + SHARE_LOW // 2,
        (BURSTABLE, "memory.min"): SHARE_MIN,
        (BURSTABLE, "memory.low"): SHARE_LOW,
        (BESTEFFORT, "memory.low"): SHARE_LOW // 2,
        (WEB, "memory.min"): SHARE_MIN,
        (f"{WEB}/main", "memory.min"): SHARE_MIN,
        (f"{WEB}/main", "memory.low"): SHARE_LOW,
        (f"{WEB}/main", "memory.high"): 5583454208,
        (f"{DAEMON}/main", "memory.min"): SHARE_MIN,
        (f"{DAEMON}/main", "memory_limit_in_bytes"): -1,
        (WEB, "memory.high"): -1,
    }
    if "memory.wmark_ratio" in node.files:
        found |= {(WEB, "memory.wmark_ratio"): 95, (f"{WEB}/main", "memory.wmark_min_adj"): -25}
        found |= {(f"{JOB}/main", "memory.wmark_min_adj"): 50, (BURSTABLE, "memory.wmark_ratio"): 0}
    return found


def test_every_level_holds_what_it_is_to_hold_and_nothing_when_it_is_off(tmp_path: Path, kernel: str) -> None:
    node = Node(tmp_path, kernel)
    node.settings = {"enable": True, **PERCENTS}
    node.ticks(3)
    assert (node.state(), node.writer.acts) == (node.before, 0), "enabled, but the gate is off"
    states = {result.name: result.state for result in node.loop.report.decisions.results}
    assert states["memoryTiers"] is states["memoryReclaim"] is states["oomScoreAdj"] is StrategyStatus.GATED
    node.gates = GATES
    node.ticks(2)
    wanted = expected(node)
    assert {key: node.holds(*key) for key in wanted} == wanted
    node.settings = {"enable": False}
    node.ticks(2)
    assert node.state() == node.before
    assert not any(node.undo.all(kind) for kind in KINDS)


@pytest.mark.parametrize("way", ["gate", "class", "hook", "operator"])
def test_every_way_to_switch_it_off_leaves_nothing(tmp_path: Path, kernel: str, way: str) -> None:
    node = Node(tmp_path, kernel)
    recorded_run(node)
    assert node.state() != node.before
    node.pods["web"] = pod("web", "LS", "Burstable", WEB)
    if way == "gate":
        node.gates = {}
    elif way == "class":
        node.settings = {"enable": False}
    elif way == "operator":
        node.loop.switched_off = frozenset(each.name for each in speakers())
    else:
        node.hooks = {"memory": False, "batchResource": False}
    node.ticks(3)
    assert node.state() == node.before
    assert not any(node.undo.all(kind) for kind in KINDS)


def test_a_tier_that_kubelet_protects_more_keeps_that_and_has_it_afterwards(tmp_path: Path) -> None:
    node = Node(tmp_path, "v2")
    node.put(BURSTABLE, "memory.min", 4 * GIB)
    node.gates, node.settings = GATES, {"enable": True, **PERCENTS}
    node.ticks(2)
    assert (node.holds(BURSTABLE, "memory.min"), node.holds(ROOT, "memory.min")) == (4 * GIB, 2 * SHARE_MIN + GIB // 5)
    node.put(BURSTABLE, "memory.min", 4096)
    node.ticks(1)
    assert node.holds(BURSTABLE, "memory.min") == SHARE_MIN
    node.put(BURSTABLE, "memory.min", 3 * GIB)
    node.ticks(1)
    assert node.holds(BURSTABLE, "memory.min") == 3 * GIB
    node.settings = {"enable": False}
    node.ticks(2)
    assert node.holds(BURSTABLE, "memory.min") == 3 * GIB


def test_levels_grow_from_the_tier_down_and_shrink_from_the_container_up(tmp_path: Path) -> None:
    node = Node(tmp_path, "v2")
    node.gates, node.settings = GATES, {"enable": True, "minLimitPercent": 50}
    node.ticks(2)
    grown = [entry.cgroup for entry in node.entries if entry.name == "memory.min"]
    node.entries.clear()
    node.settings = {"enable": False}
    node.ticks(2)
    shrunk = [entry.cgroup for entry in node.entries if entry.name == "memory.min"]
    depths = [cgroup.count("/") for cgroup in grown]
    assert depths == sorted(depths) and grown[0] == ROOT
    assert sorted(shrunk) == sorted(grown)
    for above, below in ((ROOT, BURSTABLE), (BURSTABLE, WEB), (WEB, f"{WEB}/main"), (DAEMON, f"{DAEMON}/main")):
        assert grown.index(above) < grown.index(below)
        assert shrunk.index(above) > shrunk.index(below)


def test_what_is_reclaimed_is_ordered_and_leaves_nothing(tmp_path: Path) -> None:
    node = Node(tmp_path, "v2")
    node.gates, node.settings = GATES, {"enable": True, "pageCacheLimitSize": 590 * MIB}
    node.ticks(3)
    orders = [(entry.cgroup, entry.after) for entry in node.entries if entry.name == "memory.reclaim"]
    ten_mib = 10 * MIB
    assert orders == [(WEB, ten_mib), (DAEMON, ten_mib), (JOB, ten_mib), (JOB, ten_mib)]
    assert {entry.result for entry in node.entries if entry.name == "memory.reclaim"} == {"done"}


def test_a_quiet_node_returns_the_same_decisions(tmp_path: Path, kernel: str) -> None:
    """No order is due between two probes."""
    node = Node(tmp_path, kernel)
    node.gates, node.settings = GATES, {"enable": True, **PERCENTS}
    node.ticks(4)
    before = {result.name: result.decision for result in node.loop.report.decisions.results}
    inputs, acts = node.inputs, node.writer.acts
    for _ in range(4):
        node.clock.ns += S
        node.loop.tick(inputs, TickReason.BEAT)
        after = {result.name: result.decision for result in node.loop.report.decisions.results}
        assert all(after[name] is before[name] for name in ("hooks", "memoryTiers", "memoryReclaim", "oomScoreAdj"))
    assert node.writer.acts == acts


def acts_of(directory: Path, kernel: str) -> int:
    node = Node(directory, kernel)
    recorded_run(node)
    node.close()
    assert {entry.result for entry in node.entries} <= {"done", "unsupported"}
    assert node.processes.score(100) == 985, "the score of the pod is its own again"
    return node.writer.acts


KILLS = [(kernel, is_after, is_restored) for kernel in ("v1", "v2") for is_after in BOTH for is_restored in BOTH]
"""Of vendor kernels, which have more files of the same kinds, two of the four ways."""


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("kernel", "is_after", "is_restored"), [*KILLS, ("v1 vendor", False, False), ("v1 vendor", True, True)]
)
def test_a_kill_at_every_write_leaves_nothing_behind(
    tmp_path: Path, kernel: str, is_after: bool, is_restored: bool, record_property: Callable[[str, object], None]
) -> None:
    count = acts_of(tmp_path / "recorded", kernel)
    when, then = "after" if is_after else "before", "restored" if is_restored else "restarted"
    record_property("count", f"memory QoS on {kernel}: killed {when} each of {count} acts, then {then}")
    assert count >= 14
    for number in range(1, count + 1):
        node = Node(tmp_path / str(number), kernel)
        node.writer.dies_at, node.writer.is_after = number, is_after
        with suppress(Killed):
            recorded_run(node)
        assert node.writer.acts == number, "it was killed there"
        node.close()
        if is_restored:
            with UndoRecord(node.root / "undo", "6f1d") as record:
                restore(ScoreWriter(node.tree), record)
                assert not any(record.all(kind) for kind in KINDS)
        else:
            node.start()
            node.ticks(1)
            node.gates = {}
            node.ticks(4)
            assert not any(node.undo.all(kind) for kind in KINDS)
            node.close()
        assert node.state() == node.before, f"killed at act {number}"
        shutil.rmtree(node.root)
