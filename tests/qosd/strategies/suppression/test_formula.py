"""Koordinator's formula and its two policies: worked examples, and the edges."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model import cpuset
from koord.model.slo import CgroupBase
from qosd.model.besteffort import BestEffortScheduling
from qosd.model.snapshot import NodeSnapshot
from qosd.strategies.suppression import allowance, formula
from qosd.strategies.suppression.allowance import allowance_milli, uses_of
from qosd.strategies.suppression.formula import Steady
from qosd.strategies.suppression.strategy import SuppressionStrategy
from tests.qosd.podviews import machine, view
from tests.qosd.strategies.suppression.scenes import app, suppressing, using

LS, BE = view("ls", "LS"), view("be", "BE", "BestEffort")
RESERVED = {"reservation": {"resources": {"cpu": "1500m"}}}
EXAMPLE: dict[str, Any] = {"apps": [app("daemon", "LS")], "node": RESERVED}


def example(left: BestEffortScheduling | None = None, **more: Any) -> NodeSnapshot:
    """32 CPUs, threshold 65: the node uses 14, LS pods 8, BE pods 3, a host application 1; 1.5 are reserved."""
    return using(suppressing(**{**EXAMPLE, **more}), 14.0, (LS, 8.0), (BE, 3.0), apps={"daemon": 1.0}, left=left)


def allowed(snapshot: NodeSnapshot, percent: int = 65, least: int | None = None) -> int:
    uses = uses_of(snapshot)
    assert uses is not None
    return allowance_milli(uses, percent, least)


class TestAllowance:
    def test_the_worked_example(self) -> None:
        uses = uses_of(example())
        assert uses is not None
        assert (uses.system_milli, uses.best_effort_milli, allowance_milli(uses, 65)) == (2000, 3000, 9800)

    @pytest.mark.parametrize(
        ("pod", "counts"),
        [
            (view("p", "LS"), 8000),
            (view("p", "LSR", "Guaranteed"), 8000),
            (view("p", "SYSTEM"), 8000),
            (view("p"), 8000),
            (view("p", "LS", "BestEffort"), 8000),
            (view("p", "", "BestEffort", band="koord-mid"), 8000),
            (view("p", "", "BestEffort"), 0),
            (view("p", "BE"), 0),
            (view("p", "", band="koord-free"), 0),
        ],
        ids=["LS", "LSR", "SYSTEM", "no label", "LS in BestEffort", "mid", "BestEffort", "BE in Burstable", "free"],
    )
    def test_others_are_told_by_their_class(self, pod: Any, counts: int) -> None:
        assert allowed(using(suppressing(), 8.0, (pod, 8.0))) == 20_800 - counts

    @pytest.mark.parametrize(
        ("application", "counts"),
        [
            (app("a", "LS"), 2000),
            (app("a", "BE"), 2000),
            (app("a", "BE", CgroupBase.KUBEPODS), 2000),
            (app("a", "BE", CgroupBase.KUBEPODS_BESTEFFORT), 0),
            (app("a", "LS", CgroupBase.KUBEPODS_BESTEFFORT), 2000),
        ],
    )
    def test_of_host_applications_only_be_below_the_tier(self, application: Any, counts: int) -> None:
        snapshot = using(suppressing([application]), 2.0, apps={"a": 2.0})
        assert allowed(snapshot) == 20_800 - counts

    @pytest.mark.parametrize(
        ("node_cores", "pods_cores", "reserved", "system"),
        [(14.0, 11.0, 0, 3000), (14.0, 11.0, 4000, 4000), (10.0, 11.0, 0, 0), (10.0, 11.0, 500, 500)],
        ids=["measured", "reserved", "samples of two moments", "never less than reserved"],
    )
    def test_the_systems_part(self, node_cores: float, pods_cores: float, reserved: int, system: int) -> None:
        by = suppressing(node={"reservation": {"resources": {"cpu": f"{reserved}m"}}})
        uses = uses_of(using(by, node_cores, (LS, pods_cores)))
        assert uses is not None
        assert uses.system_milli == system

    def test_a_pod_without_a_sample_is_in_the_systems_part(self) -> None:
        assert allowed(using(suppressing(), 8.0, (LS, float("nan")))) == 12_800

    @pytest.mark.parametrize(("least", "milli"), [(None, -11_200), (0, 0), (10, 3200), (100, 32_000)])
    def test_the_least(self, least: int | None, milli: int) -> None:
        assert allowed(using(suppressing(), 32.0, (LS, 32.0)), least=least) == milli

    @pytest.mark.parametrize("cores", [None, float("nan")])
    def test_without_a_sample_of_the_node_there_is_none(self, cores: float | None) -> None:
        snapshot = using(suppressing(), 0.0 if cores is None else cores)
        if cores is None:
            snapshot.values[allowance.NODE].clear()  # type: ignore[attr-defined]
        assert uses_of(snapshot) is None


class TestCPUSets:
    @pytest.mark.parametrize(
        ("allowance", "before", "size"),
        [
            (9800, "0-5", 10),
            (9800, "0-3", 8),
            (9800, "", 10),
            (-3000, "0-9", 2),
            (-3000, "0-1", 2),
            (99_000, "0-9", 14),
            (2001, "0-9", 3),
            (9800, "40", 5),
        ],
        ids=["worked", "growth is limited", "from all", "the floor", "at the floor", "growth", "up", "elsewhere"],
    )
    def test_how_many(self, allowance: int, before: str, size: int) -> None:
        assert len(formula.cpus(using(suppressing(), 0.0), allowance, before)) == size

    @pytest.mark.parametrize(
        ("cpus", "before", "lse", "allowance", "may_grow", "chosen"),
        [
            (8, "6-7", "7", 3000, True, "0-1,6"),
            (8, "6-7", "7", 9000, True, "0-1,6"),
            (8, "6-7", "7", 3000, False, "0,6"),
            (8, "6-7", "6-7", 9000, True, "0-2"),
            (8, "6-7", "6-7", 9000, False, "0-1"),
            (16, "6-7", "7", 9000, True, "0-2,6"),
        ],
        ids=["one lost", "it bounds", "no growth", "all lost", "all lost, no growth", "a larger step"],
    )
    def test_growth_counts_from_what_they_had_though_another_pod_got_some_of_it(
        self, cpus: int, before: str, lse: str, allowance: int, may_grow: bool, chosen: str
    ) -> None:
        topology, owner = machine(cpus), view("lse", "LSE", "Guaranteed", cpus=lse)
        snapshot = using(suppressing(pods=[owner], topology=topology), 0.0, (owner, 0.0), topology=topology)
        assert str(formula.cpus(snapshot, allowance, before, may_grow)) == chosen

    def test_growth_waits_for_its_second(self) -> None:
        assert str(formula.cpus(using(suppressing(), 0.0), 9800, "0-5", may_grow=False)) == "0-5"
        assert len(formula.cpus(using(suppressing(), 0.0), 2800, "0-5", may_grow=False)) == 3

    def test_of_the_cpus_of_lsr_pods_a_part_in_proportion(self) -> None:
        lsr = view("lsr", "LSR", "Guaranteed", cpus="0-7")
        snapshot = using(suppressing(pods=[lsr]), 0.0, (lsr, 0.0))
        chosen = formula.cpus(snapshot, 8000, "")
        assert (len(chosen), len(chosen & cpuset.parse("0-7"))) == (8, 2)

    def test_those_of_lse_pods_and_reserved_ones_never(self) -> None:
        lse = view("lse", "LSE", "Guaranteed", cpus="0-7")
        by = suppressing(pods=[lse], node={"reservation": {"reservedCPUs": "8-9"}})
        assert formula.cpus(using(by, 0.0, (lse, 0.0)), 99_000, "10-31") == cpuset.parse("10-31")

    def test_where_no_pool_is_known_nothing_is_chosen(self) -> None:
        by = suppressing(topology=machine(0))
        assert not formula.cpus(using(by, 0.0, topology=machine(0)), 8000, "")

    @pytest.mark.parametrize("cpus", [1, 2])
    def test_on_two_cpus_it_has_no_effect(self, cpus: int) -> None:
        topology = machine(cpus)
        by = suppressing(topology=topology)
        assert len(formula.cpus(using(by, 0.0, topology=topology), -3000, "")) == cpus


@pytest.mark.parametrize(
    ("allowance", "before", "milli"),
    [
        (9800, 0, 9800),
        (9800, 4000, 7200),
        (-3, 9800, 20),
        (-3, 20, 20),
        (4100, 4000, 4000),
        (4319, 4000, 4000),
        (4320, 4000, 4320),
        (3681, 4000, 4000),
        (3680, 4000, 3680),
        (30, 20, 20),
        (19, 21, 20),
        (9800, 9000, 9800),
    ],
    ids=["from no limit", "growth", "the floor", "at it", "band", "band edge", "above", "below edge", "below",
         "floor band", "the floor has no band", "within a tenth"],
)  # fmt: skip
def test_cpu_time(allowance: int, before: int, milli: int) -> None:
    assert formula.time_milli(32_000, allowance, before) == milli
    grows = milli > before > 0
    assert formula.time_milli(32_000, allowance, before, may_grow=False) == (before if grows else milli)


@given(st.integers(1, 128), st.integers(-10_000, 200_000), st.integers(0, 200_000))
def test_cpu_time_never_grows_by_more_than_a_tenth(cpus: int, allowance: int, before: int) -> None:
    milli = formula.time_milli(1000 * cpus, allowance, before)
    assert milli >= min(before or 20, 20)
    if before:
        assert milli <= before + 100 * cpus
        assert milli <= max(before, allowance, 20)


@pytest.mark.parametrize(
    ("allowances", "steady"),
    [
        ([9000] * 9, [9000] * 9),
        ([9000, 8999, 9001, 9159, 8841], [9000] * 5),
        ([9000, 8840, 8000, 9000], [9000, 8840, 8000, 8000]),
        ([9000, 9160, 9400, 9300, 9300, 9300, 9500, 9500], [9000] * 6 + [9160] * 2),
        ([9000, 9900, 9900, 9900, 9900, 9000, 9900, 9900, 9900, 9900], [9000] * 10),
    ],
    ids=["steady", "the dead band", "less, at once", "more, once it stays, and no more than it was", "short rises"],
)
def test_the_allowance_that_counts(allowances: list[int], steady: list[int]) -> None:
    last, found = Steady(allowances[0]), []
    for at_s, each in enumerate(allowances):
        last = last.fed(each, 16_000, (1 + at_s) * 1_000_000_000)
        found.append(last.milli)
    assert found == steady


class TestPolicies:
    def decide(self, snapshot: NodeSnapshot, memory: Any = None) -> tuple[BestEffortScheduling, str, Any]:
        decision, memory = SuppressionStrategy().decide(snapshot, memory)
        assert decision.best_effort is not None
        return decision.best_effort, decision.sentence, memory

    def test_cpuset_is_the_default(self) -> None:
        left, sentence, _ = self.decide(example())
        assert (len(cpuset.parse(left.cpus)), left.cpu_milli) == (10, 0)
        assert sentence == (
            f"best-effort pods have CPUs {left.cpus} of 2-31: 65 % of 32000m, less 8000m of pods, 1000m of host "
            "applications and 2000m of the system, leave 9800m"
        )

    def test_cfs_quota(self) -> None:
        left, sentence, _ = self.decide(example(cpuSuppressPolicy="cfsQuota"))
        assert (left.cpus, left.cpu_milli) == ("", 9800)
        assert sentence.startswith("best-effort pods have 9800m of CPU time: 65 % of 32000m")

    @pytest.mark.parametrize(
        ("policy", "left", "after"),
        [
            ("cpuset", BestEffortScheduling("", "2-5"), 8),
            ("cfsQuota", BestEffortScheduling("", cpu_milli=4000), 7200),
            ("cfsQuota", BestEffortScheduling("", "0-3"), 9800),
            ("cpuset", BestEffortScheduling("", cpu_milli=4000), 10),
        ],
        ids=["cpuset", "cfsQuota", "from cpuset", "from cfsQuota"],
    )
    def test_the_first_decision_after_a_start_goes_on_from_what_they_have(
        self, policy: str, left: BestEffortScheduling, after: int
    ) -> None:
        found, _, _ = self.decide(example(left=left, cpuSuppressPolicy=policy))
        assert after == (found.cpu_milli or len(cpuset.parse(found.cpus)))

    def test_growth_is_by_the_second_however_often_the_node_is_looked_at(self) -> None:
        by, had = suppressing(cpuSuppressPolicy="cfsQuota"), BestEffortScheduling("", cpu_milli=4000)
        sizes, memory = [], None
        for number in range(16):
            left, _, memory = self.decide(using(by, 0.0, at_s=10 + number / 5, left=had), memory)
            sizes.append(left.cpu_milli)
        assert sizes == [7200] * 5 + [10_400] * 5 + [13_600] * 5 + [16_800]

    def test_while_nothing_changes_it_is_the_same_object(self) -> None:
        by = suppressing(cpuSuppressPolicy="cfsQuota")
        left, first, memory = self.decide(using(by, 14.0, (LS, 8.0)))
        again, second, _ = self.decide(using(by, 14.1, (LS, 8.1), at_s=1.0), memory)
        assert again is left
        assert first != second, "the sentence is of now"

    def test_without_samples_what_is_in_force_stays(self) -> None:
        held = BestEffortScheduling("busy", cpu_milli=4000)
        left, sentence, memory = self.decide(using(suppressing(), float("nan"), left=held))
        assert (left.cpu_milli, sentence) == (4000, "nothing has been measured yet: what is in force stays")
        left, _, memory = self.decide(example(cpuSuppressPolicy="cfsQuota"))
        again, _, _ = self.decide(using(suppressing(), float("nan")), memory)
        assert again is left

    def test_another_threshold_counts_at_once_and_grows_by_steps(self) -> None:
        _, _, memory = self.decide(example(cpuSuppressPolicy="cfsQuota"))
        low, _, memory = self.decide(example(cpuSuppressPolicy="cfsQuota", cpuSuppressThresholdPercent=45), memory)
        assert low.cpu_milli == 3400
        by = suppressing(**{**EXAMPLE, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 95})
        found = []
        for at_s in (60, 64, 65, 66):
            high, _, memory = self.decide(
                using(by, 14.0, (LS, 8.0), (BE, 3.0), apps={"daemon": 1.0}, at_s=at_s), memory
            )
            found.append(high.cpu_milli)
        assert found == [3400, 3400, 6600, 9800]

    @pytest.mark.parametrize(
        ("node", "enable", "is_on"), [({}, True, True), ({}, False, False), ({"beCPUManager": True}, True, False)]
    )
    def test_enabled(self, node: dict[str, Any], enable: bool, is_on: bool) -> None:
        assert SuppressionStrategy().enabled(using(suppressing(node=node, enable=enable), 0.0)) is is_on
