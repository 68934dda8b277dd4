"""How many CPUs a pod may have to itself by its annotation: as many as it requests, whoever wrote that."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from qosd.model.pod import HookStage, PodContext, Request, Resources


def context(
    cpus: str, request_milli: int | None = None, shares: int | None = None, stage: HookStage = HookStage.RUN_SANDBOX
) -> PodContext:
    annotations = {"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": cpus})}
    requested = Resources(cpu_shares=shares)
    request = Request(stage, "default", "p", "u", {}, annotations, "/kubepods/podu", requested)
    return PodContext.read(replace(request, cpu_request_milli=request_milli))


@pytest.mark.parametrize(
    ("cpus", "request_milli", "shares", "stage", "bound"),
    [
        ("2-3", 2000, None, HookStage.RUN_SANDBOX, "2-3"),
        ("2-3", 4000, None, HookStage.RUN_SANDBOX, "2-3"),
        ("1-63", 2000, None, HookStage.RUN_SANDBOX, "1-2"),
        ("1-63", 1500, None, HookStage.RUN_SANDBOX, "1-2"),
        ("1-63", 0, None, HookStage.RUN_SANDBOX, ""),
        ("1-63", 2000, 65536, HookStage.RUN_SANDBOX, "1-2"),
        ("1-63", None, 2048, HookStage.RUN_SANDBOX, "1-2"),
        ("1-63", None, 2, HookStage.RUN_SANDBOX, "1-63"),
        ("1-63", None, 1024, HookStage.CREATE, "1-63"),
        ("1-63", None, None, HookStage.RUN_SANDBOX, "1-63"),
        ("", 2000, None, HookStage.RUN_SANDBOX, ""),
    ],
    ids=[
        "as requested", "fewer", "more", "a part of a CPU", "nothing requested", "kubelet's list goes first",
        "by the shares of the whole pod", "shares that say nothing", "shares of one container", "nobody tells", "none",
    ],
)  # fmt: skip
def test_no_more_than_requested(
    cpus: str, request_milli: int | None, shares: int | None, stage: HookStage, bound: str
) -> None:
    pod = context(cpus, request_milli, shares, stage)
    assert pod.bound_cpus == bound
    assert [bound in problem for problem in pod.problems] == [True] * (bound != cpus)


def test_whoever_is_of_kubelets_best_effort_tier_requests_nothing() -> None:
    annotations = {"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": "1-63"})}
    parent = "/kubepods/besteffort/podu"
    pod = PodContext.read(
        Request(HookStage.RUN_SANDBOX, "default", "p", "u", {}, annotations, parent, Resources(cpu_shares=2))
    )
    assert pod.bound_cpus == ""
    assert pod.problems[0].endswith("it has none of them")


def test_what_is_said_of_it() -> None:
    (problem,) = context("1-63", 100).problems
    assert problem == (
        "annotation resource-status: CPUs 1-63 are more than the 100m that the pod requests; it has 1"
    )
