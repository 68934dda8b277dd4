"""Placement by load: every worked example and edge of the formulas, and explanations that agree with them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import pytest

from koord.model import core
from koord.model.nodemetric import NodeMetric
from koord.model.problem import Problem
from koord.scheduling import nodeusage, podestimate
from koord.scheduling.framework import Framework, WeightedPlugin
from koord.scheduling.loadsettings import LoadSettings, Thresholds, WindowChoice
from koord.scheduling.nodeusage import NodeUsage, PodMeasure, UsageSource
from koord.scheduling.plugins.loadaware import LoadAwareScheduling
from koord.scheduling.plugins.resources import NodeResourcesFit
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState
from tests.scheduling.clusters import node, pod
from tests.scheduling.test_plugins import rejected, scores, state_of

GI, MI = 1 << 30, 1 << 20
NOW_S = 1_767_225_600.0
"""2026-01-01T00:00:00Z."""
PREFIX = "scheduling.koordinator.sh/"
THRESHOLDS = f"{PREFIX}usage-thresholds"
FACTORS = f"{PREFIX}load-estimated-scaling-factors"
CPU_ABOVE, CPU_ABOVE_BY_WINDOW = "node(s) cpu usage exceed threshold", "node(s) cpu aggregated usage exceed threshold"
EXPIRED = "node(s) nodeMetric expired"
BE = {"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "koord-batch"}
PROD, MID, FREE = ({"koordinator.sh/priority-class": f"koord-{name}"} for name in ("prod", "mid", "free"))


def time_of(seconds: float) -> str:
    return datetime.fromtimestamp(NOW_S + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def sized(
    name: str,
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: str = "",
    **spec: Any,
) -> PodInfo:
    """``scheduled_s``, ``initialized_s``: after ``NOW_S``, when the conditions came to hold."""
    conditions = [
        {"type": type, "status": "True", "lastTransitionTime": time_of(spec.pop(key))}
        for type, key in (("PodScheduled", "scheduled_s"), ("Initialized", "initialized_s"))
        if key in spec
    ]
    resources = {"requests": dict(requests or {}), "limits": dict(limits or {})}
    owners = [{"kind": owner, "name": "o", "uid": "o", "controller": True}] if owner else []
    return pod(
        name,
        labels=labels,
        metadata={"annotations": dict(annotations or {}), "ownerReferences": owners},
        status={"conditions": conditions},
        containers=[{"name": "main", "resources": resources}],
        **spec,
    )


def usage(
    cpu: str = "14",
    memory: str = "60Gi",
    *,
    age_s: float = 10.0,
    pods: Mapping[str, tuple[str, str, str]] | None = None,
    windows: Mapping[str, Mapping[str, str]] | None = None,
    system: str = "0",
    interval_s: int | None = None,
    has_time: bool = True,
    is_empty: bool = False,
) -> NodeUsage:
    """``pods``: CPU, memory and priority by name; ``windows``: CPU by length and type. Goes the way of a NodeMetric."""
    policy = {} if interval_s is None else {"metricCollectPolicy": {"reportIntervalSeconds": interval_s}}
    aggregated = [
        {"duration": length, "usage": {type: {"resources": {"cpu": cpu}} for type, cpu in by_type.items()}}
        for length, by_type in (windows or {}).items()
    ]
    measured = {
        "nodeUsage": {"resources": {"cpu": cpu, "memory": memory}},
        "systemUsage": {"resources": {"cpu": system}},
        "aggregatedNodeUsages": aggregated,
    }
    of_pods = [
        {
            "namespace": "default",
            "name": name,
            "priority": priority,
            "podUsage": {"resources": {"cpu": cpu, "memory": memory}},
        }
        for name, (cpu, memory, priority) in (pods or {}).items()
    ]
    status = {
        **({"updateTime": time_of(-age_s)} if has_time else {}),
        **({} if is_empty else {"nodeMetric": measured, "podsMetric": of_pods}),
    }
    metric = core.read(NodeMetric, msgspec.json.encode({"spec": policy, "status": status}))
    return nodeusage.of_metric(metric, unexpected)


def unexpected(problem: Problem) -> None:
    raise AssertionError(str(problem))


def loaded(
    measured: NodeUsage | None,
    *pods: PodInfo,
    annotations: Mapping[str, str] | None = None,
    cpu: str = "32",
    memory: str = "128Gi",
) -> ClusterState:
    """One node, n1, with pods."""
    made = node("n1", cpu, memory, "200")
    made = msgspec.structs.replace(
        made, metadata=msgspec.structs.replace(made.metadata, annotations=dict(annotations or {}))
    )
    state = state_of(made, pods=pods)
    state.loads.advance(NOW_S)
    state.loads.put_metric("n1", measured)
    return state


def text_of(settings: LoadSettings, state: ClusterState, waiting: PodInfo) -> str:
    """Why the node is rejected, on which all that a plugin says agrees."""
    return reason_of(settings, state, waiting)[0]


def reason_of(settings: LoadSettings, state: ClusterState, waiting: PodInfo) -> tuple[str, str]:
    plugin = LoadAwareScheduling(settings)
    ((text, detail, is_resolvable),) = rejected(plugin, state, waiting)
    assert is_resolvable
    said = [each.reason for each in plugin.rejections(state, waiting) if each.rows[0]]
    assert said == ([text] if text else [])
    return text, detail


BIG = sized("big", {"cpu": "4", "memory": "8Gi"}, {"cpu": "8", "memory": "16Gi"})
"""Estimated to use 6.8 CPUs and 12025908429 bytes."""
DEFAULT = LoadSettings()


# the estimate


@pytest.mark.parametrize(
    ("waiting", "settings", "amounts"),
    [
        pytest.param(BIG, DEFAULT, (6800, 12_025_908_429), id="of the limits, which are more"),
        pytest.param(
            sized("p", {"cpu": "4", "memory": "8Gi"}, {"cpu": "4", "memory": "8Gi"}),
            DEFAULT,
            (3400, 6_012_954_214),
            id="requests as limits",
        ),
        pytest.param(sized("p"), DEFAULT, (250, 209_715_200), id="nothing requested"),
        pytest.param(
            sized("p", {"cpu": "4", "memory": "8Gi"}),
            DEFAULT,
            (3400, 6_012_954_214),
            id="without limits it shrinks, too",
        ),
        pytest.param(
            sized("p", {"cpu": "4"}, {"cpu": "4"}),
            replace(DEFAULT, factors=(("cpu", 100), ("memory", 70))),
            (4000, 209_715_200),
            id="a factor of 100",
        ),
        pytest.param(
            sized("p", {"kubernetes.io/batch-cpu": "4000", "kubernetes.io/batch-memory": "8Gi"}, labels=BE),
            DEFAULT,
            (3400, 6_012_954_214),
            id="a batch pod by what batch pods have",
        ),
        pytest.param(sized("p", labels=BE), DEFAULT, (250, 209_715_200), id="a batch pod that requests nothing"),
        pytest.param(sized("p", {"kubernetes.io/mid-cpu": "1000"}, labels=MID), DEFAULT, (850, 0), id="a mid pod"),
        pytest.param(sized("p", {"cpu": "4"}, labels=FREE), DEFAULT, (0, 0), id="a free pod"),
        pytest.param(
            sized("p", {"cpu": "1"}, {"cpu": "1"}, annotations={FACTORS: '{"cpu":80}'}),
            replace(DEFAULT, may_be_customized=True),
            (800, 209_715_200),
            id="the pod's own factor",
        ),
        pytest.param(
            sized("p", {"cpu": "1"}, annotations={FACTORS: '{"cpu":80}'}),
            DEFAULT,
            (850, 209_715_200),
            id="which counts only if it may",
        ),
        pytest.param(
            sized("p", {"cpu": "1"}, annotations={FACTORS: '{"cpu":'}),
            replace(DEFAULT, may_be_customized=True),
            (850, 209_715_200),
            id="one that cannot be read",
        ),
        pytest.param(
            sized("p", {"cpu": "1"}, {"cpu": "1"}, annotations={FACTORS: '{"cpu":200}'}),
            replace(DEFAULT, may_be_customized=True),
            (1000, 209_715_200),
            id="no more than the limit",
        ),
    ],
)
def test_what_a_pod_is_estimated_to_use(waiting: PodInfo, settings: LoadSettings, amounts: tuple[int, int]) -> None:
    assert podestimate.of(waiting, settings).amounts == amounts


# thresholds and scores

SMALL = sized("small", {"cpu": "1"}, {"cpu": "1"})
"""Estimated to use 0.85 CPUs."""
WINDOWS = {"5m": {"avg": "10", "p95": "22"}, "30m0s": {"p95": "20"}}


def by_window(aggregation: str, duration_ns: int = 0, **changes: Any) -> LoadSettings:
    return LoadSettings(Thresholds((("cpu", 65),), WindowChoice(aggregation, duration_ns)), **changes)


def own(**said: Any) -> dict[str, str]:
    return {THRESHOLDS: msgspec.json.encode(said).decode()}


@pytest.mark.parametrize(
    ("state", "waiting", "settings", "text", "score"),
    [
        # 20800 of 32000 are 65 %, which is not above 65; memory 55.6 %. (35 + 44) / 2
        pytest.param(loaded(usage()), BIG, DEFAULT, "", 39, id="at the threshold"),
        pytest.param(
            loaded(usage()), BIG, replace(DEFAULT, dominant_weight=1), "", 38, id="(35+44+35)/3 with the dominant one"
        ),
        pytest.param(
            loaded(usage()), BIG, replace(DEFAULT, weights=(), dominant_weight=1), "", 35, id="the dominant one alone"
        ),
        pytest.param(loaded(usage()), BIG, replace(DEFAULT, weights=()), "", 0, id="no weights"),
        # 20960 of 32000 are 65.5 %, which are rounded to 66
        pytest.param(loaded(usage("14160m")), BIG, DEFAULT, CPU_ABOVE, None, id="half a percent above"),
        pytest.param(loaded(usage("14159m")), BIG, DEFAULT, "", 39, id="just below half a percent above"),
        pytest.param(loaded(usage(memory="125Gi")), SMALL, DEFAULT, "node(s) memory usage exceed threshold", None,
                     id="memory"),
        pytest.param(loaded(usage("31", "125Gi")), BIG, DEFAULT, CPU_ABOVE, None, id="both: one is told"),
        pytest.param(
            loaded(usage("31")), BIG, LoadSettings(Thresholds((("cpu", 0), ("memory", 0)))), "", 22, id="no thresholds"
        ),
        pytest.param(loaded(usage("31")), sized("d", owner="DaemonSet"), DEFAULT, "", 27, id="of a DaemonSet"),
        pytest.param(loaded(None), BIG, DEFAULT, "", 0, id="nobody measures it: the last choice"),
        pytest.param(loaded(usage(age_s=180)), BIG, DEFAULT, EXPIRED, None, id="expired"),
        pytest.param(loaded(usage(age_s=179)), BIG, DEFAULT, "", 39, id="a second before"),
        pytest.param(loaded(usage(has_time=False)), BIG, DEFAULT, EXPIRED, None, id="measured at no time"),
        pytest.param(loaded(usage(has_time=False, is_empty=True)), BIG, DEFAULT, EXPIRED, None, id="not measured yet"),
        pytest.param(
            loaded(usage(has_time=False)), BIG, LoadSettings(Thresholds(())), "", 0, id="expired, and no threshold"
        ),
        pytest.param(
            loaded(usage("31", age_s=999)), BIG, replace(DEFAULT, passes_when_expired=True), "", 0, id="expired, passes"
        ),
        # as the chart's profile has it: what is old filters, and does not score
        pytest.param(
            loaded(usage("31", age_s=999)), BIG, replace(DEFAULT, filters_expired=False), CPU_ABOVE, None,
            id="expired, filters all the same",
        ),
        pytest.param(
            loaded(usage(age_s=999)), BIG, replace(DEFAULT, filters_expired=False), "", 0, id="expired, does not score"
        ),
        pytest.param(loaded(usage(is_empty=True)), BIG, DEFAULT, "", 0, id="an empty one"),
        pytest.param(loaded(usage("31"), cpu="0"), BIG, DEFAULT, "", 22, id="no capacity"),
        pytest.param(loaded(usage("10"), cpu="9"), BIG, LoadSettings(Thresholds(())), "", 22, id="more than there is"),
        # amplified: 32 allocatable are 16 real ones
        pytest.param(
            loaded(
                usage("10"),
                annotations={
                    "node.koordinator.sh/raw-allocatable": '{"cpu":"16","memory":"128Gi"}',
                    "node.koordinator.sh/resource-amplification-ratio": '{"cpu":2}',
                },
            ),
            SMALL, DEFAULT, CPU_ABOVE, None, id="capacity is that before amplification",
        ),
        pytest.param(loaded(usage(windows=WINDOWS)), SMALL, by_window("p95"), "", 52, id="the longest window"),
        pytest.param(
            loaded(usage(windows=WINDOWS)), SMALL, by_window("p95", 300 * 10**9), CPU_ABOVE_BY_WINDOW, None,
            id="a window of that length",
        ),
        pytest.param(
            loaded(usage("21", windows=WINDOWS)), SMALL, by_window("p50"), CPU_ABOVE_BY_WINDOW, None,
            id="none at all: what is used now",
        ),
        pytest.param(
            loaded(usage("31", windows=WINDOWS)), SMALL, by_window("p95", 60 * 10**9), "", 26,
            id="none of that length: what is estimated of its pods, and there are none",
        ),
        pytest.param(
            loaded(usage("31", windows=WINDOWS), sized("x", {"cpu": "25"}, nodeName="n1", scheduled_s=-9999)), SMALL,
            by_window("p95", 60 * 10**9), CPU_ABOVE_BY_WINDOW, None,
            id="none of that length: what is estimated of all its pods",
        ),
        # (32000 - 20850) * 100 / 32000 = 34, memory 52
        pytest.param(
            loaded(usage(windows=WINDOWS)), SMALL, replace(DEFAULT, score_window=WindowChoice("p95")), "", 66,
            id="scores by a window, which has no memory",
        ),
        # the node's own
        pytest.param(
            loaded(usage("10"), annotations=own(usageThresholds={"cpu": 30})), SMALL, DEFAULT, CPU_ABOVE, None,
            id="its own threshold",
        ),
        pytest.param(
            loaded(usage("10", "127Gi"), annotations=own(usageThresholds={"cpu": 60})), SMALL, DEFAULT, "", 33,
            id="its own take the place of all",
        ),
        pytest.param(
            loaded(usage("10"), annotations=own(usageThresholds={})), SMALL, DEFAULT, "", 59, id="an empty section"
        ),
        pytest.param(
            loaded(
                usage("10", windows=WINDOWS),
                annotations=own(
                    aggregatedUsage={
                        "usageThresholds": {"cpu": 60}, "usageAggregationType": "p95", "usageAggregatedDuration": "5m"
                    }
                ),
            ),
            SMALL, DEFAULT, CPU_ABOVE_BY_WINDOW, None, id="its own window",
        ),
        pytest.param(
            loaded(usage("10", windows=WINDOWS), annotations=own(aggregatedUsage={"usageThresholds": {"cpu": 1}})),
            SMALL, DEFAULT, "", 59, id="a window without its type counts as none",
        ),
    ],
)  # fmt: skip
def test_filter_and_score(
    state: ClusterState, waiting: PodInfo, settings: LoadSettings, text: str, score: int | None
) -> None:
    assert text_of(settings, state, waiting) == text
    if score is not None:
        assert scores(LoadAwareScheduling(settings), state, waiting) == [score]


# pods that are there


def placed(name: str, scheduled_s: float, cpu: str = "2", **changes: Any) -> PodInfo:
    return sized(name, {"cpu": cpu}, {"cpu": cpu}, nodeName="n1", scheduled_s=scheduled_s, **changes)


MEASURED = {"x": ("1", "1Gi", "koord-prod")}
CUSTOM = {f"{PREFIX}load-estimated-seconds-after-pod-scheduled": "300"}
INITIALIZED = {f"{PREFIX}load-estimated-seconds-after-initialized": "300"}


@pytest.mark.parametrize(
    ("there", "pods", "settings", "added_milli"),
    [
        pytest.param(placed("x", -500), {}, DEFAULT, 1700, id="not in the measurement"),
        pytest.param(placed("x", -500), MEASURED, DEFAULT, 0, id="measured long ago"),
        # measured 10 s ago, an interval of 60 s: -70 is not after that
        pytest.param(placed("x", -70), MEASURED, DEFAULT, 0, id="an interval before the measurement"),
        pytest.param(placed("x", -69), MEASURED, DEFAULT, 700, id="within an interval: what is more than was measured"),
        pytest.param(
            placed("x", -69), {"x": ("3", "1Gi", "")}, DEFAULT, 0, id="more was measured than is estimated"
        ),
        pytest.param(
            placed("x", -200), MEASURED, replace(DEFAULT, seconds_after_scheduled=190), 0, id="the deadline is over"
        ),
        pytest.param(
            placed("x", -200), MEASURED, replace(DEFAULT, seconds_after_scheduled=191), 700, id="a deadline after it"
        ),
        pytest.param(
            placed("x", -500, initialized_s=-200), MEASURED, replace(DEFAULT, seconds_after_initialized=191), 700,
            id="a deadline after it was initialized",
        ),
        pytest.param(
            placed("x", -200, initialized_s=-199), MEASURED,
            replace(DEFAULT, seconds_after_scheduled=9999, seconds_after_initialized=10), 0,
            id="which comes before the other one",
        ),
        pytest.param(
            placed("x", -200), MEASURED,
            replace(DEFAULT, seconds_after_scheduled=191, seconds_after_initialized=10), 700,
            id="but not before it is initialized",
        ),
        pytest.param(
            placed("x", -200, annotations=CUSTOM), MEASURED, replace(DEFAULT, may_be_customized=True), 700,
            id="the pod's own deadline",
        ),
        pytest.param(placed("x", -200, annotations=CUSTOM), MEASURED, DEFAULT, 0, id="which counts only if it may"),
        pytest.param(
            placed("x", -500, initialized_s=-200, annotations=INITIALIZED), MEASURED,
            replace(DEFAULT, may_be_customized=True), 700, id="its own after it was initialized",
        ),
        pytest.param(
            placed("y", -5, labels=BE), {}, DEFAULT, 250, id="a batch pod by its own resources",
        ),
    ],
)  # fmt: skip
def test_pods_that_came_lately(
    there: PodInfo, pods: Mapping[str, tuple[str, str, str]], settings: LoadSettings, added_milli: int
) -> None:
    state = loaded(usage("14", pods=pods), there)
    load = state.loads.of(settings)
    assert load.at(0, False).used[0] == load.at(0, False).scored[0] == 14_000 + added_milli
    state.remove_pod(there.uid)
    assert load.at(0, False).used[0] == 14_000


def test_an_interval_is_the_metrics_own() -> None:
    state = loaded(usage("14", pods=MEASURED, interval_s=300), placed("x", -290))
    assert state.loads.of(DEFAULT).at(0, False).used[0] == 14_700


def test_an_assumed_pod_counts_from_when_it_was_assumed() -> None:
    state = loaded(usage("14"))
    load = state.loads.of(DEFAULT)
    state.assume(sized("x", {"cpu": "2"}), "n1")
    assert load.at(0, False).used[0] == 15_700
    state.loads.advance(NOW_S + 100)
    state.loads.put_metric("n1", usage("16", age_s=-100, pods={"x": ("1", "0", "")}))
    assert load.at(0, False).used[0] == 16_000, "an interval after it was assumed, it is measured"
    state.loads.put_metric("n1", usage("16", age_s=-50, pods={"x": ("1", "0", "")}))
    assert load.at(0, False).used[0] == 16_700
    state.forget("x")
    assert load.at(0, False).used[0] == 16_000


def test_a_burst_stops_at_the_threshold() -> None:
    """200 pods that use nothing yet: the estimates alone keep the node below its threshold."""
    state = loaded(usage("10"))
    framework = Framework(state, (WeightedPlugin(LoadAwareScheduling()),))
    count = 0
    while (placement := framework.place(waiting := sized(f"p{count}", {"cpu": "1"}, {"cpu": "1"}))) is not None:
        state.assume(waiting, placement.node)
        count += 1
    assert count == 12  # 10000 + 12 * 850 = 20200, 63 %; with one more 66 %
    said = reason_of(DEFAULT, state, sized("q", {"cpu": "1"}, {"cpu": "1"}))
    assert said == (
        CPU_ABOVE,
        "66 % of 32 cpu, above 65 %: 0.85 for this pod + 10.2 of 12 pods, estimated beyond what was measured + 10 "
        "measured 10s ago by NodeMetric",
    )


def test_pods_that_the_stream_leaves_out_are_those_of_the_metric() -> None:
    """Agents report no batch pods there: such a pod is measured all the same."""
    state = loaded(usage("14", pods=MEASURED, interval_s=300), placed("x", -500), placed("y", -200))
    state.loads.put_fresh("n1", usage("16", age_s=1)._replace(source=UsageSource.STREAM))
    load = state.loads.of(DEFAULT)
    assert load.at(0, False).used[0] == 16_000 + 1700, "y is in neither"
    fresh = usage("16", age_s=1, pods={"y": ("1", "0", "")})._replace(source=UsageSource.STREAM)
    state.loads.put_fresh("n1", fresh)
    assert load.at(0, False).used[0] == 16_700, "for the metric's interval y counts as estimated"
    state.loads.put_fresh("n1", None)
    assert load.at(0, False).used[0] == 14_000 + 1700


# prod

BY_PROD = LoadSettings(Thresholds(prod=(("cpu", 50),)))
OF_PRODS = {"a": ("9", "1Gi", "koord-prod"), "b": ("4", "1Gi", "koord-batch"), "c": ("2", "1Gi", "koord-prod")}
"""c is none of koord-prod by its spec."""


@pytest.mark.parametrize(
    ("settings", "used_milli"),
    [
        pytest.param(BY_PROD, 9000, id="of koord-prod both in the spec and in the metric"),
        pytest.param(replace(BY_PROD, prod_includes_system=True), 12_000, id="with the system's"),
    ],
)
def test_what_prod_pods_use(settings: LoadSettings, used_milli: int) -> None:
    there = placed("a", -999), placed("c", -999, labels=BE)
    state = loaded(usage("31", pods=OF_PRODS, system="3"), *there)
    load = state.loads.of(settings)
    assert (load.at(0, True).used[0], load.at(0, False).used[0]) == (used_milli, 31_000)
    scored = state.loads.of(replace(settings, scores_prod=True))
    assert (scored.at(0, True).scored[0], scored.at(0, False).scored[0]) == (used_milli, 31_000)
    state.remove_pod("a")
    assert load.at(0, True).used[0] == used_milli - 9000


@pytest.mark.parametrize(
    ("there", "pods", "used_milli"),
    [
        pytest.param(placed("x", -999), {"x": ("1", "0", "koord-batch")}, 1700, id="the metric says it is no prod pod"),
        pytest.param(placed("x", -999), {"x": ("1", "0", "")}, 1000, id="the metric does not say"),
        pytest.param(placed("x", -20), {"x": ("1", "0", "koord-prod")}, 1700, id="it came lately"),
        pytest.param(placed("x", -20), {"x": ("3", "0", "koord-prod")}, 3000, id="it came lately and uses more"),
        pytest.param(placed("x", -999), {}, 1700, id="it is not measured"),
        pytest.param(placed("x", -20, labels=BE), {}, 0, id="a batch pod"),
    ],
)
def test_estimates_of_prod_pods(there: PodInfo, pods: Mapping[str, tuple[str, str, str]], used_milli: int) -> None:
    assert loaded(usage("31", pods=pods), there).loads.of(BY_PROD).at(0, True).used[0] == used_milli


def test_thresholds_of_prod_are_for_prod_pods() -> None:
    state = loaded(usage("31", pods={"a": ("9", "0", "koord-prod")}), placed("a", -999))
    assert text_of(BY_PROD, state, sized("p", {"cpu": "1"}, labels=PROD)) == ""
    assert text_of(BY_PROD, state, sized("p", {"cpu": "1"}, labels=BE)) == CPU_ABOVE
    assert text_of(DEFAULT, state, sized("p", {"cpu": "1"}, labels=PROD)) == CPU_ABOVE, "without any: as others"
    of_node = loaded(usage("31", pods=OF_PRODS), placed("a", -999), annotations=own(prodUsageThresholds={"cpu": 25}))
    assert text_of(DEFAULT, of_node, sized("p", {"cpu": "1"}, labels=PROD)) == CPU_ABOVE
    assert text_of(DEFAULT, of_node, sized("p", labels=PROD)) == CPU_ABOVE


# what is wrong costs itself


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (
            {"nodeMetric": {"nodeUsage": {"resources": {"cpu": "x"}}}},
            "status.nodeMetric.nodeUsage.resources.cpu: 'x' is",
        ),
        ({"updateTime": "yesterday"}, "status.updateTime: 'yesterday' is no time"),
        (
            {"podsMetric": [{"namespace": "a", "name": "b", "podUsage": {"resources": {"cpu": "x"}}}]},
            "status.podsMetric[a/b].podUsage.resources.cpu: 'x' is",
        ),
        (
            {"nodeMetric": {"aggregatedNodeUsages": [{"duration": "x"}]}},
            "status.nodeMetric.aggregatedNodeUsages[0].duration: 'x' is no duration",
        ),
    ],
)
def test_what_cannot_be_read_is_never_none(status: dict[str, Any], problem: str) -> None:
    problems: list[Problem] = []
    metric = core.read(NodeMetric, msgspec.json.encode({"status": status}))
    found = nodeusage.of_metric(metric, problems.append)
    assert [str(each).startswith(problem) for each in problems] == [True]
    if "nodeUsage" in problem:
        assert found.node is None, "not measured, instead of idle"
    assert not found.pods


def test_a_nodes_own_thresholds_that_cannot_be_read() -> None:
    made = node("n1")
    annotations = own(aggregatedUsage={
        "usageThresholds": {"cpu": 1}, "usageAggregationType": "p95", "usageAggregatedDuration": "soon"
    })  # fmt: skip
    made = msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, annotations=annotations))
    (problem,) = ClusterState().put_node(made)
    assert str(problem) == f"annotation {THRESHOLDS}: usageAggregatedDuration 'soon' is no duration"


# whom a measurement helps


@pytest.mark.parametrize(
    ("before", "after", "settings", "is_helped"),
    [
        pytest.param(usage("20"), usage("15"), DEFAULT, True, id="it uses less"),
        pytest.param(usage("20"), usage("20500m"), DEFAULT, False, id="it uses more"),
        pytest.param(usage("30"), usage("25"), DEFAULT, False, id="less, and still too much for any pod"),
        pytest.param(usage("15"), usage("10"), DEFAULT, False, id="no pod was kept off it before"),
        pytest.param(usage("25"), None, DEFAULT, True, id="nobody measures it any more"),
        pytest.param(usage(has_time=False), usage(), DEFAULT, True, id="it is measured at last"),
    ],
)
def test_whom_a_measurement_helps(
    before: NodeUsage, after: NodeUsage | None, settings: LoadSettings, is_helped: bool
) -> None:
    state = loaded(before)
    helped: list[int] = []
    state.loads.helped = helped.append
    LoadAwareScheduling(settings).filter(state, sized("w", {"cpu": "2"}))
    state.loads.put_metric("n1", after)
    assert helped == ([0] if is_helped else [])


def test_a_measurement_expires_with_the_time_alone() -> None:
    passing = replace(DEFAULT, passes_when_expired=True)
    state = loaded(usage("31"))
    helped: list[int] = []
    state.loads.helped = helped.append
    assert (text_of(DEFAULT, state, BIG), text_of(passing, state, BIG)) == (CPU_ABOVE, CPU_ABOVE)
    state.loads.advance(NOW_S + 169)
    assert (text_of(DEFAULT, state, BIG), helped) == (CPU_ABOVE, [])
    version = state.version
    state.loads.advance(NOW_S + 170)
    assert (text_of(DEFAULT, state, BIG), text_of(passing, state, BIG), helped) == (EXPIRED, "", [0])
    assert state.changed_rows(version) == {0}


# rules


class LoadHistory:
    """Nodes that are measured, pods that come and go, in an order that a seed decides."""

    def __init__(self, seed: int) -> None:
        self.draw, self.state = random.Random(seed), ClusterState()
        self.nodes: dict[str, Any] = {}
        self.pods: dict[str, PodInfo] = {}
        self.usages: dict[str, tuple[NodeUsage | None, NodeUsage | None]] = {}
        self.now_s = NOW_S
        self.count = 0
        self.state.loads.advance(NOW_S)
        for index in range(5):
            self.put_node(f"n{index}")
        window = WindowChoice(self.draw.choice(["p95", "avg"]), self.draw.choice([0, 300 * 10**9, 60 * 10**9]))
        self.settings = LoadSettings(
            Thresholds((("cpu", 50), ("memory", 60)), self.draw.choice([None, window]),
                       self.draw.choice([(), (("cpu", 30),)])),
            filters_expired=self.draw.random() < 0.7, passes_when_expired=self.draw.random() < 0.5,
            prod_includes_system=self.draw.random() < 0.5, scores_prod=self.draw.random() < 0.5,
            score_window=self.draw.choice([None, window]),
            seconds_after_scheduled=self.draw.choice([None, 100]),
            seconds_after_initialized=self.draw.choice([None, 30]),
            dominant_weight=self.draw.choice([0, 3]), may_be_customized=self.draw.random() < 0.5,
        )  # fmt: skip
        self.plugin = LoadAwareScheduling(self.settings)

    def put_node(self, name: str) -> None:
        made = node(name, self.draw.choice(["8", "16"]), "32Gi", "30")
        by_average = {"usageThresholds": {"cpu": 45}, "usageAggregationType": "avg"}
        sections = (
            {"usageThresholds": {"cpu": 40}},
            {"prodUsageThresholds": {"cpu": 20}},
            {"aggregatedUsage": by_average},
        )
        said = self.draw.choice([{}, {}, *[own(**each) for each in sections]])
        metadata = msgspec.structs.replace(made.metadata, annotations=said)
        self.nodes[name] = msgspec.structs.replace(made, metadata=metadata)
        self.state.put_node(self.nodes[name])

    def pod(self, name: str = "") -> PodInfo:
        draw = self.draw
        self.count += 1
        spec: dict[str, Any] = {"nodeName": name} if name else {}
        if name:
            spec["scheduled_s"] = self.now_s - NOW_S - draw.randrange(200)
            if draw.random() < 0.5:
                spec["initialized_s"] = spec["scheduled_s"] + 5
        return sized(
            f"p{self.count}", {"cpu": draw.choice(["500m", "2"])}, {"cpu": draw.choice(["2", "3"])},
            labels=draw.choice([{}, BE, PROD, FREE]), annotations=draw.choice([{}, CUSTOM]),
            owner=draw.choice(["", "ReplicaSet", "DaemonSet"]), **spec,
        )  # fmt: skip

    def usage(self, source: UsageSource = UsageSource.NODE_METRIC) -> NodeUsage:
        draw = self.draw
        named = draw.sample(sorted(self.pods), min(len(self.pods), 6))
        pods = {
            f"default/{each}": PodMeasure(draw.randrange(3000), draw.randrange(GI), draw.choice([None, True, False]))
            for each in named
        }
        made = usage(str(draw.randrange(10)), f"{draw.randrange(20)}Gi", system="1", is_empty=draw.random() < 0.1,
                     windows=draw.choice([{}, {"5m": {"p95": "6", "avg": "3"}}]))  # fmt: skip
        return made._replace(pods=pods, source=source, measured_s=self.now_s - draw.randrange(200))

    def step(self) -> None:
        draw, kind = self.draw, self.draw.random()
        name = draw.choice(["gone", *self.nodes])
        if kind < 0.3:
            made = self.pod(name)
            self.pods[made.uid] = made
            self.state.put_pod(made)
        elif kind < 0.4 and self.pods:
            self.state.remove_pod(uid := draw.choice(sorted(self.pods)))
            del self.pods[uid]
        elif kind < 0.7:
            metric, fresh = self.usages.get(name, (None, None))
            if draw.random() < 0.6:
                self.usages[name] = draw.choice([None, self.usage(), self.usage()]), fresh
                self.state.loads.put_metric(name, self.usages[name][0])
            else:
                stream = self.usage(UsageSource.STREAM)
                self.usages[name] = metric, draw.choice([None, stream])
                self.state.loads.put_fresh(name, self.usages[name][1])
        elif kind < 0.8:
            self.now_s += draw.randrange(60)
            self.state.loads.advance(self.now_s)
        elif kind < 0.9:
            self.put_node(draw.choice([*self.nodes, "gone"]))
        elif len(self.nodes) > 2:
            self.state.remove_node(gone := draw.choice(sorted(self.nodes)))
            del self.nodes[gone]

    def anew(self) -> ClusterState:
        """A state that is told the same in another order."""
        state = ClusterState()
        state.loads.of(self.settings)
        for made in reversed(self.pods.values()):
            state.put_pod(made)
        for name, (metric, fresh) in self.usages.items():
            state.loads.put_fresh(name, fresh)
            state.loads.put_metric(name, metric)
        for made in self.nodes.values():
            state.put_node(made)
        state.loads.advance(self.now_s)
        return state


@pytest.mark.parametrize("seed", range(16))
def test_explanations_agree_and_a_state_is_what_it_was_told(seed: int) -> None:
    history = LoadHistory(seed)
    framework = Framework(history.state, (WeightedPlugin(NodeResourcesFit()), WeightedPlugin(history.plugin)), seed)
    for step in range(120):
        history.step()
        waiting = [history.pod() for _ in range(2)]
        state = history.state
        for each in waiting:
            passed = history.plugin.filter(state, each)
            scored = history.plugin.score(state, each, state.table.exists)
            reasons = history.plugin.rejections(state, each)
            for row in np.flatnonzero(state.table.exists).tolist():
                said = history.plugin.explain(state, each, row, state.table.exists)
                assert bool(said.reasons) == (passed is not None and not passed[row]), step
                assert [one.text for one in said.reasons] == [one.reason for one in reasons if one.rows[row]]
                if not said.reasons:
                    assert said.score == (scored if isinstance(scored, int) else scored[row])
                    assert 0 <= (said.score or 0) <= 100
            anew = Framework(state, framework.plugins, seed)
            assert (framework.feasible(each) == anew.feasible(each)).all(), (
                "a shared evaluation is one from the beginning"
            )
            if (placement := framework.place(each)) is not None:
                assert placement.node == getattr(anew.place(each), "node", "")
        if step % 10 == 9:
            rebuilt = history.anew()
            other, ours = rebuilt.loads.of(history.settings), state.loads.of(history.settings)
            for name in history.nodes:
                rows = [each.table.row(name) for each in (state, rebuilt)]
                for is_prod in (False, True):
                    assert ours.at(rows[0] or 0, is_prod) == other.at(rows[1] or 0, is_prod), (step, name)


# a burst

USES_MILLI = 850
"""Of each pod of the burst, once it has begun: what was estimated of it."""


@pytest.mark.parametrize("source", [None, UsageSource.STREAM], ids=["without the stream", "with the stream"])
@pytest.mark.parametrize("seed", range(5))
def test_a_burst_of_200_pods_leaves_no_node_above_its_threshold(seed: int, source: UsageSource | None) -> None:
    """Ten nodes, half of them hot; pods that use nothing at first. Some nodes are measured on the way, and see pods
    that have not begun: that changes nothing, since those still count with their estimates.
    """
    draw, state = random.Random(seed), ClusterState()
    state.loads.advance(NOW_S)
    begun = {f"n{index}": 1000 * (18 if index % 2 else 4) for index in range(10)}
    for name in begun:
        state.put_node(node(name, "32", "1024Gi", "200"))

    def measure(name: str, source: UsageSource) -> None:
        pods = {f"default/{each.name}": PodMeasure(draw.randrange(20), MI, None) for each in state.pods_on(name)}
        total = begun[name] + sum(each.cpu_milli for each in pods.values())
        made = NodeUsage(source, state.loads.now_s, {"cpu": total, "memory": GI}, {}, pods)
        (state.loads.put_metric if source is UsageSource.NODE_METRIC else state.loads.put_fresh)(name, made)

    for name in begun:
        measure(name, UsageSource.NODE_METRIC)
    framework = Framework(state, (WeightedPlugin(LoadAwareScheduling()),), seed)
    without = 0
    for index in range(200):
        state.loads.advance(NOW_S + index * 0.05)
        if index % 3 == 0:
            measure(draw.choice(sorted(begun)), source or UsageSource.NODE_METRIC)
        waiting = sized(f"b{index}", {"cpu": "1", "memory": "64Mi"}, {"cpu": "1", "memory": "64Mi"})
        placement = framework.place(waiting)
        if placement is None:
            without += 1
        else:
            state.assume(waiting, placement.node)
    final = {name: milli + USES_MILLI * sum(1 for _ in state.pods_on(name)) for name, milli in begun.items()}
    assert all((200 * used + 32_000) // 64_000 <= 65 for used in final.values()), final
    assert without == 200 - (5 * ((20_959 - 4000) // USES_MILLI) + 5 * ((20_959 - 18_000) // USES_MILLI))
