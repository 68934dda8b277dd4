"""An offer in words."""

from __future__ import annotations

import pytest

from koord.overcommit import amounts
from koord.overcommit.explain import lines
from koord.overcommit.strategy import CalculatePolicy, MidReclaimMode
from tests.overcommit.nodes import metric, node, offered, pod, strategy

SMALL = node((8, "16Gi"), ("7500m", "15Gi"))
PODS = [pod("old", (2, "4Gi"), priority="koord-prod"), pod("new", (1, "1Gi"), priority="koord-prod")]
REPORT = metric(("400m", "800Mi"), {"old": ("500m", "1Gi")}, node_usage=("900m", "2Gi"), reclaimable=("1", "2Gi"))


def test_every_term_is_shown() -> None:
    assert lines(offered(SMALL, PODS, REPORT)) == [
        "by a report that is 30 s old; pods are all that are not koord-batch",
        "kubernetes.io/batch-cpu 2800m",
        "  policy usage: total 8000m - margin 3200m - used by the system 500m - used by pods 1500m"
        " - used by pods that the API does not list 0m = 2800m (at least 0)",
        "  used by the system 500m = max(measured 400m + host applications 0m, reserved)",
        "  reserved 500m = max(kubelet 500m, annotation 0m)",
        "kubernetes.io/batch-memory 7.4Gi",
        "  policy usage: total 16Gi - margin 5.6Gi - used by the system 1Gi - used by pods 2Gi"
        " - used by pods that the API does not list 0 = 7.4Gi (at least 0)",
        "  used by the system 1Gi = max(measured 800Mi + host applications 0, reserved)",
        "  reserved 1Gi = max(kubelet 1Gi, annotation 0)",
        "kubernetes.io/mid-cpu 1000m",
        "  min(reclaimable 1000m, unused 7100m) + 0m of the unallocated 4500m, at most 8000m",
        "kubernetes.io/mid-memory 2Gi",
        "  min(reclaimable 2Gi, unused 14Gi) + 0 of the unallocated 10Gi, at most 16Gi",
    ]


def test_limits_ratio_other_schedulers_and_what_is_wrong() -> None:
    yarn = '{"allocations":[{"priority":"koord-batch","resources":{"kubernetes.io/batch-cpu":1000}}]}'
    of = node((8, "16Gi"), ("7500m", "15Gi"), thirdPartyAllocations=yarn, reservation="{")
    settings = strategy(
        cpu_calculate_policy=CalculatePolicy.MAX_USAGE_REQUEST,
        memory_calculate_policy=CalculatePolicy.REQUEST,
        batch_cpu_threshold_percent=10,
        mid_reclaim_mode=MidReclaimMode.STATIC,
        mid_static_cpu_reserved_percent=50,
    )
    found = lines(offered(of, PODS, REPORT, settings, normalization_ratio=1.5))
    assert found[1:9] == [
        "kubernetes.io/batch-cpu 200m",
        "  policy maxUsageRequest: total 8000m - margin 3200m - used by the system 500m"
        " - used or requested by pods 3000m - used by pods that the API does not list 0m = 1300m (at least 0)",
        "  used by the system 500m = max(measured 400m + host applications 0m, reserved)",
        "  reserved 500m = max(kubelet 500m, annotation 0m)",
        "  at most 800m",
        "  × 1.50 of CPU normalization = 1200m",
        "  - 1000m that other schedulers have given away",
        "kubernetes.io/batch-memory 4.4Gi",
    ]
    assert found[9:11] == [
        "  policy request: total 16Gi - margin 5.6Gi - reserved 1Gi - requested by pods 5Gi = 4.4Gi (at least 0)",
        "  reserved 1Gi = max(kubelet 1Gi, annotation 0)",
    ]
    assert found[11:13] == ["kubernetes.io/mid-cpu 4000m", "  a fixed share of the capacity 4000m, at most 8000m"]
    assert found[-1].startswith("problem: annotation node.koordinator.sh/reservation: ")


def test_the_reason_for_nothing() -> None:
    assert lines(offered(SMALL, PODS, None)) == ["no batch and no mid resources: the node has no NodeMetric"]


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0"),
        (1023, "1023"),
        (1024, "1Ki"),
        (1536, "1.5Ki"),
        (7945689498, "7.4Gi"),
        (1 << 70, "1024Ei"),
        (-2048, "-2Ki"),
    ],
)
def test_memory_for_people(amount: int, text: str) -> None:
    assert amounts.memory_text(amount) == text
