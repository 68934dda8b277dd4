"""Uninstalling: what is taken back in which order, that nothing is offered again, and that any failure is gone over."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from koord.kube.errors import KubeError
from koord.model import nodestate
from koord.overcommit import publish
from koord_manager.options import UNINSTALL, UninstallOptions
from koord_manager.uninstall import ANNOTATION_BEFORE, Uninstallation
from tests.koord_manager.support import CONFIG, ENABLED, Cluster
from tests.kube.server import Fault, JSONObject, Server
from tests.kube.support import LEASES, client
from tests.support.cluster import CONFIG_MAPS, METRICS, NODES, PODS, SLOS

DEPLOYMENTS = "/apis/apps/v1/deployments"
WEBHOOKS = {
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations": "koord-mutating-webhook-configuration",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations": ("koord-validating-webhook-configuration"),
}
POLICY = {**ENABLED, "resource-threshold-config": '{"clusterStrategy": {"enable": true}}', "someone-elses": "x"}
ENABLED_SLO = {"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": 65}}
PATIENT = UninstallOptions(timeout=5.0)
HASTY = UninstallOptions(timeout=0.2)
GENERATION = 7


def node_state(
    held_files: int, generation: int, is_dismissed: bool | None = False, pod_files: int = 0
) -> dict[str, str]:
    state = nodestate.NodeState(held_files, generation, is_dismissed, pod_files)
    return {nodestate.ANNOTATION: state.encoded()}


def fill(server: Server, *names: str) -> None:
    """A cluster with everything that the chart and the managers put there."""
    namespace = CONFIG.namespace
    server.put(CONFIG_MAPS, namespace, CONFIG.name, data=POLICY)
    server.put(DEPLOYMENTS, namespace, "koord-manager", spec={"replicas": 2})
    for path, name in WEBHOOKS.items():
        server.put(path, "", name, webhooks=[])
    for name in names:
        offered = {"cpu": "8", "memory": "16Gi", "kubernetes.io/batch-cpu": "4k", "kubernetes.io/batch-memory": "8Gi"}
        annotations = {
            **{publish.ORIGINAL: "{}", "node.koordinator.sh/cpu-normalization-ratio": "1.00", "mine": "stays"},
            "node.koordinator.sh/resource-amplification-ratio": '{"cpu":1.50}',
            "node.koordinator.sh/raw-allocatable": '{"cpu":"8"}',
        }
        server.put(
            NODES, "", name, metadata={"annotations": annotations}, status={"capacity": offered, "allocatable": offered}
        )
        server.put(SLOS, "", name, metadata={"generation": GENERATION}, spec=ENABLED_SLO)
        report(server, name, 12, GENERATION - 1)


def report(
    server: Server,
    name: str,
    held_files: int,
    generation: int,
    is_dismissed: bool | None = False,
    pod_files: int = 0,
) -> None:
    status = {"updateTime": datetime.now(UTC).isoformat()}
    annotations = node_state(held_files, generation, is_dismissed, pod_files)
    server.put(METRICS, "", name, metadata={"annotations": annotations}, status=status)


def found(server: Server, path: str, name: str, namespace: str = "") -> JSONObject | None:
    root, _, plural = path.rpartition("/")
    return server.objects.get((root, plural), {}).get((namespace, name))


def told(server: Server, path: str, name: str, namespace: str = "") -> JSONObject:
    stored = found(server, path, name, namespace)
    assert stored is not None
    return stored


@contextlib.asynccontextmanager
async def agents(server: Server, *names: str) -> AsyncIterator[None]:
    """Each gives back what it holds once its NodeSLO says that everything is off, and the rest once it is to go."""

    async def follow(name: str) -> None:
        while told(server, SLOS, name)["spec"]["resourceUsedThresholdWithBE"]["enable"]:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        report(server, name, 0, GENERATION)
        while nodestate.UNINSTALLED not in told(server, SLOS, name)["metadata"].get("annotations", {}):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        report(server, name, 0, GENERATION, is_dismissed=True, pod_files=3)
        await asyncio.sleep(0.02)
        report(server, name, 0, GENERATION, is_dismissed=True)

    tasks = [asyncio.create_task(follow(name)) for name in names]
    yield
    for task in tasks:
        task.cancel()


async def uninstall(url: str, options: UninstallOptions = PATIENT, leader_s: float = 0.0) -> None:
    async with client(url) as api:
        await Uninstallation(api, options, leader_s).run()


def state(server: Server) -> dict[str, Any]:
    """What is there afterwards, but for versions and times."""
    return {
        "policy": told(server, CONFIG_MAPS, CONFIG.name, CONFIG.namespace)["data"],
        "before": told(server, CONFIG_MAPS, CONFIG.name, CONFIG.namespace)["metadata"]["annotations"],
        "replicas": told(server, DEPLOYMENTS, "koord-manager", CONFIG.namespace)["spec"]["replicas"],
        "webhooks": [found(server, path, name) for path, name in WEBHOOKS.items()],
        "slos": {name: told(server, SLOS, name)["spec"] for name in ("n1", "n2")},
        "marked": [told(server, SLOS, name)["metadata"].get("annotations") for name in ("n1", "n2")],
        "resources": {name: told(server, NODES, name)["status"] for name in ("n1", "n2")},
        "annotations": {name: told(server, NODES, name)["metadata"]["annotations"] for name in ("n1", "n2")},
    }


def states(server: Server) -> list[bool]:
    """Does each node's NodeMetric have what its agent says of itself?"""
    return [nodestate.ANNOTATION in told(server, METRICS, name)["metadata"]["annotations"] for name in ("n1", "n2")]


def check(server: Server) -> None:
    after = state(server)
    assert after["policy"] == {"someone-elses": "x"}
    assert json.loads(after["before"][ANNOTATION_BEFORE]) == POLICY
    assert after["replicas"] == 0
    assert after["webhooks"] == [None, None]
    assert {spec["resourceUsedThresholdWithBE"]["enable"] for spec in after["slos"].values()} == {False}
    assert after["marked"] == [{"koord.sh/uninstalled": "true"}] * 2
    native = {"cpu": "8", "memory": "16Gi"}
    assert list(after["resources"].values()) == [{"capacity": native, "allocatable": native}] * 2
    assert list(after["annotations"].values()) == [{"mine": "stays"}] * 2


ENDS = ": pods that request it may run there, and a kubelet that restarts ends them"


async def test_everything_is_taken_back_and_each_step_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server = Server()
    async with server.serving() as url:
        fill(server, "n1", "n2")
        async with agents(server, "n1", "n2"):
            await uninstall(url)
    check(server)
    said = [record.message for record in caplog.records if record.name == "koord_manager.uninstall"]
    assert [message.partition(":")[0] for message in said] == [
        "policy", "node SLOs", "release", "webhooks", "managers", "nodes", "agents", "pods", "reports",
    ]  # fmt: skip
    assert "all 2 nodes with an agent have given back what they held by the policy" in said[2]
    assert said[5].endswith("from 2 of 2 nodes; 2 still offered some" + ENDS)
    assert "no kernel file of 2 nodes holds a value of Koord's any more" in said[7]
    assert said[8] == "reports: took the annotation koord.sh/node-state off 2 of 2 NodeMetrics"


async def test_a_second_run_changes_nothing() -> None:
    server = Server()
    async with server.serving() as url:
        fill(server, "n1", "n2")
        async with agents(server, "n1", "n2"):
            await uninstall(url)
        before = state(server)
        await uninstall(url)
    assert state(server) == before


async def test_an_empty_cluster_is_uninstalled() -> None:
    async with Server().serving() as url:
        await uninstall(url)


async def test_a_node_that_stays_away_is_named_and_the_rest_is_done(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    async with server.serving() as url:
        fill(server, "n1", "n2")
        async with agents(server, "n1"):
            await uninstall(url, HASTY)
    check(server)
    assert states(server) == [False, True], "what n2 holds may be read on"
    assert any("node n2 follows its NodeSLO's generation 6, not 7 yet (reported 0 s ago)" in m for m in caplog.messages)
    assert not any("node n1" in message for message in caplog.messages)


@pytest.mark.parametrize(
    ("held_files", "generation", "complaint"),
    [
        (3, GENERATION, "holds 3 files"),
        (0, GENERATION - 1, "generation 6, not 7 yet"),
        (0, GENERATION, ""),
        (0, GENERATION + 1, ""),
    ],
)
async def test_released_is_the_generation_and_no_file(
    held_files: int, generation: int, complaint: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server()
    async with server.serving() as url:
        fill(server, "n1")
        report(server, "n1", held_files, generation, is_dismissed=None)
        await uninstall(url, HASTY)
    assert any(complaint in message for message in caplog.messages) == bool(complaint)


@pytest.mark.parametrize(
    ("is_dismissed", "pod_files", "said"),
    [
        (True, 0, "no kernel file of 1 nodes holds a value of Koord's any more"),
        (True, 3, "1 of 1 nodes hold values of Koord's after"),
        (True, 3, "node n1 holds 3 files (reported 0 s ago): that stays until it restarts, or koordctl restore --yes"),
        (False, 0, "node n1 has not heard that its agent goes, and keeps what pods got from it"),
        (None, 0, "on 1 nodes the agent is a unit of the host: koordctl uninstall takes it off"),
    ],
)
async def test_what_pods_got_is_waited_for_and_named(
    is_dismissed: bool | None, pod_files: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server = Server()
    async with server.serving() as url:
        fill(server, "n1")
        report(server, "n1", 0, GENERATION, is_dismissed, pod_files)
        await uninstall(url, HASTY)
    assert any(said in message for message in caplog.messages), caplog.messages


@pytest.mark.parametrize("annotations", [{}, {nodestate.ANNOTATION: "of another kind"}])
async def test_an_agent_that_is_not_ours_is_not_waited_for(annotations: dict[str, str]) -> None:
    server = Server()
    async with server.serving() as url:
        fill(server, "n1")
        server.put(METRICS, "", "n1", metadata={"annotations": annotations}, status={})
        began_s = time.monotonic()
        await uninstall(url)
    assert time.monotonic() - began_s < PATIENT.timeout


async def test_a_node_that_did_not_answer_is_not_waited_for_again() -> None:
    server = Server()
    async with server.serving() as url, client(url) as api:
        fill(server, "n1")
        asked = Uninstallation(api, PATIENT, 0.0)
        asked.generations, asked.late = {"n1": GENERATION}, {"n1"}
        began_s = time.monotonic()
        said = await asked.await_pods()
    assert time.monotonic() - began_s < PATIENT.timeout
    assert "1 of 1 nodes hold values of Koord's" in said


async def test_the_last_leader_is_waited_for() -> None:
    server = Server()
    async with server.serving() as url:
        now = datetime.now(UTC).isoformat()
        spec = {"holderIdentity": "m1", "renewTime": now, "leaseDurationSeconds": 15}
        server.put(LEASES, CONFIG.namespace, "koordinator-manager", spec=spec)
        fill(server, "n1")
        report(server, "n1", 0, GENERATION)
        running = asyncio.create_task(uninstall(url, leader_s=10.0))
        await asyncio.sleep(0.3)
        assert "kubernetes.io/batch-cpu" in told(server, NODES, "n1")["status"]["allocatable"]
        server.put(LEASES, CONFIG.namespace, "koordinator-manager", spec={**spec, "holderIdentity": ""})
        await running
    assert "kubernetes.io/batch-cpu" not in told(server, NODES, "n1")["status"]["allocatable"]


@pytest.mark.parametrize(
    ("leader_s", "ends", "says"),
    [(10.0, True, "nobody leads"), (0.5, False, "nobody leads, 1 of their pods have not ended yet")],
    ids=["ends", "stays"],
)
async def test_agents_go_after_the_managers_pods(
    caplog: pytest.LogCaptureFixture, leader_s: float, ends: bool, says: str
) -> None:
    caplog.set_level(logging.INFO)
    server = Server()
    async with server.serving() as url:
        fill(server, "n1")
        report(server, "n1", 0, GENERATION)
        labels = {"koord-app": "koord-manager"}
        server.put(DEPLOYMENTS, CONFIG.namespace, "koord-manager", spec={"selector": {"matchLabels": labels}})
        server.put(PODS, CONFIG.namespace, "koord-manager-1", metadata={"labels": labels})
        server.put(PODS, CONFIG.namespace, "of-somebody-else")
        server.put(PODS, "default", "alike", metadata={"labels": labels})
        running = asyncio.create_task(uninstall(url, leader_s=leader_s))
        await asyncio.sleep(0.3)
        assert nodestate.UNINSTALLED not in told(server, SLOS, "n1")["metadata"].get("annotations", {})
        if ends:
            server.delete(PODS, CONFIG.namespace, "koord-manager-1")
        await running
        assert told(server, SLOS, "n1")["metadata"]["annotations"] == {nodestate.UNINSTALLED: "true"}
    assert f"managers: Deployment {CONFIG.namespace}/koord-manager has no replicas; {says}" in caplog.messages


async def requests_of_a_run() -> int:
    server = Server()
    async with server.serving() as url:
        fill(server, "n1", "n2")
        async with agents(server, "n1", "n2"):
            await uninstall(url)
    return len(server.requests)


async def test_a_run_that_fails_anywhere_is_finished_by_the_next(caplog: pytest.LogCaptureFixture) -> None:
    failed = set()
    for number in range(await requests_of_a_run()):
        server = Server()
        async with server.serving() as url:
            fill(server, "n1", "n2")
            server.faults = [Fault("any")] * number + [Fault("any", 403, "Forbidden")]
            async with agents(server, "n1", "n2"):
                caplog.clear()
                with contextlib.suppress(KubeError):
                    await uninstall(url)
                failed |= {each.partition(":")[0] for each in caplog.messages if ": failed: 403" in each}
                server.faults = []
                await uninstall(url)
        check(server)
        assert states(server) == [False, False]
    assert failed == {"policy", "node SLOs", "webhooks", "managers", "nodes", "agents", "reports"}


@pytest.mark.parametrize("is_gone", [False, True], ids=["policy", "no policy"])
async def test_managers_that_still_run_offer_nothing_again(cluster: Cluster, is_gone: bool) -> None:
    cluster.put_config()
    cluster.put_node(annotations={"node.koordinator.sh/colocation-strategy": '{"enable": true}'})
    await cluster.lead()
    cluster.report()
    await cluster.settled(cluster.offered)
    if is_gone:
        cluster.server.delete(CONFIG_MAPS, CONFIG.namespace, CONFIG.name)
        await cluster.settled(lambda: cluster.events("ConfigMapAbsent"))
    await uninstall(cluster.server.url)
    await cluster.quiet()
    assert cluster.offered() == {}


@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
async def test_pods_that_lose_their_cover_are_said(
    cluster: Cluster, phase: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cluster.put_config()
    cluster.put_node()
    container = {"name": "c", "resources": {"requests": {"kubernetes.io/batch-cpu": "5"}}}
    cluster.server.put(
        PODS, "default", "be", spec={"nodeName": "n1", "containers": [container]}, status={"phase": phase}
    )
    await cluster.lead()
    cluster.report()
    await cluster.settled(cluster.offered)
    cluster.put_config({})
    await cluster.settled(lambda: cluster.offered().get("kubernetes.io/batch-cpu") in (None, "5"))
    await uninstall(cluster.server.url)
    (said,) = [record.message for record in caplog.records if "removed batch" in record.message]
    assert (ENDS in said) == (phase == "Running")


@pytest.mark.parametrize(
    ("arguments", "timeout"), [([], 120.0), (["--timeout=5"], 5.0), (["-timeout=0", "-config-namespace=x"], 0.0)]
)
def test_options(arguments: list[str], timeout: float) -> None:
    assert UNINSTALL.load(UNINSTALL.parse(arguments)).timeout == timeout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--timeout=-1"], 2, "--timeout='-1': must not be negative"),
        (["--no-such-flag"], 2, "--no-such-flag"),
        (["--kubeconfig=/nowhere"], 1, "/nowhere"),
    ],
)
def test_what_cannot_be_done_is_said_and_is_an_exit_code(arguments: list[str], code: int, said: str) -> None:
    argv = [sys.executable, "-m", "koord_manager", "uninstall", *arguments]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
