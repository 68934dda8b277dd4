"""CPU burst second by second: opinions of containers and pods, and what lets them grow, shrink and go."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from koord.host.reconcile.state import Phase
from koord.model.formulas import recompute
from qosd.decide import gates
from qosd.decide.decision import Op, Stage
from qosd.model.pod import Resources
from qosd.model.policy import EffectivePolicy
from qosd.model.snapshot import PodView
from qosd.strategies import STRATEGIES, formulas
from qosd.strategies.burst.bucket import Bucket
from qosd.strategies.burst.strategy import BurstStrategy
from tests.qosd.contexts import policy
from tests.qosd.strategies.burst.scenes import Node, Rounds, buffer, bursting, held, limited, quota
from tests.qosd.strategies.burst.test_steps import CLIMB, FALL

WEB = limited()
HOT = {"main": 0.3}
BUSY = 20.0
"""Cores of 32: overloaded at 50 %."""
QUOTAS_ONLY = bursting("cfsQuotaBurstOnly")
BUCKETS = bursting("cfsQuotaBurstOnly", cfsQuotaBurstPeriodSeconds=60)


def rounds(*pods: PodView, by: EffectivePolicy = QUOTAS_ONLY, **said: Any) -> Rounds:
    return Rounds(Node(pods or (WEB,), by, **said))


def climbed(count: int = 7, *pods: PodView, **said: Any) -> Rounds:
    run = rounds(*pods, **said)
    for _ in range(count):
        run.next(throttled=HOT)
    return run


def test_seven_seconds_up_and_five_down() -> None:
    """And the pod has what its container has more, whatever its own quota is."""
    run, found = rounds(), []
    for _ in range(8):
        run.next(throttled=HOT)
        found.append((run.quota_us(quota(WEB)), run.quota_us(quota(WEB, ""), 250_000)))
    assert found == [(value, 150_000 + value) for value in (*CLIMB, 300_000)]
    for value in FALL:
        run.next(throttled={}, node_used=BUSY)
        assert (run.quota_us(quota(WEB)), run.quota_us(quota(WEB, ""), 250_000)) == (value, 150_000 + value)
    assert run.decision.opinions == {}, "released"
    assert (run.memory.bursts, run.decision.sentence) == ({}, "0 of 1 containers with a CFS quota burst")


@pytest.mark.parametrize(
    ("changes", "then"),
    [
        ({"throttled": HOT}, CLIMB[3]),
        ({"throttled": {}}, CLIMB[2]),
        ({"throttled": {"main": 0.0}}, CLIMB[2]),
        ({"throttled": HOT, "node_used": 14.5}, CLIMB[2]),
        ({"throttled": HOT, "node_used": None}, CLIMB[2]),
        ({"throttled": HOT, "node_used": BUSY}, 138_240),
        ({"throttled": {}, "node_used": BUSY}, 138_240),
        ({"policy": bursting("none")}, 100_000),
        ({"policy": bursting("cpuBurstOnly", host=policy().host)}, 100_000),
        ({"policy": bursting("cfsQuotaBurstOnly", cfsQuotaBurstPercent=150)}, 150_000),
        ({"policy": bursting("cfsQuotaBurstOnly", cfsQuotaBurstPercent=100)}, 100_000),
        ({"pods": (limited(burst={"cfsQuotaBurstPeriodSeconds": 0}),)}, 138_240),
        ({"throttled": HOT, "pods": (limited(burst={"cfsQuotaBurstPercent": 90}),)}, 100_000),
        ({"pods": ()}, 100_000),
    ],
    ids=[
        "throttled on an idle node", "not measured", "not throttled", "the pool is cooling", "nobody measured the node",
        "overloaded", "overloaded and not throttled", "the policy is off", "another policy", "a lower ceiling",
        "no room at all", "a bucket that is always empty", "a pod that wants less than its base", "the pod is gone",
    ],
)  # fmt: skip
def test_one_round_later(changes: dict[str, Any], then: int) -> None:
    run = climbed(3)
    run.next(**changes)
    assert run.quota_us(quota(WEB)) == then
    assert (quota(WEB) in run.decision.opinions) == (quota(WEB, "") in run.decision.opinions) == (then > 100_000)


def test_a_pod_annotated_none_is_let_go_and_the_others_are_not() -> None:
    other = limited("other", burst={"policy": "auto"})
    run = climbed(3, WEB, other)
    run.next(pods=(WEB, limited("other", burst={"policy": "none"})))
    assert set(run.decision.opinions) == {quota(WEB), quota(WEB, "")}


class TestOneStepASecond:
    def test_samples_between_two_beats_are_no_round(self) -> None:
        run = climbed(1)
        before = run.decision, run.memory
        for _ in range(3):
            assert (run.next(0.2, throttled=HOT), run.memory) == before
        run.next(0.4)
        assert run.quota_us(quota(WEB)) == CLIMB[1]

    def test_one_set_of_samples_counts_once(self) -> None:
        run = climbed(1)
        decision = run.decision
        assert run.next(0.0) is decision

    def test_what_changes_between_two_beats_is_followed_at_once(self) -> None:
        """For its own pod, and without a step of anybody."""
        other = limited("other")
        run = climbed(3, WEB, other, by=BUCKETS)
        tokens = {id_: burst.bucket for id_, burst in run.memory.bursts.items()}
        run.next(0.02, pods=(limited(quota_us=50_000), other), used={"main": 3.0})
        assert run.quota_us(quota(WEB), 50_000) == CLIMB[2] // 2 and run.quota_us(quota(other)) == CLIMB[2]
        assert {id_: burst.bucket for id_, burst in run.memory.bursts.items()} == tokens, "and no token is counted"
        run.next(0.02, pods=(limited(quota_us=50_000, burst={"policy": "none"}), other))
        assert quota(WEB) not in run.decision.opinions and run.quota_us(quota(other)) == CLIMB[2]

    def test_beats_that_come_early_and_late_are_rounds(self) -> None:
        run = climbed(1)
        for seconds, value in ((1.2, CLIMB[1]), (0.8, CLIMB[2])):
            run.next(seconds, throttled=HOT)
            assert run.quota_us(quota(WEB)) == value


class TestPods:
    def test_the_pod_has_what_all_of_its_containers_have_more(self) -> None:
        pod = limited("web", "LS", 100_000, "main", "side", "idle")
        run = rounds(pod)
        run.next(throttled={"main": 0.3}), run.next(throttled={"main": 0.1, "side": 1.0})
        opinion = run.decision.opinions[quota(pod, "")]
        assert (opinion.op, opinion.value) == (Op.ADD, 44_000 + 20_000)
        assert opinion.inputs == {"formula": "cpu_burst_sum", "main_us": 44_000, "side_us": 20_000}
        assert quota(pod, "idle") not in run.decision.opinions

    def test_one_whose_cgroup_nobody_tells(self) -> None:
        run = rounds(structs.replace(WEB, cgroup=""))
        assert set(run.next(throttled=HOT).opinions) == {quota(WEB)}

    def test_a_container_that_restarts_begins_anew(self) -> None:
        run = climbed(3)
        sandbox, main = WEB.containers
        new = structs.replace(WEB, containers=(sandbox, structs.replace(main, id="c-2", cgroup=f"{WEB.cgroup}/main2")))
        run.next(pods=(new,))
        assert (run.quota_us(quota(WEB, "main2")), list(run.memory.bursts)) == (CLIMB[0], ["c-2"])
        assert quota(WEB) not in run.decision.opinions


class TestTheBase:
    """What the earlier stages make of the file, not what happens to be in it."""

    def test_a_quota_of_kubelets_that_is_read_in_the_file(self) -> None:
        """Resized in the file before the runtime tells: the factor stays, within the ceiling."""
        run = climbed(3)
        run.next(throttled={}, files={quota(WEB): held(50_000, 86_400)})
        opinion = run.decision.opinions[quota(WEB)]
        assert (opinion.op, opinion.value) == (Op.AT_LEAST, 86_400)
        assert run.decision.opinions[quota(WEB, "")].value == 36_400
        assert opinion.inputs["base_us"] == 50_000

    @pytest.mark.parametrize("written", [-1, 172_800])
    def test_somebody_elses_minus_one_leaves_nothing_to_burst(self, written: int) -> None:
        run = climbed(3)
        run.next(throttled=HOT, files={quota(WEB): held(-1, written)})
        assert run.decision.opinions == {}

    def test_a_quota_that_the_hooks_set_counts_whatever_the_files_base_is(self) -> None:
        run = climbed(1, by=bursting("cfsQuotaBurstOnly", node={"cpuNormalizationRatio": 1.2}))
        run.next(files={quota(WEB): held(70_000, 100_000)})
        assert run.quota_us(quota(WEB), 83_334) == 120_000

    def test_up_and_down_of_a_normalized_one(self) -> None:
        faster = bursting("cfsQuotaBurstOnly", node={"cpuNormalizationRatio": 1.2})
        run, found = rounds(by=faster), []
        for _ in range(7):
            run.next(throttled=HOT)
            found.append(run.quota_us(quota(WEB), 83_334))
        for _ in range(5):
            run.next(throttled={}, node_used=BUSY)
            found.append(run.quota_us(quota(WEB), 83_334))
        assert found == [
            100_000, 120_000, 144_000, 172_800, 207_360, 248_832, 250_002,
            200_001, 160_000, 128_000, 102_400, 83_334,
        ]  # fmt: skip

    def test_a_ratio_that_comes_changes_and_goes_while_it_bursts(self) -> None:
        """At once, before the next round, which has nothing to add to it."""
        run = climbed(4)
        assert run.quota_us(quota(WEB)) == 207_360
        found = []
        for ratio, base_us in ((1.2, 83_334), (1.5, 66_667), (1.0, 100_000), (None, 100_000)):
            node = {} if ratio is None else {"cpuNormalizationRatio": ratio}
            run.next(0.02, policy=bursting("cfsQuotaBurstOnly", node=node), throttled=HOT)
            at_once = run.decision.opinions
            assert run.next(throttled={}).opinions is at_once
            found.append(run.quota_us(quota(WEB), base_us))
            assert at_once[quota(WEB, "")].value == found[-1] - base_us
        assert found == [172_801, 138_240, 207_358, 207_358]

    def test_a_limit_that_shrinks_takes_the_burst_along(self) -> None:
        run = climbed(7)
        run.next(pods=(limited(quota_us=40_000),), throttled={})
        assert run.quota_us(quota(WEB), 40_000) == 120_000
        assert run.decision.opinions[quota(WEB)].why == "the burst goes along with its quota"


class TestWhatHoldsItBack:
    @pytest.mark.parametrize(
        ("files", "grows"),
        [
            ({}, True),
            ({quota(WEB): held(100_000, CLIMB[2])}, True),
            ({quota(WEB): held(100_000, CLIMB[1])}, False),
            ({quota(WEB): held(100_000, 30_000)}, False),
            ({quota(WEB): held(100_000, 100_000, phase=Phase.CONTESTED)}, False),
            ({quota(WEB, ""): held(100_000, 100_000, phase=Phase.CONTESTED)}, False),
            ({quota(WEB, ""): held(100_000, -1)}, True),
        ],
        ids=[
            "nothing", "it holds what it was to be", "the last write failed", "a later stage bounds it",
            "another writer fights for it", "or for the pod's", "the pod's is held",
        ],
    )  # fmt: skip
    def test_growth(self, files: Any, grows: bool) -> None:
        run = climbed(3)
        run.next(throttled=HOT, files=files)
        assert run.quota_us(quota(WEB)) == CLIMB[3 if grows else 2]

    def test_what_is_contested_stays_wanted_so_that_nobody_fights_anew(self) -> None:
        run = climbed(3)
        for _ in range(20):
            run.next(node_used=BUSY, files={quota(WEB): held(100_000, CLIMB[2], phase=Phase.CONTESTED)})
        assert run.quota_us(quota(WEB)) == CLIMB[2]

    def test_a_bound_of_a_later_stage_holds_back_a_burst_that_has_not_begun(self) -> None:
        run = rounds()
        run.next(throttled=HOT, files={quota(WEB): held(100_000, 30_000)})
        assert run.decision.opinions == {}


class TestTokens:
    def test_a_burst_ends_when_they_are_used_up_and_comes_back_when_there_are_some(self) -> None:
        """Half full at most, and 300 % of the quota takes 200 a second: in 30 s at most it is over."""
        run, found = rounds(by=BUCKETS), []
        for _ in range(60):
            made = run.quota_us(quota(WEB))
            run.next(throttled=HOT, used={"main": int(made) / 100_000})
            found.append(run.quota_us(quota(WEB)))
        assert max(found) == 300_000 and found[-1] < 130_000
        run.next(throttled={}, used={"main": 0.2})
        for _ in range(10):
            run.next(throttled=HOT, used={"main": 0.2})
        assert run.quota_us(quota(WEB)) == 300_000

    def test_use_is_relative_to_the_base(self) -> None:
        """On a node that is 1.2 times as fast, 0.8334 CPU of a limit of 1 are 100 %."""
        faster = bursting("cfsQuotaBurstOnly", cfsQuotaBurstPeriodSeconds=60, node={"cpuNormalizationRatio": 1.2})
        run = rounds(by=faster)
        run.next()
        before = run.memory.bursts["c-web-main"].bucket.tokens_percent_s
        for cores, taken in ((0.84, 0), (1.0, 19), (0.4, -53)):
            run.next(used={"main": cores})
            after = run.memory.bursts["c-web-main"].bucket.tokens_percent_s
            assert before - after == taken
            before = after

    def test_use_that_nobody_measured_counts_as_all_of_it(self) -> None:
        run = rounds(by=BUCKETS)
        run.next(), run.next(used={})
        assert run.memory.bursts["c-web-main"].bucket == Bucket.of("c-web-main", 60, 300)

    def test_a_period_of_its_own(self) -> None:
        run = rounds(limited(quota_us=20_000, period_us=10_000), by=BUCKETS)
        run.next()
        before = run.memory.bursts["c-web-main"].bucket.tokens_percent_s
        run.next(used={"main": 3.0})
        assert before - run.memory.bursts["c-web-main"].bucket.tokens_percent_s == 50

    def test_other_settings_make_a_new_bucket(self) -> None:
        run = rounds(by=BUCKETS)
        run.next(), run.next(used={"main": 3.0})
        assert run.memory.bursts["c-web-main"].bucket != Bucket.of("c-web-main", 60, 300)
        run.next(policy=bursting("auto", cfsQuotaBurstPeriodSeconds=30))
        assert run.memory.bursts["c-web-main"].bucket == Bucket.of("c-web-main", 30, 300)
        run.next(policy=QUOTAS_ONLY)
        assert run.memory.bursts == {}

    def test_they_are_counted_while_the_policy_is_off(self) -> None:
        run = rounds(by=bursting("none", cfsQuotaBurstPeriodSeconds=60))
        run.next(), run.next(used={"main": 0.2})
        gained = run.memory.bursts["c-web-main"].bucket.tokens_percent_s - Bucket.of(
            "c-web-main", 60, 300
        ).tokens_percent_s  # fmt: skip
        assert (gained, run.decision.opinions) == (pytest.approx(80), {})

    def test_what_is_remembered_goes_with_the_containers(self) -> None:
        run = rounds(by=BUCKETS)
        for number in range(50):
            run.next(pods=(limited(f"web{number}"), limited(f"web{number + 1}")))
            assert set(run.memory.bursts) == {f"c-web{number}-main", f"c-web{number + 1}-main"}
        run.next(pods=())
        assert (run.memory.bursts, run.memory.by_uid, run.memory.plan.by_uid) == ({}, {}, {})


class TestTheStart:
    """The first round takes over what an earlier run left, as far as the policy still wants it."""

    @pytest.mark.parametrize(
        ("written", "by", "expected"),
        [
            (207_360, QUOTAS_ONLY, 207_360),
            (100_000, QUOTAS_ONLY, 100_000),
            (30_000, QUOTAS_ONLY, 100_000),
            (900_000, QUOTAS_ONLY, 300_000),
            (-1, QUOTAS_ONLY, 100_000),
            (207_360, bursting("cpuBurstOnly"), 100_000),
        ],
    )
    def test_adopted(self, written: int, by: EffectivePolicy, expected: int) -> None:
        run = rounds(by=by, files={quota(WEB): held(100_000, written, adopted=True)})
        run.next()
        assert run.quota_us(quota(WEB)) == expected
        if expected > 100_000:
            assert run.decision.opinions[quota(WEB)].why == "as an earlier run left it"

    def test_it_goes_on_from_there(self) -> None:
        run = rounds(files={quota(WEB): held(100_000, 207_360, adopted=True)})
        run.next(throttled=HOT)
        assert run.quota_us(quota(WEB)) == 248_832

    def test_what_is_held_without_being_left_is_no_burst(self) -> None:
        run = rounds(files={quota(WEB): held(100_000, 207_360)})
        run.next()
        assert run.decision.opinions == {}
        run.next(files={quota(WEB): held(100_000, 207_360, adopted=True)})
        assert run.decision.opinions == {}


class TestQuiet:
    def test_a_quiet_node_gets_the_very_same_decision(self) -> None:
        run = rounds(by=bursting())
        first, memory = run.next(), run.memory
        for used in (1.0, 14.5, BUSY, None):
            assert run.next(node_used=used, throttled={"main": 0.0}) is first
            assert run.memory is memory

    def test_a_burst_that_stays_is_no_new_decision(self) -> None:
        run = climbed(3, by=bursting("auto", cfsQuotaBurstPeriodSeconds=60))
        decision = run.next(throttled={}, used={"main": 0.5})
        for cores in (0.5, 0.7, 1.1):
            assert run.next(used={"main": cores}) is decision

    def test_opinions_are_the_same_mapping_while_only_the_pool_changes(self) -> None:
        run = climbed(3)
        opinions = run.next(throttled={}).opinions
        run.next(node_used=14.5)
        assert run.decision.opinions is opinions
        assert run.decision.sentence == "1 of 1 containers with a CFS quota burst; the share pool is cooling"

    def test_another_pods_opinions_stay_the_very_same(self) -> None:
        other = limited("other")
        run = climbed(3, WEB, other)
        before = run.decision.opinions[quota(other)], run.decision.opinions[quota(WEB)]
        run.next(pods=(WEB, limited("other", burst={"policy": "auto"})), throttled={})
        assert run.decision.opinions[quota(WEB)] is before[1]


def test_buffers_stay_while_the_quota_bursts() -> None:
    run = climbed(3, by=bursting())
    assert {target: each.value for target, each in run.decision.opinions.items() if each.op is Op.SET} == {
        buffer(WEB): 100_000, buffer(WEB, ""): 100_000
    }  # fmt: skip
    assert run.decision.sentence == (
        "1 of 1 containers with a CFS quota burst; the share pool is idle; 2 burst buffers"
    )


@pytest.mark.parametrize(
    ("by", "pods", "enabled"),
    [
        (policy(), (WEB,), False),
        (bursting("none"), (WEB,), False),
        (bursting("auto"), (), True),
        (bursting("cpuBurstOnly"), (WEB,), True),
        (policy(), (WEB, limited("other", burst={"policy": "cfsQuotaBurstOnly"})), True),
        (policy(), (limited("other", burst={"policy": "none"}),), False),
        (policy(), (limited("other", burst={"cpuBurstPercent": 50}),), False),
        (EffectivePolicy(), (WEB,), False),
    ],
)
def test_when_it_is_on(by: EffectivePolicy, pods: tuple[PodView, ...], enabled: bool) -> None:
    assert BurstStrategy().enabled(Node(pods, by).snapshot()) is enabled


def test_its_place() -> None:
    strategy = next(each for each in STRATEGIES if each.name == "cpuBurst")
    assert (strategy.stage, strategy.gate) == (Stage.BURST, "CPUBurst")
    assert not gates.why_shut(strategy, policy()), "on by default"
    assert gates.why_shut(strategy, policy(features={"CPUBurst": False}))


def test_every_opinion_says_why_and_can_be_computed_again() -> None:
    run = climbed(2, by=bursting("auto", cfsQuotaBurstPeriodSeconds=60))
    for target, opinion in run.decision.opinions.items():
        assert opinion.why and opinion.pod == "default/web"
        assert recompute(opinion.inputs, formulas()) == opinion.value, target
    one = run.decision.opinions[quota(WEB)]
    assert one.why == "its quota throttles it and the share pool is idle: a fifth more"
    assert one.inputs == {
        "formula": "cpu_burst_quota", "previous_us": 120_000, "change_percent": 120, "base_us": 100_000,
        "ceiling_us": 300_000, "throttled_ratio": 0.3, "share_pool_used_percent": 3.125,
        "share_pool_threshold_percent": 50,
        "tokens_percent_s": Bucket.of("c-web-main", 60, 300).tokens_percent_s,
    }  # fmt: skip
    run.next(throttled={}, node_used=BUSY)
    assert run.decision.opinions[quota(WEB)].why == "the share pool is overloaded: a fifth less"


def test_a_container_without_requests_of_its_own() -> None:
    pod = structs.replace(WEB, containers=(structs.replace(WEB.containers[1], requested=Resources()),))
    run = rounds(pod)
    assert run.next(throttled=HOT).sentence == "0 of 0 containers with a CFS quota burst"
