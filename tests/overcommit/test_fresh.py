"""The offer by this second's figures: the same formula, so the same figures make the same offer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model.nodemetric import NodeMetric, NodeMetricStatus
from koord.overcommit import report
from koord.overcommit.amounts import CPUMemory
from koord.overcommit.report import FreshPod, FreshUsage
from koord.overcommit.strategy import CalculatePolicy
from tests.overcommit.nodes import G, batch, metric, node, pod

NODE = node((16, 64))
PODS = [
    pod("web", (2, 4), priority="koord-prod"),
    pod("own", (4, 8), qos="LSE", priority="koord-prod"),
    pod("new", (1, 2), priority="koord-prod"),
    pod("job", (0, 0), qos="BE", priority="koord-batch"),
]
POLICIES = (CalculatePolicy.USAGE, CalculatePolicy.MAX_USAGE_REQUEST)
SIZES = st.tuples(st.integers(0, 4), st.integers(0, 8))


def used(size: tuple[int, int]) -> CPUMemory:
    return CPUMemory(size[0] * 1000, size[1] * G)


def fresh_usage(system: tuple[int, int], **pods: tuple[int, int]) -> FreshUsage:
    named = tuple(FreshPod("d", name, "koord-prod", used(size)) for name, size in pods.items())
    return FreshUsage(used((8, 16)), used(system), named)


@given(system=SIZES, web=SIZES, own=SIZES, gone=SIZES, policy=st.sampled_from(POLICIES))
def test_the_reports_own_figures_make_its_own_offer(
    system: tuple[int, int], web: tuple[int, int], own: tuple[int, int], gone: tuple[int, int], policy: CalculatePolicy
) -> None:
    """With a pod of LSE, one that is not measured yet and one that is gone."""
    pods = {"web": web, "own": own, "gone": gone}
    reported = metric(system, pods)
    by_this_second = report.with_usage(metric((1, 1)), fresh_usage(system, **pods))
    settings = {"cpu_calculate_policy": policy, "memory_calculate_policy": policy}
    assert batch(NODE, PODS, by_this_second, **settings) == batch(NODE, PODS, reported, **settings)


@given(system=SIZES, web=SIZES, more=SIZES)
def test_more_use_never_offers_more(system: tuple[int, int], web: tuple[int, int], more: tuple[int, int]) -> None:
    grown = (web[0] + more[0], web[1] + more[1])
    less, most = (
        batch(NODE, PODS, report.with_usage(metric((1, 1)), fresh_usage(system, web=size))) for size in (grown, web)
    )
    assert less is not None
    assert most is not None
    assert less.min(most) == less


@pytest.mark.parametrize(
    ("policy", "cpu_milli"), [(CalculatePolicy.USAGE, 2000), (CalculatePolicy.MAX_USAGE_REQUEST, 1000)]
)
def test_a_burst_counts_as_far_as_the_policy_counts_it(policy: CalculatePolicy, cpu_milli: int) -> None:
    """A pod that requests 2 CPUs goes from 1 to 3."""
    before, after = (
        batch(NODE, PODS, report.with_usage(metric((1, 1)), fresh_usage((1, 1), web=size)), cpu_calculate_policy=policy)
        for size in ((1, 1), (3, 1))
    )
    assert before is not None
    assert after is not None
    assert (before - after).cpu_milli == cpu_milli


def test_everything_else_is_the_reports() -> None:
    reported = metric((1, 1), {"web": (1, 1)})
    made = report.with_usage(reported, fresh_usage((2, 2)))
    assert made.metadata == reported.metadata
    assert made.status.update_time == reported.status.update_time
    assert made.status.host_application_metric == reported.status.host_application_metric
    assert made.status.prod_reclaimable_metric == reported.status.prod_reclaimable_metric
    assert report.with_usage(NodeMetric(status=NodeMetricStatus()), fresh_usage((2, 2))).status.update_time is None
