"""Every hook as a table: what a pod says and the rules, and the edits that come out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, cast

import pytest

from koord.model.cpuset import CPUSet
from koord.model.crifields import Field
from qosd.hooks import engine, normalization, resctrl, table
from qosd.hooks.edits import Edit, Edits, ForbiddenEdit
from qosd.model.besteffort import NO_LIMITS
from qosd.model.pod import HookStage, Resources
from qosd.model.policy import HostFacts
from tests.qosd.contexts import MEMORY_QOS, V2, V2_VENDOR, decided, extended, pod, policy, values

V1 = HostFacts(cgroup_version=1, files=frozenset({"cpu.bvt_warp_ns"}))
LS_POOLS = [{"socket": 0, "node": 1, "cpuset": "8-13"}, {"socket": 0, "node": 0, "cpuset": "4-7,32-35"}]
BE_POOLS = [{"socket": 0, "node": 0, "cpuset": "2-7"}, {"socket": 0, "node": 1, "cpuset": "8-13"}]
POOLS = {"ls": LS_POOLS, "be": BE_POOLS}
TWO_CPUS = Resources(cpu_quota_us=200_000)
Spec = dict[str, Any]
PERCENTS = {"minLimitPercent": 20, "lowLimitPercent": 50, "throttlingPercent": 80}
ON_NODE_1 = {"numaNodeResources": [{"node": 1, "resources": {"cpu": "2"}}]}


def of_classes(**settings: Any) -> dict[str, Any]:
    """A NodeSLO spec with the same settings for lsr, ls and be."""
    return {"resourceQOSStrategy": {f"{name}Class": settings for name in ("lsr", "ls", "be")}}


class TestBadInput:
    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("STATUS", "{"),
            ("STATUS", {"cpuset": "9-1"}),
            ("EXTENDED", "[]"),
            ("koordinator.sh/cpuQOS", {"groupIdentity": 7}),
            ("koordinator.sh/memoryQOS", "x"),
            ("node.koordinator.sh/resctrl", "{"),
        ],
    )
    def test_a_bad_annotation_is_a_problem_and_the_other_hooks_go_on(self, key: str, value: Any) -> None:
        edits = engine.decide(pod("LS", **{key: value}), policy(sharedPools=POOLS))
        assert len(edits.problems) == 1
        assert edits.problems[0].endswith("treated as absent")
        assert edits.get(Field.CPUSET_CPUS) is not None

    def test_an_unknown_label_value_is_no_label(self) -> None:
        edits = engine.decide(pod("lsr", "BestEffort"), policy())
        assert "koordinator.sh/qosClass" in edits.problems[0]
        assert edits.get(Field.CPUSET_CPUS) is not None

    def test_kubelets_keys_cannot_be_edited(self) -> None:
        with pytest.raises(ForbiddenEdit, match=r"io\.kubernetes\.container\.hash"):
            Edit(Field.ANNOTATION, "x", "no reason", key="io.kubernetes.container.hash", hook="h")

    def test_an_edit_outside_the_table_is_an_error_of_ours(self) -> None:
        wrong = table.Hook(
            "wrong",
            frozenset({HookStage.CREATE}),
            frozenset({"memory.high"}),
            lambda pod, policy, limits: Edits((Edit(Field.CPU_QUOTA, 1, "no reason"),)),
        )
        with pytest.raises(engine.UndeclaredEdit, match="wrong edits cpu_quota"):
            engine.decide(pod(), policy(), hooks=(wrong,))


class TestCPUSet:
    @pytest.mark.parametrize(
        ("who", "manager", "cpus"),
        [
            (pod("LS"), "none", "4-7,32-35,8-13"),
            (pod("LS", STATUS=ON_NODE_1), "none", "8-13"),
            (pod("LSR", "Guaranteed", STATUS={"cpuset": "2-3"}), "none", "2-3"),
            (pod("", "Burstable"), "static", None),
            # the rest of the table, in its order
            (pod("LSE", "Guaranteed", STATUS={"cpuset": "0-1"}), "static", "0-1"),
            (pod("", "Guaranteed", STATUS={"cpuset": "2-3"}), "static", "2-3"),
            (pod("SYSTEM"), "none", "14"),
            (pod("LS"), "static", "4-7,32-35,8-13"),
            (pod("BE", "BestEffort"), "none", "2-7,8-13"),
            (pod("BE", "BestEffort"), "static", "2-7,8-13"),
            (pod("BE", "BestEffort", STATUS=ON_NODE_1), "none", "2-7,8-13"),
            (pod("", "Guaranteed"), "none", "4-7,32-35,8-13"),
            (pod("", "Burstable"), "none", "4-7,32-35,8-13"),
            (pod("", "BestEffort"), "none", "2-7,8-13"),
            # under static an unlabelled pod keeps what kubelet sent
            (pod("", "Guaranteed"), "static", None),
            (pod("", "BestEffort"), "static", None),
            (pod("", "Guaranteed", STATUS=ON_NODE_1), "static", None),
            (pod("LSR", "Guaranteed"), "static", None),
            (pod("LSR", "Guaranteed", STATUS=ON_NODE_1), "static", None),
            (pod("SYSTEM", "Guaranteed"), "static", "14"),
            (pod("LS", "Guaranteed", STATUS=ON_NODE_1), "static", "8-13"),
            (pod("LSR", "Guaranteed"), "none", "4-7,32-35,8-13"),
            # free pods have the CPU set of BE
            (pod("", "Guaranteed", band="koord-free"), "static", "2-7,8-13"),
            (pod("LS", "Burstable", band="koord-free"), "none", "2-7,8-13"),
            (pod("", "/not/kubelets"), "none", "4-7,32-35,8-13"),
        ],
    )
    def test_decision_table(self, who: Any, manager: str, cpus: str | None) -> None:
        by = policy(cpuManagerPolicy=manager, sharedPools=POOLS, systemQOS={"cpuset": "14"})
        assert decided(who, by).get("cpuset_cpus") == cpus

    @pytest.mark.parametrize(
        ("who", "cpus"),
        [
            (pod("BE", "BestEffort"), ""),
            (pod("", "BestEffort"), ""),
            (pod("BE", "Burstable"), None),
            (pod("LS"), None),
            (pod("SYSTEM"), None),
            (pod("", "Guaranteed", band="koord-free"), None),
        ],
    )
    def test_without_pools(self, who: Any, cpus: str | None) -> None:
        assert decided(who, policy()).get("cpuset_cpus") == cpus

    @pytest.mark.parametrize(
        ("who", "bound", "edits"),
        [
            ("LSR", "2-5", {"cpuset_cpus": "2-3", "cpu_quota": -1}),
            ("BE", "2-5", {"cpuset_cpus": "2-3", "cpu_quota": -1}),
            # nothing is left: as if it were not bound
            ("LSR", "4-5", {}),
            ("LS", "4-5", {"cpuset_cpus": "4-7,32-35,8-13"}),
        ],
    )
    def test_nobody_is_bound_to_a_cpu_that_kubelet_gave_another(
        self, who: str, bound: str, edits: dict[str, Any]
    ) -> None:
        by = policy(cpuManagerPolicy="static", sharedPools=POOLS)
        by = replace(by, node=replace(by.node, kubelet_cpus=CPUSet.of([4, 5])))
        assert decided(pod(who, "Guaranteed", STATUS={"cpuset": bound}), by) == edits

    @pytest.mark.parametrize("who", ["LSR", "LS", "BE", ""])
    @pytest.mark.parametrize("stage", [HookStage.CREATE, HookStage.UPDATE])
    def test_calls_carry_what_kubelet_sent_while_its_allocations_are_unknown(self, who: str, stage: HookStage) -> None:
        by = policy(cpuManagerPolicy="static", sharedPools=POOLS)
        by = replace(by, node=replace(by.node, cpus_unknown="state is not there"))
        assert decided(pod(who, "Guaranteed", stage, STATUS={"cpuset": "2-3"}), by) == {}

    def test_be_on_its_numa_nodes_only_with_the_be_cpu_manager(self) -> None:
        by = policy(sharedPools=POOLS, beCPUManager=True)
        assert decided(pod("BE", "BestEffort", STATUS=ON_NODE_1), by)["cpuset_cpus"] == "8-13"

    def test_golden_pools(self) -> None:
        """16 CPUs, LSE 0-1, LSR 2-3, system 14, reserved 15."""
        pools = {"ls": [{"cpuset": "4-13"}], "be": [{"cpuset": "2-13"}]}
        by = policy(sharedPools=pools)
        assert decided(pod("LS"), by)["cpuset_cpus"] == "4-13"
        assert decided(pod("BE", "BestEffort"), by)["cpuset_cpus"] == "2-13"

    @pytest.mark.parametrize("stage", [HookStage.CREATE, HookStage.UPDATE])
    def test_bound_cpus_lift_the_quota_unless_told_not_to(self, stage: HookStage) -> None:
        who = pod("LSR", "Guaranteed", stage=stage, requested=Resources(cpu_quota_us=200000), STATUS={"cpuset": "2-3"})
        assert decided(who, policy()) == {"cpuset_cpus": "2-3", "cpu_quota": -1}
        assert decided(who, policy(disableUnsetCPUQuota=True)) == {"cpuset_cpus": "2-3"}

    @pytest.mark.parametrize(
        ("who", "carried"),
        [
            (pod("LSR", "Guaranteed", requested=TWO_CPUS, STATUS={"cpuset": "2-3"}), {"cpuset_cpus": "2-3"}),
            (
                pod("BE", "BestEffort", EXTENDED=extended(request="1500", limit="2000", memory="4Gi")),
                {"cpuset_cpus": ""},
            ),
            (pod("LS", requested=TWO_CPUS), {}),
        ],
    )
    @pytest.mark.parametrize(
        ("node", "restores", "all_of_them"),
        [
            ({}, True, True),
            ({}, False, False),
            ({"limitsInCRI": None}, False, False),
            ({"limitsInCRI": True}, False, True),
            ({"limitsInCRI": False}, True, False),
        ],
    )
    def test_which_calls_carry_limits(
        self, who: Any, carried: dict[str, Any], node: dict[str, Any], restores: bool, all_of_them: bool
    ) -> None:
        """The reconciler asks ``decide``, which always says them."""
        by = policy(**node, cpuNormalizationRatio=1.2)
        edits = engine.decide_call(who, by, NO_LIMITS)
        assert values(edits) == decided(who, by) != carried
        assert values(engine.carried(edits, by, restores=restores)) == (values(edits) if all_of_them else carried)

    def test_a_sandbox_gets_the_lifted_quota_but_no_cpus(self) -> None:
        who = pod("LSR", stage=HookStage.RUN_SANDBOX, container="", STATUS={"cpuset": "2-3"})
        assert decided(who, policy(sharedPools=POOLS)) == {"cpu_quota": -1}


class TestBatch:
    FULL = extended(request="1500", limit="2000", memory="4Gi")

    @pytest.mark.parametrize(
        ("spec", "node", "want"),
        [
            (FULL, {"cpuNormalizationRatio": 1.2}, (1536, 166667, 4294967296)),
            (FULL, {}, (1536, 200000, 4294967296)),
            (extended(request="1"), {}, (2, -1, -1)),
            (extended(request="1k", limit="1"), {}, (1024, 1000, -1)),
            (extended(request="10M", limit="10M"), {}, (262144, 1000000000, -1)),
        ],
    )
    def test_be_containers(self, spec: Any, node: dict[str, Any], want: tuple[int, ...]) -> None:
        found = decided(pod("BE", "BestEffort", EXTENDED=spec), policy(**node))
        assert (found["cpu_shares"], found["cpu_quota"], found["memory_limit_in_bytes"]) == want

    @pytest.mark.parametrize(
        "who",
        [
            pod("LS", EXTENDED=FULL),
            pod("", "BestEffort", EXTENDED=FULL),
            pod("BE", container="other", EXTENDED=FULL),
            pod("BE"),
            pod("BE", EXTENDED=extended()),
        ],
    )
    def test_no_opinion(self, who: Any) -> None:
        assert "cpu_shares" not in decided(who, policy())

    def test_kubelets_period_is_kept(self) -> None:
        who = pod("BE", requested=Resources(cpu_period_us=50000), EXTENDED=self.FULL)
        assert decided(who, policy())["cpu_quota"] == 100000

    def test_its_own_quota_stays_while_be_is_suppressed_by_quota(self) -> None:
        spec = {"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressPolicy": "cfsQuota"}}
        assert decided(pod("BE", EXTENDED=self.FULL), policy(spec=spec))["cpu_quota"] == 200_000

    @pytest.mark.parametrize(
        ("second", "quota", "memory"),
        [
            ({"limit": "500", "memory": "1Gi"}, 250000, 5 << 30),
            ({"limit": "500"}, 250000, -1),
            ({"memory": "1Gi"}, -1, 5 << 30),
        ],
    )
    def test_pod_sums(self, second: dict[str, str], quota: int, memory: int) -> None:
        spec = {"containers": {**self.FULL["containers"], **extended("side", request="500", **second)["containers"]}}
        found = decided(pod("BE", "BestEffort", HookStage.RUN_SANDBOX, "", EXTENDED=spec), policy())
        assert (found["cpu_shares"], found["cpu_quota"], found["memory_limit_in_bytes"]) == (2048, quota, memory)

    @pytest.mark.parametrize(
        ("spec", "want"),
        [
            (
                extended(kind="mid", request="1500", limit="2000", memory="4Gi"),
                {"cpu_shares": 1536, "cpu_quota": 200000, "memory_limit_in_bytes": 4 << 30},
            ),
            (extended(kind="mid", request="1500", limit="2000"), {"cpu_shares": 1536, "cpu_quota": 200000}),
            (extended(kind="mid", memory="4Gi"), {"memory_limit_in_bytes": 4 << 30}),
        ],
    )
    def test_mid(self, spec: Any, want: dict[str, int]) -> None:
        assert decided(pod("LS", band="koord-mid", EXTENDED=spec), policy(cpuNormalizationRatio=1.2)) == want

    def test_old_names_count(self) -> None:
        spec = {"containers": {"main": {"requests": {"koordinator.sh/batch-cpu": 1500}}}}
        assert decided(pod("BE", EXTENDED=spec), policy())["cpu_shares"] == 1536


class TestNormalization:
    REQUESTED = Resources(cpu_quota_us=100000, cpu_period_us=100000)

    @pytest.mark.parametrize(
        ("who", "ratio", "quota"),
        [
            (pod("LS", requested=REQUESTED), 1.2, 83334),
            (pod("", "Guaranteed", requested=REQUESTED), "1.20", 83334),
            (pod("LS", requested=Resources(cpu_quota_us=1000)), 5, 1000),
            (pod("LS", requested=REQUESTED), 1.0, None),
            (pod("LS", requested=REQUESTED), -1, None),
            (pod("LS", requested=Resources(cpu_quota_us=-1)), 1.2, None),
            (pod("LS"), 1.2, None),
            (pod("LSR", requested=REQUESTED), 1.2, None),
            (pod("SYSTEM", requested=REQUESTED), 1.2, None),
            (pod("LS", requested=REQUESTED, STATUS={"cpuset": "1"}), 1.2, -1),
            (pod("", requested=REQUESTED, band="koord-free"), 1.2, None),
        ],
    )
    def test_quota(self, who: Any, ratio: float | str, quota: int | None) -> None:
        assert decided(who, policy(cpuNormalizationRatio=ratio)).get("cpu_quota") == quota

    @pytest.mark.parametrize(
        ("ratio", "requested_us", "quota"),
        [
            (1.2, 83334, 83334),  # our own value came back: scaled once, not twice
            (1.5, 83334, 66667),  # … under a new ratio: from the spec's value
            (1.2, 200000, 166667),  # a resize: from what is asked now
        ],
    )
    def test_never_scaled_twice(self, ratio: float, requested_us: int, quota: int) -> None:
        first = engine.decide(pod("LS", requested=self.REQUESTED), policy(cpuNormalizationRatio=1.2))
        marks = {edit.key: str(edit.value) for edit in first.items if edit.field is Field.ANNOTATION}
        again = pod(
            "LS", stage=HookStage.UPDATE, requested=Resources(cpu_quota_us=requested_us), container_annotations=marks
        )
        assert decided(again, policy(cpuNormalizationRatio=ratio))["cpu_quota"] == quota

    @pytest.mark.parametrize("mark", ["", "x/y", "1", "100000/", "/83334"])
    def test_a_foreign_mark_counts_for_nothing(self, mark: str) -> None:
        who = pod("LS", requested=self.REQUESTED, container_annotations={normalization.ANNOTATION: mark})
        assert normalization.spec_quota_us(who) == 100000


class TestGroupIdentity:
    LS_BE: ClassVar[Spec] = {
        "resourceQOSStrategy": {"lsClass": {"cpuQOS": {"enable": True}}, "beClass": {"cpuQOS": {"enable": True}}}
    }

    @pytest.mark.parametrize(
        ("who", "value"),
        [
            # ls and be enabled, lsr not
            (pod("LS"), "2"),
            (pod("LSR", "Guaranteed"), "0"),
            (pod("", "Guaranteed"), "2"),
            (pod("BE", "BestEffort"), "-1"),
            (pod("LS", CPU_QOS={"enable": True, "groupIdentity": -1}), "-1"),
            (pod("LS", CPU_QOS={"groupIdentity": -1}), "0"),
            (pod("LS", CPU_QOS={"enable": True, "groupIdentity": 3}), "2"),
            (pod("BE", CPU_QOS={"enable": True, "groupIdentity": 1}), "-1"),
            (pod("LSE", "Guaranteed"), "0"),
            (pod("SYSTEM", "Guaranteed"), "0"),
            (pod("", "Burstable"), "2"),
            (pod("", "BestEffort"), "-1"),
            (pod("", "Guaranteed", band="koord-free"), "-1"),
        ],
    )
    def test_values(self, who: Any, value: str) -> None:
        assert decided(who, policy(V2_VENDOR, self.LS_BE)).get("cpu.bvt_warp_ns") == value

    def test_guaranteed_counted_as_lsr_takes_ls_while_lsr_is_off(self) -> None:
        assert (
            decided(pod("", "Guaranteed"), policy(V2_VENDOR, self.LS_BE, guaranteedAs="LSR"))["cpu.bvt_warp_ns"] == "2"
        )

    @pytest.mark.parametrize(
        ("host", "spec"),
        [
            (V1, LS_BE),
            (V2, LS_BE),
            (V2_VENDOR, {}),
            (
                V2_VENDOR,
                {"resourceQOSStrategy": {**LS_BE["resourceQOSStrategy"], "policies": {"cpuPolicy": "coreSched"}}},
            ),
        ],
    )
    def test_inactive(self, host: HostFacts, spec: dict[str, Any]) -> None:
        assert decided(pod("LS"), policy(host, spec)) == {}


class TestMemory:
    BE_ON: ClassVar[Spec] = {"resourceQOSStrategy": {"beClass": {"memoryQOS": {"enable": True, **PERCENTS}}}}
    ALL_ON = of_classes(memoryQOS={"enable": True, **PERCENTS})
    GOLDEN: ClassVar[Spec] = {"memory.min": "429496729", "memory.low": "1073741824", "memory.high": "5583454208"}

    def found(self, who: Any, spec: dict[str, Any], host: HostFacts = V2, **node: Any) -> dict[str, int | str]:
        return {
            key: value
            for key, value in decided(who, policy(host, spec, **MEMORY_QOS, **node)).items()
            if key.startswith("memory.")
        }

    def test_golden(self) -> None:
        who = pod("BE", "BestEffort", EXTENDED=extended(memory_request="2Gi", memory="6Gi"))
        assert self.found(who, self.BE_ON) == self.GOLDEN

    def test_an_unknown_request_decides_nothing_that_needs_it(self) -> None:
        assert self.found(pod("LS", requested=Resources(memory_limit_bytes=6 << 30)), self.ALL_ON) == {}

    def test_unlimited_takes_the_allocatable_memory(self) -> None:
        who = pod("", "BestEffort")
        assert self.found(who, self.ALL_ON, allocatableMemory="10Gi")["memory.high"] == str(8 << 30)
        assert "memory.high" not in self.found(who, self.ALL_ON)

    def test_guaranteed_request_is_its_limit(self) -> None:
        who = pod("LSR", "Guaranteed", requested=Resources(memory_limit_bytes=1 << 30))
        assert self.found(who, self.ALL_ON)["memory.high"] == str(1 << 30)

    @pytest.mark.parametrize(
        ("own", "want"),
        [
            ({"policy": "none"}, {}),
            ({"policy": "none", **PERCENTS}, {}),
            ({"policy": "auto"}, {"memory.min": "0", "memory.low": "0", "memory.high": "max"}),
            ({"policy": "auto", **PERCENTS}, GOLDEN),
            (
                {"lowLimitPercent": 10},
                {"memory.min": "429496729", "memory.low": "429496729", "memory.high": "5583454208"},
            ),
        ],
    )
    def test_the_pods_own_word(self, own: dict[str, Any], want: dict[str, str]) -> None:
        who = pod("BE", EXTENDED=extended(memory_request="2Gi", memory="6Gi"), MEMORY_QOS=own)
        assert self.found(who, self.BE_ON) == want

    def test_off_by_default_and_on_v1(self) -> None:
        who = pod("BE", EXTENDED=extended(memory_request="2Gi", memory="6Gi"))
        assert self.found(who, {}) == {}
        assert self.found(who, self.BE_ON, V1) == {}


class TestResctrl:
    ON = of_classes(resctrlQOS={"enable": True})

    def resctrl_group(
        self, who: Any, host: HostFacts = V2, verified: bool = True, spec: dict[str, Any] | None = None
    ) -> Any:
        by = policy(host, self.ON if spec is None else spec, resctrl={"runtimeVerified": verified})
        return decided(who, by).get(f"annotation {resctrl.ANNOTATION}")

    @pytest.mark.parametrize(
        ("qos", "tier", "band", "resctrl_group"),
        [
            ("LSE", "Guaranteed", "", "LSR"),
            ("LSR", "Guaranteed", "", "LSR"),
            ("LS", "Burstable", "", "LS"),
            ("BE", "BestEffort", "", "BE"),
            ("SYSTEM", "Burstable", "", None),
            ("", "Guaranteed", "", "LS"),
            ("", "BestEffort", "", "BE"),
            ("", "Guaranteed", "koord-free", "BE"),
        ],
    )
    def test_classes(self, qos: str, tier: str, band: str, resctrl_group: str | None) -> None:
        assert self.resctrl_group(pod(qos, tier, HookStage.RUN_SANDBOX, "", band=band)) == resctrl_group

    def test_only_where_it_is_known_to_work(self) -> None:
        who = pod("LS", stage=HookStage.RUN_SANDBOX, container="")
        assert self.resctrl_group(who, verified=False) is None
        assert self.resctrl_group(who, host=replace(V2, resctrl_groups=frozenset({"BE"}))) is None
        assert self.resctrl_group(who, spec={}) is None

    def test_not_where_the_feature_gate_is_off(self) -> None:
        by = policy(V2, self.ON, resctrl={"runtimeVerified": True}, features={resctrl.GATE: False})
        assert resctrl.ANNOTATION not in str(decided(pod("LS", stage=HookStage.RUN_SANDBOX, container=""), by))

    @pytest.mark.parametrize("key", [resctrl.ANNOTATION, "node.koordinator.sh/resctrl"])
    def test_a_pod_that_chose_keeps_its_choice(self, key: str) -> None:
        assert self.resctrl_group(pod("LS", "Burstable", HookStage.RUN_SANDBOX, "", **cast(Any, {key: "{}"}))) is None


@pytest.mark.parametrize("hook", table.HOOK_NAMES)
def test_a_hook_that_is_off_edits_nothing(hook: str) -> None:
    spec = {
        "resourceQOSStrategy": {
            **TestGroupIdentity.LS_BE["resourceQOSStrategy"],
            **TestMemory.BE_ON["resourceQOSStrategy"],
        }
    }
    who = pod("BE", "BestEffort", requested=Resources(cpu_quota_us=1000), EXTENDED=TestBatch.FULL)
    edits = engine.decide(
        who, policy(V2_VENDOR, spec, sharedPools=POOLS, cpuNormalizationRatio=1.2, hooks={hook: False})
    )
    assert hook not in {edit.hook for edit in edits.items}


def test_every_edit_says_who_and_why() -> None:
    edits = engine.decide(pod("BE", "BestEffort", EXTENDED=TestBatch.FULL), policy(V2_VENDOR, TestMemory.BE_ON))
    assert all(edit.hook in table.HOOK_NAMES and len(edit.why) > 10 for edit in edits.items)
