"""``koordctl explain pod`` in a cluster: the one cause of what became of a pod, of an API server in memory."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from koord.model import eventreasons
from koord.model.locations import INSPECT_SOCKET
from koordctl.exits import OK, REFUSED, USAGE
from tests.koordctl.clusters import LABELS, Cluster, time_before
from tests.koordctl.runs import koordctl
from tests.support.cluster import METRICS, PROFILES

# --- which pod of which cluster --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("a/b/c",), "Invalid value for NAME: 'b/c' cannot be"),
        (("jobs/",), "Invalid value for NAME: '' cannot be"),
        (("../p",), "Invalid value for the namespace: '..' cannot be"),
        (("p", "-n", "a/b"), "Invalid value for the namespace: 'a/b' cannot be"),
        (("p", "--koord-namespace", "%"), "Invalid value for --koord-namespace: '%' cannot be"),
    ],
)
async def test_a_name_that_no_pod_can_have(
    cluster: Cluster, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    code, _, err = await cluster.run(tmp_path, "explain", "pod", *arguments)
    assert (code, says in err, cluster.server.requests) == (USAGE, True, [])


@pytest.mark.parametrize(
    ("context", "arguments", "pod"),
    [
        ({}, ("p",), "default/p"),
        ({"namespace": "jobs"}, ("p",), "jobs/p"),
        ({"namespace": "jobs"}, ("p", "-n", "web"), "web/p"),
        ({"namespace": "jobs"}, ("web/p",), "web/p"),
    ],
)
async def test_the_namespace(
    cluster: Cluster, tmp_path: Path, context: dict[str, str], arguments: tuple[str, ...], pod: str
) -> None:
    async with cluster.flags(tmp_path, **context) as flag:
        code, _, err = await koordctl("explain", "pod", *arguments, flag)
    assert (code, f"there is no pod {pod}," in err) == (REFUSED, True)


@pytest.mark.parametrize(
    ("arguments", "environment", "answers"),
    [
        (("--socket", "/none/qosd.sock"), {}, "no socket at /none/qosd.sock"),
        (("--socket", "unix:/none/qosd.sock"), {}, "no socket at /none/qosd.sock"),
        ((), {"KOORD_INSPECT_SOCKET": "/none/qosd.sock"}, "no socket at /none/qosd.sock"),
        ((), {}, "there is no pod jobs/p"),
        (("--socket", "/none/qosd.sock", "--cluster"), {}, "there is no pod jobs/p"),
    ],
)
async def test_who_is_asked_where_no_daemon_runs(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...],
    environment: dict[str, str], answers: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(os.path, "exists", lambda path: path != INSPECT_SOCKET and os.path.lexists(path))
    async with cluster.flags(tmp_path) as flag:
        file = flag.removeprefix("--kubeconfig=")
        _, _, err = await koordctl("explain", "pod", "jobs/p", *arguments, KUBECONFIG=file, **environment)
    assert answers in err


# --- the cause -------------------------------------------------------------------------------------------------------


def _unscheduled(message: str) -> dict[str, Any]:
    return {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]}


def _terminated(*ends: tuple[Any, ...]) -> dict[str, Any]:
    """Reason, exit code and, at times, message of each container."""
    members = [dict(zip(("reason", "exitCode", "message"), end, strict=False)) for end in ends]
    return {"containerStatuses": [{"name": f"c{n}", "state": {"terminated": each}} for n, each in enumerate(members)]}


def _waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": reason, "message": message}}}]}


@pytest.mark.parametrize(
    ("pod", "sentence"),
    [
        ({}, "is pending because no scheduler has looked at it: does one named default-scheduler run?"),
        ({"schedulerName": "koord-scheduler"}, "does one named koord-scheduler run?"),
        ({"status": _unscheduled("0/1 nodes: taint")}, "is pending: 0/1 nodes: taint"),
        ({"cpu": 2001}, "no node offers as much kubernetes.io/batch-cpu, the most is 2000m on node-1"),
        ({"cpu": 1500}, "no node has as much kubernetes.io/batch-cpu free, the most is 1200m on node-1"),
        ({"nodeSelector": {"zone": "b"}}, "no node has the labels of its nodeSelector: zone=b"),
        ({"nodeSelector": {"zone": "a"}}, "no scheduler has looked at it"),
        ({"node": "node-1"}, "is on node-1, which prepares its containers"),
        ({"node": "node-1", "status": _waiting("ContainerCreating")}, "which prepares its containers"),
        (
            {"node": "node-1", "status": _waiting("ImagePullBackOff", "no such image")},
            "container main of pod jobs/p does not run on node-1: ImagePullBackOff: no such image",
        ),
        (
            {"node": "node-1", "phase": "Running"},
            "runs on node-1 as BE, koord-batch, with 1000m kubernetes.io/batch-cpu and 1Gi",
        ),
        ({"node": "node-1", "phase": "Succeeded"}, "has done its work and ended"),
        (
            {"node": "node-1", "phase": "Failed", "status": {"reason": "Evicted", "message": "low on memory"}},
            "has failed: Evicted: low on memory",
        ),
        (
            {
                "node": "node-1",
                "phase": "Failed",
                "status": {"reason": "OutOfkubernetes.io/batch-cpu", "message": "requested: 250, used: 300"},
            },
            "has failed: OutOfkubernetes.io/batch-cpu: requested: 250, used: 300",
        ),
        ({"node": "node-1", "phase": "Failed"}, "has failed: a container of it failed"),
        (
            {"node": "node-1", "phase": "Failed", "status": _terminated(("OOMKilled", 137))},
            "has failed: container c0 ended with OOMKilled, exit code 137",
        ),
        (
            {"node": "node-1", "phase": "Failed", "status": _terminated(("Completed", 0), ("Error", 2, "no\nfile"))},
            "has failed: container c1 ended with Error, exit code 2: no file",
        ),
        (
            {"node": "node-1", "phase": "Failed", "status": _terminated(("Error", 1), ("Error", 2))},
            "container c0 ended with Error, exit code 1; container c1 ended with Error, exit code 2",
        ),
        (
            {
                "node": "node-1",
                "phase": "Failed",
                "status": {**_terminated(("Error", 137)), "reason": "DeadlineExceeded", "message": "too long"},
            },
            "has failed: DeadlineExceeded: too long",
        ),
    ],
)
async def test_why_a_pod_is_as_it_is(cluster: Cluster, tmp_path: Path, pod: dict[str, Any], sentence: str) -> None:
    cluster.pod("other", 800, "node-1", "Running")
    cluster.pod("p", **pod)
    code, out, _ = await cluster.run(tmp_path, "explain", "pod", "jobs/p")
    assert (code, sentence in out.splitlines()[0]) == (OK, True), out


async def test_what_to_look_at_where_kubelet_admitted_a_pod_no_more(cluster: Cluster, tmp_path: Path) -> None:
    cluster.pod("p", node="node-1", phase="Failed", status={"reason": "OutOfkubernetes.io/batch-cpu"})
    _, out, _ = await cluster.run(tmp_path, "explain", "pod", "jobs/p")
    assert "when it restarts" in out and "koordctl explain node node-1 --overcommit" in out


def _crashing(exit_code: int = 1, reason: str = "Error", restarts: int = 5) -> dict[str, Any]:
    """Of a pod whose container kubelet waits to start again, as kubelet 1.34 writes it."""
    back_off = {"reason": "CrashLoopBackOff", "message": "back-off 2m40s restarting failed container=main"}
    end = {"terminated": {"reason": reason, "exitCode": exit_code, "finishedAt": "2026-11-28T07:00:00Z"}}
    status = {"name": "main", "restartCount": restarts, "state": {"waiting": back_off}, "lastState": end}
    return {"containerStatuses": [{**status, "ready": False}]}


def _running(**members: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "main", "state": {"running": {}}, "ready": True, **members}]}


END = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
LOGS = "read what it said last: kubectl logs -n jobs p -c main"


@pytest.mark.parametrize(
    ("status", "sentence", "remedies"),
    [
        pytest.param(
            _crashing(),
            "container main of pod jobs/p does not run on node-1: it ended with Error, exit code 1, started again 5 "
            "times; CrashLoopBackOff: back-off 2m40s restarting failed container=main",
            [f"{LOGS} --previous"],
            id="back-off",
        ),
        pytest.param(
            _crashing(137, "OOMKilled", 1),
            "it ended with OOMKilled, exit code 137, started again once; CrashLoopBackOff",
            [f"{LOGS} --previous", "raise its memory limit, or have it use less: it was killed at that limit"],
            id="out-of-memory",
        ),
        pytest.param(
            _crashing(127),
            "exit code 127",
            [f"{LOGS} --previous", "see its command: the program is not in the image, or cannot be run"],
            id="no-program",
        ),
        pytest.param(
            _crashing(0, "Completed"),
            "it ended with Completed, exit code 0",
            [
                f"{LOGS} --previous",
                "let it run on, or make it a Job: with restartPolicy Always kubelet starts again what has done its "
                "work",
            ],
            id="done",
        ),
        pytest.param(_crashing(139), "exit code 139", [f"{LOGS} --previous", "see why it got signal 11"], id="SEGV"),
        pytest.param(
            _terminated(("Error", 2)),
            "container c0 of pod jobs/p does not run on node-1: it ended with Error, exit code 2",
            ["read what it said last: kubectl logs -n jobs p -c c0"],
            id="ended-while-others-run",
        ),
        pytest.param(
            _running(restartCount=3, lastState=END),
            "runs on node-1 as BE, koord-batch, with 1000m kubernetes.io/batch-cpu and 1Gi kubernetes.io/batch-memory; "
            "container main ended with OOMKilled, exit code 137, started again 3 times",
            [f"{LOGS} --previous", "raise its memory limit, or have it use less: it was killed at that limit"],
            id="runs-again",
        ),
        pytest.param(_running(ready=False), "kubernetes.io/batch-memory; not ready: main", [], id="not-ready"),
        pytest.param(
            _waiting("ErrImagePull", "no such host"),
            "does not run on node-1: ErrImagePull: no such host",
            ["see what kubelet says: kubectl describe pod -n jobs p"],
            id="no-image",
        ),
    ],
)
async def test_a_pod_whose_containers_end(
    cluster: Cluster, tmp_path: Path, status: dict[str, Any], sentence: str, remedies: list[str]
) -> None:
    """Kubernetes calls the phase of such a pod Running."""
    cluster.pod("p", node="node-1", phase="Running", status=status)
    _, out, _ = await cluster.run(tmp_path, "explain", "pod", "jobs/p")
    first, *others = out.splitlines()
    assert sentence in first
    assert [line.removeprefix("  what helps: ") for line in others] == remedies


@pytest.mark.parametrize(
    ("setup", "says"),
    [
        ("silent", "no node offers batch resources: node-1: no batch resources: "),
        ("disabled", "node-1: slo-controller-config does not enable colocation for it"),
        ("absent", "node-1: there is no slo-controller-config in koordinator-system"),
        ("unready", "node-1: it is not Ready"),
        ("cordoned", "node-1: it is cordoned"),
        ("idle", "node-1: no batch resources, though its report"),
        ("many", "; and 2 more nodes"),
    ],
)
async def test_why_there_are_no_batch_resources(cluster: Cluster, tmp_path: Path, setup: str, says: str) -> None:
    cluster.node("node-1", {})
    match setup:
        case "unready":
            cluster.node("node-1", ready="False")
        case "silent":
            cluster.server.delete(METRICS, "", "node-1")
        case "disabled":
            cluster.config(enable=False)
        case "absent":
            cluster.move_config("elsewhere")
        case "cordoned":
            cluster.node("node-1", unschedulable=True)
        case "many":
            for number in range(2, 6):
                cluster.node(f"node-{number}", {})
    cluster.pod("p")
    _, out, _ = await cluster.run(tmp_path, "explain", "pod", "p", "-n", "jobs")
    assert says in out.splitlines()[0]


async def test_a_pod_that_no_webhook_saw(cluster: Cluster, tmp_path: Path) -> None:
    spec = {"selector": {"matchLabels": {"koordinator.sh/qosClass": "BE"}}, "labels": {"team": "ml"}, "qosClass": "BE"}
    cluster.server.put(PROFILES, "", "batch", spec={**spec, "selector": {"matchLabels": {"app": "x"}}})
    cluster.pod("p", metadata={"labels": {"app": "x"}})
    _, out, _ = await cluster.run(tmp_path, "explain", "pod", "jobs/p")
    assert "which ClusterColocationProfile batch sets: no webhook answered when it was created" in out


@pytest.mark.parametrize("is_there", [True, False])
async def test_an_evicted_pod(cluster: Cluster, tmp_path: Path, is_there: bool) -> None:
    if is_there:
        cluster.pod("p", node="node-1", phase="Failed")
    cluster.event("p", "Scheduled", "assigned", 300)
    cluster.event("p", eventreasons.EVICTED, "memory of node-1 at 93 %, threshold 90 %")
    code, out, _ = await cluster.run(tmp_path, "explain", "pod", "jobs/p")
    assert (code, "was evicted 2 min ago: memory of node-1 at 93 %, threshold 90 %" in out) == (OK, True)
    assert "what helps: " in out


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize(
    ("reason", "message", "why", "remedies"),
    [
        (eventreasons.EVICTED_BY_KUBELET, "low on memory", "low on memory", 2),
        (eventreasons.PREEMPTED, "Preempted by pod u on node node-1", "Preempted by pod u on node node-1", 1),
        (eventreasons.TAINT_MANAGER_EVICTION, "Marking for deletion Pod jobs/p", "its node has a NoExecute taint", 1),
    ],
)
async def test_who_evicted_it(
    cluster: Cluster, tmp_path: Path, is_there: bool, reason: str, message: str, why: str, remedies: int
) -> None:
    if is_there:
        cluster.pod("p", node="node-1", phase="Running", metadata={"labels": LABELS, "deletionTimestamp": "x"})
    cluster.event("p", reason, message)
    _, out, _ = await cluster.run(tmp_path, "explain", "pod", "jobs/p")
    assert (f"was evicted 2 min ago: {why}" in out, out.count("what helps: ")) == (True, remedies)


async def test_an_eviction_for_a_taint_that_was_cancelled(cluster: Cluster, tmp_path: Path) -> None:
    cluster.event("p", eventreasons.TAINT_MANAGER_EVICTION, "Cancelling deletion of Pod jobs/p")
    code, _, err = await cluster.run(tmp_path, "explain", "pod", "jobs/p")
    assert (code, "there is no pod jobs/p" in err) == (REFUSED, True)


@pytest.mark.parametrize(
    ("phase", "is_deleted", "disruption", "message", "sentence"),
    [
        ("Running", False, "True", "preempting", "runs on node-1"),
        ("Running", True, "False", "preempting", "runs on node-1"),
        ("Running", True, "True", "preempting", "was evicted 2 min ago: preempting"),
        ("Running", True, "True", "", "was evicted 2 min ago: PreemptionByScheduler"),
        ("Failed", False, "True", "preempting", "was evicted 2 min ago: preempting"),
        ("Succeeded", False, "True", "preempting", "has done its work"),
    ],
)
async def test_what_the_pods_condition_says(
    cluster: Cluster, tmp_path: Path, phase: str, is_deleted: bool, disruption: str, message: str, sentence: str
) -> None:
    condition = {"type": "DisruptionTarget", "status": disruption, "reason": "PreemptionByScheduler"}
    status = {"conditions": [{**condition, "message": message, "lastTransitionTime": time_before(120)}]}
    metadata = {"labels": LABELS, **({"deletionTimestamp": "x"} if is_deleted else {})}
    cluster.pod("p", node="node-1", phase=phase, status=status, metadata=metadata)
    _, out, _ = await cluster.run(tmp_path, "explain", "pod", "jobs/p")
    assert sentence in out.splitlines()[0]


@pytest.mark.parametrize(
    ("events", "ending"),
    [
        ([("FailedScheduling", "no node", 90, "Warning")], "which prepares its containers"),
        ([("Pulling", "pulling", 10, "Normal")], "which prepares its containers"),
        (
            [("FailedMount", "no such volume", 125, "Warning"), ("FailedScheduling", "no node", 10, "Warning")],
            "which prepares its containers; 2 min ago FailedMount: no such volume",
        ),
        (
            [
                ("FailedMount", "no such volume", 300, "Warning"),
                ("FailedCreatePodSandBox", "no runtime", 125, "Warning"),
            ],
            "which prepares its containers; 2 min ago FailedCreatePodSandBox: no runtime",
        ),
    ],
)
async def test_why_a_node_does_not_start_its_containers(
    cluster: Cluster, tmp_path: Path, events: list[tuple[str, str, float, str]], ending: str
) -> None:
    cluster.pod("p", node="node-1")
    for reason, message, ago_s, type in events:
        cluster.event("p", reason, message, ago_s, type=type)
    _, out, _ = await cluster.run(tmp_path, "explain", "pod", "jobs/p")
    assert out.splitlines()[0].endswith(ending)


async def test_a_pod_that_nobody_knows(cluster: Cluster, tmp_path: Path) -> None:
    cluster.event("p", "Scheduled", "assigned", 300)
    code, _, err = await cluster.run(tmp_path, "explain", "pod", "jobs/p")
    assert (code, "there is no pod jobs/p" in err) == (REFUSED, True)


async def test_how_often_its_controllers_pods_are_evicted(cluster: Cluster, tmp_path: Path) -> None:
    owner = {"kind": "Job", "name": "train", "uid": "u", "controller": True}
    cluster.pod("train-new", node="node-1", phase="Running", metadata={"labels": LABELS, "ownerReferences": [owner]})
    cluster.event("train-old", eventreasons.EVICTED, "first", 3600)
    cluster.event("train-older", eventreasons.EVICTED_BY_KUBELET, "last", 60, count=2)
    cluster.event("train-pipeline-x7k2p", eventreasons.EVICTED, "another's")
    _, out, _ = await cluster.run(tmp_path, "explain", "pod", "jobs/train-new", "-o", "json")
    assert json.loads(out)["siblings"] == "of train's pods, 3 were evicted as far as Events tell, last because: last"
