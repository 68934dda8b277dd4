"""The daemon's parts put together in one process: what fails, what comes late, and what is left behind."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from koord.host.reconcile.plan import PlannedWrite
from koord.host.restoring import restore
from koord.host.undo import UndoError, UndoRecord
from koord.host.weights import Weights
from koord.host.writer import Writer
from koord.http2.server import ServerReply
from koord.model import core
from koord.model.nodestate import NodeState
from koord.model.qos import KubeQoS
from koord.overcommit.amounts import ParsedAmounts
from koord.pb.cri import api_pb2 as cri
from koord.pb.hooks import api_pb2 as hooks
from koord.pb.koord import inspect_pb2 as inspect
from qosd import assembly
from qosd.assembly import assemble
from qosd.cluster import nodestate
from qosd.decide.decision import Decision, Stage, Strategy
from qosd.frontends import FrontEnd
from qosd.hookserver.server import PROXY_METADATA, SERVICE
from qosd.inspect import daemon, get_node
from qosd.inspect.inspector import Inspector
from qosd.metrics import Metrics
from qosd.model.snapshot import NodeSnapshot, PressureTrigger
from qosd.node import JOURNAL, MODELS, UNDO, Node
from qosd.pods import cpumanager
from qosd.strategies import speakers
from qosd.tickscheduler import TickReason
from tests.qosd.contexts import EXTENDED, QOS, STATUS, extended
from tests.qosd.machine import Machine

EXCLUSIVE = '{"policyName": "static", "defaultCpuSet": "0-1", "entries": {"uid-db": {"main": "2-3"}}}'
BATCH = {EXTENDED: json.dumps(extended("main", request="500", limit="500", memory="64Mi", memory_request="64Mi"))}
WITHIN_S = 5.0


@dataclass
class Living:
    """A node that runs; its pods are made by ``machine.runtime``."""

    machine: Machine
    node: Node

    async def batch_pod(self, name: str = "job", kubepods: str = "/kubepods") -> tuple[str, str]:
        """A BE pod with half a CPU and 64 MiB, running; (cgroup of the pod, of its container)."""
        runtime = self.machine.runtime
        runtime.kubepods = kubepods
        sandbox = runtime.pod(name, "/besteffort", labels={QOS: "BE"}, annotations=BATCH)
        container = runtime.container(sandbox, "main")
        runtime.start(container)
        return runtime.parents[sandbox], runtime.cgroup(container)

    async def until(self, holds: Callable[[], object], what: str) -> None:
        """Tick until it holds."""
        async with asyncio.timeout(WITHIN_S):
            while True:
                await self.node.tick(TickReason.BEAT)
                if holds():
                    return
                await asyncio.sleep(0.02)
        raise AssertionError(f"{what}: not within {WITHIN_S:g} s")

    async def until_decided(self, cgroup: str) -> None:
        await self.until(lambda: self.quota(cgroup) == 50_000, f"a quota in {cgroup}")

    @property
    def writes_done(self) -> float:
        return self.node.metrics.writes["done"]

    def quota(self, cgroup: str) -> object:
        return self.machine.holds(cgroup, "cpu_quota")


@asynccontextmanager
async def living(machine: Machine, **options: Any) -> AsyncIterator[Living]:
    """A node on ``machine``, whose runtime serves if there is one, started and closed."""
    node = assemble(machine.options(**options), Metrics(), machine.locator(**options))
    node.start()
    try:
        yield Living(machine, node)
    finally:
        await node.close()


@asynccontextmanager
async def on_runtime(machine: Machine, **options: Any) -> AsyncIterator[Living]:
    async with machine.runtime.serving(machine.socket), living(machine, **options) as node:
        yield node


async def planned_writes(alive: Living) -> tuple[PlannedWrite, ...]:
    """As ``koordctl plan`` shows them."""
    plan = await alive.node.plan()
    return () if plan is None else plan.writes


@pytest.fixture(params=[1, 2])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    made = Machine(tmp_path, request.param)
    made.kubepods()
    return made


@pytest.fixture
def v1(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.kubepods()
    return made


@pytest.fixture
def bare(tmp_path: Path) -> Machine:
    """kubelet has not run yet."""
    return Machine(tmp_path)


def unwritable(machine: Machine, name: str) -> Path:
    """A directory that even root cannot make."""
    return machine.put("a-file", "") / name


class TestInputsThatFail:
    async def test_a_runtime_that_is_absent_leaves_the_pods_unknown(self, v1: Machine) -> None:
        async with living(v1) as alive:
            result = await alive.node.tick(TickReason.BEAT)
            assert result is not None and result.outcomes == ()
            assert alive.node.pods.age_s is None
            assert alive.node.loop.snapshot is not None
            assert "pods" not in alive.node.loop.snapshot.ages_s
            pods = next(loop for loop in daemon.loops(alive.node, 0) if loop.name == "pods")
            await alive.until(lambda: alive.node.pods.problems, "a problem")
            assert not pods.HasField("age_s")
            assert str(v1.socket) in daemon.warnings(alive.node)[0]

    async def test_a_kubelet_that_cannot_be_reached_leaves_the_runtimes_pods(self, v1: Machine) -> None:
        async with on_runtime(v1, kubelet_endpoint=f"http://127.0.0.1:{unused_port()}") as alive:
            _, container = await alive.batch_pod()
            await alive.until_decided(container)
            assert any("/pods: " in warning for warning in daemon.warnings(alive.node))

    async def test_neither_runtime_nor_kubelet_is_a_node_without_pods(self, v1: Machine) -> None:
        async with living(v1, runtime_endpoint="") as alive:
            await alive.node.tick(TickReason.BEAT)
            assert alive.node.pods.age_s is None

    async def test_a_procfs_without_meminfo_is_an_unknown_size(self, v1: Machine) -> None:
        (v1.root / "proc/meminfo").unlink()
        async with on_runtime(v1) as alive:
            _, container = await alive.batch_pod()
            await alive.until_decided(container)
            assert alive.node.policy.current.host.memory_total_bytes == 0

    async def test_a_driver_that_contradicts_is_a_warning(self, v1: Machine) -> None:
        v1.put("host/var/lib/kubelet/config.yaml", "cgroupDriver: systemd\n")
        async with on_runtime(v1) as alive:
            _, container = await alive.batch_pod()
            await alive.until_decided(container)
            assert "makes it /kubepods.slice, which does not exist" in daemon.warnings(alive.node)[0]


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class TestDirectoriesThatFail:
    async def test_without_an_undo_record_nothing_is_written_and_it_is_said(
        self, machine: Machine, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with on_runtime(machine, run_dir=unwritable(machine, "run")) as alive:
            pod, container = await alive.batch_pod()
            await alive.until(lambda: alive.node.pods.current, "the pod")
            assert await alive.node.tick(TickReason.BEAT) is None
            assert (alive.quota(pod), alive.quota(container)) == (-1, -1)
            assert await planned_writes(alive) != ()
            assert daemon.warnings(alive.node)[0].startswith(
                "no kernel file is written: what to put back cannot be noted: "
            )
            await alive.node.close()
        assert not any(entry for entry in alive.node.journal.query())
        assert "no kernel file is written: what to put back cannot be noted" in caplog.text

    async def test_not_even_if_the_state_directory_is_unwritable_too(self, v1: Machine) -> None:
        directory = unwritable(v1, "koord")
        async with on_runtime(v1, run_dir=directory / "run", state_dir=directory / "state") as alive:
            pod, _ = await alive.batch_pod()
            await alive.until(lambda: alive.node.pods.current, "the pod")
            assert await alive.node.tick(TickReason.BEAT) is None
            assert alive.quota(pod) == -1

    async def test_what_a_full_disk_keeps_from_being_noted_is_written_once_there_is_room(
        self, machine: Machine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as disk:
            disk.setattr("koord.host.linefile._replaced", full)
            async with on_runtime(machine) as alive:
                pod, container = await alive.batch_pod()
                await alive.until(
                    lambda: any(each.retry for each in alive.node.actuator.files.report.states.values()),
                    "a write that is refused",
                )
                assert (alive.quota(pod), alive.quota(container), alive.node.read_only) == (-1, -1, "")
                disk.undo()
                await alive.until_decided(container)
                assert alive.node.journal.flush()
                said = {entry.why for entry in alive.node.journal.query(file="cpu_quota") if entry.result == "refused"}
                assert any("not written, because what to put back cannot be noted" in why for why in said)
        with UndoRecord(machine.root / "run" / UNDO, "6f1d") as record:
            assert {entry.base for entry in record.entries if entry.target.name == "cpu_quota"} == {-1}

    async def test_without_room_for_even_an_empty_file_the_start_is_tried_again(
        self, v1: Machine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object, **__: object) -> UndoRecord:
            raise UndoError(errno.ENOSPC, "undo record: No space left on device", "/run/koord/undo.jsonl")

        monkeypatch.setattr("qosd.assembly.UndoRecord", full)
        with pytest.raises(UndoError, match="No space left on device"):
            assemble(v1.options(), Metrics(), v1.locator())

    async def test_a_record_that_a_running_daemon_holds_ends_the_start(self, v1: Machine) -> None:
        async with living(v1):
            with pytest.raises(UndoError, match="in use by a running koord-qosd"):
                assemble(v1.options(), Metrics(), v1.locator())

    async def test_without_a_journal_the_loop_goes_on(self, machine: Machine) -> None:
        async with on_runtime(machine, state_dir=unwritable(machine, "state")) as alive:
            _, container = await alive.batch_pod()
            await alive.until_decided(container)
            assert alive.node.journal.failures > 0
            assert any(
                warning.startswith(f"journal: {machine.root}/a-file/state/{JOURNAL}: ")
                for warning in daemon.warnings(alive.node)
            )

    async def test_what_was_learnt_in_another_version_is_set_aside(self, v1: Machine) -> None:
        v1.put(f"state/{MODELS}", '{"version": 99}')
        async with living(v1):
            assert (v1.root / "state" / f"{MODELS}.unreadable").exists()


class TestPlacesThatComeLate:
    @pytest.mark.parametrize("version", [1, 2])
    async def test_kubepods_that_appears_is_seen_at_once(self, tmp_path: Path, version: int) -> None:
        machine = Machine(tmp_path, version)
        async with on_runtime(machine) as alive:
            await alive.until(lambda: alive.node.pods.age_s is not None, "a list")
            warnings = daemon.warnings(alive.node)
            assert warnings == ["neither kubelet, nor the runtime, nor the cgroup tree shows where pods are"]
            machine.kubepods()
            _, container = await alive.batch_pod()
            await alive.until_decided(container)
            assert daemon.warnings(alive.node) == []
            assert alive.node.loop.snapshot is not None
            assert alive.node.locator.tiers[KubeQoS.BEST_EFFORT] == "/kubepods/besteffort"

    async def test_a_hook_call_tells_of_another_cgroup_root(self, bare: Machine) -> None:
        """Before kubelet's pod is listed by anyone, and without a hint from the usual places."""
        async with on_runtime(bare) as alive:
            await alive.until(lambda: alive.node.pods.age_s is not None, "a list")
            announce(alive.node, "/nested/kubepods/besteffort/poduid-job")
            _, container = await alive.batch_pod(kubepods="/nested/kubepods")
            await alive.until_decided(container)
            assert alive.node.locator.layout.kubepods == "/nested/kubepods"

    async def test_the_runtime_names_the_cgroup_driver(self, bare: Machine) -> None:
        bare.runtime.driver = cri.SYSTEMD
        async with on_runtime(bare) as alive:
            await alive.until(lambda: alive.node.locator.layout.kubepods == "/kubepods.slice", "the driver to be known")

    async def test_no_cgroups_at_all(self, v1: Machine) -> None:
        v1.put("host/var/lib/kubelet/config.yaml", "cgroupDriver: cgroupfs\n")
        async with living(v1, cgroup_root=v1.root / "nowhere") as alive:
            assert (await alive.node.tick(TickReason.BEAT)) is not None


def announce(node: Node, parent: str, labels: dict[str, str] | None = None, **annotations: str) -> None:
    """The proxy's call before a sandbox is made."""
    request = hooks.PodSandboxHookRequest(
        pod_meta=hooks.PodSandboxMetadata(name="new", uid="new", namespace="default"),
        cgroup_parent=parent,
        labels=labels,
        annotations=annotations,
    )
    handle = node.hooks.methods()[f"/{SERVICE}/PreRunPodSandboxHook"]
    reply = handle(request.SerializeToString(), {PROXY_METADATA: b"1"})
    assert isinstance(reply, ServerReply) and reply.after is not None
    reply.after()


async def test_an_announced_pods_cpus_are_left_before_it_starts(v1: Machine) -> None:
    async with on_runtime(v1) as alive:
        sandbox = v1.runtime.pod("web", labels={QOS: "LS"})
        container = v1.runtime.container(sandbox, "main")
        v1.runtime.start(container)
        cgroup = v1.runtime.cgroup(container)
        await alive.until(lambda: alive.node.pods.current and alive.node.policy.current.node.ls_pools, "the LS pool")
        assert v1.holds(cgroup, "cpuset_cpus") == "0-3"
        announce(alive.node, "/kubepods/podnew", {QOS: "LSE"}, **{STATUS: '{"cpuset": "2-3"}'})
        await alive.until(lambda: v1.holds(cgroup, "cpuset_cpus") == "0-1", "a smaller LS pool")


class TestKubeletsCPUManagerThatCannotBeWatched:
    @pytest.fixture(autouse=True)
    def refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*arguments: Any) -> None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "inotify_init1")

        monkeypatch.setattr(cpumanager, "FileWatch", refuse)

    async def test_its_exclusive_cpus_are_left_alone_after_the_next_look(
        self, v1: Machine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with on_runtime(v1) as alive:
            v1.runtime.pod("web", labels={QOS: "LS"})
            await alive.until(lambda: alive.node.policy.current.node.ls_pools, "the LS pool")
            assert any("cpu_manager_state cannot be watched" in one for one in daemon.warnings(alive.node))
            v1.put("kubelet/cpu_manager_state", EXCLUSIVE)
            monkeypatch.setattr("qosd.hostwatch._LOOK_AGAIN_S", 0.0)
            await alive.until(lambda: alive.node.policy.current.node.cpu_manager_policy == "static", "kubelet's policy")
            await alive.until(lambda: str(alive.node.policy.current.node.kubelet_cpus) == "2-3", "them set aside")

    async def test_a_reload_reads_it(self, v1: Machine) -> None:
        async with living(v1) as alive:
            v1.put("kubelet/cpu_manager_state", EXCLUSIVE)
            alive.node.reload()
            assert alive.node.cpu_manager.current.exclusive == {"uid-db": "2-3"}


async def test_values_are_written_and_explained(machine: Machine) -> None:
    async with on_runtime(machine) as alive:
        pod, container = await alive.batch_pod()
        await alive.until_decided(container)
        assert (alive.quota(pod), machine.holds(pod, "memory_limit_in_bytes")) == (50_000, 64 << 20)
        assert alive.node.journal.flush()
        told = {entry.cgroup for entry in alive.node.journal.query(file="cpu_quota")}
        assert told == {pod, container}
        assert await planned_writes(alive) == ()


async def test_stopping_leaves_values_and_the_next_start_takes_over(machine: Machine) -> None:
    async with on_runtime(machine) as alive:
        pod, container = await alive.batch_pod()
        await alive.until_decided(container)
        written = {entry.target for entry in alive.node.undo.entries}
    assert (alive.quota(pod), alive.quota(container)) == (50_000, 50_000)
    async with on_runtime(machine) as again:
        assert set(again.node.actuator.files.report.owned) == written
        await again.until(lambda: again.node.pods.current, "the pod")
        assert await planned_writes(again) == ()
    with UndoRecord(machine.root / "run" / UNDO, "6f1d") as record:
        restore(Writer(machine.locator().tree), record)
    assert (alive.quota(pod), alive.quota(container)) == (-1, -1)


async def test_disabling_gives_everything_back(machine: Machine) -> None:
    async with on_runtime(machine) as alive:
        pod, container = await alive.batch_pod()
        await alive.until_decided(container)
        names = [strategy.name for strategy in speakers()]
        results = alive.node.loop.report.decisions.results
        assert names == [result.name for result in results], "whoever speaks can be switched off"
        before = alive.writes_done
        await alive.node.switch(False, names)
        assert (alive.quota(pod), alive.quota(container), alive.node.actuator.files.report.owned) == (-1, -1, {})
        assert alive.writes_done > before, "counted like any tick's"
        await alive.node.switch(True, ["hooks"])
        assert alive.quota(container) == 50_000
        assert set(alive.node.loop.switched_off) == set(names) - {"hooks"}


async def test_an_agent_that_goes_for_good_gives_everything_back_and_says_so(machine: Machine) -> None:
    async with on_runtime(machine) as alive:
        node, (pod, container) = alive.node, await alive.batch_pod()
        await alive.until_decided(container)
        assert nodestate.of(node.loop.report) == NodeState(0, 0, None), "a unit of the host is nobody's to dismiss"
        said = False
        node.is_dismissed = lambda: said
        await node.tick(TickReason.BEAT)
        assert nodestate.of(node.loop.report) == NodeState(0, 0, False)
        said = True
        await node.tick(TickReason.CHANGE)
        assert (alive.quota(pod), alive.quota(container), node.actuator.files.report.owned) == (-1, -1, {})
        assert nodestate.of(node.loop.report) == NodeState(0, 0, True)
        assert node.undo.is_empty and not node.front_ends.enabled()
        assert {result.sentence for result in node.loop.report.decisions.results} == {
            "disabled since Koord is being uninstalled"
        }
        said = False
        await alive.until_decided(container)


async def test_a_dry_run_plans_and_writes_nothing(machine: Machine) -> None:
    async with on_runtime(machine, dry_run=True) as alive:
        pod, _ = await alive.batch_pod()
        await alive.until(lambda: alive.node.pods.current, "the pod")
        assert await alive.node.tick(TickReason.BEAT) is None
        planned = await planned_writes(alive)
        assert {(write.target.cgroup, write.target.name) for write in planned} >= {(pod, "cpu_quota")}
        assert alive.quota(pod) == -1
        assert daemon.warnings(alive.node)[0] == "no kernel file is written: by --dry-run"


async def test_what_koordctl_is_told_of_the_daemon(v1: Machine) -> None:
    async with on_runtime(v1) as alive:
        await alive.batch_pod()
        await alive.until(lambda: alive.node.pods.current, "the pod")
        told = await get_node.answer(Inspector(alive.node), inspect.GetNodeRequest())
        about = told.daemon
        assert (about.cgroup_root, about.runtime_endpoint) == (f"{v1.cgroup_root}", f"unix://{v1.socket}")
        assert (about.journal_file, about.undo_file) == (f"{v1.root}/state/{JOURNAL}", f"{v1.root}/run/{UNDO}")
        assert 0 < about.open_files < about.open_files_limit
        assert {loop.name for loop in told.loops} >= {"node", "pods", "pressure"}
        ends = {end.name: (end.attached, end.acting) for end in told.front_ends}
        assert ends == {
            FrontEnd.PROXY: (False, False),
            FrontEnd.NRI: (False, False),
            FrontEnd.RECONCILER: (True, True),
        }
        features = {feature.name: (feature.supported, feature.detail) for feature in told.features}
        assert features["cpu.bvt_warp_ns"][0] is False
        assert features["feature gate RdtResctrl"] == (True, "default; strategy resctrl")


async def test_a_feature_gate_of_the_command_line_and_of_the_rules(v1: Machine) -> None:
    def resctrl(alive: Living) -> str:
        results = alive.node.loop.report.decisions.results
        return next((each.sentence for each in results if each.name == "resctrl"), "")

    async with on_runtime(v1, feature_gates={"RdtResctrl": False}) as alive:
        shut = "switched off: feature gate RdtResctrl is off (by --feature-gates)"
        await alive.until(lambda: resctrl(alive) == shut, shut)
        v1.put("rules.yaml", "node: {features: {RdtResctrl: true}}")
        alive.node.reload()
        await alive.until(lambda: resctrl(alive).startswith("no resctrl group"), "it runs")


class Waking(Strategy[Any]):
    """Wants nothing but to be woken."""

    name: ClassVar[str] = "waking"
    stage: ClassVar[Stage] = Stage.RELIEF
    gate: ClassVar[str] = "BEMemoryEvict"
    rows: ClassVar[frozenset[str]] = frozenset()
    needs: ClassVar[Mapping[str, float]] = {}
    triggers: ClassVar[tuple[PressureTrigger, ...]] = (PressureTrigger("memory", "some", 50_000, 1_000_000),)

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        return True

    def decide(self, snapshot: NodeSnapshot, memory: Any) -> tuple[Decision, Any]:
        return Decision("nothing to do"), None


async def test_only_a_strategy_that_is_on_has_its_triggers_armed(v1: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has no pressure file, which is said where a trigger would be armed."""

    def is_armed(alive: Living) -> bool:
        return any("no urgent wake-up on some memory of the node" in each for each in alive.node.host.problems)

    monkeypatch.setattr(assembly, "STRATEGIES", (Waking(),))
    async with on_runtime(v1) as alive:
        await alive.node.tick(TickReason.BEAT)
        assert not is_armed(alive), "its gate is shut"
        v1.put("rules.yaml", "node: {features: {BEMemoryEvict: true}}")
        alive.node.reload()
        await alive.until(lambda: is_armed(alive), "the gate is open")
        await alive.node.switch(False, [Waking.name])
        assert not is_armed(alive), "the operator has switched it off"
        await alive.node.switch(True, [Waking.name])
        assert is_armed(alive)


async def test_what_was_written_before_the_runtimes_mapping_is_known_is_written_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 2)
    machine.kubepods()
    machine.runtime.cpu_shares = 1024
    async with on_runtime(machine) as alive:
        pod, container = await alive.batch_pod()
        weight = tmp_path / f"cgroup{pod}/cpu.weight"
        machine.put(f"cgroup{container}/cpu.weight", "77\n")  # no mapping's, so it tells nothing
        await alive.until(lambda: weight.read_text().strip() == "20", "512 shares by the older mapping")
        sandbox = machine.runtime.pod("web", labels={QOS: "LS"})
        other = machine.runtime.container(sandbox, "main")
        machine.runtime.start(other)
        machine.put(f"cgroup{machine.runtime.cgroup(other)}/cpu.weight", "100\n")
        await alive.until(lambda: weight.read_text().strip() == "59", "512 shares by the newer mapping")
        assert not alive.node.actuator.files.report.contested


async def test_the_runtimes_mapping_of_shares_is_used_on_v2(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 2)
    machine.kubepods()
    machine.runtime.cpu_shares = 1024
    async with on_runtime(machine) as alive:
        pod, container = await alive.batch_pod()
        machine.put(f"cgroup{container}/cpu.weight", "100\n")
        await alive.until_decided(container)
        assert (tmp_path / f"cgroup{pod}/cpu.weight").read_text() in ("59", "59\n")
    with UndoRecord(tmp_path / "run" / UNDO, "6f1d") as record:
        assert record.weights is Weights.QUADRATIC, "for koordctl restore and the next start"


async def test_ticks_are_told_the_allocatable_of_the_clusters_node(v1: Machine) -> None:
    """What kubelet said, where the node shows a multiple of it."""
    annotations = {"raw-allocatable": '{"cpu": "3500m"}', "resource-amplification-ratio": '{"cpu":2.00}'}
    amplified = {
        "metadata": {
            "name": "n1",
            "annotations": {f"node.koordinator.sh/{name}": text for name, text in annotations.items()},
        },
        "status": {"allocatable": {"cpu": "7", "memory": "15Gi"}},
    }
    async with living(v1) as alive:
        assert alive.node._tick_inputs().allocatable == ParsedAmounts()
        alive.node.cluster_policy.take_node(core.read(core.Node, json.dumps(amplified).encode()))
        told = alive.node._tick_inputs().allocatable
        assert told == ParsedAmounts(3500, 15 << 30)
        assert alive.node._tick_inputs().allocatable is told
