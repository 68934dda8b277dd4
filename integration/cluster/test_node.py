"""A pod that kube-scheduler binds to the real node runs behind our proxy; the kernel holds what Koord made of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from integration.cluster import objects
from integration.cluster.api import Api, Object
from integration.cluster.controlplane import ControlPlane
from integration.cluster.node import Node
from integration.harness import cgroups
from integration.harness.images import BUSYBOX
from integration.harness.processes import wait_for
from integration.kubelet.staticpods import BATCH, PODS

PODS_PATH = objects.pods_of("default")
JOBS = "/apis/batch/v1/namespaces/default/jobs"
OFFERED = {"kubernetes.io/batch-cpu": "700", "kubernetes.io/batch-memory": "1Gi"}
(BEST_EFFORT,) = (pod for pod in PODS if pod.name == "be")
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


@pytest.fixture(scope="module")
def batch_node(node: Node, whole_control_plane: ControlPlane) -> Node:
    """The node with batch resources, which a manager would give it: enough for one of the pods, not for two."""
    with whole_control_plane.api() as api:
        path = f"{objects.NODES}/{node.name}/status"
        api.merge(path, {"status": {"capacity": OFFERED, "allocatable": OFFERED}})
    return node


def best_effort(name: str) -> Object:
    """With its batch amounts where the scheduler reads them and in the annotation that Koordinator's webhook writes."""
    manifest: dict[str, Any] = BEST_EFFORT.manifest()
    manifest["metadata"]["name"] = name
    manifest["spec"]["containers"][0]["resources"] = {"requests": BATCH, "limits": BATCH}
    return manifest


def test_a_scheduled_pods_limits_are_in_the_kernel(
    batch_node: Node, whole_control_plane: ControlPlane, whole_api: Api, figure: Callable[[str], None]
) -> None:
    figure(f"node Ready {batch_node.kubelet.start_s:.1f} s after kubelet's start")
    for name in ("first", "second"):
        whole_api.create(PODS_PATH, best_effort(name))
        if name == "first":
            running = wait_for(lambda: _ready(whole_api, "first"), 60, "the pod to be Ready")
    assert running["spec"]["nodeName"] == batch_node.name and running["status"]["qosClass"] == "BestEffort"
    (container,) = running["status"]["containerStatuses"]
    values = cgroups.read(cgroups.of_container(container["containerID"].removeprefix("containerd://")))
    assert BEST_EFFORT.edited is not None
    assert (values.cpu_shares, values.cfs_quota_us, values.memory_limit_bytes) == (
        BEST_EFFORT.edited.cpu_shares,
        BEST_EFFORT.edited.cfs_quota_us,
        BEST_EFFORT.edited.memory_limit_bytes,
    )
    kubectl = whole_control_plane.kubectl
    assert kubectl("logs", "first") == "started\n"
    assert kubectl("exec", "first", "--", "sh", "-c", "echo in $((6 * 7))") == "in 42\n"
    waits = wait_for(lambda: _unschedulable(whole_api, "second"), 20, "the second pod to be refused")
    assert "Insufficient kubernetes.io/batch-cpu" in waits


def test_a_job_runs_with_its_accounts_token(node: Node, whole_control_plane: ControlPlane, whole_api: Api) -> None:
    container = {"name": "main", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["cat", TOKEN]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    whole_api.create(JOBS, {"metadata": {"name": "reads"}, "spec": {"template": template, "backoffLimit": 0}})
    wait_for(lambda: objects.condition(whole_api.get(f"{JOBS}/reads"), "Complete") == "True", 60, "the Job to complete")
    assert whole_control_plane.kubectl("logs", "job/reads") == "default"


def test_koordctl_asks_a_scheduler_in_its_pod(node: Node, whole_control_plane: ControlPlane, whole_api: Api) -> None:
    """Through API server, kubelet and containerd, to a page on the pod's loopback; and a port where nobody listens."""
    row = {"namespace": "default", "name": "large", "queue": "unschedulable", "waitingFor": "0/1 nodes are available"}
    page = json.dumps({"counts": {"unschedulable": 1}, "rows": [row]})
    script = f"mkdir -p /www/apis/v1; echo '{page}' > /www/apis/v1/queue; httpd -f -p 127.0.0.1:10251 -h /www"
    command = ["sh", "-c", script]
    container = {"name": "main", "image": BUSYBOX, "imagePullPolicy": "Never", "command": command}
    spec = {"nodeName": node.name, "terminationGracePeriodSeconds": 0, "containers": [container]}
    whole_api.create(PODS_PATH, {"metadata": {"name": "leader"}, "spec": spec})
    wait_for(lambda: _ready(whole_api, "leader"), 60, "the pod to be Ready")
    lease = {"metadata": {"name": "koord-scheduler"}, "spec": {"holderIdentity": "leader_1"}}
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    whole_api.create(leases, lease)

    def asked() -> list[str]:
        argv = (sys.executable, "-m", "koordctl", "queue", "--fields", "pod,waiting_for", "--koord-namespace=default")
        kubeconfig = f"--kubeconfig={whole_control_plane.admin}"
        done = subprocess.run([*argv, kubeconfig], check=True, capture_output=True, text=True, timeout=60)
        return (done.stdout + done.stderr).splitlines()

    wait_for(lambda: "large" in "".join(asked()), 20, "an answer of the page")
    assert asked() == ["POD    WAITS FOR", "large  0/1 nodes are available", "unschedulable: 1"]
    whole_api.merge(f"{leases}/koord-scheduler", {"metadata": {"annotations": {"koord.sh/status-port": "10252"}}})
    lines = asked()
    assert lines[0] == "no pod waits"
    assert "koord-scheduler: it cannot be asked: port 10252 of pod default/leader: " in lines[1]
    assert "connection refused" in lines[1]


def _ready(api: Api, name: str) -> Object | None:
    manifest = api.get(f"{PODS_PATH}/{name}")
    return manifest if objects.ready(manifest) else None


def _unschedulable(api: Api, name: str) -> str:
    """What the scheduler says of a pod that it cannot place; empty until it has tried."""
    conditions = api.get(f"{PODS_PATH}/{name}")["status"].get("conditions") or []
    return next((str(each["message"]) for each in conditions if each.get("reason") == "Unschedulable"), "")
