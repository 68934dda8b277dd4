"""What is left to best-effort pods, on the kernel's files: tier, weights, idle, and container by container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from koord.host.files import Target
from koord.host.reconcile.state import FileState, Phase
from koord.model.formulas import recompute
from koord.model.qos import KubeQoS
from qosd.decide.decision import Decision
from qosd.model.besteffort import BestEffortLimits, BestEffortScheduling
from qosd.model.pod import Resources
from qosd.model.policy import HostFacts
from qosd.model.snapshot import NodeSnapshot, PodView
from qosd.policy.scheduling import tier_milli
from qosd.strategies.besteffort.strategy import BestEffortStrategy
from tests.qosd.contexts import V2, extended, policy
from tests.qosd.podviews import EXITED, RUNNING, snapshot, view

TIER = "/kubepods/besteffort"
TIERS = {KubeQoS.BEST_EFFORT: TIER}
WHY = "suppress: LS pods are busy"
JOB = view("job", "BE", "BestEffort", EXTENDED=extended("main", request="1000"))
MID = view("mid", "LS", "BestEffort", EXTENDED=extended("main", "mid", limit="4000"))
GUEST = view("guest", "LS", "BestEffort")
WEB = view("web", "LS")
BATCH = view("batch", "BE", "Burstable", container_requested=Resources(cpu_shares=1024))
SMALL = view("small", "BE", "Burstable", container_requested=Resources(cpu_shares=102))
V1 = replace(V2, cgroup_version=1)
BATCH_MAIN = "burstable/podbatch/main"
Files = Mapping[str, Any]


def _lets(excess: str, used_milli: int) -> str:
    return f"{excess}, of which the BestEffort tier's quota lets {used_milli}m be used"


def node(
    left: BestEffortScheduling, *pods: PodView, tiers: Mapping[KubeQoS, str] = TIERS, host: HostFacts = V2
) -> NodeSnapshot:
    limits = BestEffortLimits(left, tier_milli=tier_milli(left.cpu_milli, pods))
    return structs.replace(snapshot(policy(host), *pods, limits=limits), tiers=tiers)


def decided(left: BestEffortScheduling, *pods: PodView) -> Decision:
    return BestEffortStrategy().decide(node(left, *pods), None)[0]


def files(decision: Decision, name: str) -> Files:
    """Operator and operand, by cgroup below kubepods."""
    found = {target: opinion for target, opinion in decision.opinions.items() if target.name == name}
    return {
        target.cgroup.removeprefix("/kubepods/"): f"{opinion.op} {opinion.value}" for target, opinion in found.items()
    }


def test_where_all_is_left_nothing_is_bounded() -> None:
    decision = decided(BestEffortScheduling(""), JOB, MID, BATCH)
    assert (decision.opinions, decision.sentence) == ({}, "best-effort pods are let be")


@pytest.mark.parametrize(
    ("cpu_milli", "pods", "quotas"),
    [
        (1500, [JOB, WEB], {"besteffort": "at most 150000"}),
        (5, [], {"besteffort": "at most 1000"}),
        (1500, [JOB, MID], {"besteffort": "at most 550000", "besteffort/podjob/main": "at most 150000"}),
        (1500, [JOB, GUEST], {"besteffort/podjob/main": "at most 150000"}),
        (
            1500,
            [JOB, BATCH],
            {
                "besteffort": "at most 150000",
                "besteffort/podjob/main": "at most 75000",
                "burstable/podbatch/main": "at most 75000",
            },
        ),
        (1500, [view("over", "BE", "Burstable", containers=(("main", EXITED),))], {"besteffort": "at most 150000"}),
    ],
    ids=["best-effort alone", "never below 1 ms", "a mid pod", "an LS pod", "one in Burstable", "one that has ended"],
)
def test_cpu_time(cpu_milli: int, pods: Sequence[PodView], quotas: Files) -> None:
    decision = decided(BestEffortScheduling(WHY, cpu_milli=cpu_milli), *pods)
    assert files(decision, "cpu_quota") == quotas
    for opinion in decision.opinions.values():
        assert WHY in opinion.why
        assert recompute(opinion.inputs) == opinion.value


PERIOD_10_MS = Resources(cpu_period_us=10_000)
FAST_JOB = view("fast", "BE", "BestEffort", container_requested=PERIOD_10_MS)
FAST_BATCH = view("fast", "BE", "Burstable", container_requested=PERIOD_10_MS)


@pytest.mark.parametrize(
    ("host", "cpu_milli", "pods", "quotas"),
    [
        (V2, 1500, [FAST_JOB], {"besteffort": 150_000}),
        (V2, 1500, [FAST_JOB, GUEST], {"besteffort/podfast/main": 15_000}),
        (V2, 1500, [FAST_JOB, JOB, GUEST], {"besteffort/podfast/main": 7_500, "besteffort/podjob/main": 75_000}),
        (V2, 50, [FAST_JOB, GUEST], {"besteffort/podfast/main": 1_000}),
        (V2, 50, [FAST_JOB, BATCH], {"besteffort": 5_000, "besteffort/podfast/main": 1_000, BATCH_MAIN: 10_000}),
        (V1, 50, [FAST_JOB, BATCH], {"besteffort": 5_000, BATCH_MAIN: 10_000}),
        (V1, 50, [JOB, FAST_BATCH], {"besteffort": 5_000, "burstable/podfast/main": 1_000}),
        (V1, 200, [FAST_JOB, BATCH], {"besteffort": 20_000, "besteffort/podfast/main": 1_000, BATCH_MAIN: 10_000}),
        (V1, 6, [JOB, BATCH], {"besteffort": 1_000, "besteffort/podjob/main": 1_000, BATCH_MAIN: 1_000}),
    ],
    ids=[
        "a tier has the kernel's period",
        "a container kubelet's",
        "each its own",
        "never below 1 ms",
        "v2 takes more than the tier's",
        "v1 does not: the tier bounds",
        "outside of the tier",
        "v1 takes as much as the tier's",
        "the tier's least",
    ],
)
def test_quotas_are_of_the_period_of_their_cgroup_and_on_v1_within_the_tiers(
    host: HostFacts, cpu_milli: int, pods: Sequence[PodView], quotas: Files
) -> None:
    decision, _ = BestEffortStrategy().decide(
        node(BestEffortScheduling(WHY, cpu_milli=cpu_milli), *pods, host=host), None
    )
    assert files(decision, "cpu_quota") == {cgroup: f"at most {value}" for cgroup, value in quotas.items()}
    for opinion in decision.opinions.values():
        assert recompute(opinion.inputs) == opinion.value


JOBS = [view(f"j{number}", "BE", "BestEffort") for number in range(500)]
BATCHES = [view(f"b{number}", "BE", "Burstable") for number in range(500)]


@pytest.mark.parametrize(
    ("pods", "tier", "said"),
    [
        (JOBS, 100_000, ""),
        ([*JOBS[:50], *BATCHES[:50]], 100_000, ""),
        ([*JOBS, GUEST], None, "500 containers with at least 10m each come to 5000m"),
        (BATCHES, 100_000, _lets("500 containers with at least 10m each come to 5000m", 5000)),
        ([*JOBS, MID], 500_000, _lets("500 containers with at least 10m each come to 5000m", 5000)),
        ([*JOBS, *BATCHES[:50]], 100_000, _lets("550 containers with at least 10m each come to 5500m", 1500)),
    ],
    ids=["tier", "room for all", "no bound of the tier", "outside of it", "room for a mid pod", "some outside"],
)
def test_what_the_least_of_many_containers_comes_to_is_said(
    pods: Sequence[PodView], tier: int | None, said: str
) -> None:
    """The tier's quota stays what is left to them all, however many there are."""
    decision = decided(BestEffortScheduling(WHY, cpu_milli=1000), *pods)
    assert files(decision, "cpu_quota").get("besteffort") == (f"at most {tier}" if tier else None)
    assert [part for part in decision.sentence.split("; ") if " come to " in part] == [said] * bool(said)


def test_a_tier_that_somebody_fights_for_lets_nothing_be_promised() -> None:
    contested = {Target(TIER, "cpu_quota"): FileState(Phase.CONTESTED, base=-1, written=100_000)}
    fought = structs.replace(node(BestEffortScheduling(WHY, cpu_milli=1000), *JOBS), files=contested)
    decision, _ = BestEffortStrategy().decide(fought, None)
    assert "; 500 containers with at least 10m each come to 5000m; " in decision.sentence


@pytest.mark.parametrize(("on_trial", "temporary"), [("", []), ("cpu_milli", ["cpu_quota"]), ("is_idle", ["cpu.idle"])])
def test_what_is_on_trial_is_temporary(on_trial: str, temporary: list[str]) -> None:
    left = BestEffortScheduling(WHY, cpu_milli=1500, is_idle=True, has_lowest_weight=True, on_trial=on_trial)
    decision = decided(left, JOB, WEB)
    assert [target.name for target, opinion in decision.opinions.items() if opinion.is_temporary] == temporary


def test_where_somebody_fights_for_the_tiers_quota_containers_are_bounded_one_by_one() -> None:
    contested = {Target(TIER, "cpu_quota"): FileState(Phase.CONTESTED, base=-1, written=150_000)}
    fought = structs.replace(node(BestEffortScheduling(WHY, cpu_milli=1500), JOB, WEB), files=contested)
    decision, memory = BestEffortStrategy().decide(fought, None)
    quotas = {"besteffort": "at most 150000", "besteffort/podjob/main": "at most 150000"}
    assert files(decision, "cpu_quota") == quotas
    assert "container by container, since another writer keeps setting the tier's quota" in decision.sentence
    decision, _ = BestEffortStrategy().decide(structs.replace(fought, files={}), memory)
    assert files(decision, "cpu_quota") == {"besteffort": "at most 150000"}


def test_a_tier_that_nobody_knows_is_not_bounded() -> None:
    found, _ = BestEffortStrategy().decide(node(BestEffortScheduling(WHY, cpu_milli=1500), JOB, tiers={}), None)
    assert found.opinions == {}


@pytest.mark.parametrize(
    ("pods", "shares"),
    [
        ([JOB, WEB], {}),
        ([BATCH, WEB], {"burstable/podbatch": "scale 1/512"}),
        ([BATCH, SMALL], {"burstable/podbatch": "scale 2/563", "burstable/podsmall": "scale 2/563"}),
        ([JOB, MID], {"besteffort/podjob": "scale 1/512"}),
        ([view("least", "BE", "Burstable")], {}),
    ],
    ids=["in its tier alone", "in Burstable", "in proportion", "beside a guest", "it has the lowest already"],
)
def test_the_lowest_weight(pods: Sequence[PodView], shares: Files) -> None:
    assert files(decided(BestEffortScheduling(WHY, has_lowest_weight=True), *pods), "cpu_shares") == shares


def test_idle_is_every_best_effort_pod_and_nobody_else() -> None:
    found = files(decided(BestEffortScheduling(WHY, is_idle=True), JOB, MID, GUEST, WEB, BATCH), "cpu.idle")
    assert found == {"besteffort/podjob": "at least 1", "burstable/podbatch": "at least 1"}


def test_the_sentence_says_what_is_left_and_to_whom() -> None:
    many = [view(f"j{number}", "BE", "BestEffort") for number in range(6)]
    left = BestEffortScheduling(WHY, "0-1", 1500, has_lowest_weight=True, is_idle=True, slice_us=100_000)
    assert decided(left, MID, *many).sentence == (
        "CPUs 0-1; 1500m of CPU time, container by container (5500m, with room for others' pods); the lowest weight;"
        " cpu.idle; slices of 100000 us; covers default/j0, default/j1, default/j2, default/j3, default/j4, and 1 more"
    )
    assert decided(BestEffortScheduling(WHY, cpu_milli=1500), WEB).sentence == (
        "1500m of CPU time, by the BestEffort tier's quota; there is no best-effort pod"
    )


def test_nothing_new_is_the_same_object() -> None:
    left = BestEffortScheduling(WHY, cpu_milli=1500, is_idle=True)
    first = node(left, JOB, MID)
    decision, memory = BestEffortStrategy().decide(first, None)
    again, memory = BestEffortStrategy().decide(structs.replace(first, monotonic_ns=10**9), memory)
    assert again is decision
    other, _ = BestEffortStrategy().decide(structs.replace(first, pods=(JOB, MID)), memory)
    assert other is decision, "other objects that say the same"


def test_a_container_that_comes_later_gets_its_part() -> None:
    left = BestEffortScheduling(WHY, cpu_milli=1500)
    decision, memory = BestEffortStrategy().decide(node(left, JOB, GUEST), None)
    two = view("job", "BE", "BestEffort", containers=(("main", RUNNING), ("side", RUNNING)))
    decision, _ = BestEffortStrategy().decide(node(left, two, GUEST), memory)
    assert files(decision, "cpu_quota") == {
        "besteffort/podjob/main": "at most 75000",
        "besteffort/podjob/side": "at most 75000",
    }
    assert Target(TIER, "cpu_quota") not in decision.opinions
