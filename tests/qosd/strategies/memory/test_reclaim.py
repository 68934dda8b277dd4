"""The strategy ``memoryReclaim``: whose memory is reclaimed, by which samples, and what it says where it cannot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from koord.model import formulas
from koord.model.qos import KubeQoS
from qosd.decide import gates
from qosd.decide.decision import Decision
from qosd.model.metric import Scope
from qosd.model.pod import Resources
from qosd.model.policy import EffectivePolicy, HostFacts
from qosd.model.snapshot import NodeSnapshot, PodFacts, PodView
from qosd.sense.pressure import PRESSURE
from qosd.sense.stalls import STALLS
from qosd.sense.usage import USAGE
from qosd.strategies import formulas as all_formulas
from qosd.strategies.memory.reclaim import MOST_ORDERS, MemoryReclaim
from tests.fakes.clock import S
from tests.qosd.contexts import MEMORY_QOS, V2, extended, policy
from tests.qosd.podviews import EXITED, NOT_READY, snapshot, view

MIB, GIB = 1 << 20, 1 << 30
STOCK_FILES = frozenset({"memory.high", "memory.reclaim"})
STOCK = replace(V2, files=STOCK_FILES, kernel=(6, 1))
V1 = HostFacts(1, files=frozenset({"memory.force_empty"}), kernel=(6, 18))
NO_PSI = {"pressure": "no /proc/pressure: the kernel has no PSI, or was booted with psi=0"}
LIMITED = Resources(memory_limit_bytes=GIB)


def by(host: HostFacts = STOCK, *classes: str, **settings: Any) -> EffectivePolicy:
    strategy = {f"{name}Class": {"memoryQOS": {"enable": True, **settings}} for name in classes}
    return policy(host, {"resourceQOSStrategy": strategy}, allocatableMemory="64Gi", **MEMORY_QOS)


def be(name: str = "b", **more: Any) -> PodView:
    return view(name, "BE", "BestEffort", EXTENDED=extended(memory_request="1Gi", memory="4Gi"), **more)


def ls(name: str = "l", qos: str = "LS", **more: Any) -> PodView:
    return view(name, qos, container_requested=LIMITED, **more)


def kata(pod: PodView) -> PodView:
    return structs.replace(pod, facts=PodFacts(runtime_class="kata"))


Charges = Mapping[str, tuple[float, float]]
"""By pod, or ``pod/container``: MiB of all pages, and of file pages among them."""


def at(
    second: float,
    by: EffectivePolicy,
    pods: tuple[PodView, ...],
    charges: Charges,
    stall: Mapping[str, float] | float = 0.0,
    refaults: Mapping[str, float] | float = 0.0,
    absent: Mapping[str, str] | None = None,
    sampled_s: float | None = None,
) -> NodeSnapshot:
    values: dict[Any, dict[str, float]] = {}
    for pod in pods:
        for scope, name, cgroup in (
            (Scope.POD, pod.name, pod.cgroup),
            *((Scope.CONTAINER, f"{pod.name}/{one.name}", one.cgroup) for one in pod.containers if not one.is_sandbox),
        ):
            row, (all_mib, file_mib) = USAGE[scope], charges.get(name, (0, 0))
            figures = {
                row.memory_with_page_cache_bytes: all_mib * MIB,
                row.memory_usage_bytes: (all_mib - file_mib) * MIB,
                row.memory_refaults_per_s: refaults if isinstance(refaults, int | float) else refaults.get(name, 0.0),
            }
            if absent is None:
                its = stall if isinstance(stall, int | float) else stall.get(name, 0.0)
                figures[PRESSURE[scope].memory_pressure_some_us_per_s] = its
            for metric, value in figures.items():
                values.setdefault(metric, {})[cgroup] = value
    return structs.replace(
        snapshot(by, *pods),
        monotonic_ns=int(second * S),
        sampled_ns=int((second if sampled_s is None else sampled_s) * S),
        values=values,
        absent=absent or {},
        tiers={KubeQoS.GUARANTEED: "/kubepods"},
    )


def orders(decision: Decision) -> dict[str, object]:
    return {shot.target.cgroup.partition("/pod")[2]: shot.value for shot in decision.one_shots}


def first(*args: Any, **more: Any) -> dict[str, object]:
    return orders(MemoryReclaim().decide(at(100, *args, **more), None)[0])


def pages(mib: float) -> int:
    return int(mib * MIB) // 4096 * 4096


HIGH_MIB = 1024 * 0.95
"""Of a limit of 1 GiB; the low mark is at 93 %: 952.32 MiB."""
FULL: Charges = {"b": (2048, 1024), "b/main": (2048, 1024), "l": (1000, 800), "l/main": (1000, 800)}
B, L = be(), ls()


@pytest.mark.parametrize(
    ("policy", "pods", "charges", "expected"),
    [
        # nobody asks
        (by(STOCK), (B, L), FULL, {}),
        (by(STOCK, "be", "ls", wmarkRatio=0), (B, L), FULL, {}),
        (replace(by(STOCK, "be"), host=replace(STOCK, files=None)), (B,), FULL, {}),
        # a best-effort pod is probed; who is latency-sensitive only where its class says so, and above its mark
        (by(STOCK, "be"), (B, L), FULL, {"b": pages(20.48)}),
        (by(STOCK, "ls"), (B, L), FULL, {"l/main": pages(47.68)}),
        (by(STOCK, "ls"), (L,), {"l/main": (HIGH_MIB, 800)}, {}),
        (by(STOCK, "ls"), (L,), {"l/main": (HIGH_MIB + 0.1, 800)}, {"l/main": pages(20.58)}),
        (by(STOCK, "lsr"), (ls(qos="LSR"),), FULL, {"l/main": pages(47.68)}),
        (by(STOCK, "system", wmarkRatio=95, wmarkScalePermill=20), (ls(qos="SYSTEM"),), FULL,
         {"l/main": pages(47.68)}),
        (by(STOCK, "ls"), (view("l", "LS"),), FULL, {}),  # without a bound there is no mark
        # what cannot be freed: anonymous memory without swap
        (by(STOCK, "ls"), (L,), {"l/main": (1000, 0)}, {}),
        (by(replace(STOCK, swap_total_bytes=GIB), "ls"), (L,), {"l/main": (1000, 0)}, {"l/main": pages(47.68)}),
        (by(STOCK, "be"), (B,), {"b": (2048, 3)}, {"b": 3 * MIB}),
        # of a best-effort pod not what it is protected of, nor the last 16 MiB
        (by(STOCK, "be", lowLimitPercent=100), (B,), {"b": (1024, 900)}, {}),
        (by(STOCK, "be", lowLimitPercent=100), (B,), {"b": (1030, 900)}, {"b": 6 * MIB}),
        # the guest's memory, and who is no more
        (by(STOCK, "be", "ls"), (kata(B), kata(L)), FULL, {}),
        (by(STOCK, "be"), (be(state=NOT_READY, containers=[("main", EXITED)]),), FULL, {}),
        (by(STOCK, "ls"), (ls(containers=[("main", EXITED)]),), FULL, {}),
        # the kernel's own
        (by(replace(STOCK, files=STOCK_FILES | {"memory.wmark_ratio"}), "be", "ls"), (B, L), FULL, {}),
        (by(V1, "be", "ls"), (B, L), FULL, {}),
    ],
)  # fmt: skip
def test_whose_memory(policy: EffectivePolicy, pods: Any, charges: Charges, expected: dict[str, object]) -> None:
    assert first(policy, pods, charges) == expected


CACHE = {"wmarkRatio": 0, "pageCacheLimitSize": 100 * MIB}


@pytest.mark.parametrize(
    ("host", "settings", "charges", "expected"),
    [
        (STOCK, CACHE, {"l": (500, 130)}, {"l": 30 * MIB}),
        (STOCK, CACHE, {"l": (500, 100)}, {}),
        (STOCK, {**CACHE, "pageCacheEnable": False}, {"l": (500, 130)}, {}),
        (STOCK, {"wmarkRatio": 0, "pageCacheLimitPercent": 10}, {"l": (500, 130)}, {}),  # the pod has no limit
        # with swap only a kernel that can be told to leave anonymous memory alone
        (replace(STOCK, swap_total_bytes=GIB), CACHE, {"l": (500, 130)}, {}),
        (replace(STOCK, swap_total_bytes=GIB, kernel=(6, 10)), CACHE, {"l": (500, 130)}, {}),
        (replace(STOCK, swap_total_bytes=GIB, kernel=(6, 11)), CACHE, {"l": (500, 130)}, {
            "l": f"{30 * MIB} swappiness=0"}),
        (replace(STOCK, files=STOCK_FILES | {"memory.pagecache_limit.size"}), CACHE, {"l": (500, 130)}, {}),
    ],
)  # fmt: skip
def test_page_cache_limits(host: HostFacts, settings: Any, charges: Charges, expected: dict[str, object]) -> None:
    assert first(by(host, "ls", **settings), (L,), charges) == expected
    absent = first(by(host, "ls", **settings), (L,), charges, absent=NO_PSI)
    assert absent == expected, "a limit does not ask whether it hurts"


def test_a_mark_is_of_memory_high_where_that_is_less() -> None:
    """B = min(high, limit): request 0, limit 1 GiB, throttling from 50 % on."""
    settings = {"throttlingPercent": 50, "wmarkRatio": 90, "wmarkScalePermill": 100}
    guaranteed = view("l", "LSR", "Guaranteed", container_requested=LIMITED)
    assert first(by(STOCK, "lsr", **settings), (guaranteed,), {"l/main": (1000, 800)}) != {}
    batch = view("b", "BE", "BestEffort", EXTENDED=extended(memory="1Gi"))
    marks = {"b/main": (470, 400)}
    assert first(by(STOCK, "be", **settings), (batch,), marks) == {"b/main": pages(60.4)}
    assert first(by(STOCK, "be", **settings), (batch,), {"b/main": (460, 400)}) == {}


class TestStall:
    def test_beyond_the_budget_a_best_effort_pod_is_left_alone(self) -> None:
        assert first(by(STOCK, "be"), (B,), FULL, stall=1000.0) == {}

    def test_who_is_measured_every_second_goes_by_that(self) -> None:
        strategy, asked = MemoryReclaim(), by(STOCK, "ls")
        calm = at(100, asked, (L,), {"l/main": (1000, 800)}, stall=0.0)
        decision, memory = strategy.decide(calm, None)
        assert orders(decision)
        strained = at(106, asked, (L,), {"l/main": (1000, 800)}, stall=0.0)
        stalls = {STALLS[Scope.CONTAINER].memory_stall_some_us_per_s: {L.containers[1].cgroup: 5000.0}}
        decision, _ = strategy.decide(structs.replace(strained, values={**strained.values, **stalls}), memory)
        assert orders(decision) == {}

    def test_a_first_reading_tells_no_stall(self) -> None:
        picture = at(100, by(STOCK, "be"), (B,), FULL)
        blind = {metric: found for metric, found in picture.values.items() if "pressure" not in metric.name}
        strategy = MemoryReclaim()
        decision, memory = strategy.decide(structs.replace(picture, values=blind), None)
        assert orders(decision) == {}
        assert orders(strategy.decide(at(101, by(STOCK, "be"), (B,), FULL), memory)[0]) != {}, "and costs no pause"

    def test_an_order_of_which_the_kernel_took_less_is_in_vain(self) -> None:
        strategy, asked = MemoryReclaim(), by(STOCK, "be")
        decision, memory = strategy.decide(at(100, asked, (B,), FULL), None)
        (order,) = decision.one_shots
        for result, expected in (("done", True), ("failed EAGAIN", False)):
            later = structs.replace(at(120, asked, (B,), FULL), one_shots={order.target: result})
            assert bool(orders(strategy.decide(later, memory)[0])) is expected

    def test_refaults_of_all_the_time_since_count(self) -> None:
        """20 MiB were taken; 128 pages a second for 20 s are 10 MiB, one more is too many."""
        for rate, expected in ((128, True), (140, False)):
            strategy, asked, memory = MemoryReclaim(), by(STOCK, "be"), None
            decision, memory = strategy.decide(at(100, asked, (B,), FULL), memory)
            assert orders(decision)
            given: dict[str, object] = {}
            for second in range(101, 121):
                decision, memory = strategy.decide(at(second, asked, (B,), FULL, refaults=float(rate)), memory)
                given = orders(decision)
            assert bool(given) is expected, rate


class TestTicks:
    def test_a_quiet_node_returns_the_same_objects(self) -> None:
        strategy, asked, quiet = MemoryReclaim(), by(STOCK, "be", "ls"), {"b": (10, 5), "l/main": (500, 400)}
        first, memory = strategy.decide(at(100, asked, (B, L), quiet), None)
        for second in range(101, 110):
            picture = structs.replace(at(second, asked, (B, L), quiet), pods=memory.pods)
            again, after = strategy.decide(picture, memory)
            assert again is first
            assert after.probes is memory.probes
            memory = after

    def test_no_sample_counts_twice(self) -> None:
        """Ticks between two beats have the samples of the first."""
        strategy, asked = MemoryReclaim(), by(STOCK, "ls", **CACHE)
        decision, memory = strategy.decide(at(100, asked, (L,), {"l": (500, 130)}), None)
        assert orders(decision)
        late = structs.replace(at(200, asked, (L,), {"l": (500, 130)}, sampled_s=100), pods=memory.pods)
        again, memory = strategy.decide(late, memory)
        assert orders(again) == {}
        assert again.one_shots == ()
        fresh = structs.replace(at(200, asked, (L,), {"l": (500, 130)}), pods=memory.pods)
        assert orders(strategy.decide(fresh, memory)[0])

    def test_orders_of_a_tick_are_few_and_everybody_has_his_turn(self) -> None:
        pods = tuple(be(f"b{number}") for number in range(11))
        charges = {pod.name: (2048.0, 1024.0) for pod in pods}
        strategy, asked, memory, served = MemoryReclaim(), by(STOCK, "be"), None, list[str]()
        for second in range(100, 104):
            decision, memory = strategy.decide(at(second, asked, pods, charges), memory)
            assert len(decision.one_shots) <= MOST_ORDERS
            served += orders(decision)
        assert sorted(served) == sorted(pod.name for pod in pods)

    def test_what_is_known_of_a_pod_outlasts_another_view_of_it(self) -> None:
        strategy, asked = MemoryReclaim(), by(STOCK, "be")
        _, memory = strategy.decide(at(100, asked, (B,), FULL), None)
        decision, memory = strategy.decide(at(105, asked, (structs.replace(B), ls("other")), FULL), memory)
        assert orders(decision) == {}, "it is not its turn"
        _, memory = strategy.decide(at(106, asked, (), {}), memory)
        assert memory.probes == {}


@pytest.mark.parametrize(
    ("host", "absent", "sentence"),
    [
        (STOCK, None, "idle memory is looked for in 1 pod, 2 containers below a mark; page-cache limits of 1 pod"),
        (
            STOCK,
            NO_PSI,
            "no background reclaim: without pressure files (PSI) nobody can tell whether it hurts; "
            "page-cache limits of 1 pod",
        ),
        (
            replace(STOCK, swap_total_bytes=GIB),
            None,
            "idle memory is looked for in 1 pod, 2 containers below a mark; page-cache limits of 0 pods; "
            "no page-cache limit is kept: with swap, file pages alone are reclaimed from Linux 6.11 on",
        ),
        (
            replace(STOCK, files=frozenset({"memory.high"})),
            None,
            "this kernel, before Linux 5.19, has no memory.reclaim: neither background reclaim nor page-cache limits",
        ),
        (V1, None, "cgroup v1 has no memory.reclaim: neither background reclaim nor page-cache limits"),
        (
            replace(V1, files=frozenset({"memory.wmark_ratio"})),
            None,
            "cgroup v1 has no memory.reclaim: the kernel's own memory.wmark_ratio",
        ),
        (
            replace(STOCK, files=frozenset({"memory.reclaim", "memory.wmark_ratio"})),
            None,
            "background reclaim is the kernel's own (memory.wmark_ratio); page-cache limits of 1 pod",
        ),
        (
            replace(STOCK, files=None),
            None,
            "whether this kernel has memory.reclaim is not known before kubelet has made its cgroups",
        ),
    ],
)
def test_what_is_said(host: HostFacts, absent: Any, sentence: str) -> None:
    asked = by(host, "be", "ls")
    limited = ls(MEMORY_QOS={"pageCacheLimitSize": 100 * MIB})
    assert MemoryReclaim().decide(at(100, asked, (B, limited), {}, absent=absent), None)[0].sentence == sentence


def test_behind_the_gate_and_off_with_the_hook() -> None:
    assert gates.why_shut(MemoryReclaim(), policy(STOCK)) == "feature gate CgroupReconcile is off (default)"
    assert not MemoryReclaim().enabled(snapshot(policy(STOCK, hooks={"memory": False})))


def test_why_and_how_much_can_be_computed_again() -> None:
    decision, _ = MemoryReclaim().decide(at(100, by(STOCK, "be", "ls"), (B, L), FULL, stall={"b": 250.0}), None)
    assert len(decision.one_shots) == 2
    for shot in decision.one_shots:
        assert formulas.recompute(shot.inputs, all_formulas()) == shot.value
    whys = {shot.pod: shot.why for shot in decision.one_shots}
    assert whys == {
        "default/b": "memory that a best-effort pod does not use is probed for, memoryQOS of BE: "
        f"{2048 * MIB} bytes, memory stall 250 us/s of at most 1000",
        "default/l": f"above 95 % of its bound, which is {GIB * 95 // 100} bytes, memoryQOS of LS: "
        f"{1000 * MIB} bytes, memory stall 0 us/s of at most 1000",
    }
