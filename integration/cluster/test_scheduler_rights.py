"""koord-scheduler with the rights of its manifests: it is refused nothing, and has no right that it does not use."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration.cluster import controlplane, manager, objects
from integration.cluster.api import Api, Object
from integration.cluster.controlplane import ControlPlane, Options
from integration.cluster.manager import MANIFESTS, NAMESPACE
from integration.cluster.ports import free_ports
from integration.harness.processes import HarnessError, Process, wait_for
from koord.model.gang import LABEL_POD_GROUP
from koord.model.nodelink import CA_ANNOTATION, LEASE_NAME
from tests.charts import rights
from tests.charts.rights import CLUSTER, Right

ACCOUNT = "koord-scheduler"
USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
SOON_S = 30.0
PODS = objects.pods_of("default")
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/elasticquotas"
POD_GROUPS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/podgroups"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
QUOTA_LABEL = "quota.scheduling.koordinator.sh/name"
CONFIGURATION = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "schedulerName": ACCOUNT,
            "plugins": {
                "preFilter": {"enabled": [{"name": "ElasticQuota"}]},
                "score": {"enabled": [{"name": "LoadAwareScheduling"}]},
            },
            "pluginConfig": [
                {"name": "ElasticQuota", "args": {"monitorAllQuotas": True, "delayEvictTime": "1s"}},
            ],
        }
    ],
}
CRDS = (
    "scheduling.sigs.k8s.io_elasticquotas",
    "scheduling.sigs.k8s.io_podgroups",
    "slo.koordinator.sh_nodemetrics",
)
TOPOLOGIES = "noderesourcetopologies.topology.node.k8s.io"
FOR_RARE_CASES = {("pods", "get"), ("pods", "patch"), (TOPOLOGIES, "list"), (TOPOLOGIES, "watch")}
"""A pod whose node went while it was bound; what a plugin has decided; a plugin that gives CPUs. tests/koord_scheduler
has them all.
"""
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [USER]}, {"level": "None"}],
}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the API server writes what the scheduler asked for."""
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory, log: Path) -> Iterator[ControlPlane]:
    """With a node for one pod of the test, and the scheduler's rights. It streams no lists, as older servers do not."""
    policy = log.with_name("policy.yaml")
    policy.write_text(yaml.safe_dump(AUDIT))
    flags = (f"--audit-policy-file={policy}", f"--audit-log-path={log}")
    options = Options(api_server_flags=flags, feature_gates=("WatchList=false",))
    with controlplane.private(tmp_path_factory.mktemp("rights") / "plane", options) as made:
        manager.make_namespace(made)
        crds = [f"--filename={MANIFESTS / 'crds' / name}.yaml" for name in CRDS]
        made.kubectl("apply", *crds)
        made.kubectl("wait", "--for=condition=Established", "--timeout=30s", *crds)
        made.kubectl("apply", "-f", str(MANIFESTS / "koord-scheduler"))
        made.kubectl("apply", "-f", str(MANIFESTS / "koord-manager" / "priorityclasses.yaml"))
        objects.create_nodes(made.api, [objects.node("n1", {"cpu": "1", "memory": "8Gi", "pods": "110"})])
        yield made


@contextlib.contextmanager
def scheduler(plane: ControlPlane) -> Iterator[Process]:
    (port,) = free_ports(1)
    configuration = plane.directory / "scheduler.json"
    configuration.write_text(json.dumps(CONFIGURATION))
    argv = [sys.executable, "-m", "koord_scheduler", f"--kubeconfig={plane.kubeconfig(USER)}"]
    argv.append(f"--config={configuration}")
    process = Process([*argv, f"--metrics-addr=127.0.0.1:{port}"], plane.directory / "scheduler.log")
    try:
        yield process
    finally:
        process.stop(10.0)


def pod(name: str, cpu: str, claim: str = "", **spec: Any) -> Object:
    made = objects.pod(name, {"cpu": cpu}, schedulerName=ACCOUNT, **spec)
    if claim:
        made["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    return made


def storage(api: Api) -> None:
    """A volume that waits for a claim, and a class of which volumes are made."""
    for name, provisioner in (("local", "kubernetes.io/no-provisioner"), ("made", "example.com/maker")):
        metadata = {"metadata": {"name": name}}
        api.create(CLASSES, {**metadata, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"})
        spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "storageClassName": name}
        api.create(CLAIMS, {**metadata, "spec": {**spec, "resources": {"requests": {"storage": "1Gi"}}}})
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]}
    place = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}, "local": {"path": "/data"}}
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local", "capacity": {"storage": "1Gi"}, **place}
    api.create(VOLUMES, {"metadata": {"name": "local"}, "spec": spec})
    api.merge(f"{VOLUMES}/local/status", {"status": {"phase": "Available"}})  # as its controller would


def overuse(api: Api) -> None:
    """A pod whose quota is cut down to less than it uses: it has to leave."""
    limits = {"spec": {"max": {"cpu": "1"}}}
    kind = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota"}
    api.create(QUOTAS, {**kind, "metadata": {"name": "team"}, **limits})
    made = pod("over", "1m")
    made["metadata"].setdefault("labels", {})[QUOTA_LABEL] = "team"
    api.create(PODS, made)
    wait_for(
        lambda: api.get(QUOTAS + "/team").get("status") == {"used": {"cpu": "1m"}}, SOON_S, "its use to be written"
    )
    api.merge(f"{QUOTAS}/team", {"spec": {"max": {"cpu": "0"}}})
    wait_for(lambda: _is_going(api, "over"), SOON_S, "the pod to be evicted")


def gang(api: Api) -> None:
    """One whose PodGroup is told what becomes of it."""
    kind = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "PodGroup"}
    api.create(POD_GROUPS, {**kind, "metadata": {"name": "gang"}, "spec": {"minMember": 1}})
    member = pod("member", "1m")
    member["metadata"].setdefault("labels", {})[LABEL_POD_GROUP] = "gang"
    api.create(PODS, member)


def manager_that_leads(api: Api) -> None:
    """Its Lease alone: nobody signs what is requested then, or answers."""
    metadata = {"name": LEASE_NAME, "annotations": {CA_ANNOTATION: "none"}}
    api.create(LEASES, {"metadata": metadata, "spec": {"holderIdentity": "manager@127.0.0.1:1"}})


def _is_going(api: Api, name: str) -> bool:
    found = [each["metadata"] for each in api.items(PODS) if each["metadata"]["name"] == name]
    return all("deletionTimestamp" in each for each in found)


def test_each_right_is_used_and_nothing_is_refused(plane: ControlPlane, log: Path) -> None:
    with plane.api() as api, scheduler(plane):
        manager_that_leads(api)
        storage(api)
        overuse(api)
        gang(api)
        for name in ("local", "made"):
            api.create(PODS, pod(name, "1m", name))
        api.create(PODS, pod("first", "900m"))
        wait_for(lambda: api.get(f"{PODS}/first")["spec"].get("nodeName"), SOON_S, "a pod to be placed")
        api.create(PODS, pod("waits", "900m"))
        wait_for(lambda: objects.condition(api.get(f"{PODS}/waits"), "PodScheduled"), SOON_S, "why a pod waits")
        api.create(PODS, pod("more", "900m", priorityClassName="koord-prod"))
        wait_for(lambda: not api.exists(f"{PODS}/first"), SOON_S, "a pod to be preempted")
        wait_for(lambda: api.get(f"{PODS}/more")["spec"].get("nodeName"), SOON_S, "its place to be taken")
        api.merge(f"{objects.NODES}/n1/status", {"status": {"allocatable": {"cpu": "1001m"}}})  # it waits once more
        with contextlib.suppress(HarnessError):  # then it is said which are not
            wait_for(lambda: given() <= used(log), SOON_S, "the last right to be used")
    refused = [each for each in requests(log) if each["responseStatus"].get("code") == 403]
    assert [(each["verb"], each["requestURI"], each["responseStatus"].get("message")) for each in refused] == []
    assert sorted(given() - used(log)) == []
    assert sorted(used(log) - given() - rare()) == []


def rare() -> set[Right]:
    return {each for each in rights.of_roles() if (each.resource, each.verb) in FOR_RARE_CASES}


def given() -> set[Right]:
    """The rights of the account, but those that are used in rare cases."""
    return {each for each in rights.of_roles() if each.account == ACCOUNT} - rare()


def used(log: Path) -> set[Right]:
    found = set[Right]()
    for request in requests(log):
        if reference := request.get("objectRef"):
            resource = "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
            place = NAMESPACE if reference.get("namespace") == NAMESPACE else CLUSTER
            is_of_name = reference["resource"] == "leases" and request["verb"] != "create"
            name = reference["name"] if is_of_name else ""
            qualified = rights.qualified(resource, reference.get("apiGroup", ""))
            found.add(Right(ACCOUNT, place, qualified, name, request["verb"], rights.CONDITIONS[ACCOUNT]))
    return found


def requests(log: Path) -> list[Mapping[str, Any]]:
    """Those of the scheduler; a line that is being written is left out."""
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    return [json.loads(line) for line in lines]
