"""CPU normalization of a pod's own cgroup: kubelet's quota is scaled, whatever it is."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from koord.host.files import Target
from qosd.decide.decision import Op, Stage
from qosd.model.policy import EffectivePolicy, HostFacts
from qosd.model.snapshot import PodView
from qosd.strategies.normalization import PodNormalization
from tests.qosd.contexts import extended, policy
from tests.qosd.podviews import EXITED, NOT_READY, snapshot, view

FASTER = policy(cpuNormalizationRatio=1.2)
ON_V1 = policy(HostFacts(cgroup_version=1), cpuNormalizationRatio=1.2)


def scaled(pod: PodView, by: EffectivePolicy = FASTER) -> dict[str, Any]:
    decision, _ = PodNormalization().decide(snapshot(by, pod), None)
    assert all(target.name == "cpu_quota" for target in decision.opinions)
    return {target.cgroup: one.value for target, one in decision.opinions.items() if one.op is Op.SCALE}


@pytest.mark.parametrize(
    ("pod", "is_scaled"),
    [
        (view("p", "LS"), True),
        (view("p", "", "Guaranteed"), True),
        (view("p", "LS", cpus="2-3"), False),
        (view("p", "BE", "BestEffort", EXTENDED=extended(limit="2000")), False),
        (view("p", "LS", band="koord-mid", EXTENDED=extended(kind="mid", limit="2000")), False),
        (view("p", "", band="koord-free"), False),
        (view("p", "LSR", "Guaranteed"), False),
        (view("p", "LS", state=NOT_READY, containers=[("main", EXITED)]), False),
    ],
)
def test_which_pods(pod: PodView, is_scaled: bool) -> None:
    assert scaled(pod) == ({pod.cgroup: pytest.approx(1 / 1.2)} if is_scaled else {})


def test_on_v1_a_scaled_pod_could_start_no_container_with_the_quota_that_kubelet_asks_for() -> None:
    assert scaled(view("p", "LS"), ON_V1) == {}


@pytest.mark.parametrize(
    ("node", "enabled"),
    [
        ({"cpuNormalizationRatio": 1.2}, True),
        ({"cpuNormalizationRatio": 1.0}, False),
        ({}, False),
        ({"cpuNormalizationRatio": 1.2, "hooks": {"cpuNormalization": False}}, False),
    ],
)
def test_when(node: dict[str, Any], enabled: bool) -> None:
    assert PodNormalization().enabled(snapshot(policy(**node))) is enabled


def test_says_by_what() -> None:
    decision, _ = PodNormalization().decide(snapshot(FASTER, view("p", "LS")), None)
    one = decision.opinions[Target("/kubepods/burstable/podp", "cpu_quota")]
    assert one.why == "kubelet's quota of the pod, divided by the CPU normalization ratio 1.2"
    assert one.op is Op.SCALE
    assert (one.inputs["ratio"], one.pod) == ("6/5", "default/p")
    assert isinstance(one.value, Fraction)
    assert math.ceil(120000 * one.value) >= 100000, "never below the sum of its containers"
    assert PodNormalization.stage is Stage.NORMALIZATION
