"""NodeInspect on a real socket, over a snapshot and a cgroup tree on disk."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import stat
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_type_hints

import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from msgspec.structs import replace

from koord.host.files import Target
from koord.host.originals import Original
from koord.host.placement import Membership
from koord.host.reconcile.state import FileState, Phase
from koord.host.support import Support
from koord.http2.client import UnaryClient, UnaryError
from koord.http2.grpc import FAILED_PRECONDITION, INTERNAL, INVALID_ARGUMENT, NOT_FOUND
from koord.model import formulas
from koord.model.formulas import FORMULA, Formula, Inputs, number
from koord.model.podtotal import Role
from koord.model.requirements import ContainerAmounts
from koord.pb.koord import inspect_pb2 as inspect
from qosd import strategies
from qosd.act.evictor import EvictionPlan
from qosd.act.plan import TickPlan
from qosd.decide.decision import Decision, Eviction, Opinion, Stage, Strategy
from qosd.decide.reliefstate import Relief
from qosd.decide.runner import Decisions, StrategyResult, StrategyStatus, decide_all
from qosd.inspect import daemon, plan
from qosd.inspect.inspector import Inspector
from qosd.inspect.service import SERVICE, answer_of, listening
from qosd.model.besteffort import BestEffortScheduling
from qosd.model.metric import Scope
from qosd.model.pod import SpecContainer
from qosd.model.snapshot import EvictionPhase, EvictionState, NodeSnapshot
from qosd.sense.node import NodeRow
from qosd.sense.usage import USAGE
from qosd.strategies import speakers
from tests.qosd.contexts import policy
from tests.qosd.inspect.scenes import NOW_NS, SECOND, V1, Scene, batch_scene, entry, inspecting, living, v1_files
from tests.qosd.podviews import snapshot, view

Answer = TypeVar("Answer", bound=Message)
GROUP = "/kubepods/besteffort/podjob/worker"
QUOTA = Target(GROUP, "cpu_quota")
A_FIGHT = FileState(Phase.CONTESTED, contested="a fight")


async def call(path: str, method: str, request: Message, answer: type[Answer]) -> Answer:
    client = UnaryClient(path, asyncio.get_running_loop())
    try:
        got = await client.call(f"/koord.node.v1.NodeInspect/{method}", request.SerializeToString(), 10)
    finally:
        client.close()
    return answer.FromString(got.message)


async def ask(node: Scene, tmp_path: Path, method: str, request: Message, answer: type[Answer]) -> Answer:
    async with inspecting(tmp_path / "i.sock", node) as path:
        return await call(path, method, request, answer)


async def explain(node: Scene, tmp_path: Path, request: inspect.ExplainRequest) -> inspect.ExplainResponse:
    return await ask(node, tmp_path, "Explain", request, inspect.ExplainResponse)


def shown(container: inspect.Container) -> dict[str, tuple[str | None, str | None]]:
    return {
        value.field: (
            value.desired if value.HasField("desired") else None,
            value.actual if value.HasField("actual") else None,
        )
        for value in container.values
    }


# --- what cannot be answered -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "request_", "code", "says"),
    [
        ("Explain", inspect.ExplainRequest(), INVALID_ARGUMENT, "explain what?"),
        ("Explain", inspect.ExplainRequest(pod={"name": "gone"}), NOT_FOUND, "no pod gone on this node"),
        ("Explain", inspect.ExplainRequest(pod={"name": "job", "namespace": "x"}), NOT_FOUND, "in namespace x"),
        ("Explain", inspect.ExplainRequest(file="/etc/passwd"), NOT_FOUND, "/etc/passwd: Koord knows no such kernel"),
        ("SetStrategies", inspect.SetStrategiesRequest(names=["x"]), NOT_FOUND, "no strategy 'x'; there are hooks"),
    ],
)
async def test_refusals_say_what_is_wrong(tmp_path: Path, method: str, request_: Message, code: int, says: str) -> None:
    with pytest.raises(UnaryError, match=says) as refused:
        await ask(batch_scene(tmp_path), tmp_path, method, request_, inspect.ExplainResponse)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("method", "request_", "code"),
    [
        ("ListPods", inspect.ListPodsRequest(), FAILED_PRECONDITION),
        ("Explain", inspect.ExplainRequest(node={}), FAILED_PRECONDITION),
    ],
)
async def test_before_the_first_snapshot(tmp_path: Path, method: str, request_: Message, code: int) -> None:
    lost = "neither kubelet, nor the runtime, nor the cgroup tree shows where pods are"
    async with inspecting(tmp_path / "i.sock", Scene(tmp_path)) as path:
        with pytest.raises(UnaryError) as refused:
            await call(path, method, request_, inspect.ListPodsResponse)
        assert refused.value.code == code
        empty = await call(path, "GetNode", inspect.GetNodeRequest(), inspect.GetNodeResponse)
        assert (empty.observed_unix_ns, empty.daemon.pid, list(empty.warnings)) == (0, os.getpid(), [lost])
        planned = await call(path, "Plan", inspect.PlanRequest(), inspect.PlanResponse)
        assert (list(planned.writes), planned.policy.origin) == ([], "source")


@pytest.mark.parametrize("rpc", list(SERVICE.methods), ids=lambda rpc: rpc.name)
def test_the_module_of_its_name_answers_each_question(rpc: MethodDescriptor) -> None:
    hints = get_type_hints(answer_of(rpc.name))
    assert (rpc.input_type, rpc.output_type) == (hints["request"].DESCRIPTOR, hints["return"].DESCRIPTOR)


async def test_a_failing_part_costs_its_call_only(tmp_path: Path) -> None:
    socket = tmp_path / "i.sock"
    async with living(batch_scene(tmp_path)) as node, listening(socket, Inspector(node)):
        node.thread.shutdown()
        with pytest.raises(UnaryError) as failed:
            await call(str(socket), "Plan", inspect.PlanRequest(), inspect.PlanResponse)
        assert failed.value.code == INTERNAL
        answer = await call(str(socket), "GetNode", inspect.GetNodeRequest(), inspect.GetNodeResponse)
        assert answer.owned_files == 1


async def test_the_socket_is_the_owners_alone(tmp_path: Path) -> None:
    async with inspecting(tmp_path / "i.sock", batch_scene(tmp_path)) as path:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        client = UnaryClient(path, asyncio.get_running_loop())
        with pytest.raises(UnaryError) as garbage:
            await client.call("/koord.node.v1.NodeInspect/Explain", b"\xff\xff\xff", 5)
        assert garbage.value.code == INVALID_ARGUMENT
        client.close()


@pytest.mark.parametrize(
    ("state", "lacks"), [(StrategyStatus.ACTIVE, "CAP_X, /proc/sys/vm/min_free_kbytes"), (StrategyStatus.GATED, "")]
)
async def test_a_strategy_that_is_on_says_what_the_unit_does_not_allow(
    tmp_path: Path, state: StrategyStatus, lacks: str
) -> None:
    host = dataclasses.replace(V1, lacking={"SystemConfig": ("CAP_X", "/proc/sys/vm/min_free_kbytes")})
    node = Scene(tmp_path, snapshot(policy(host)))
    node.results.append(StrategyResult("systemConfig", Stage.SPEC, state, Decision("no kernel setting")))
    answer = await ask(node, tmp_path, "GetNode", inspect.GetNodeRequest(), inspect.GetNodeResponse)
    assert [(each.name, each.lacks) for each in answer.strategies] == [("systemConfig", lacks)]
    said = f"strategy systemConfig: koord-qosd may not do all that it needs ({lacks}): run koordctl install"
    assert any(each.startswith(said) for each in answer.warnings) == bool(lacks)


@pytest.mark.parametrize(
    ("name", "answer", "detail"),
    [
        ("memory.high", Support.PRESENT, ""),
        (
            "memory.high",
            Support.VENDOR,
            "on cgroup v1 only kernels of some vendors have it, and this one does not; "
            "on cgroup v2 every kernel has it",
        ),
        ("cpu.bvt_warp_ns", Support.VENDOR, "only kernels of some vendors have it, and this one does not"),
    ],
)
def test_what_is_said_of_a_kernel_file(name: str, answer: Support, detail: str) -> None:
    assert daemon.support_detail(name, answer) == detail


# --- ListPods --------------------------------------------------------------------------------------------------------


async def test_pods_with_desired_and_actual(tmp_path: Path) -> None:
    node = batch_scene(tmp_path, quota="150000")
    answer = await ask(node, tmp_path, "ListPods", inspect.ListPodsRequest(), inspect.ListPodsResponse)
    pod = answer.pods[0]
    assert (pod.namespace, pod.name, pod.qos_class, answer.observed_unix_ns) == ("default", "job", "BE", NOW_NS)
    assert [container.name for container in pod.containers] == ["worker"]
    assert shown(pod.containers[0]) == {
        "cpuset_cpus": ("", ""),  # wanted: the parent's; the kernel's set is the parent's
        "cpu_quota": ("200000", "150000"),
        "cpu_period": (None, "100000"),
        "cpu_shares": ("1536", "1536"),
        "memory_limit_in_bytes": (str(4 << 30), str(4 << 30)),
    }
    quota = next(value for value in pod.containers[0].values if value.field == "cpu_quota")
    assert quota.file == f"{tmp_path}/cpu{GROUP}/cpu.cfs_quota_us"
    assert quota.why == "hooks: batchResource: batch-cpu limit 2000m"
    assert quota.raw == "150000"


async def test_what_the_actuator_composed_counts_before_the_hooks_wish(tmp_path: Path) -> None:
    node = batch_scene(tmp_path, quota="120000")
    cap = {QUOTA: Opinion.at_most(120_000, "BE may use 1.2 cores")}
    node.results.append(StrategyResult("suppress", Stage.SUPPRESSION, StrategyStatus.ACTIVE, Decision("", cap)))
    answer = await ask(node, tmp_path, "ListPods", inspect.ListPodsRequest(), inspect.ListPodsResponse)
    assert shown(answer.pods[0].containers[0])["cpu_quota"] == ("120000", "120000")


async def test_a_container_that_goes_away_costs_its_own_values(tmp_path: Path) -> None:
    node = batch_scene(tmp_path)
    gone = view("gone", "LS")
    assert node.snapshot is not None
    node.snapshot = replace(node.snapshot, pods=(*node.snapshot.pods, gone))
    answer = await ask(node, tmp_path, "ListPods", inspect.ListPodsRequest(), inspect.ListPodsResponse)
    assert [pod.name for pod in answer.pods] == ["gone", "job"]
    assert shown(answer.pods[0].containers[0])["cpu_quota"] == (None, None)


async def test_filters(tmp_path: Path) -> None:
    node = Scene(tmp_path, snapshot(policy(V1), view("a"), view("b")))
    async with inspecting(tmp_path / "i.sock", node) as path:
        for request, names in (
            (inspect.ListPodsRequest(name="b"), ["b"]),
            (inspect.ListPodsRequest(namespace="default"), ["a", "b"]),
            (inspect.ListPodsRequest(namespace="other"), []),
        ):
            answer = await call(path, "ListPods", request, inspect.ListPodsResponse)
            assert [pod.name for pod in answer.pods] == names


# --- Explain ---------------------------------------------------------------------------------------------------------


def recomputed(name: str, fed: list[inspect.Input]) -> str:
    inputs = {each.name: getattr(each, each.WhichOneof("value") or "", None) for each in fed}
    return str(formulas.recompute({FORMULA: name, **inputs}, strategies.formulas()))


class Halving(Strategy[Any]):
    """Says half of what is asked for, by a formula of its own."""

    name: ClassVar[str] = "halving"
    stage: ClassVar[Stage] = Stage.SUPPRESSION
    rows: ClassVar[frozenset[str]] = frozenset({"cpu_quota"})
    needs: ClassVar[Mapping[str, float]] = {}
    formulas: ClassVar[tuple[Formula, ...]] = (
        Formula("half", "floor(quota_us / 2)", lambda inputs: number(inputs, "quota_us") // 2),
    )

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        return True

    def decide(self, snapshot: NodeSnapshot, memory: Any) -> tuple[Decision, Any]:
        inputs: Inputs = {FORMULA: "half", "quota_us": 200_000}
        return Decision("half", {QUOTA: Opinion.at_most(100_000, "half is enough", inputs)}), None


async def test_a_strategys_own_formula_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strategies, "STRATEGIES", (*strategies.STRATEGIES, Halving()))
    scene = batch_scene(tmp_path)
    assert scene.snapshot is not None
    decisions, _ = decide_all(scene.snapshot, [Halving()])
    scene.results += decisions.results
    answer = await explain(scene, tmp_path, inspect.ExplainRequest(pod={"name": "job"}))
    opinion = next(each for file in answer.files for each in file.opinions if each.strategy == Halving.name)
    assert (opinion.formula, opinion.formula_text) == ("half", "floor(quota_us / 2)")
    assert (recomputed(opinion.formula, list(opinion.inputs)), opinion.value) == ("100000", "100000")


def test_no_two_formulas_have_the_same_name() -> None:
    """Strategies of one kind share theirs."""
    own = {id(formula): formula.name for strategy in speakers() for formula in strategy.formulas}
    assert len({*own.values(), *formulas.FORMULAS}) == len(own) + len(formulas.FORMULAS)


async def test_a_pod_is_explained_and_its_results_can_be_computed_again(tmp_path: Path) -> None:
    answer = await explain(
        batch_scene(tmp_path), tmp_path, inspect.ExplainRequest(pod={"name": "job", "namespace": "default"})
    )
    assert [pod.name for pod in answer.pods] == ["job"]
    assert [strategy.name for strategy in answer.strategies] == ["hooks"]
    assert [loop.name for loop in answer.inputs] == ["pods"]
    file = next(file for file in answer.files if file.name == "cpu_quota")
    assert (file.pod, file.container, file.owner, file.unit) == ("default/job", "worker", "hooks", "us")
    assert (file.actual, file.result, file.base, file.before, file.age_s) == ("200000", "200000", "-1", "-1", 12.0)
    assert recomputed(file.formula, list(file.inputs)) == file.result
    assert file.formula_text.startswith("floor(limit_milli * period_us / 1000)")
    assert [(each.stage, each.strategy, each.kind) for each in file.opinions] == [("spec", "hooks", "set")]
    assert [file.name for file in answer.files if not file.owner] == [
        "cpuset_cpus",
        "cpu_shares",
        "memory_limit_in_bytes",
    ]


@pytest.mark.parametrize(
    ("qos", "files", "strategies"),
    [
        ("BE", ["/kubepods/besteffort"], ["hooks", "cpuSuppress", "bestEffort"]),
        ("LS", ["/kubepods/besteffort"], ["hooks", "bestEffort"]),
    ],
    ids=["covered", "a guest of the tier"],
)
async def test_what_bounds_a_pod_from_above_is_explained_with_it(
    tmp_path: Path, qos: str, files: list[str], strategies: list[str]
) -> None:
    """A tier's quota bounds whoever is in it; what is left to best-effort pods is theirs alone."""
    scene = batch_scene(tmp_path, qos=qos)
    v1_files(tmp_path, "/kubepods/besteffort")
    v1_files(tmp_path, "/kubepods/burstable")
    tiers = [Target(f"/kubepods/{tier}", "cpu_quota") for tier in ("besteffort", "burstable")]
    opinions = {tier: Opinion.at_most(85_000, "850m of CPU time") for tier in tiers}
    left = Decision("850m are left", best_effort=BestEffortScheduling("65 % of 2000m", cpu_milli=850))
    scene.results += [
        StrategyResult("cpuSuppress", Stage.SUPPRESSION, StrategyStatus.ACTIVE, left),
        StrategyResult(
            "bestEffort", Stage.SUPPRESSION, StrategyStatus.ACTIVE, Decision("by the tier's quota", opinions)
        ),
    ]
    answer = await explain(scene, tmp_path, inspect.ExplainRequest(pod={"name": "job"}))
    assert [file.cgroup for file in answer.files if file.owner == "bestEffort"] == files
    assert [strategy.name for strategy in answer.strategies] == strategies


@pytest.mark.parametrize(
    ("requested", "says"), [(-1, "kubelet requested it; the container was made with 200000"), (70_000, "")]
)
async def test_a_base_that_was_never_in_the_file(tmp_path: Path, requested: int, says: str) -> None:
    node = batch_scene(tmp_path)
    node.originals = {GROUP: {"cpu_quota": Original(requested, 200_000)}}
    answer = await explain(node, tmp_path, inspect.ExplainRequest(pod={"name": "job", "namespace": "default"}))
    file = next(file for file in answer.files if file.name == "cpu_quota")
    assert (file.base, file.base_from) == ("-1", says)


@pytest.mark.parametrize(
    ("state", "wanted", "says"),
    [
        (StrategyStatus.ACTIVE, 50_000, "enforced one level up: {pod}/cpu_quota is at most 50000"),
        (StrategyStatus.ACTIVE, -1, "not enforced one level up: container worker has no limit"),
        (StrategyStatus.DISABLED, 50_000, "not enforced one level up: enforcement is off"),
        (None, 50_000, "enforced one level up from the next tick on, if it can be"),
    ],
)
async def test_whether_a_contested_file_is_enforced_one_level_up(
    tmp_path: Path, state: StrategyStatus | None, wanted: int, says: str
) -> None:
    node = batch_scene(tmp_path)
    assert node.snapshot is not None
    (pod,) = node.snapshot.pods
    spec = (SpecContainer("worker", Role.MAIN, ContainerAmounts("worker")),)
    node.snapshot = replace(
        node.snapshot,
        pods=(replace(pod, spec_containers=spec),),
        files={QUOTA: FileState(Phase.CONTESTED, written=wanted)},
    )
    node.states[QUOTA] = A_FIGHT
    if state is not None:
        node.results.append(StrategyResult("enforcement", Stage.ENFORCEMENT, state, Decision("off")))
    path = f"{tmp_path}/cpu{GROUP}/cpu.cfs_quota_us"
    answer = await explain(node, tmp_path, inspect.ExplainRequest(file=path))
    assert answer.files[0].contested == f"a fight; {says.format(pod=pod.cgroup)}"


async def test_stages_foreign_writers_and_contest(tmp_path: Path) -> None:
    node = batch_scene(tmp_path, quota="90000")
    ratio = {FORMULA: "given", "value": "1.2"}
    node.results += [
        StrategyResult(
            "suppress",
            Stage.SUPPRESSION,
            StrategyStatus.FROZEN,
            Decision("node is 9 s old", {QUOTA: Opinion.at_most(90_000, "full")}),
        ),
        StrategyResult(
            "norm",
            Stage.NORMALIZATION,
            StrategyStatus.ACTIVE,
            Decision("", {QUOTA: Opinion.scale(Fraction(1, 2), "ratio 2", ratio)}),
        ),
        StrategyResult("other", Stage.SPEC, StrategyStatus.ACTIVE, Decision("", {QUOTA: Opinion.set(1, "mine")})),
    ]
    node.states[QUOTA] = replace(A_FIGHT, base=-1)
    path = f"{tmp_path}/cpu{GROUP}/cpu.cfs_quota_us"
    node.entries.append(entry(path, 90_000))
    answer = await explain(node, tmp_path, inspect.ExplainRequest(file=path))
    file = answer.files[0]
    assert [(each.stage, each.kind, each.value, each.result, bool(each.refused)) for each in file.opinions] == [
        ("spec", "set", "200000", "200000", False),
        ("spec", "set", "1", "", True),
        ("normalization", "scale", "0.5", "100000", False),
        ("suppression", "at most", "90000", "90000", False),
    ]
    assert (file.result, recomputed(file.formula, list(file.inputs))) == ("90000", "90000")
    assert file.contested.startswith("a fight; ")
    assert file.before == "-1"
    assert [(each.value, each.age_s, each.detail) for each in file.foreign] == [("90000", 1.0, "unknown")]
    assert [strategy.state for strategy in answer.strategies] == ["active", "frozen", "active", "active"]


@pytest.mark.parametrize("asked", ["{root}/cpu{cgroup}/cpu.shares", "{cgroup}/cpu_shares"])
async def test_a_file_that_nobody_decides(tmp_path: Path, asked: str) -> None:
    answer = await explain(
        batch_scene(tmp_path), tmp_path, inspect.ExplainRequest(file=asked.format(root=tmp_path, cgroup=GROUP))
    )
    assert [(file.name, file.owner, file.actual) for file in answer.files] == [("cpu_shares", "", "1536")]
    assert not answer.files[0].HasField("result")


@pytest.mark.parametrize("asked", ["{root}/node/proc/sys/vm/min_free_kbytes", "/vm.min_free_kbytes"])
async def test_a_file_of_no_cgroup_that_nobody_decides(tmp_path: Path, asked: str) -> None:
    scene = batch_scene(tmp_path)
    file = tmp_path / "node/proc/sys/vm/min_free_kbytes"
    file.parent.mkdir(parents=True)
    scene.written[file] = "67584"
    answer = await explain(scene, tmp_path, inspect.ExplainRequest(file=asked.format(root=tmp_path)))
    (found,) = answer.files
    assert (found.cgroup, found.name, found.unit, found.actual) == ("", "vm.min_free_kbytes", "kB", "67584")


async def test_the_nodes_own_files(tmp_path: Path) -> None:
    node = batch_scene(tmp_path)
    tier = Target("/kubepods/besteffort", "cpu_quota")
    opinions = {tier: Opinion.set(200_000, "usage", {FORMULA: "given", "value": 200_000})}
    node.results.append(
        StrategyResult("suppress", Stage.SUPPRESSION, StrategyStatus.ACTIVE, Decision("BE may use 2 cores", opinions))
    )
    answer = await explain(node, tmp_path, inspect.ExplainRequest(node={}))
    assert [(file.cgroup, file.owner) for file in answer.files] == [("/kubepods/besteffort", "suppress")]
    assert not answer.files[0].HasField("actual")
    assert [strategy.name for strategy in answer.strategies] == ["hooks", "burst", "suppress"]


# --- the rest --------------------------------------------------------------------------------------------------------


async def test_the_node(tmp_path: Path) -> None:
    node = batch_scene(tmp_path)
    assert node.snapshot is not None
    values = {NodeRow.cpu_usage_cores: {"": 1.25}, USAGE[Scope.POD].cpu_usage_cores: {GROUP: 1.0}}
    node.snapshot = replace(
        node.snapshot, values=values, policy=policy(V1, sharedPools={"ls": [{"cpuset": "0-3", "socket": 1}]})
    )
    node.states[QUOTA] = A_FIGHT
    answer = await ask(node, tmp_path, "GetNode", inspect.GetNodeRequest(), inspect.GetNodeResponse)
    assert (answer.capacity.cpus, answer.capacity.pods, answer.capacity.containers) == (16, 1, 1)
    assert [(usage.metric, usage.value) for usage in answer.usage] == [("node_cpu_usage_cores", 1.25)]
    assert [(pool.name, pool.socket, pool.cpus) for pool in answer.pools] == [("LS", 1, "0-3")]
    assert [loop.name for loop in answer.loops] == ["node", "pods"]
    assert [contested.path for contested in answer.contested] == [f"{tmp_path}/cpu{GROUP}/cpu.cfs_quota_us"]
    ends = [(front.name, front.acting) for front in answer.front_ends]
    assert ends == [("proxy", True), ("nri", False), ("reconciler", False)]


@pytest.mark.parametrize(("kept_in", "actual"), [({GROUP: "BE"}, "BE"), ({GROUP: "LS"}, "LS"), ({}, "unknown")])
async def test_in_which_resctrl_group_a_pods_tasks_are(tmp_path: Path, kept_in: dict[str, str], actual: str) -> None:
    node = batch_scene(tmp_path)
    membership = (Membership(GROUP, "BE", "BE pods belong to group BE", "default/job"),)
    node.results.append(StrategyResult("resctrl", Stage.SPEC, StrategyStatus.ACTIVE, Decision("", acts=membership)))
    node.placed = kept_in
    answer = await explain(node, tmp_path, inspect.ExplainRequest(pod={"name": "job", "namespace": "default"}))
    (file,) = (file for file in answer.files if file.name == "resctrl.tasks")
    assert (file.cgroup, file.owner, file.result, file.why) == (GROUP, "resctrl", "BE", "BE pods belong to group BE")
    assert file.actual == actual
    assert file.path.endswith("/BE/tasks")


@pytest.mark.parametrize(
    ("phase", "problem", "why"),
    [
        (EvictionPhase.STOPPING, "", "memory lacks (attempt 2)"),
        (EvictionPhase.FAILED, "it is running", "memory lacks (attempt 2): it is running"),
    ],
)
async def test_how_far_a_pods_eviction_is(tmp_path: Path, phase: EvictionPhase, problem: str, why: str) -> None:
    node = batch_scene(tmp_path)
    assert node.snapshot is not None
    (pod,) = node.snapshot.pods
    since_ns = node.snapshot.monotonic_ns - 3 * SECOND
    state = EvictionState(pod.uid, pod.key, phase, 2, since_ns, 0, problem, "eviction", "memory lacks")
    node.evictions = {pod.uid: state, "other": state}
    answer = await explain(node, tmp_path, inspect.ExplainRequest(pod={"name": "job", "namespace": "default"}))
    (file,) = (file for file in answer.files if file.name == "pod.eviction")
    assert (file.pod, file.owner, file.result, file.actual) == ("default/job", "eviction", "stopped", phase)
    assert (file.why, file.age_s) == (why, 3.0)


async def test_the_plan(tmp_path: Path) -> None:
    """The next tick's, by the strategies themselves."""
    answer = await ask(batch_scene(tmp_path, "150000"), tmp_path, "Plan", inspect.PlanRequest(), inspect.PlanResponse)
    (planned,) = answer.writes
    assert (planned.cgroup, planned.name, planned.unit) == (GROUP, "cpu_quota", "us")
    assert (planned.before, planned.after, planned.path) == (
        "150000",
        "200000",
        f"{tmp_path}/cpu{GROUP}/cpu.cfs_quota_us",
    )
    assert [(each.name, each.number) for each in planned.inputs] == [("limit_milli", 2000), ("period_us", 100_000)]
    assert [strategy.name for strategy in answer.strategies] == [strategy.name for strategy in speakers()]
    assert (answer.tick, answer.observed_unix_ns) == (1, NOW_NS)


def test_the_plans_evictions() -> None:
    order = Eviction("uid", "default/job", "memory")
    decisions = Decisions(
        2, NOW_NS, 0, (StrategyResult("evict", Stage.SPEC, StrategyStatus.ACTIVE, Relief("", evictions=(order,))),)
    )
    answer = plan.message(TickPlan(decisions, (EvictionPlan((("evict", order),)),)), inspect.Policy())
    assert [(each.pod, each.uid, each.strategy) for each in answer.evictions] == [("default/job", "uid", "evict")]
    assert list(answer.writes) == [], "an eviction is told once"


async def test_the_journal_and_its_filters(tmp_path: Path) -> None:
    node = batch_scene(tmp_path)
    node.dropped = 3
    async with inspecting(tmp_path / "i.sock", node) as path:
        for request, count in (
            (inspect.JournalRequest(), 1),
            (inspect.JournalRequest(strategy="other"), 0),
            (inspect.JournalRequest(since_unix_ns=NOW_NS), 0),
            (inspect.JournalRequest(pod="default/job", file=f"{tmp_path}/cpu{GROUP}/cpu.cfs_quota_us"), 1),
        ):
            answer = await call(path, "Journal", request, inspect.JournalResponse)
            assert (len(answer.entries), answer.dropped) == (count, 3)


async def test_metrics_with_history(tmp_path: Path) -> None:
    node = batch_scene(tmp_path)
    assert node.snapshot is not None
    job = {"/kubepods/besteffort/podjob": 1.5}
    values = {USAGE[Scope.POD].cpu_usage_cores: job, NodeRow.cpu_usage_cores: {"": 2.0}}
    node.snapshot = replace(node.snapshot, values=values)
    node.history = {NodeRow.cpu_usage_cores: [(98 * SECOND, 1.0), (100 * SECOND, 2.0)]}
    async with inspecting(tmp_path / "i.sock", node) as path:
        for request, found in (
            (inspect.MetricsRequest(metric="pod_"), [("pod_cpu_usage_cores", "default/job", 0)]),
            (inspect.MetricsRequest(subject="default/job"), [("pod_cpu_usage_cores", "default/job", 0)]),
            (inspect.MetricsRequest(metric="node_cpu", history=True), [("node_cpu_usage_cores", "", 2)]),
        ):
            answer = await call(path, "Metrics", request, inspect.MetricsResponse)
            got = [(each.name, one.label, len(one.history)) for each in answer.metrics for one in each.samples]
            assert got == found


async def test_switches(tmp_path: Path) -> None:
    every = {strategy.name for strategy in speakers()}
    async with inspecting(tmp_path / "i.sock", batch_scene(tmp_path)) as path:
        for enabled, names, off in ((False, (), every), (True, ("hooks",), every - {"hooks"})):
            request = inspect.SetStrategiesRequest(enabled=enabled, names=names)
            answer = await call(path, "SetStrategies", request, inspect.SetStrategiesResponse)
            sentences = {strategy.name: strategy.sentence for strategy in answer.strategies}
            assert {name for name, sentence in sentences.items() if sentence == "disabled by the operator"} == off
            assert sentences.keys() == every
