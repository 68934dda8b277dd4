"""The strategies ``systemConfig`` and ``groupIdentity`` through the whole loop, on a vendor kernel of plain files.

The kernel refuses group identity beside core scheduling, forgets every cgroup's identity when it is switched, and gives
a new cgroup what the one above it has; older ones have no switch. A SIGKILL at every write of a recorded run, then a
restart or ``koordctl restore``: in the end everything is as it was, and on the way as in the run that nobody killed.
"""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from koord.host.files import ROWS, Target, Value
from koord.host.notes import KINDS
from koord.host.order import CORE_SCHED, GROUP_IDENTITY, IDENTITY
from koord.host.restoring import restore
from koord.host.undo import UndoRecord
from koord.host.writer import RULES, WriteError, Writer
from koord.model.qos import KubeQoS
from qosd.act.actuator import Actuator
from qosd.act.evictor import Evictor
from qosd.act.journal import JournalEntry
from qosd.decide.decision import Strategy
from qosd.loop import NodeLoop, TickInputs
from qosd.model.snapshot import PodView
from qosd.policy import hostfacts
from qosd.policy.rulesfile import read
from qosd.predict.predictor import Predictor
from qosd.sense.build import Sense
from qosd.sense.sampler import Sampler
from qosd.sense.store import SampleStore
from qosd.sense.system import SystemCollector
from qosd.sense.table import PANELS
from qosd.strategies.groupidentity import GroupIdentity
from qosd.strategies.reconciler import HookReconciler
from qosd.strategies.systemconfig import FEATURES, SystemConfig
from tests.fakes.clock import Clock, S
from tests.fakes.resctrl import MortalWriter
from tests.qosd.machine import Machine
from tests.qosd.podviews import machine as cpus
from tests.qosd.podviews import view

pytestmark = pytest.mark.exhaustive

TIERS = {
    KubeQoS.GUARANTEED: "/kubepods",
    KubeQoS.BURSTABLE: "/kubepods/burstable",
    KubeQoS.BEST_EFFORT: "/kubepods/besteffort",
}
SWITCH, CORE = Target("", GROUP_IDENTITY), Target("", CORE_SCHED)
FILES: Mapping[str, str] = {
    "proc/sys/vm/min_free_kbytes": "67584\n",
    "proc/sys/vm/watermark_scale_factor": "10\n",
    "proc/sys/kernel/sched_core": "1\n",
    "proc/sys/kernel/sched_group_identity_enabled": "0\n",
    "proc/sys/kernel/sched_idle_saver_wmark": "0\n",
    "sys/kernel/mm/memcg_reaper/reap_background": "0\n",
    "sys/kernel/mm/pagecache_limit/enabled": "0\n",
    "sys/kernel/debug/sched/features": "GENTLE_FAIR_SLEEPERS NO_ID_LOAD_BALANCE ID_ABSOLUTE_EXPEL\n",
}
SWITCHES = ("proc/sys/kernel/sched_core", "proc/sys/kernel/sched_group_identity_enabled")
SYSTEM: Mapping[str, Any] = {
    "minFreeKbytesFactor": 100,
    "watermarkScaleFactor": 150,
    "memcgReapBackGround": 1,
    "schedIdleSaverWmark": 500000,
    "pageCacheLimitEnabled": 1,
    "schedFeatures": {"ID_LOAD_BALANCE": True, "ID_ABSOLUTE_EXPEL": False},
}
LS_BE: Mapping[str, Any] = {"lsClass": {"cpuQOS": {"enable": True}}, "beClass": {"cpuQOS": {"enable": True}}}
LSR_TOO: Mapping[str, Any] = {
    **LS_BE,
    "lsrClass": {"cpuQOS": {"enable": True}},
    "lsClass": {"cpuQOS": {"enable": False}},
}
PHASES: Sequence[tuple[Mapping[str, Any], Mapping[str, Any], bool]] = (
    ({}, {}, True),
    (SYSTEM, LS_BE, True),
    ({**SYSTEM, "watermarkScaleFactor": 40, "minFreeKbytesFactor": 1, "pageCacheLimitEnabled": 2}, LSR_TOO, True),
    ({"schedGroupIdentityEnabled": 0}, LS_BE, True),
    ({"schedGroupIdentityEnabled": 1}, LS_BE, True),
    (SYSTEM, {}, False),
)
"""What NodeSLO says of the node and of the classes, and whether the gate SystemConfig is on; two ticks each."""
TICKS = 2 * len(PHASES)
OFF, ON, CHANGED, WITHOUT, ALONE, _ = range(1, TICKS, 2)
"""The last tick of each phase."""
KERNELS = pytest.mark.parametrize(
    ("version", "has_switch"), [(2, True), (1, True), (1, False)], ids=["v2", "v1", "v1 without switch"]
)


class Killed(BaseException):
    """SIGKILL."""


class VendorKernel(MortalWriter):
    """Dies before, or after, its write number ``dies_at``. ``busy``: so often it refuses to switch group identity."""

    killed = Killed
    busy = 0

    def write(self, target: Target, value: Value) -> None:
        self._act(lambda: self._take(target, value))

    def _take(self, target: Target, value: Value) -> None:
        other = {SWITCH: CORE, CORE: SWITCH}.get(target)
        is_busy = target == SWITCH and self.busy > 0
        self.busy -= is_busy
        if is_busy or (other is not None and value and self.read(other)):
            raise WriteError(errno.EBUSY, str(self.path(target)), str(value), RULES[target.name][errno.EBUSY])
        is_flipped = target == SWITCH and value != self.read(target)
        if target.name.startswith(f"{FEATURES}@"):
            self._feature(target, value)
        else:
            super().write(target, value)
        if is_flipped:
            for file in self.tree.directory("/").rglob(IDENTITY):
                file.write_text("0\n")

    def _feature(self, target: Target, value: Value) -> None:
        """One write changes one word of the file."""
        path, name = self.path(target), target.name.partition("@")[2]
        assert path is not None
        words = [word for word in path.read_text().split() if word.removeprefix("NO_") != name]
        path.write_text(" ".join([*words, name if value else f"NO_{name}"]) + "\n")


class Node:
    """One daemon after another over the same files; in the second phase a pod comes below a tier with an identity."""

    def __init__(self, root: Path, version: int, has_switch: bool) -> None:
        self.root = root
        self.machine = Machine(root, version)
        self.machine.kubepods()
        for path, text in FILES.items():
            if has_switch or path not in SWITCHES:
                self.machine.put(path, text)
        self.tree = self.machine.locator().tree
        for cgroup in TIERS.values():
            self._with_identity(cgroup, 0)
        self.pods: list[PodView] = []
        for pod in (view("web", "LS"), view("job", "BE", "BestEffort"), view("db", "LSR", "Guaranteed")):
            self.run(pod)
        self.before = self.state()
        self.entries: list[JournalEntry] = []
        self.clock = Clock()
        self.number = 0
        self.start()

    def run(self, pod: PodView) -> None:
        """What the runtime makes of it; the kernel hands identities down."""
        for cgroup in (pod.cgroup, *(container.cgroup for container in pod.containers)):
            above = Writer(self.tree).read(Target(cgroup.rpartition("/")[0], IDENTITY))
            self.machine.cgroups.make(cgroup)
            self._with_identity(cgroup, above or 0)
        self.pods.append(pod)

    def _with_identity(self, cgroup: str, value: Value) -> None:
        self.machine.cgroups.put(cgroup, {IDENTITY: str(value)})

    def start(self) -> None:
        self.undo = UndoRecord(self.root / "undo", "6f1d")
        self.writer = VendorKernel(self.tree)
        self.events = asyncio.new_event_loop()
        evictor = Evictor(self.undo, self, None, self.events, monotonic=self.clock, wall=self.clock)
        self.actuator = Actuator(self.writer, self.undo, self, evictor=evictor)
        store = SampleStore(PANELS)
        sense = Sense(Sampler([], store, self.clock), store, SystemCollector(None))  # type: ignore[arg-type]
        strategies: tuple[Strategy[Any], ...] = (HookReconciler(), GroupIdentity(), SystemConfig())
        predictor = Predictor(lambda bank: None)
        self.loop = NodeLoop(sense, strategies, self.actuator, predictor, wall=self.clock, monotonic=self.clock)

    def record(self, entry: JournalEntry) -> None:
        self.entries.append(entry)

    def tick(self) -> None:
        system, classes, gate = PHASES[self.number // 2]
        spec = {"systemStrategy": system, "resourceQOSStrategy": classes}
        if self.number == ON and len(self.pods) == 3:
            self.run(view("late", "BE", "BestEffort"))
        meminfo = (self.tree.proc / "meminfo").read_text()
        host = hostfacts.look(self.tree, TIERS.values(), meminfo, 4096)
        hooks = {"cpuset": False}
        document = {"spec": spec, "node": {"features": {"SystemConfig": gate}, "hooks": hooks}}
        policy = read(Path("r"), document, host, bad=lambda error: None)
        self.clock.ns += S
        self.loop.tick(TickInputs(tuple(self.pods), policy, cpus(4), TIERS, {}, {"pods": 0.5}))
        self.number += 1

    def state(self) -> dict[str, Value | None]:
        """All that the two may change."""
        writer = Writer(self.tree)
        cgroups = [*TIERS.values(), *(pod.cgroup for pod in self.pods)]
        cgroups += [container.cgroup for pod in self.pods for container in pod.containers]
        rows = [name for name in SystemConfig.rows if not ROWS[name].takes]
        features = [f"{FEATURES}@{name}" for name in ("GENTLE_FAIR_SLEEPERS", "ID_LOAD_BALANCE", "ID_ABSOLUTE_EXPEL")]
        targets = [Target("", name) for name in (*rows, *features, CORE_SCHED)]
        targets += [Target(cgroup, IDENTITY) for cgroup in cgroups]
        return {f"{target.cgroup}/{target.name}": writer.read(target) for target in targets}

    @property
    def original(self) -> dict[str, Value | None]:
        """As it was, with nothing of a pod that came later."""
        return {name: self.before.get(name, 0) for name in self.state()}

    def close(self) -> None:
        self.events.close()
        self.undo.close()


def recorded(directory: Path, version: int, has_switch: bool) -> tuple[int, list[dict[str, Value | None]]]:
    """How many writes a run has that nobody kills, and what each tick leaves."""
    node, states = Node(directory, version, has_switch), []
    for _ in range(TICKS):
        node.tick()
        states.append(node.state())
    node.close()
    assert {entry.result for entry in node.entries} == {"done", "adopted"}, "the kernel refuses nothing"
    assert node.state() == node.original
    return node.writer.acts, states


@KERNELS
def test_what_each_phase_leaves(tmp_path: Path, version: int, has_switch: bool) -> None:
    _, states = recorded(tmp_path, version, has_switch)
    besteffort, switches = TIERS[KubeQoS.BEST_EFFORT], (f"/{CORE_SCHED}", f"/{GROUP_IDENTITY}")
    on, changed, without, alone = (states[tick] for tick in (ON, CHANGED, WITHOUT, ALONE))
    assert (on["/vm.min_free_kbytes"], on["/vm.watermark_scale_factor"]) == (16 * (1 << 20) // 100, 150)
    assert (on[f"/{FEATURES}@ID_LOAD_BALANCE"], on[f"/{FEATURES}@ID_ABSOLUTE_EXPEL"]) == (1, 0)
    assert on[f"/{FEATURES}@GENTLE_FAIR_SLEEPERS"] == 1, "which nobody names"
    assert [on[name] for name in switches] == ([0, 1] if has_switch else [None, None])
    assert on[f"{besteffort}/{IDENTITY}"] == on[f"{besteffort}/podlate/main/{IDENTITY}"] == -1
    assert on[f"{TIERS[KubeQoS.BURSTABLE]}/podweb/{IDENTITY}"] == 2
    assert changed["/vm.watermark_scale_factor"] == 40
    assert changed["/vm.min_free_kbytes"] == on["/vm.min_free_kbytes"], (
        "1677 is out of range: neither taken nor rounded"
    )
    assert changed["/pagecache_limit.enabled"] == 1, "2 is no such switch"
    assert (without["/vm.min_free_kbytes"], without["/pagecache_limit.enabled"]) == (67584, 0), "they are not set"
    assert changed[f"/kubepods/poddb/{IDENTITY}"] == 2
    assert [without[name] for name in switches] == ([1, 0] if has_switch else [None, None])
    assert {value for name, value in without.items() if name.endswith(IDENTITY)} == {0}
    assert alone[f"{besteffort}/podlate/{IDENTITY}"] == -1, "whoever writes the switch"


@KERNELS
def test_switched_off_it_makes_no_difference(tmp_path: Path, version: int, has_switch: bool) -> None:
    node = Node(tmp_path, version, has_switch)
    node.loop.switched_off = frozenset({GroupIdentity.name, SystemConfig.name})
    for _ in range(TICKS):
        node.tick()
    assert (node.writer.acts, node.entries, node.state()) == (0, [], node.original)
    assert not any(node.undo.all(kind) for kind in KINDS)
    node.close()


def test_identities_that_a_late_switch_resets_are_put_right_at_the_next_tick(tmp_path: Path) -> None:
    """Tasks with a cookie keep core scheduling in use for a while; until then identities have no effect."""
    node = Node(tmp_path, 2, has_switch=True)
    node.writer.busy = 1
    for _ in range(OFF + 2):
        node.tick()
    node.number = ON
    web = f"{TIERS[KubeQoS.BURSTABLE]}/podweb/{IDENTITY}"
    assert (node.state()[f"/{GROUP_IDENTITY}"], node.state()[web]) == (0, 2)
    node.tick()
    node.number = ON
    assert (node.state()[f"/{GROUP_IDENTITY}"], node.state()[web]) == (1, 0)
    node.tick()
    assert node.state()[web] == 2
    refused = [entry.why for entry in node.entries if entry.result == "failed EBUSY"]
    assert len(refused) == 1
    assert refused[0].endswith("(not while core scheduling is on)")
    node.close()


@pytest.mark.parametrize("is_restored", [False, True], ids=["restart", "koordctl restore"])
@pytest.mark.parametrize(
    ("version", "has_switch", "is_after"), [(2, True, False), (1, False, True)], ids=["v2 before", "v1 after"]
)
def test_a_kill_at_every_write(
    tmp_path: Path,
    version: int,
    has_switch: bool,
    is_after: bool,
    is_restored: bool,
    record_property: Callable[[str, object], None],
) -> None:
    count, states = recorded(tmp_path / "recorded", version, has_switch)
    record_property("count", f"killed at each of {count} writes on v{version}")
    for number in range(1, count + 1):
        node = Node(tmp_path / str(number), version, has_switch)
        node.writer.dies_at, node.writer.is_after = number, is_after
        with suppress(Killed):
            for _ in range(TICKS):
                node.tick()
        assert node.writer.acts == number, "it was killed there"
        node.close()
        if is_restored:
            with UndoRecord(node.root / "undo", "6f1d") as record:
                restore(VendorKernel(node.tree), record)
                assert not any(record.all(kind) for kind in KINDS)
        else:
            _goes_on(node, states)
        assert node.state() == node.original, f"killed at write {number}"
        shutil.rmtree(node.root)


def _goes_on(node: Node, states: Sequence[Mapping[str, Value | None]]) -> None:
    """The next daemon begins where the last one died: from then on nothing tells that it did."""
    node.start()
    for number in range(node.number, TICKS):
        node.tick()
        assert node.state() == states[number], f"tick {number}"
    assert not any(node.undo.all(kind) for kind in KINDS)
    node.close()
