"""A kubelet that restarts while services use all of the node: its batch pods run on, unless an operator says otherwise.

kubelet, API server, scheduler and koord-manager are real. The test writes the node's usage in place of its agent.
"""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Iterator

import pytest

from integration.cluster import manager, objects
from integration.cluster.api import Api, Object
from integration.cluster.controlplane import ControlPlane
from integration.cluster.manager import Replica
from integration.cluster.node import Node
from integration.harness.pods import SLEEP
from integration.harness.processes import wait_for
from koordctl.cluster.restart import shortages

PODS = objects.pods_of("default")
METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
BATCH = {"kubernetes.io/batch-cpu": "250", "kubernetes.io/batch-memory": "64Mi"}
NAMES = ("batch-1", "batch-2", "batch-3")
HELD = "750"
SOON_S = 60.0
ENDED = {"Failed", "Succeeded"}
"""kubelet reports the refused pod as failed, or the end of its container, which exits with 0 upon SIGTERM."""
ENDS_S = 6.0
"""From kubelet's refusal of a pod to its end, in which it is killed, with something to spare."""


@pytest.fixture(scope="module")
def managed(node: Node, whole_control_plane: ControlPlane) -> Iterator[Node]:
    """The node, without the pods that were there before, with a manager that offers batch resources on it."""
    manager.install(whole_control_plane)
    with whole_control_plane.api() as api:
        api.delete(PODS)
        wait_for(lambda: not api.items(PODS), SOON_S, "earlier pods to be gone")
        configure(api, covered=True)
        replica = Replica(whole_control_plane, "manager-a")
        try:
            wait_for(lambda: api.exists(f"{METRICS}/{node.name}"), SOON_S, "the NodeMetric")
            yield node
        finally:
            replica.process.stop()


def configure(api: Api, covered: bool) -> None:
    policy = {"enable": True, "cpuReclaimThresholdPercent": 100, "memoryReclaimThresholdPercent": 100}
    extensions = {} if covered else {"extensions": {"koord": {"coverRunningPods": False}}}
    manager.configure(api, {"colocation-config": json.dumps(policy | extensions)})


def report(api: Api, node: str, cpu: str) -> None:
    """What the node's agent would write: the system uses ``cpu``."""
    usage = {"resources": {"cpu": cpu, "memory": "64Mi"}}
    now = datetime.datetime.now(datetime.UTC).isoformat().replace("+00:00", "Z")
    status = {"updateTime": now, "nodeMetric": {"nodeUsage": usage, "systemUsage": usage}}
    api.merge(f"{METRICS}/{node}/status", {"status": status})


def offered(api: Api, node: str) -> str | None:
    found: str | None = api.get(f"{objects.NODES}/{node}")["status"]["allocatable"].get("kubernetes.io/batch-cpu")
    return found


def run(api: Api, name: str, resources: dict[str, str] | None = None) -> None:
    """A pod of the scheduler, until it is Ready."""
    manifest = objects.pod(name, resources or {}, resources)
    manifest["spec"]["containers"][0]["command"] = list(SLEEP)
    api.create(PODS, manifest)
    wait_for(lambda: objects.ready(api.get(f"{PODS}/{name}")), SOON_S, f"{name} to be Ready")


def restart(api: Api, node: Node, witness: str) -> None:
    """Returns once kubelet has admitted all pods: a newer one is Ready, and what it refused has had time to end."""
    node.kubelet.restart()
    run(api, witness)
    time.sleep(ENDS_S)


def ends(api: Api) -> dict[str, tuple[str, str]]:
    """Phase and reason of each batch pod."""
    statuses: dict[str, Object] = {name: api.get(f"{PODS}/{name}")["status"] for name in NAMES}
    return {name: (status["phase"], status.get("reason", "")) for name, status in statuses.items()}


def refused(api: Api) -> set[str]:
    """The batch pods that kubelet says it has refused, whatever phase it gave them afterwards."""
    events = api.items("/api/v1/namespaces/default/events")
    reasons = {(each["involvedObject"]["name"], each["reason"]) for each in events}
    return {name for name in NAMES if (name, "OutOfkubernetes.io/batch-cpu") in reasons}


def containers(api: Api) -> list[str]:
    """That of each batch pod: another one where it was started again."""
    return [api.get(f"{PODS}/{name}")["status"]["containerStatuses"][0]["containerID"] for name in NAMES]


def test_no_batch_pod_ends_with_kubelet_while_the_offer_is_short(
    managed: Node, whole_control_plane: ControlPlane, whole_api: Api
) -> None:
    name, kubeconfig = managed.name, str(whole_control_plane.node_kubeconfig(managed.name))
    report(whole_api, name, "100m")
    wait_for(lambda: int(offered(whole_api, name) or 0) > int(HELD), SOON_S, "an offer")
    for pod in NAMES:
        run(whole_api, pod, BATCH)
    report(whole_api, name, "64")
    wait_for(lambda: offered(whole_api, name) == HELD, SOON_S, "the offer to shrink to what runs")
    before = containers(whole_api)
    assert shortages(kubeconfig, name, 5.0) == ()
    restart(whole_api, managed, "witness-1")
    assert ends(whole_api) == dict.fromkeys(NAMES, ("Running", ""))
    assert containers(whole_api) == before

    configure(whole_api, covered=False)
    wait_for(lambda: offered(whole_api, name) == "0", SOON_S, "the offer to shrink below what runs")
    assert shortages(kubeconfig, name, 5.0) == (
        f"pods that run here request {HELD}m kubernetes.io/batch-cpu, and the Node offers 0m",
    )
    restart(whole_api, managed, "witness-2")
    wait_for(lambda: refused(whole_api) == set(NAMES), SOON_S, "what Koordinator has")
    assert {phase for phase, _ in ends(whole_api).values()} <= ENDED
