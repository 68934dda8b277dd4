"""What strategies leave to best-effort pods, made one: of the pool, of the CPU time, of kubelet's tier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.host.topology import Topology
from koord.model import cpuset
from qosd.model.besteffort import UNBOUNDED, BestEffortLimits, BestEffortScheduling
from qosd.model.policy import NodeSettings, Pool, join
from qosd.model.snapshot import PodView
from qosd.policy.pools import by_node
from qosd.policy.scheduling import limits, tier_milli
from tests.qosd.contexts import extended
from tests.qosd.podviews import NOT_READY, machine, view

WHOLE = (Pool(0, 0, "0-15"),)
SIXTEEN = machine()
NONE_LEFT = "leaves CPUs 20 to best-effort pods, of which none is in the BE pool 0-15"


def made(
    by_strategy: Mapping[str, BestEffortScheduling],
    be_pools: tuple[Pool, ...] = WHOLE,
    topology: Topology | None = SIXTEEN,
    pods: Sequence[PodView] = (),
) -> BestEffortLimits:
    return limits(by_strategy, NodeSettings(be_pools=be_pools), topology, pods)[0]


@pytest.mark.parametrize(
    ("left", "cpus", "why", "warning"),
    [
        ({}, "0-15", "", ""),
        ({"suppress": "0"}, "0", "suppress: busy", ""),
        ({"suppress": "0-31"}, "0-15", "", ""),
        ({"suppress": "14-20"}, "14-15", "suppress: busy", ""),
        ({"suppress": "20"}, "0-15", "", f"suppress {NONE_LEFT}"),
        ({"suppress": "0-3", "quiet": "2-5"}, "2-3", "suppress: busy; quiet: busy", ""),
        ({"suppress": "0-3", "quiet": "8"}, "0-3", "suppress: busy", "of which none is in the BE pool 0-3"),
        ({"suppress": "many"}, "0-15", "", "suppress: 'many'"),
    ],
)
def test_what_is_left_of_the_pool(left: dict[str, str], cpus: str, why: str, warning: str) -> None:
    by_strategy = {name: BestEffortScheduling("busy", its) for name, its in left.items()}
    found, warnings = limits(by_strategy, NodeSettings(be_pools=WHOLE), machine())
    assert join(found.pools) == cpus
    assert found.scheduling.cpus == ("" if cpus == "0-15" else cpus)
    if why:
        assert found.scheduling.why == why
    assert [text for text in warnings if warning in text] == list(warnings)
    assert bool(warnings) == bool(warning)


def test_an_unknown_pool_stays_unknown() -> None:
    found = made({"suppress": BestEffortScheduling("busy", "0")}, ())
    assert (found.pools, found.scheduling.cpus) == ((), "")


def test_before_the_pods_are_known_two_of_an_earlier_run_meet_and_nonsense_is_nothing() -> None:
    left = {name: BestEffortScheduling("", cpus) for name, cpus in (("a", "0-3"), ("b", "x"), ("c", "2-5"))}
    assert join(made(left, (), None).pools) == "2-3"


def test_memory_nodes_keep_their_own_part() -> None:
    topology = machine(nodes=2)
    whole = by_node(topology, cpuset.parse("0-15"))
    found = made({"suppress": BestEffortScheduling("busy", "7-8")}, whole, topology)
    assert [(pool.node, pool.cpuset) for pool in found.pools] == [(0, "7"), (1, "8")]


def test_of_several_the_strictest_counts() -> None:
    found = made(
        {
            "a": BestEffortScheduling("calm", cpu_milli=2000, has_lowest_weight=True),
            "b": BestEffortScheduling("any", slice_us=5_000),
            "c": BestEffortScheduling("busy", cpu_milli=1500, is_idle=True, slice_us=100_000),
        }
    )
    assert found.scheduling == BestEffortScheduling(
        "c: busy", cpu_milli=1500, has_lowest_weight=True, is_idle=True, slice_us=100_000
    )


@pytest.mark.parametrize(("other", "on_trial"), [(UNBOUNDED, "cpu_milli"), (BestEffortScheduling("", "0", 2000), "")])
def test_what_is_on_trial_lasts_where_another_wants_it_too(other: BestEffortScheduling, on_trial: str) -> None:
    trial = BestEffortScheduling("busy", cpu_milli=1500, is_idle=True, on_trial="cpu_milli")
    assert made({"a": trial, "b": other}).scheduling.on_trial == on_trial
    assert (trial.lasting, other.lasting) == (BestEffortScheduling("busy", is_idle=True), other)


def test_nothing_is_left_out_where_nobody_says_so() -> None:
    assert made({}) == BestEffortLimits(pools=WHOLE)


BE = view("be", "BE", "BestEffort")
LS = view("ls", "LS", "BestEffort")
MID = view("mid", "LS", "BestEffort", EXTENDED=extended("main", "mid", limit="4000"))
ENDLESS_MID = view("endless", "", "BestEffort", EXTENDED=extended("main", "mid", request="4000"))


@pytest.mark.parametrize(
    ("cpu_milli", "pods", "milli"),
    [
        (0, [BE, MID], 0),
        (1500, [], 1500),
        (1500, [BE, view("web", "LS")], 1500),
        (1500, [BE, MID], 5500),
        (1500, [BE, MID, LS], 0),
        (1500, [ENDLESS_MID], 0),
        (1500, [BE, view("over", "LS", "BestEffort", state=NOT_READY, containers=())], 1500),
        (1500, [view("bound", "LSR", "BestEffort", cpus="1")], 0),
    ],
    ids=["all", "nobody", "best-effort", "mid", "LS", "mid without limit", "gone", "LSR"],
)
def test_the_tier_has_room_for_all_that_its_guests_may_use(cpu_milli: int, pods: Sequence[PodView], milli: int) -> None:
    assert tier_milli(cpu_milli, pods) == milli


@given(
    st.dictionaries(
        st.sampled_from("abc"),
        st.builds(
            BestEffortScheduling,
            why=st.just("busy"),
            cpus=st.sampled_from(["", "0", "3-5", "2-9", "20", "x"]),
            cpu_milli=st.sampled_from([0, 100, 1500]),
        ),
    ),
    st.lists(st.sampled_from([BE, LS, MID, ENDLESS_MID]), unique_by=lambda pod: pod.uid),
)
def test_best_effort_always_has_a_cpu_and_no_guest_less_than_its_limit(
    by_strategy: dict[str, BestEffortScheduling], pods: list[PodView]
) -> None:
    found = made(by_strategy, pods=pods)
    assert cpuset.parse(join(found.pools))
    assert cpuset.parse(join(found.pools)) <= cpuset.parse("0-15")
    times = [each.cpu_milli for each in by_strategy.values() if each.cpu_milli]
    assert found.scheduling.cpu_milli == min(times, default=0)
    if found.tier_milli:
        assert found.tier_milli == min(times) + (4000 if MID in pods else 0)
        assert not {LS, ENDLESS_MID}.intersection(pods)
