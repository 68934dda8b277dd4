"""How many CPUs a pod may have to itself by its annotation: as many as it requests, whoever wrote that."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from qosd.model.pod import HookStage, PodContext, Resources, RuntimeRequest

RUN, CREATE, UPDATE = HookStage.RUN_SANDBOX, HookStage.CREATE, HookStage.UPDATE


def context(
    cpus: str,
    request_milli: int | None = None,
    shares: int | None = None,
    stage: HookStage = RUN,
    pod_shares: int | None = None,
) -> PodContext:
    annotations = {"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": cpus})}
    requested = Resources(cpu_shares=shares)
    request = RuntimeRequest(stage, "default", "p", "u", {}, annotations, "/kubepods/podu", requested)
    return PodContext.read(replace(request, cpu_request_milli=request_milli, pod_shares=pod_shares))


@pytest.mark.parametrize(
    ("cpus", "request_milli", "shares", "stage", "pod_shares", "bound"),
    [
        ("2-3", 2000, None, RUN, None, "2-3"),
        ("2-3", 4000, None, RUN, None, "2-3"),
        ("1-63", 2000, None, RUN, None, "1-2"),
        ("1-63", 1500, None, RUN, None, "1-2"),
        ("1-63", 0, None, RUN, None, ""),
        ("1-63", 2000, 65536, RUN, None, "1-2"),
        ("1-63", 2000, 65536, CREATE, 65536, "1-2"),
        ("1-63", None, 2048, RUN, None, "1-2"),
        ("1-63", None, 2, RUN, None, ""),
        ("1-63", None, 10, CREATE, 10, "1"),
        ("1-63", None, 2, CREATE, 2, ""),
        ("2-3", None, 1024, CREATE, 2048, "2-3"),
        ("2-3", None, 2, CREATE, 2048, "2-3"),
        ("1-63", None, 1024, CREATE, 2048, "1-2"),
        ("1-63", None, None, UPDATE, 2048, "1-2"),
        ("1-63", None, 1024, CREATE, None, "1"),
        ("1-63", None, 2, CREATE, None, ""),
        ("1-63", None, None, RUN, None, "1-63"),
        ("", 2000, None, RUN, None, ""),
    ],
    ids=[
        "as requested", "fewer", "more", "a part of a CPU", "nothing requested", "kubelet's list goes first",
        "kubelet's list goes first at creation", "by the shares of the whole pod", "the least shares",
        "a container's creation", "the least shares at creation", "containers that share the set",
        "a sidecar without a request", "containers that share less", "an update of other values",
        "a container whose pod's shares nobody tells", "one that requests nothing", "nobody tells", "none",
    ],
)  # fmt: skip
def test_no_more_than_requested(
    cpus: str, request_milli: int | None, shares: int | None, stage: HookStage, pod_shares: int | None, bound: str
) -> None:
    pod = context(cpus, request_milli, shares, stage, pod_shares)
    assert pod.bound_cpus == bound
    assert [(bound or "none of them") in problem for problem in pod.problems] == [True] * (bound != cpus)


def test_whoever_is_of_kubelets_best_effort_tier_requests_nothing() -> None:
    annotations = {"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": "1-63"})}
    parent = "/kubepods/besteffort/podu"
    pod = PodContext.read(
        RuntimeRequest(HookStage.RUN_SANDBOX, "default", "p", "u", {}, annotations, parent, Resources(cpu_shares=2))
    )
    assert pod.bound_cpus == ""
    assert pod.problems[0].endswith("it has none of them")


def test_what_is_said_of_it() -> None:
    (problem,) = context("1-63", 100).problems
    assert problem == ("annotation resource-status: CPUs 1-63 are more than the 100m that the pod requests; it has 1")
