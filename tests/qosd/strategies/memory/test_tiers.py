"""The strategy ``memoryTiers``: what kubelet's tiers protect of their pods, and what stands in for it on cgroup v1."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from koord.host.files import Target
from koord.model import formulas
from koord.model.qos import KubeQoS
from qosd.act.composition import StagedOpinion, compose
from qosd.decide import gates
from qosd.decide.decision import Decision, Op, Stage
from qosd.hooks import memory
from qosd.model.policy import EffectivePolicy, HostFacts, Pool
from qosd.model.snapshot import NodeSnapshot, PodView
from qosd.strategies import formulas as all_formulas
from qosd.strategies.memory.tiers import MemoryTiers
from tests.qosd.contexts import MEMORY_QOS, V2, extended, policy
from tests.qosd.podviews import EXITED, NOT_READY, snapshot, view

GIB = 1 << 30
ROOT, BURSTABLE, BESTEFFORT = "/kubepods", "/kubepods/burstable", "/kubepods/besteffort"
TIERS = {KubeQoS.GUARANTEED: ROOT, KubeQoS.BURSTABLE: BURSTABLE, KubeQoS.BEST_EFFORT: BESTEFFORT}
PERCENTS: dict[str, Any] = {"minLimitPercent": 20, "lowLimitPercent": 50, "throttlingPercent": 80}
MIN, LOW, SOFT = "memory.min", "memory.low", "memory.soft_limit_in_bytes"
STOCK = replace(V2, files=frozenset({MIN, LOW, "memory.high", "memory.oom.group"}))
VENDOR = replace(STOCK, files=frozenset(memory.ROWS))
V1 = HostFacts(1, files=frozenset({SOFT, "memory.force_empty"}))
V1_VENDOR = HostFacts(1, files=frozenset({MIN, LOW, SOFT}))


def by(host: HostFacts, *classes: str, allocatable: str = "64Gi", **settings: Any) -> EffectivePolicy:
    strategy = {f"{name}Class": {"memoryQOS": {"enable": True, **settings}} for name in classes}
    return policy(host, {"resourceQOSStrategy": strategy}, allocatableMemory=allocatable, **MEMORY_QOS)


def node(policy: EffectivePolicy, *pods: PodView) -> NodeSnapshot:
    return structs.replace(snapshot(policy, *pods), tiers=TIERS)


def decided(policy: EffectivePolicy, *pods: PodView) -> Decision:
    return MemoryTiers().decide(node(policy, *pods), None)[0]


def values(decision: Decision) -> dict[tuple[str, str], Any]:
    return {(target.cgroup, target.name): opinion.value for target, opinion in decision.opinions.items()}


def ls(name: str, request_bytes: int | None = 2 * GIB, tier: str = "Burstable", **said: Any) -> PodView:
    return view(name, "LS", tier, memory_request_bytes=request_bytes, **said)


def be(name: str, request: str = "2Gi") -> PodView:
    return view(name, "BE", "BestEffort", EXTENDED=extended(memory_request=request, memory="6Gi"))


ALL = ("lsr", "ls", "be", "system")
SHARE_MIN, SHARE_LOW = 429496729, 1073741824
"""20 % and 50 % of 2 GiB."""


@pytest.mark.parametrize(
    ("classes", "pods", "expected"),
    [
        ((), (ls("a"), be("b")), {}),
        (("ls",), (be("b"),), {}),
        (("ls",), (ls("a"),), {ROOT: (SHARE_MIN, SHARE_LOW), BURSTABLE: (SHARE_MIN, SHARE_LOW)}),
        # Kubernetes' QoS, not the label: an LS pod may be in any tier; the root has the sum of all three
        (
            ALL,
            (ls("a"), ls("b"), ls("g", tier="Guaranteed"), be("c")),
            {
                ROOT: (4 * SHARE_MIN, 4 * SHARE_LOW),
                BURSTABLE: (2 * SHARE_MIN, 2 * SHARE_LOW),
                BESTEFFORT: (SHARE_MIN, SHARE_LOW),
            },
        ),
        (ALL, (view("s", "SYSTEM", memory_request_bytes=2 * GIB),), {
            ROOT: (SHARE_MIN, SHARE_LOW), BURSTABLE: (SHARE_MIN, SHARE_LOW)}),
        # nobody tells the request: it protects nothing
        (ALL, (ls("a"), ls("b", None)), {ROOT: (SHARE_MIN, SHARE_LOW), BURSTABLE: (SHARE_MIN, SHARE_LOW)}),
        (ALL, (ls("a", state=NOT_READY, containers=[("main", EXITED)]),), {}),
        (ALL, (ls("a", MEMORY_QOS={"policy": "none"}),), {}),
        (ALL, (ls("a", MEMORY_QOS={"minLimitPercent": 100}),), {
            ROOT: (2 * GIB, 2 * GIB), BURSTABLE: (2 * GIB, 2 * GIB)}),
    ],
)  # fmt: skip
def test_sums(classes: Any, pods: Any, expected: dict[str, tuple[int, int]]) -> None:
    for host in (STOCK, V1_VENDOR):
        found = values(decided(by(host, *classes, **PERCENTS), *pods))
        assert found == {
            (cgroup, row): amount
            for cgroup, amounts in expected.items()
            for row, amount in zip((MIN, LOW), amounts, strict=True)
        }


@pytest.mark.parametrize(("kubelets", "holds"), [(0, SHARE_MIN), (SHARE_MIN - 1, SHARE_MIN), (2 * GIB, 2 * GIB)])
def test_never_less_than_kubelet_protects(kubelets: int, holds: int) -> None:
    """Its gate MemoryQoS writes the requests themselves."""
    opinion = decided(by(STOCK, "ls", **PERCENTS), ls("a")).opinions[Target(BURSTABLE, MIN)]
    assert opinion.op is Op.AT_LEAST
    composed = compose(MIN, [StagedOpinion("memoryTiers", Stage.SPEC, opinion)], kubelets)
    assert composed.value == holds
    assert formulas.recompute(composed.inputs, all_formulas()) == holds


@pytest.mark.parametrize(
    ("allocatable", "root", "burstable", "warns"),
    [
        ("8Gi", 2 * GIB, GIB, False),
        ("2Gi", 2 * GIB, GIB, False),
        ("1Gi", GIB, GIB, True),
        ("512Mi", GIB // 2, GIB // 2, True),
    ],
)
def test_no_more_than_is_allocatable(allocatable: str, root: int, burstable: int, warns: bool) -> None:
    """Else nothing would be left to take from when the daemons of the system need memory."""
    asked = by(STOCK, "ls", allocatable=allocatable, lowLimitPercent=50)
    decision = decided(asked, ls("a"), ls("b", tier="Guaranteed"))
    assert values(decision) == {(ROOT, LOW): root, (BURSTABLE, LOW): burstable}
    assert [warning.partition(":")[0] for warning in decision.warnings] == (
        [f"the pods ask for {2 * GIB} bytes of memory.low, more than the {root} that are allocatable"] if warns else []
    )


def test_without_the_nodes_memory_nothing_is_bounded() -> None:
    asked = by(STOCK, "ls", **PERCENTS)
    asked = replace(asked, node=replace(asked.node, allocatable_memory_bytes=None))
    assert values(decided(asked, ls("a", 1 << 50)))[ROOT, LOW] == 1 << 49


def test_the_order_of_oom_kills_is_that_of_the_class_that_the_tier_stands_for() -> None:
    """A group kill is no tier's, whatever the class says: it would be every pod's."""
    strategy = {
        "lsrClass": {"memoryQOS": {"enable": True, "priority": 9, "priorityEnable": 1, "oomKillGroup": 1}},
        "lsClass": {"memoryQOS": {"enable": True, "priority": 6, "oomKillGroup": 1}},
        "beClass": {"memoryQOS": {"enable": False, "priority": 1}},
    }
    found = values(decided(policy(VENDOR, {"resourceQOSStrategy": strategy}, **MEMORY_QOS)))
    names = "memory.priority", "memory.use_priority_oom"
    assert found == {(ROOT, names[0]): 9, (ROOT, names[1]): 1, (BURSTABLE, names[0]): 6, (BURSTABLE, names[1]): 0}
    assert values(decided(policy(STOCK, {"resourceQOSStrategy": strategy}, **MEMORY_QOS))) == {}


class TestOnV1:
    """Of mainline: soft limits of pods' own cgroups, and only where somebody is protected."""

    @pytest.mark.parametrize(
        ("classes", "pods", "expected"),
        [
            ((), (ls("a"), be("b")), {}),
            (("ls",), (ls("a"),), {"poda": SHARE_LOW}),
            (("ls",), (ls("a"), be("b")), {"poda": SHARE_LOW, "podb": 0}),
            (("ls", "be"), (ls("a"), be("b")), {"poda": SHARE_LOW, "podb": SHARE_LOW}),
            (("ls",), (ls("a"), view("g", "LSR", "Guaranteed")), {"poda": SHARE_LOW}),
            (("ls",), (ls("a", None), be("b")), {}),
            (("ls",), (ls("a", 0), be("b")), {}),
            (("ls",), (ls("a"), ls("u", None), view("n", "", "BestEffort")), {"poda": SHARE_LOW, "podn": 0}),
        ],
    )
    def test_soft_limits(self, classes: Any, pods: Any, expected: dict[str, int]) -> None:
        decision = decided(by(V1, *classes, **PERCENTS), *pods)
        assert {cgroup.rpartition("/")[2]: value for (cgroup, _), value in values(decision).items()} == expected
        assert {target.name for target in decision.opinions} <= {SOFT}

    def test_what_is_lacking_is_said(self) -> None:
        asked = by(V1, "ls", **PERCENTS)
        assert decided(asked, ls("a"), be("b")).sentence == (
            "cgroup v1 has no memory.min and no memory.low: memory.soft_limit_in_bytes of 2 pods stands in for "
            "memory.low, nothing for memory.min"
        )
        without = by(replace(V1, files=frozenset()), "ls", **PERCENTS)
        assert values(decided(without, ls("a"), be("b"))) == {}


def test_what_is_said() -> None:
    asked = by(STOCK, *ALL, **PERCENTS)
    assert decided(asked, ls("a"), ls("b", None)).sentence == (
        f"{SHARE_MIN} bytes of memory.min and {SHARE_LOW} of memory.low of 2 pods; "
        "the memory request of 1 of them is unknown (--kubelet-endpoint)"
    )


def test_off_with_the_hook_and_behind_the_gate() -> None:
    assert MemoryTiers().enabled(node(policy(STOCK)))
    assert not MemoryTiers().enabled(node(policy(STOCK, hooks={"memory": False})))
    shut = "feature gate CgroupReconcile is off (default)"
    assert (gates.why_shut(MemoryTiers(), policy(STOCK)), gates.why_shut(MemoryTiers(), by(STOCK))) == (shut, "")


class TestMemo:
    def test_an_unchanged_tick_returns_the_same_objects(self) -> None:
        strategy, asked, pods = MemoryTiers(), by(STOCK, "ls", **PERCENTS), (ls("a"), ls("b"))
        first, memory = strategy.decide(node(asked, *pods), None)
        again, same = strategy.decide(structs.replace(node(asked), pods=memory.pods), memory)
        assert (again is first, same is memory) == (True, True)
        pools = replace(asked, node=replace(asked.node, be_pools=(Pool(0, 0, "0-1"),)))
        others = structs.replace(node(pools), pods=memory.pods)
        assert strategy.decide(others, memory)[0] is first, "CPU pools are none of its business"
        equal = by(STOCK, "ls", **PERCENTS)
        assert strategy.decide(node(equal, ls("a"), ls("b")), memory)[0] is first

    def test_another_policy_is_another_decision(self) -> None:
        strategy, pods = MemoryTiers(), (ls("a"),)
        _, memory = strategy.decide(node(by(STOCK, "ls", **PERCENTS), *pods), None)
        assert strategy.decide(node(by(STOCK), *pods), memory)[0].opinions == {}
        assert strategy.decide(node(by(V1, "ls", **PERCENTS), *pods), memory)[0].sentence.startswith("cgroup v1")

    @given(st.lists(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 2**40), max_size=6), max_size=5))
    def test_remembering_changes_nothing_and_the_root_has_the_sum(self, ticks: list[dict[str, int]]) -> None:
        asked, strategy, memory = by(STOCK, *ALL, allocatable="1Ei", **PERCENTS), MemoryTiers(), None
        tier_of = dict(zip("abcdef", ("Guaranteed", "Burstable", "BestEffort") * 2, strict=True))
        for requests in ticks:
            pods = [view(name, "LS", tier_of[name], memory_request_bytes=one) for name, one in requests.items()]
            decision, memory = strategy.decide(node(asked, *pods), memory)
            assert decision.opinions == decided(asked, *pods).opinions
            held = values(decision)
            for row, percent in ((MIN, 20), (LOW, 50)):
                by_tier = dict.fromkeys(("Guaranteed", "Burstable", "BestEffort"), 0)
                for name, request_bytes in requests.items():
                    by_tier[tier_of[name]] += request_bytes * percent // 100
                assert held.get((ROOT, row), 0) == sum(by_tier.values())
                assert held.get((BURSTABLE, row), 0) == by_tier["Burstable"]
                assert held.get((BESTEFFORT, row), 0) == by_tier["BestEffort"]


def test_every_value_can_be_computed_from_its_inputs() -> None:
    decision = decided(by(VENDOR, *ALL, allocatable="3Gi", priority=2, **PERCENTS), ls("a"), ls("g", 8 * GIB), be("b"))
    assert len(decision.opinions) > 8
    for opinion in decision.opinions.values():
        assert formulas.recompute(opinion.inputs, all_formulas()) == opinion.value
