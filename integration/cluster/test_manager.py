"""koord-manager on a real API server: overcommit, policy, admission, two replicas, and what breaks under them."""

from __future__ import annotations

import datetime
import itertools
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from integration.cluster import controlplane, manager, objects
from integration.cluster.api import Api, ApiError, Object
from integration.cluster.controlplane import ControlPlane
from integration.cluster.manager import NAMESPACE, Replica
from integration.harness.processes import wait_for
from koord.admission.schedulerkeys import scheduler_users
from tests.support import docpages
from tests.support.kubernetes import QUICK_START_PROFILE

METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
SLOS = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"
PROFILES = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"
SHOP, JOBS = "shop", "batch-demo"
NAMES = ("manager-a", "manager-b")
ENABLED = {"colocation-config": '{"enable": true}'}
SOON_S = 30.0
TENANT = "alice"
SCHEDULER = scheduler_users(NAMESPACE)[0]
_QUOTAS, _PODS = itertools.count(), itertools.count()
BATCH = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")


@dataclass
class Managed:
    """``replicas``: by name; the API server asks the one of the name ``webhooks_at``."""

    plane: ControlPlane
    api: Api
    replicas: dict[str, Replica]
    webhooks_at: str = NAMES[0]

    def leader(self) -> Replica:
        """The replica that leads, once one does."""
        return wait_for(lambda: self.replicas.get(manager.leader(self.api)), SOON_S, "a leader")

    def other(self, replica: Replica) -> Replica:
        (name,) = set(NAMES) - {replica.name}
        return self.replicas[name]

    def start(self, name: str) -> None:
        """A replica, in the place of one that has ended."""
        self.replicas[name] = Replica(self.plane, name, "--feature-gates=ConfigMapValidatingWebhook=true")
        self.replicas[name].wait_ready()
        if name == self.webhooks_at:
            manager.send_webhooks_to(self.api, self.replicas[name])

    def report(self, name: str, cpu: str = "1", age_s: float = 0.0) -> None:
        """A NodeMetric as a node's agent writes it."""
        updated = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=age_s)
        usage = {"resources": {"cpu": cpu, "memory": "2Gi"}}
        status = {
            "updateTime": updated.isoformat().replace("+00:00", "Z"),
            "nodeMetric": {"nodeUsage": usage, "systemUsage": usage},
        }
        self.api.merge(f"{METRICS}/{name}/status", {"status": status})

    def offered(self, name: str) -> dict[str, str]:
        allocatable = self.api.get(f"{objects.NODES}/{name}")["status"]["allocatable"]
        return {resource: allocatable[resource] for resource in BATCH if resource in allocatable}

    def new_node(self, name: str) -> None:
        """A node with a NodeMetric, as the manager makes it."""
        objects.create_nodes(self.plane.api, [objects.node(name, {"cpu": "8", "memory": "16Gi", "pods": "110"})])
        wait_for(lambda: self.api.exists(f"{METRICS}/{name}"), SOON_S, f"the NodeMetric of {name}")


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Managed]:
    """Two replicas with the rights of the manifests; the API server asks the first one about pods."""
    with controlplane.private(tmp_path_factory.mktemp("managed") / "plane") as plane, plane.api() as api:
        manager.install(plane)
        manager.configure(api, ENABLED)
        api.create("/api/v1/namespaces", {"metadata": {"name": SHOP}})
        labels = {"koordinator.sh/enable-colocation": "true"}
        api.create("/api/v1/namespaces", {"metadata": {"name": JOBS, "labels": labels}})
        api.create(PROFILES, QUICK_START_PROFILE)
        cluster = Managed(plane, api, {})
        try:
            for name in NAMES:
                cluster.start(name)
            yield cluster
        finally:
            for replica in cluster.replicas.values():
                replica.process.stop()


def test_a_node_gets_its_objects_and_what_it_offers(managed: Managed) -> None:
    """8 CPUs, 16 GiB, of which the system uses 1 CPU and 2 GiB; 60 and 65 % may be reclaimed."""
    managed.new_node("offers")
    policy = managed.api.get(f"{METRICS}/offers")["spec"]["metricCollectPolicy"]
    assert policy["nodeAggregatePolicy"]["durations"] == ["5m0s", "10m0s", "30m0s"]
    managed.report("offers")
    wait_for(lambda: managed.offered("offers"), SOON_S, "batch resources")
    memory = (16 << 30) - (16 << 30) * 35 // 100 - (2 << 30)
    assert managed.offered("offers") == {BATCH[0]: "3800", BATCH[1]: str(memory)}
    node = managed.api.get(f"{objects.NODES}/offers")
    assert node["status"]["capacity"][BATCH[0]] == "3800"
    assert node["metadata"]["annotations"]["node.koordinator.sh/cpu-normalization-ratio"] == "1.00"
    wait_for(lambda: managed.api.exists(f"{SLOS}/offers"), SOON_S, "the NodeSLO")
    assert managed.api.get(f"{SLOS}/offers")["spec"]["resourceUsedThresholdWithBE"]["enable"] is False


def test_an_old_report_takes_the_offer_away_and_says_why(managed: Managed) -> None:
    managed.new_node("silent")
    managed.report("silent")
    wait_for(lambda: managed.offered("silent"), SOON_S, "batch resources")
    managed.report("silent", age_s=16 * 60)
    wait_for(lambda: not managed.offered("silent"), SOON_S, "batch resources to go")
    capacity = managed.api.get(f"{objects.NODES}/silent")["status"]["capacity"]
    assert capacity.keys().isdisjoint(BATCH)

    def reasons() -> list[str]:
        events = managed.api.items("/api/v1/events", fieldSelector="involvedObject.name=silent")
        return [event["message"] for event in events if event["reason"] == "OvercommitDegraded"]

    wait_for(lambda: any("s old and counts for 900 s" in reason for reason in reasons()), SOON_S, "the Event")


def test_a_node_that_goes_takes_its_objects_along(managed: Managed) -> None:
    managed.new_node("leaves")
    wait_for(lambda: managed.api.exists(f"{SLOS}/leaves"), SOON_S, "the NodeSLO")
    managed.api.delete(f"{objects.NODES}/leaves")
    gone = (f"{METRICS}/leaves", f"{SLOS}/leaves")
    wait_for(lambda: not any(map(managed.api.exists, gone)), SOON_S, "both to go")


def test_the_quick_starts_pod(managed: Managed) -> None:
    """Requests and limits of 2 CPUs and 4 GiB, in a namespace and with a label that the profile selects."""
    amounts = {"cpu": "2", "memory": "4Gi"}
    created = create(managed.api, JOBS, "job", amounts, {"app-type": "batch"})
    metadata, spec = created["metadata"], created["spec"]
    assert metadata["labels"]["koordinator.sh/qosClass"] == "BE"
    assert metadata["labels"]["koordinator.sh/mutated"] == "true"
    assert (spec["priorityClassName"], spec["priority"]) == ("koord-batch", 5000)
    assert (spec["schedulerName"], spec["preemptionPolicy"]) == ("koord-scheduler", "PreemptLowerPriority")
    translated = {"kubernetes.io/batch-cpu": "2k", "kubernetes.io/batch-memory": "4Gi"}
    assert spec["containers"][0]["resources"] == {"requests": translated, "limits": translated}
    assert created["status"]["qosClass"] == "BestEffort"
    assert metadata["annotations"]["node.koordinator.sh/extended-resource-spec"] == (
        '{"containers":{"main":{"limits":{"kubernetes.io/batch-cpu":"2k","kubernetes.io/batch-memory":"4Gi"},'
        '"requests":{"kubernetes.io/batch-cpu":"2k","kubernetes.io/batch-memory":"4Gi"}}}}'
    )


def test_what_an_operator_learns_of_it(managed: Managed) -> None:
    """The commands compute what the manager did, of the same objects."""
    managed.new_node("asked")
    managed.report("asked")
    wait_for(lambda: managed.offered("asked"), SOON_S, "batch resources")
    rows = json.loads(koordctl(managed.plane, "cluster", "-o", "json"))["nodes"]
    (row,) = [row for row in rows if row["name"] == "asked"]
    assert (row["batch_cpu_milli"], row["cpu_used_milli"], row["protection"]) == (3800, 1000, "off")
    terms = koordctl(managed.plane, "explain", "node", "asked", "--overcommit")
    assert "total 8000m - margin 3200m - used by the system 1000m" in terms
    assert "kubernetes.io/batch-cpu 3800m\n" in terms
    create(managed.api, JOBS, "large", {"cpu": "100", "memory": "1Gi"}, {"app-type": "batch"})
    sentence = koordctl(managed.plane, "explain", "pod", "--cluster", f"{JOBS}/large")
    assert "is pending because it requests 100000m kubernetes.io/batch-cpu" in sentence
    assert "no node offers as much" in sentence
    assert "asked" in koordctl(managed.plane, "get", "nodemetrics")


def test_a_namespace_that_is_newer_than_any_event_has_its_profile(managed: Managed) -> None:
    for number in range(5):
        name = f"new-{number}"
        managed.api.create(
            "/api/v1/namespaces",
            {"metadata": {"name": name, "labels": {"koordinator.sh/enable-colocation": "true"}}},
        )
        created = create(managed.api, name, "job", {"cpu": "1"}, {"app-type": "batch"})
        assert created["spec"]["priorityClassName"] == "koord-batch"


@pytest.mark.parametrize(
    ("labels", "requests", "spec", "message"),
    [
        ({"koordinator.sh/qosClass": "LS"}, {"kubernetes.io/batch-cpu": "1k"}, {}, "koordinator.sh/qosClass"),
        ({"koordinator.sh/qosClass": "BE"}, {"cpu": "1"}, {"priorityClassName": "koord-prod"}, "koord-prod"),
        ({"koordinator.sh/qosClass": "LSR"}, {"cpu": "1500m"}, {"priorityClassName": "koord-prod"}, "1500m"),
    ],
    ids=["batch resources without BE", "BE in prod", "half a CPU of its own"],
)
def test_what_cannot_be_is_refused(
    managed: Managed, labels: Mapping[str, str], requests: Mapping[str, str], spec: Mapping[str, str], message: str
) -> None:
    with pytest.raises(ApiError, match=message) as refusal:
        create(managed.api, SHOP, "refused", requests, labels, **spec)
    assert "vpod.koordinator.sh" in refusal.value.message


@pytest.fixture(scope="module")
def tenant(managed: Managed) -> Iterator[Api]:
    """A user who may edit the pods of the shop. ClusterRole "edit" has no rules before a controller sums them up."""
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SHOP}"
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "create", "patch"]}
    managed.api.create(f"{rbac}/roles", {"metadata": {"name": "edit-pods"}, "rules": [rule]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "edit-pods"}
    for user in (TENANT, SCHEDULER):
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
        binding = {"metadata": {"generateName": "edit-"}, "roleRef": role, "subjects": [subject]}
        managed.api.create(f"{rbac}/rolebindings", binding)
    with managed.plane.api(TENANT, ()) as own:
        yield own


RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
EXTENDED_SPEC = "node.koordinator.sh/extended-resource-spec"
BOUND = {RESOURCE_STATUS: '{"cpuset": "1-63"}'}
GREEDY = {EXTENDED_SPEC: '{"containers": {"main": {"limits": {"batch-cpu": "64000"}}}}'}
QOS, SUB_PRIORITY, CLASS_NAME = "koordinator.sh/qosClass", "koordinator.sh/priority", "priorityClassName"
RESERVE_POD = "scheduling.koordinator.sh/reserve-pod"
LSR = {QOS: "LSR"}
CPU_BURST, MEMORY_QOS = "koordinator.sh/cpuBurst", "koordinator.sh/memoryQOS"
NONE = '{"policy": "none"}'
CREATED = (
    (QOS, "LS", ""),
    (CLASS_NAME, "koord-prod", ""),
    (SUB_PRIORITY, "100", ""),
    (RESOURCE_STATUS, BOUND[RESOURCE_STATUS], "the scheduler writes it"),
    (RESERVE_POD, "true", "it is reserved for the scheduler"),
    (CPU_BURST, NONE, ""),
    (MEMORY_QOS, NONE, ""),
)
"""Of the table in docs/security.md: what a pod says when it is created, and the refusal; "" = it is let in."""
CHANGED = (
    (QOS, "LS", "BE", f"labels.{QOS}: Invalid value: 'BE': field is immutable: keep 'LS'"),
    (CLASS_NAME, None, "koord-prod", "pod updates may not change fields other than"),
    (SUB_PRIORITY, None, "100", f"labels.{SUB_PRIORITY}: Invalid value: '100': field is immutable: leave it out"),
    (SUB_PRIORITY, "100", "101", f"labels.{SUB_PRIORITY}: Invalid value: '101': field is immutable: keep '100'"),
    (SUB_PRIORITY, "100", None, f"labels.{SUB_PRIORITY}: Invalid value: '': field is immutable: keep '100'"),
    (RESOURCE_STATUS, None, BOUND[RESOURCE_STATUS], "the scheduler writes it"),
    (EXTENDED_SPEC, None, GREEDY[EXTENDED_SPEC], "it says what the pod's resources say"),
    (RESERVE_POD, None, "true", "it is reserved for the scheduler"),
    (CPU_BURST, None, NONE, ""),
    (MEMORY_QOS, None, NONE, ""),
)
"""The same of a pod that runs: what it said, and what it is to say. None: nothing."""


MAY_CREATE_AND_CHANGE = {
    "yes": (True, True),
    "on creation": (True, False),
    "only what the pod's resources say": (True, False),
    "never": (False, False),
}
"""What the page says."""


def test_the_page_says_what_a_tenant_is_seen_to_write() -> None:
    """A pod with another's amounts is let in as well, but not with those: see below."""
    _, _, rest = docpages.page("security.md").partition("\n## What a tenant may write on a pod\n")
    rows = re.findall(r"^\| (`.*?) \| ([^|,;]*)", rest.partition("\n## ")[0], re.MULTILINE)
    said = {name: MAY_CREATE_AND_CHANGE[verdict.strip()] for names, verdict in rows for name in names.split("`")[1::2]}
    said[MEMORY_QOS] = said.pop("memoryQOS")
    created = {(EXTENDED_SPEC, True), *((name, not refusal) for name, _, refusal in CREATED)}
    changed = {(name, not refusal) for name, *_, refusal in CHANGED}
    assert created == {(name, may_create) for name, (may_create, _) in said.items()}
    assert changed == {(name, may_change) for name, (_, may_change) in said.items()}


@pytest.mark.parametrize(("name", "value", "refusal"), CREATED)
def test_what_a_tenant_may_create(tenant: Api, name: str, value: str, refusal: str) -> None:
    try:
        created = tenant.create(objects.pods_of(SHOP), saying(name, value))
        assert not refusal and said_of(created, name) == value
    except ApiError as error:
        assert refusal and refusal in error.message


@pytest.mark.parametrize(("name", "before", "now", "refusal"), CHANGED)
def test_what_a_tenant_may_write_on_a_pod_that_runs(
    tenant: Api, name: str, before: str | None, now: str | None, refusal: str
) -> None:
    pod = tenant.create(objects.pods_of(SHOP), saying(name, before))
    path = f"{objects.pods_of(SHOP)}/{pod['metadata']['name']}"
    try:
        tenant.merge(path, written(name, now))
        assert not refusal
    except ApiError as error:
        assert refusal and refusal in error.message
    assert said_of(tenant.get(path), name) == (before if refusal else now)


def written(name: str, value: str | None) -> Object:
    """A patch of a pod: of its spec, or of a label or an annotation."""
    if name == CLASS_NAME:
        return {"spec": {name: value}}
    return {"metadata": {"labels" if name in (QOS, SUB_PRIORITY) else "annotations": {name: value}}}


def saying(name: str, value: str | None) -> Object:
    """A pod that says it; None: that says nothing."""
    patch = written(name, value) if value is not None else {}
    return objects.pod(f"tenants-{next(_PODS)}", {"cpu": "10m"}, **patch.get("metadata", {}), **patch.get("spec", {}))


def said_of(pod: Object, name: str) -> object:
    metadata = pod["metadata"]
    places = pod["spec"], metadata.get("labels", {}), metadata.get("annotations", {})
    return next((place[name] for place in places if name in place), None)


BATCH_POD = {"labels": {"koordinator.sh/qosClass": "BE"}, "priorityClassName": "koord-batch"}
BATCH_CPU = {"kubernetes.io/batch-cpu": "1k"}


@pytest.mark.parametrize(
    ("amounts", "members", "wanted"),
    [
        ({"cpu": "10m"}, {}, None),
        (BATCH_CPU, BATCH_POD, {"containers": {"main": {"limits": BATCH_CPU, "requests": BATCH_CPU}}}),
    ],
    ids=["native", "batch"],
)
def test_what_a_created_pods_resources_say_replaces_what_a_tenant_made_up(
    tenant: Api, amounts: Mapping[str, str], members: Mapping[str, Any], wanted: Object | None
) -> None:
    """By the mutating webhook, before the other one would refuse it."""
    pod = objects.pod(f"greedy-{len(members)}", amounts, amounts, annotations=GREEDY, **members)
    annotations = tenant.create(objects.pods_of(SHOP), pod)["metadata"].get("annotations", {})
    assert json.loads(annotations.get(*GREEDY, "null")) == wanted


def test_the_scheduler_binds_cpus(managed: Managed, tenant: Api) -> None:
    created = create(managed.api, SHOP, "bound", {"cpu": "2"}, LSR, priorityClassName="koord-prod")
    path = f"{objects.pods_of(SHOP)}/{created['metadata']['name']}"
    with managed.plane.api(SCHEDULER, ()) as scheduler:
        scheduler.merge(path, {"metadata": {"annotations": BOUND}})
    tenant.merge(path, {"metadata": {"annotations": {"note": "an update that leaves it as it is"}}})


def test_a_policy_that_no_node_could_follow_is_not_stored(managed: Managed) -> None:
    labels = {"koordinator.sh/configmap-type": "slo-controller-config"}
    before = managed.api.get(f"{manager.CONFIG_MAPS}/slo-controller-config")["data"]
    wrong = {"metadata": {"labels": labels}, "data": {"colocation-config": '{"enable": true, "degradeTimeMinutes": 0}'}}
    with pytest.raises(ApiError, match=r"colocation-config\.degradeTimeMinutes: 0 is less than 1"):
        managed.api.merge(f"{manager.CONFIG_MAPS}/slo-controller-config", wrong)
    assert managed.api.get(f"{manager.CONFIG_MAPS}/slo-controller-config")["data"] == before


@pytest.mark.parametrize("namespace", ["kube-system", NAMESPACE])
def test_the_clusters_own_namespaces_are_left_alone(managed: Managed, namespace: str) -> None:
    labels = {"koordinator.sh/qosClass": "LS"}
    created = create(managed.api, namespace, "left-alone", {"kubernetes.io/batch-cpu": "1k"}, labels)
    assert "annotations" not in created["metadata"] or not created["metadata"]["annotations"]


BATCH_ALONE = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["koord-batch"]}]}


@pytest.mark.parametrize(
    ("quota", "refusals"),
    [
        pytest.param({"hard": {"limits.cpu": "20"}}, ["must specify limits.cpu"] * 2, id="of-native-CPU"),
        pytest.param({"hard": {"limits.cpu": "20"}, "scopes": ["NotBestEffort"]}, ["", ""], id="of-others"),
        pytest.param({"hard": {"requests.kubernetes.io/batch-cpu": "1500"}}, ["", ""], id="of-batch-CPU"),
        pytest.param({"hard": {"pods": "1"}, "scopeSelector": BATCH_ALONE}, ["", "exceeded quota"], id="of-batch-pods"),
    ],
)
def test_what_quotas_make_of_translated_pods(managed: Managed, quota: Object, refusals: list[str]) -> None:
    """As docs/koord-manager.md says it, and koordctl lint."""
    namespace = f"quota-{next(_QUOTAS)}"
    managed.api.create(
        "/api/v1/namespaces", {"metadata": {"name": namespace, "labels": {"koordinator.sh/enable-colocation": "true"}}}
    )
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
    managed.api.create(quotas, {"metadata": {"name": "q"}, "spec": quota})
    used = dict.fromkeys(quota["hard"], "0")
    managed.api.merge(f"{quotas}/q/status", {"status": {"hard": quota["hard"], "used": used}})
    for number, refusal in enumerate(refusals):
        try:
            create(managed.api, namespace, f"job-{number}", {"cpu": "1"}, {"app-type": "batch"})
            assert not refusal
        except ApiError as error:
            assert refusal and refusal in str(error)


def test_a_manager_may_not_do_more_than_it_needs(managed: Managed) -> None:
    with managed.plane.api(manager.USER, ()) as own:
        for path in (
            "/api/v1/secrets",
            "/api/v1/configmaps",
            f"/api/v1/namespaces/{SHOP}/secrets",
            manager.CONFIG_MAPS,
            f"{manager.CONFIG_MAPS}/kube-root-ca.crt",
        ):
            with pytest.raises(ApiError, match="403"):
                own.get(path)
        with pytest.raises(ApiError, match="403"):
            own.delete(f"/api/v1/namespaces/{JOBS}/pods/job")


@pytest.mark.parametrize(
    ("number", "within_s"), [(signal.SIGTERM, 3.0), (signal.SIGKILL, 20.0)], ids=["SIGTERM", "SIGKILL"]
)
def test_a_leader_that_ends_is_replaced(
    managed: Managed, figure: Callable[[str], None], number: signal.Signals, within_s: float
) -> None:
    before = managed.leader()
    assert (before.figure("koord_manager_leader"), managed.other(before).figure("koord_manager_leader")) == (1, 0)
    began = time.monotonic()
    before.process.signal(number)
    another = managed.other(before).name
    wait_for(lambda: manager.leader(managed.api) == another, 2 * within_s, "another leader")
    took_s = time.monotonic() - began
    figure(f"another koord-manager led {took_s:.1f} s after {number.name} of the leader (aim {within_s:g} s)")
    node = f"after-{number.name.lower()}"
    managed.new_node(node)
    managed.report(node)
    wait_for(lambda: managed.offered(node), SOON_S, "the new leader's work")
    before.process.stop()
    managed.start(before.name)


@pytest.mark.parametrize("part", ["api_server", "etcd"])
def test_the_control_plane_is_killed_and_comes_back(managed: Managed, part: str) -> None:
    """Nothing that was offered is taken back, and what comes afterwards is served."""
    managed.new_node(f"before-{part.replace('_', '-')}")
    name = f"before-{part.replace('_', '-')}"
    managed.report(name)
    wait_for(lambda: managed.offered(name), SOON_S, "batch resources")
    offered = managed.offered(name)
    server = getattr(managed.plane, part)
    server.kill()
    time.sleep(3)
    server.start()
    wait_for(managed.api.healthy, SOON_S, "the API server")
    assert managed.offered(name) == offered
    later = name.replace("before", "later")
    managed.new_node(later)
    managed.report(later)
    wait_for(lambda: managed.offered(later), 2 * SOON_S, "the work to go on")
    assert managed.offered(name) == offered, "by the manager that is back"
    created = create(managed.api, JOBS, later, {"cpu": "1"}, {"app-type": "batch"})
    assert created["spec"]["priority"] == 5000


def test_without_a_webhook_pods_pass_unchanged_and_are_reported(managed: Managed) -> None:
    """The API server calls a port on which no server answers, once it knows that configuration."""
    silent = managed.other(managed.leader())
    managed.webhooks_at = silent.name
    manager.send_webhooks_to(managed.api, silent)
    silent.process.kill()
    numbers = itertools.count()

    def unseen() -> str:
        """A pod's name; "" of one that the other replica has changed."""
        name = f"unseen-{next(numbers)}"
        created = create(managed.api, JOBS, name, {"cpu": "1"}, {"app-type": "batch"})
        return name if "koordinator.sh/qosClass" not in created["metadata"]["labels"] else ""

    name = wait_for(unseen, SOON_S, "the API server to ask the silent replica")

    def reported() -> list[str]:
        selector = f"involvedObject.name={name},reason=NotMutated"
        events = managed.api.items(f"/api/v1/namespaces/{JOBS}/events", fieldSelector=selector)
        return [event["message"] for event in events]

    wait_for(reported, SOON_S, "the Event")
    assert "no webhook answered" in reported()[0]
    managed.start(silent.name)


def koordctl(plane: ControlPlane, *arguments: str) -> str:
    """What it prints, asking as the administrator."""
    argv = [sys.executable, "-m", "koordctl", *arguments, f"--kubeconfig={plane.admin}"]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout


def create(
    api: Api, namespace: str, name: str, amounts: Mapping[str, str], labels: Mapping[str, str], **spec: Any
) -> Object:
    """A pod with ``amounts`` as requests and limits."""
    return api.create(objects.pods_of(namespace), objects.pod(name, amounts, amounts, labels, **spec))
