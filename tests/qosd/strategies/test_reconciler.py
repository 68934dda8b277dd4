"""The strategy ``hooks``: what it says of every cgroup of a pod, that it agrees with the hook server, what moves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from koord.host.files import Target
from koord.host.order import Change, order
from koord.model import cpuset, formulas
from koord.model.podtotal import Role
from koord.model.quantity import Bytes
from koord.model.requirements import ContainerAmounts
from koord.pb.hooks import api_pb2 as hooks
from qosd.decide.decision import Decision, Op, Opinion
from qosd.hookserver.server import RESTORES_METADATA, SERVICE, HookServer
from qosd.metrics import Metrics
from qosd.model.besteffort import NO_LIMITS
from qosd.model.pod import Resources, SpecContainer
from qosd.model.policy import EffectivePolicy, HostFacts
from qosd.model.snapshot import PodView
from qosd.policy.pools import compute_pools
from qosd.policy.source import PolicySource
from qosd.strategies.groupidentity import GroupIdentity
from qosd.strategies.reconciler import HookReconciler
from tests.qosd.contexts import MEMORY_QOS, V2, V2_VENDOR, extended, policy, with_pools
from tests.qosd.podviews import EXITED, NOT_READY, RUNNING, machine, on_v1, snapshot, view

V1 = HostFacts(cgroup_version=1)
POOLS = {"ls": [{"cpuset": "8-13"}, {"cpuset": "4-7"}], "be": [{"cpuset": "2-13"}]}
PERCENTS = {"minLimitPercent": 20, "lowLimitPercent": 50, "throttlingPercent": 80}
SPEC = {
    "resourceQOSStrategy": {
        "lsClass": {"cpuQOS": {"enable": True}, "memoryQOS": {"enable": True, **PERCENTS}},
        "beClass": {"cpuQOS": {"enable": True, "schedIdle": 1}, "memoryQOS": {"enable": True}},
    }
}
MID = extended(kind="mid", request="1", limit="2", memory="4Gi")
FULL = extended(request="1500", limit="2000", memory="4Gi")


def decided(by: EffectivePolicy, *pods: PodView) -> Decision:
    return HookReconciler().decide(snapshot(by, *pods), None)[0]


def values(by: EffectivePolicy, *pods: PodView) -> dict[tuple[str, str], Any]:
    return set_by(decided(by, *pods))


def set_by(decision: Decision) -> dict[tuple[str, str], Any]:
    found = decision.opinions
    return {(target.cgroup, target.name): one.value for target, one in found.items() if one.op is Op.SET}


def of(cgroup: str, found: Mapping[tuple[str, str], Any]) -> dict[str, Any]:
    return {name: value for (its, name), value in found.items() if its == cgroup}


class TestNoOpinion:
    @pytest.mark.parametrize(
        "pod",
        [
            view("p", "LS", state=NOT_READY, containers=[("main", EXITED)]),
            view("p", "", "Guaranteed"),  # unlabelled under kubelet's static policy
        ],
    )
    def test_of_pods_that_are_not_ours_or_no_more(self, pod: PodView) -> None:
        assert values(policy(V2, cpuManagerPolicy="static", sharedPools=POOLS), pod) == {}

    def test_of_containers_that_do_not_run(self) -> None:
        found = values(
            policy(V2, sharedPools=POOLS),
            view("p", "LS", containers=[("a", RUNNING), ("init", EXITED), ("b", "CONTAINER_CREATED")]),
        )
        assert {cgroup.rpartition("/")[2] for cgroup, _ in found} == {"s-p", "a"}

    def test_an_empty_cpu_set_means_the_parents_and_is_not_written(self) -> None:
        assert values(policy(V2), view("p", "BE", "BestEffort")) == {}

    def test_unknown_cgroups(self) -> None:
        pod = view("p", "BE", "BestEffort", EXTENDED=FULL)
        lost = replace(pod, cgroup="", containers=tuple(replace(one, cgroup="") for one in pod.containers))
        assert values(policy(V2, sharedPools=POOLS), lost) == {}

    def test_of_a_pod_of_which_kubelet_has_made_no_more_than_the_directory(self) -> None:
        """Whatever we wrote there now, kubelet's own value would come after it, and nobody could tell it from ours."""
        pod = view("p", "BE", "BestEffort", EXTENDED=FULL)
        announced = replace(pod, state="", sandbox_id="", containers=())
        assert values(policy(V1), announced) == {}
        assert {cgroup for cgroup, _ in values(policy(V1), pod)} == {pod.cgroup, f"{pod.cgroup}/main"}

    def test_v2_files_on_v1(self) -> None:
        by = on_v1(policy(V2_VENDOR, SPEC, sharedPools=POOLS, **MEMORY_QOS))
        found = values(by, view("p", "LS", memory_request_bytes=1 << 30))
        assert {name for _, name in found} == {"cpuset_cpus"}

    def test_hooks_that_are_switched_off(self) -> None:
        off = dict.fromkeys(("cpuset", "batchResource", "memory", "groupIdentity", "cpuIdle"), False)
        by = policy(V2_VENDOR, SPEC, sharedPools=POOLS, **MEMORY_QOS, hooks=off)
        assert values(by, view("a", "LS"), view("b", "BE", "BestEffort", EXTENDED=FULL)) == {}


class TestBadPods:
    def test_a_bad_annotation_costs_its_own_values_only(self) -> None:
        bad = view("bad", "LS", containers=[("main", RUNNING)], STATUS="{")
        found = values(policy(V2, sharedPools=POOLS), bad, view("good", "LSR", "Guaranteed", cpus="2-3"))
        assert of("/kubepods/burstable/podbad/main", found) == {"cpuset_cpus": "4-13"}
        assert of("/kubepods/podgood/main", found) == {"cpuset_cpus": "2-3", "cpu_quota": -1}

    def test_a_value_that_no_kernel_takes_is_said_and_left_out(self) -> None:
        mad = extended(request="1500", limit=str(2**62), memory="4Gi")
        decision = decided(policy(V1), view("mad", "BE", "BestEffort", EXTENDED=mad))
        assert "pod default/mad container main: cpu_quota: " in decision.sentence
        assert {target.name for target in decision.opinions} == {"cpu_shares", "memory_limit_in_bytes"}


class TestWhatIsSaid:
    def test_of_a_bound_pod(self) -> None:
        found = values(policy(V2, sharedPools=POOLS), view("p", "LSE", "Guaranteed", cpus="0-1"))
        assert of("/kubepods/podp", found) == {"cpu_quota": -1}
        assert of("/kubepods/podp/s-p", found) == {"cpuset_cpus": "0-1"}
        assert of("/kubepods/podp/main", found) == {"cpuset_cpus": "0-1", "cpu_quota": -1}

    def test_of_a_batch_pod(self) -> None:
        """Idle scheduling is of the pod's cgroup only."""
        by = policy(V2, SPEC, sharedPools=POOLS, **MEMORY_QOS, cpuNormalizationRatio=1.2)
        found = values(by, view("p", "BE", "BestEffort", EXTENDED=FULL))
        batch = {"cpu_shares": 1536, "cpu_quota": 166667, "memory_limit_in_bytes": 4 << 30}
        protection = {"memory.min": 0, "memory.low": 0}
        assert of("/kubepods/besteffort/podp", found) == {**batch, **protection, "cpu.idle": 1}
        container = {**batch, **protection, "memory.high": -1, "cpuset_cpus": "2-13"}
        assert of("/kubepods/besteffort/podp/main", found) == container
        assert of("/kubepods/besteffort/podp/s-p", found) == {"cpuset_cpus": "2-13"}

    def test_of_an_ls_pod_whose_request_kubelet_told(self) -> None:
        by = policy(V2, SPEC, sharedPools=POOLS, **MEMORY_QOS)
        found = values(by, view("p", "LS", memory_request_bytes=2 << 30))
        assert of("/kubepods/burstable/podp", found) == {"memory.min": 429496729, "memory.low": 1 << 30}
        assert of("/kubepods/burstable/podp/main", found) == {"cpuset_cpus": "4-13"}

    def test_nothing_of_a_hook_with_a_strategy_of_its_own(self) -> None:
        found = values(policy(V2_VENDOR, SPEC), view("p", "LS"), view("q", "BE", "BestEffort"))
        assert "cpu.bvt_warp_ns" not in {name for _, name in found}

    @pytest.mark.parametrize(
        ("native", "protection"),
        [
            (ContainerAmounts("main", memory_request=Bytes(2 << 30)), (429496729, 1 << 30)),
            (ContainerAmounts("main"), (0, 0)),
            (ContainerAmounts("other", memory_request=Bytes(2 << 30)), (None, None)),
        ],
    )
    def test_of_a_burstable_container_whose_request_kubelet_told(self, native: Any, protection: Any) -> None:
        """The hook at its creation cannot know it: CRI has no requests."""
        spec = (SpecContainer(native.name, Role.MAIN, native),)
        pod, by = view("p", "LS", spec=spec), policy(V2, SPEC, **MEMORY_QOS)
        found = of("/kubepods/burstable/podp/main", values(by, pod))
        assert (found.get("memory.min"), found.get("memory.low")) == protection
        assert not asks(by, pod, Resources()).container_resources.unified

    def test_memory_of_a_pod_in_a_virtual_machine_is_the_pods_own_alone(self) -> None:
        """What is in its containers is the guest's business."""
        spec = (SpecContainer("main", Role.MAIN, ContainerAmounts("main", memory_request=Bytes(2 << 30))),)
        pod = view("p", "LS", memory_request_bytes=2 << 30, spec=spec)
        by = policy(V2, SPEC, sharedPools=POOLS, **MEMORY_QOS)
        protected = {"memory.min": 429496729, "memory.low": 1 << 30}
        kata = values(by, replace(pod, runtime_handler="kata-qemu"))
        assert of(f"{pod.cgroup}/main", values(by, pod)) == {"cpuset_cpus": "4-13", **protected}
        assert of(f"{pod.cgroup}/main", kata) == {"cpuset_cpus": "4-13"}
        assert of(pod.cgroup, kata) == protected

    def test_who_why_and_of_which_pod(self) -> None:
        decision = decided(policy(V2, sharedPools=POOLS), view("p", "LS"))
        one = decision.opinions[Target("/kubepods/burstable/podp/main", "cpuset_cpus")]
        assert one == Opinion.set(
            "4-13",
            "cpuset: LS without bound CPUs uses the LS pool (outside LSE and LSR)",
            {"formula": "given", "value": "4-13"},
            "default/p",
        )
        assert decision.sentence == "2 values of 1 pod"

    @pytest.mark.parametrize("host", [V1, V2, V2_VENDOR])
    def test_every_value_can_be_computed_from_its_inputs(self, host: HostFacts) -> None:
        requested = Resources(cpu_quota_us=100000, cpu_period_us=100000, memory_limit_bytes=6 << 30)
        pods = (
            view("ls", "LS", memory_request_bytes=2 << 30, container_requested=requested),
            view("g", "", "Guaranteed", container_requested=requested, memory_request_bytes=6 << 30),
            view("lse", "LSE", "Guaranteed", cpus="0-1", container_requested=requested),
            view("be", "BE", "BestEffort", EXTENDED=extended(request="1500", limit="2000", memory="4Gi")),
            view("half", "BE", "BestEffort", EXTENDED=extended(request="1500", memory_request="2Gi")),
            view("mid", "LS", "BestEffort", band="koord-mid", EXTENDED=MID),
        )
        by = policy(host, SPEC, sharedPools=POOLS, **MEMORY_QOS, cpuNormalizationRatio=1.2)
        opinions = decided(by, *pods).opinions
        assert len(opinions) > 20
        for target, one in opinions.items():
            assert one.op is Op.SET
            assert formulas.recompute(one.inputs) == one.value, target


class TestSameAsTheHookServer:
    """What is kept up of a running container, by whichever strategy, is what its creation is answered with."""

    PODS: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("LS", "Burstable", {}),
        ("LSE", "Guaranteed", {"cpus": "0-1"}),
        ("BE", "BestEffort", {"EXTENDED": FULL}),
        ("", "Guaranteed", {}),
        ("", "BestEffort", {}),
        ("LS", "Burstable", {"band": "koord-mid", "EXTENDED": extended(kind="mid", request="1", limit="2")}),
    )

    @pytest.mark.parametrize(("qos", "tier", "said"), PODS)
    @pytest.mark.parametrize("manager", ["none", "static"])
    def test_of_a_container(self, qos: str, tier: str, said: dict[str, Any], manager: str) -> None:
        by = policy(
            V2_VENDOR, SPEC, sharedPools=POOLS, **MEMORY_QOS, cpuNormalizationRatio=1.2, cpuManagerPolicy=manager
        )
        requested = Resources(cpu_quota_us=100000, cpu_period_us=100000, memory_limit_bytes=6 << 30)
        pod = view("p", qos, tier, container_requested=requested, **said)
        answer = asks(by, pod, requested).container_resources
        want = {
            name: getattr(answer, name)
            for name in ("cpu_quota", "cpu_shares", "memory_limit_in_bytes", "cpuset_cpus")
            if answer.HasField(name) and getattr(answer, name) != ""
        }
        want |= {file: -1 if text == "max" else int(text) for file, text in answer.unified.items()}
        identities = set_by(GroupIdentity().decide(snapshot(by, pod), None)[0])
        found = of(pod.containers[1].cgroup, {**values(by, pod), **identities})
        assert {**found, "cpuset_cpus": ""} == {**want, "cpuset_cpus": ""}
        assert cpus(str(found.get("cpuset_cpus", ""))) == cpus(str(want.get("cpuset_cpus", "")))


def cpus(text: str) -> set[int]:
    return set(cpuset.parse(text))


def asks(by: EffectivePolicy, pod: PodView, requested: Resources) -> hooks.ContainerResourceHookResponse:
    """Our own proxy's question about the pod's container."""
    request = hooks.ContainerResourceHookRequest(
        pod_labels=pod.context.request.labels,
        pod_annotations=pod.context.request.annotations,
        pod_cgroup_parent=pod.context.request.cgroup_parent,
    )
    request.container_meta.name = "main"
    request.container_resources.cpu_quota = requested.cpu_quota_us or 0
    request.container_resources.cpu_period = requested.cpu_period_us or 0
    request.container_resources.memory_limit_in_bytes = requested.memory_limit_bytes or 0
    method = HookServer(lambda: (by, NO_LIMITS), Metrics()).methods()[f"/{SERVICE}/PreCreateContainerHook"]
    reply = method(request.SerializeToString(), {b"koord-runtime-proxy": b"1", RESTORES_METADATA: b"1"})
    assert not hasattr(reply, "__await__")
    return hooks.ContainerResourceHookResponse.FromString(reply.message)


class TestMemory:
    def test_an_unchanged_tick_returns_the_same_objects(self) -> None:
        picture = snapshot(policy(V2, sharedPools=POOLS), view("a", "LS"), view("b", "LS"))
        strategy = HookReconciler()
        first, memory = strategy.decide(picture, None)
        second, again = strategy.decide(picture, memory)
        assert second is first
        assert again is memory

    def test_another_pod_costs_one_pod_and_leaves_the_others_opinions(self) -> None:
        by, a, b = policy(V2, sharedPools=POOLS), view("a", "LS"), view("b", "LS")
        strategy = HookReconciler()
        first, memory = strategy.decide(snapshot(by, a), None)
        second, memory = strategy.decide(snapshot(by, a, b), memory)
        assert len(second.opinions) == 2 * len(first.opinions)
        for target, one in first.opinions.items():
            assert second.opinions[target] is one
        third, _ = strategy.decide(snapshot(by, a), memory)
        assert third.opinions == first.opinions

    def test_equal_opinions_are_the_same_mapping(self) -> None:
        strategy = HookReconciler()
        first, memory = strategy.decide(snapshot(policy(V2, sharedPools=POOLS), view("a", "LS")), None)
        second, _ = strategy.decide(snapshot(policy(V2, sharedPools=POOLS), view("a", "LS")), memory)
        assert second is first

    @given(st.lists(st.lists(st.sampled_from("abcdef"), unique=True), max_size=6))
    def test_remembering_changes_nothing(self, ticks: list[list[str]]) -> None:
        by = policy(V2, sharedPools=POOLS)
        pods = {name: view(name, "LS") for name in "abcdef"}
        strategy, memory = HookReconciler(), None
        for names in ticks:
            picture = snapshot(by, *(pods[name] for name in names))
            decision, memory = strategy.decide(picture, memory)
            assert decision == strategy.decide(picture, None)[0]


class TestAnLSEPodThatArrivesLast:
    LS, BE, LSR = view("ls", "LS"), view("be", "BE", "BestEffort"), view("lsr", "LSR", "Guaranteed", cpus="4-5")
    LSE = view("lse", "LSE", "Guaranteed", cpus="2-3")

    def decide(self, memory: Any, *pods: PodView) -> tuple[Mapping[Target, Opinion], Any]:
        by = policy(V1)
        pools = compute_pools(machine(), pods, by.node, {})
        pooled = with_pools(by, pools)
        decision, memory = HookReconciler().decide(snapshot(pooled, *pods), memory)
        return decision.opinions, memory

    def cpus(self, opinions: Mapping[Target, Opinion]) -> dict[str, Any]:
        return {
            target.cgroup.rpartition("/")[2]: one.value
            for target, one in opinions.items()
            if target.name == "cpuset_cpus" and one.op is Op.SET
        }

    def test_moves_ls_and_be_off_its_cpus_first(self) -> None:
        before, memory = self.decide(None, self.LS, self.BE, self.LSR)
        after, _ = self.decide(memory, self.LS, self.BE, self.LSR, self.LSE)
        assert self.cpus(before)["s-ls"] == "0-3,6-15"
        assert self.cpus(before)["s-be"] == "0-15"
        assert self.cpus(after)["s-ls"] == "0-1,6-15"
        assert self.cpus(after)["s-be"] == "0-1,4-15"
        assert self.cpus(after)["s-lse"] == "2-3"
        changes = [
            Change(target, self.now(before, target), one.value)
            for target, one in after.items()
            if one.op is Op.SET and isinstance(one.value, str) and target.name == "cpuset_cpus"
        ]
        steps = order(changes, 1)
        moved = [step for step in steps if step.target.cgroup.split("/")[-2] in ("podls", "podbe")]
        assert len(moved) == 4, "a sandbox and a container each, in one write"
        assert not any(cpus(str(step.value)) & {2, 3} for step in moved)

    def test_even_before_its_sandbox_is_there(self, tmp_path: Path) -> None:
        source, pods = PolicySource(tmp_path / "rules.yaml", lambda: V1, Metrics()), (self.LS, self.BE)
        before = HookReconciler().decide(snapshot(source.update(machine(), pods, {}, 0), *pods), None)[0]
        assert source.expect(self.LSE.context, 0)
        after = HookReconciler().decide(snapshot(source.current, *pods), None)[0]
        assert self.cpus(before.opinions)["s-ls"] == "0-15"
        assert self.cpus(after.opinions)["s-ls"] == self.cpus(after.opinions)["s-be"] == "0-1,4-15"

    def now(self, before: Mapping[Target, Opinion], target: Target) -> Any:
        held = before.get(target)
        return "0-15" if held is None else held.value
