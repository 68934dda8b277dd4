"""What koordlet leaves in kernel files when it stops, and what becomes of that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from koord.host.files import Target, Value
from koord.host.kubeletvalues import NOT_CERTAIN, OF_BEST_EFFORT, Asked, KubeletInputs, Place, value
from koord.host.restoring import restore
from koord.host.undo import UndoRecord
from koord.host.writer import Writer
from koord.http2.client import UnaryClient
from koord.model import cpuset
from koord.model.kubeletconfig import KubeletConfig
from koord.model.qos import KubeQoS
from koord.pb.hooks import api_pb2 as hooks
from koord.pb.nri import api_pb2 as nri
from qosd.hookserver.server import SERVICE, listening
from qosd.inspect import daemon
from qosd.metrics import Metrics
from qosd.node import UNDO, Node
from qosd.nri.service import Hooks
from qosd.policy import hostfacts
from qosd.tickscheduler import TickReason
from tests.qosd.contexts import QOS
from tests.qosd.machine import Machine
from tests.qosd.test_node import on_runtime, planned_writes

TIER = "/kubepods/besteffort"
JOB, WEB = f"{TIER}/poduid-job", "/kubepods/burstable/poduid-web"
VENDOR: Mapping[str, str] = {
    "cpu.bvt_warp_ns": "0", "memory.min": "0", "memory.low": "0", "memory.high": "-1", "memory.wmark_ratio": "0",
    "memory.wmark_min_adj": "0", "memory.priority": "0", "memory.use_priority_oom": "0",
}  # fmt: skip
MIB = 1 << 20


class Scene:
    """A best-effort pod and a service that run. koordlet has stopped."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.tree = machine, machine.locator().tree
        machine.kubepods()
        self.files: dict[str, Target] = {}
        pods = {}
        for name, tier, qos in (("job", "/besteffort", "BE"), ("web", "/burstable", "LS")):
            sandbox = machine.runtime.pod(name, tier, labels={QOS: qos})
            container = machine.runtime.container(sandbox, "main")
            machine.runtime.start(container)
            pods[name] = machine.runtime.cgroup(container)
        self.job, self.web = pods["job"], pods["web"]
        self.put("/kubepods/besteffort", VENDOR)
        burst = "cpu.cfs_burst_us" if machine.version == 1 else "cpu.max.burst"
        for cgroup in (JOB, WEB, self.job, self.web):
            self.put(cgroup, {burst: "0", "cpu.idle": "0"})
        v1 = {"cpu.cfs_quota_us": "50000", "memory.limit_in_bytes": str(1 << 30)}
        self.put(self.web, v1 if machine.version == 1 else {"cpu.max": "50000 100000", "memory.max": str(1 << 30)})

    def put(self, cgroup: str, files: Mapping[str, str]) -> None:
        for name, line in files.items():
            hierarchy = "" if self.machine.version == 2 else name.partition(".")[0]
            (self.machine.cgroup_root / hierarchy / cgroup.lstrip("/") / name).write_text(f"{line}\n")

    def place(self, name: str) -> str:
        return {"tier": TIER, "root": "/kubepods", "job": JOB, "web": WEB}.get(name) or {
            "job/main": self.job, "web/main": self.web
        }[name]  # fmt: skip


@pytest.fixture(params=[1, 2])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    return Scene(Machine(tmp_path, request.param))


V1, V2 = 1, 2


def _both(files: Mapping[str, str]) -> Mapping[int, Mapping[str, str]]:
    return {V1: files, V2: files}


NOTHING, UNBOUNDED = {V1: 0, V2: 0}, {V1: -1, V2: -1}
LEFT: Mapping[str, tuple[str, str, Mapping[int, Mapping[str, str]], Mapping[int, Value]]] = {
    "suppression's quota": (
        "tier", "cpu_quota", {V1: {"cpu.cfs_quota_us": "118100"}, V2: {"cpu.max": "118100 100000"}}, UNBOUNDED
    ),
    "the least quota of suppression": (
        "tier", "cpu_quota", {V1: {"cpu.cfs_quota_us": "2000"}, V2: {"cpu.max": "2000 100000"}}, UNBOUNDED
    ),
    "suppression's CPUs": ("tier", "cpuset_cpus", _both({"cpuset.cpus": "1"}), {V1: "0-3", V2: ""}),
    "suppression's CPUs of a pod": (
        "job", "cpuset_cpus", _both({"cpuset.cpus": "1"}), {V1: "0-3", V2: ""}
    ),
    "core scheduling's idle tier": (
        "tier", "cpu.idle", {V1: {"cpu.idle": "1", "cpu.shares": "3"}, V2: {"cpu.idle": "1", "cpu.weight": "0"}},
        NOTHING,
    ),
    "group identity of the tier": ("tier", "cpu.bvt_warp_ns", _both({"cpu.bvt_warp_ns": "-1"}), NOTHING),
    "group identity of a service": ("web", "cpu.bvt_warp_ns", _both({"cpu.bvt_warp_ns": "2"}), NOTHING),
    "a burst quota": (
        "web/main", "cpu_quota", {V1: {"cpu.cfs_quota_us": "150000"}, V2: {"cpu.max": "150000 100000"}},
        {V1: 50_000, V2: 50_000},
    ),
    "a burst buffer": (
        "web/main", "cpu.max.burst", {V1: {"cpu.cfs_burst_us": "50000"}, V2: {"cpu.max.burst": "50000"}}, NOTHING
    ),
    "a pod's burst buffer": (
        "web", "cpu.max.burst", {V1: {"cpu.cfs_burst_us": "50000"}, V2: {"cpu.max.burst": "50000"}}, NOTHING
    ),
    "batch shares": ("job", "cpu_shares", {V1: {"cpu.shares": "1024"}, V2: {"cpu.weight": "39"}}, {V1: 2, V2: 2}),
    "a container's batch shares": (
        "job/main", "cpu_shares", {V1: {"cpu.shares": "1024"}, V2: {"cpu.weight": "39"}}, {V1: 2, V2: 2}
    ),
    "a batch quota": (
        "job/main", "cpu_quota", {V1: {"cpu.cfs_quota_us": "80000"}, V2: {"cpu.max": "80000 100000"}}, UNBOUNDED
    ),
    "a batch memory limit": (
        "job", "memory_limit_in_bytes",
        {V1: {"memory.limit_in_bytes": str(64 * MIB)}, V2: {"memory.max": str(64 * MIB)}}, UNBOUNDED,
    ),
    "protected memory of the tier": ("tier", "memory.min", _both({"memory.min": str(MIB)}), NOTHING),
    "protected memory of all pods": ("root", "memory.low", _both({"memory.low": str(MIB)}), NOTHING),
    "throttled memory": ("web/main", "memory.high", _both({"memory.high": str(MIB)}), UNBOUNDED),
    "a reclaim watermark": ("web", "memory.wmark_ratio", _both({"memory.wmark_ratio": "95"}), NOTHING),
    "an OOM priority": ("job", "memory.priority", _both({"memory.priority": "12"}), NOTHING),
}  # fmt: skip


async def told(node: Node) -> None:
    """kubelet has told its configuration: its defaults."""
    node.kubelet_config.current = KubeletConfig()


@pytest.mark.parametrize("left", LEFT)
async def test_it_is_taken_back_once_and_the_journal_tells(scene: Scene, left: str) -> None:
    place, row, texts, bases = LEFT[left]
    version, cgroup = scene.machine.version, scene.place(place)
    scene.put(cgroup, texts[version])
    found, base = scene.machine.holds(cgroup, row), bases[version]
    if place == "job/main" and version == 1:
        scene.put(JOB, {"cpu.cfs_quota_us": "-1"})
    async with on_runtime(scene.machine) as alive:
        await told(alive.node)
        await alive.until(lambda: scene.machine.holds(cgroup, row) == base, f"{base} in {cgroup}/{row}")
        await alive.node.tick(TickReason.BEAT)
        assert alive.node.journal.flush()
        rows = alive.node.journal.query(file=f"{cgroup}/{row}")
        assert [(entry.result, entry.before, entry.after) for entry in reversed(rows)] == [
            ("leftover", base, found), ("done", found, base)
        ]  # fmt: skip
        assert all("another agent left it" in entry.why for entry in rows)
    if row == "cpu.idle":
        assert scene.machine.holds(cgroup, "cpu_shares") == 2
    with UndoRecord(scene.machine.root / "run" / UNDO, "6f1d") as record:
        assert Target(cgroup, row) not in {entry.target for entry in record.entries}


async def test_all_of_it_at_once_in_the_kernels_order(scene: Scene) -> None:
    """And a tick later nothing is left to do."""
    for place, _, texts, _ in LEFT.values():
        scene.put(scene.place(place), texts[scene.machine.version])
    async with on_runtime(scene.machine) as alive:
        await told(alive.node)
        for name, (place, row, _, bases) in LEFT.items():
            cgroup, base = scene.place(place), bases[scene.machine.version]
            await alive.until(lambda at=(cgroup, row), base=base: scene.machine.holds(*at) == base, name)  # type: ignore[misc]
        assert await planned_writes(alive) == ()


async def test_a_crash_between_note_and_write_is_made_good(scene: Scene) -> None:
    """The next daemon knows from the record what to put back, and so does koordctl restore."""
    scene.put(TIER, LEFT["suppression's quota"][2][scene.machine.version])
    (scene.machine.root / "run").mkdir()
    target = Target(TIER, "cpu_quota")
    with UndoRecord(scene.machine.root / "run" / UNDO, "6f1d") as record:
        reading = Writer(scene.tree).look(target)
        assert reading is not None
        record.rebase(target, reading, -1)
    with UndoRecord(scene.machine.root / "run" / UNDO, "6f1d") as record:
        restore(Writer(scene.tree), record)
        assert record.is_empty
    assert scene.machine.holds(TIER, "cpu_quota") == -1


async def test_what_another_agent_wrote_over_a_value_of_ours_meanwhile(scene: Scene) -> None:
    """The record speaks of the file, but not of what it holds now."""
    target = Target(TIER, "cpu_quota")
    (scene.machine.root / "run").mkdir()
    writer = Writer(scene.tree)
    with UndoRecord(scene.machine.root / "run" / UNDO, "6f1d") as record:
        reading = writer.look(target)
        assert reading is not None
        record.remember(target, reading, 260_000)
    writer.write(target, 118_100)
    async with on_runtime(scene.machine) as alive:
        await alive.until(lambda: scene.machine.holds(TIER, "cpu_quota") == -1, "no quota")


async def test_a_base_that_was_noted_before_kubelet_told_is_put_right(tmp_path: Path) -> None:
    """What a strategy wants is in the file by then, and stays there."""
    scene = Scene(Machine(tmp_path, V2))
    scene.put(scene.web, {"memory.low": str(MIB)})
    target, writer = Target(scene.web, "memory.low"), Writer(scene.tree)
    (scene.machine.root / "run").mkdir()
    with UndoRecord(scene.machine.root / "run" / UNDO, "6f1d") as record:
        reading = writer.look(target)
        assert reading is not None
        record.remember(target, reading, 2 * MIB)
    writer.write(target, 2 * MIB)
    async with on_runtime(scene.machine) as alive:
        await told(alive.node)
        await alive.until(lambda: scene.machine.holds(scene.web, "memory.low") == 0, "kubelet's value")


class TestValuesThatStay:
    async def test_of_a_feature_that_kubelet_may_have_on_it_is_said(self, tmp_path: Path) -> None:
        scene = Scene(Machine(tmp_path, V2))
        scene.put(TIER, {"memory.min": str(MIB)})
        async with on_runtime(scene.machine) as alive:
            await alive.until(lambda: alive.node.pods.current and alive.node.policy.current.node.ls_pools, "the pods")
            said = [each for each in daemon.warnings(alive.node) if "another agent" in each]
            assert said == [
                "another agent may have left what stays as it is, since kubelet has not told whether its feature "
                f"MemoryQoS writes it: {TIER}/memory.min holds {MIB}"
            ]
            alive.node.kubelet_config.current = KubeletConfig(writes_memory_protection=True)
            await alive.node.tick(TickReason.BEAT)
            assert not [each for each in daemon.warnings(alive.node) if "another agent" in each]
        assert scene.machine.holds(TIER, "memory.min") == MIB

    async def test_what_a_dry_run_finds_is_shown_and_stays(self, scene: Scene) -> None:
        scene.put(TIER, LEFT["suppression's quota"][2][scene.machine.version])
        async with on_runtime(scene.machine, dry_run=True) as alive:
            await alive.until(lambda: alive.node.pods.current and alive.node.policy.current.node.ls_pools, "the pods")
            await alive.node.tick(TickReason.BEAT)
            assert Target(TIER, "cpu_quota") in {write.target for write in await planned_writes(alive)}
        assert scene.machine.holds(TIER, "cpu_quota") == 118_100

    async def test_a_value_of_an_earlier_run_has_the_base_of_that(self, scene: Scene) -> None:
        async with on_runtime(scene.machine) as alive:
            await alive.until(lambda: alive.node.policy.current.node.ls_pools, "the pools")
        before = [scene.machine.holds(cgroup, row) for cgroup in (JOB, WEB) for row in ("cpu_quota", "cpu_shares")]
        async with on_runtime(scene.machine) as alive:
            await alive.until(lambda: alive.node.policy.current.node.ls_pools, "the pools")
            assert alive.node.journal.flush()
            assert not [entry for entry in alive.node.journal.query() if entry.result == "leftover"]
        assert before == [
            scene.machine.holds(cgroup, row) for cgroup in (JOB, WEB) for row in ("cpu_quota", "cpu_shares")
        ]


V1_NONE, V2_NONE = KubeletInputs(1, "0-3", "0-3"), KubeletInputs(2, "", "", has_memory_qos=False)
STATIC, STATIC_UNKNOWN = KubeletInputs(1, "0-3", "0-1"), KubeletInputs(1, "0-3", None)
NATIVE = Asked(50_000, 512, MIB)
GUARANTEED, BURSTABLE, BEST_EFFORT = KubeQoS.GUARANTEED, KubeQoS.BURSTABLE, KubeQoS.BEST_EFFORT


@pytest.mark.parametrize(
    ("row", "place", "qos", "asked", "kubelet", "expected"),
    [
        ("cpu_quota", Place.TIER, BEST_EFFORT, NOT_CERTAIN, V1_NONE, -1),
        ("cpu_quota", Place.TIER, BURSTABLE, NOT_CERTAIN, V2_NONE, -1),
        ("cpu_quota", Place.CONTAINER, BURSTABLE, NATIVE, V2_NONE, 50_000),
        ("cpu_quota", Place.CONTAINER, BURSTABLE, NOT_CERTAIN, V2_NONE, None),
        ("cpu_quota", Place.POD, BEST_EFFORT, OF_BEST_EFFORT, V2_NONE, -1),
        ("cpu_shares", Place.TIER, BEST_EFFORT, NOT_CERTAIN, V1_NONE, 2),
        ("cpu_shares", Place.TIER, BURSTABLE, NOT_CERTAIN, V1_NONE, None),
        ("cpu_shares", Place.POD, BURSTABLE, NATIVE, V1_NONE, 512),
        ("cpu.idle", Place.TIER, BEST_EFFORT, NOT_CERTAIN, V1_NONE, 0),
        ("cpu.idle", Place.TIER, BURSTABLE, NOT_CERTAIN, V1_NONE, None),
        ("cpu.idle", Place.POD, BURSTABLE, NOT_CERTAIN, V1_NONE, None),
        ("memory_limit_in_bytes", Place.CONTAINER, BEST_EFFORT, OF_BEST_EFFORT, V1_NONE, -1),
        ("cpuset_cpus", Place.TIER, BEST_EFFORT, NOT_CERTAIN, STATIC, "0-3"),
        ("cpuset_cpus", Place.TIER, BEST_EFFORT, NOT_CERTAIN, V2_NONE, ""),
        ("cpuset_cpus", Place.TIER, BEST_EFFORT, NOT_CERTAIN, KubeletInputs(1), None),
        ("cpuset_cpus", Place.CONTAINER, GUARANTEED, NATIVE, V1_NONE, "0-3"),
        ("cpuset_cpus", Place.CONTAINER, GUARANTEED, NATIVE, STATIC, None),
        ("cpuset_cpus", Place.CONTAINER, BEST_EFFORT, OF_BEST_EFFORT, STATIC, "0-1"),
        ("cpuset_cpus", Place.CONTAINER, BEST_EFFORT, OF_BEST_EFFORT, STATIC_UNKNOWN, None),
        ("cpuset_cpus", Place.POD, GUARANTEED, NOT_CERTAIN, STATIC, "0-3"),
        ("memory.min", Place.TIER, BURSTABLE, NOT_CERTAIN, V1_NONE, 0),
        ("memory.min", Place.TIER, BURSTABLE, NOT_CERTAIN, V2_NONE, 0),
        ("memory.min", Place.TIER, BURSTABLE, NOT_CERTAIN, KubeletInputs(2, "", ""), None),
        ("memory.high", Place.CONTAINER, BURSTABLE, NATIVE, KubeletInputs(2, "", "", has_memory_qos=True), None),
        ("memory.wmark_scale_factor", Place.POD, BURSTABLE, NATIVE, V2_NONE, 50),
    ],
)
def test_what_kubelet_writes(
    row: str, place: Place, qos: KubeQoS, asked: Asked, kubelet: KubeletInputs, expected: Value | None
) -> None:
    assert value(row, place, qos, asked, kubelet) == expected


async def by_hook_server(node: Node, name: str) -> str:
    request = hooks.ContainerResourceHookRequest(pod_labels={QOS: "BE"}, pod_cgroup_parent=f"{TIER}/pod{name}")
    request.pod_meta.name = request.pod_meta.uid = name
    request.container_meta.name = "main"
    socket = node.options.run_dir / f"{name}.sock"
    async with listening(socket, node.hooks):
        client = UnaryClient(str(socket), asyncio.get_running_loop())
        reply = await client.call(f"/{SERVICE}/PreCreateContainerHook", request.SerializeToString(), 5.0)
        client.close()
    return hooks.ContainerResourceHookResponse.FromString(reply.message).container_resources.cpuset_cpus


async def by_nri(node: Node, name: str) -> str:
    served = Hooks(node.policy.in_force, Metrics(), lambda: True, partial(hostfacts.text_of, node.locator.tree))
    pod = nri.PodSandbox(id=name, name=name, uid=name, labels={QOS: "BE"})
    pod.linux.cgroup_parent = f"{TIER}/pod{name}"
    adjustment = served.created(pod, nri.Container(id=f"{name}-1", pod_sandbox_id=name, name="main"))
    return adjustment.linux.resources.cpu.cpus if adjustment is not None else ""


def within(cpus: str, tier: Value | None, version: int) -> bool:
    """May the runtime make a container with ``cpus``?"""
    return version == 2 or cpuset.parse(cpus) <= cpuset.parse(str(tier))


@pytest.mark.parametrize("answer", [by_hook_server, by_nri])
async def test_a_container_can_be_made_in_a_tier_that_another_agent_keeps_small(
    scene: Scene, answer: Callable[[Node, str], Awaitable[str]]
) -> None:
    scene.put(TIER, {"cpuset.cpus": "1"})
    version = scene.machine.version
    async with on_runtime(scene.machine) as alive:
        assert within(await answer(alive.node, "early"), "1", version), "before the first tick"
        await alive.until(lambda: scene.machine.holds(TIER, "cpuset_cpus") in ("0-3", ""), "the tier's CPUs")
        await alive.until(lambda: alive.node.policy.current.node.be_pools, "the pools")
        assert await answer(alive.node, "later") == "0-3"
        scene.put(TIER, {"cpuset.cpus": "2"})
        await alive.node.tick(TickReason.BEAT)
        assert within(await answer(alive.node, "late"), "2", version), "an agent that is still there"


async def test_the_reconciler_stays_within_a_tier_that_another_agent_keeps_small(scene: Scene) -> None:
    async with on_runtime(scene.machine) as alive:
        await alive.until(lambda: scene.machine.holds(scene.job, "cpuset_cpus") == "0-3", "the pool")
        scene.put(TIER, {"cpuset.cpus": "2"})
        wanted = "2" if scene.machine.version == 1 else "0-3"
        await alive.until(lambda: scene.machine.holds(scene.job, "cpuset_cpus") == wanted, "what the tier has")
