"""Both quick-start guides of Koordinator and our own, run as written on a whole cluster with a real node.

What is run in place of a guide's words is in SUBSTITUTIONS. Beside these:

* the images have the guides' names and contents made here: ``python:3.9`` is a real Python 3.9, the others are busybox;
* in the English guide's copy the YAML had lost its indentation, which was put back.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration.cluster import objects
from integration.cluster.api import Api
from integration.cluster.quickstart import cluster, expectations, guide, traces, walk
from integration.cluster.quickstart.cluster import REPOSITORY, Cluster
from integration.cluster.quickstart.walk import Check, Substitution, Walk
from integration.harness import cgroups
from integration.harness.processes import wait_for

GUIDES = Path(__file__).parent / "quickstart"
ENGLISH = (GUIDES / "quick-start.en.md").read_text()
CHINESE = (GUIDES / "quick-start.zh.md").read_text()
ORCHESTRATION = (GUIDES / "cpu-orchestration.zh.md").read_text()
OURS = REPOSITORY / "docs" / "quick-start.md"

COLOCATION = json.dumps({"data": {"colocation-config": '{"enable": true, "cpuReclaimThresholdPercent": 500}'}})
PATCH = f"kubectl patch configmap slo-controller-config -n koordinator-system --type merge -p '{COLOCATION}'"
BATCH_POD = "$(kubectl get pod -n batch-demo -l app-type=batch -o name | head -1)"
KOORDLET_POD = "$(kubectl get pod -n koordinator-system -l koord-app=koordlet -o name)"
NO_REPOSITORY = "the chart is a folder of this checkout"
NO_METRICS_SERVER = "it reads a metrics server, which is no part of Koord"
SUBSTITUTIONS = (
    Substitution("helm repo add koordinator-sh https://koordinator-sh.github.io/charts/", (), NO_REPOSITORY),
    Substitution("helm repo update", (), NO_REPOSITORY),
    Substitution(
        "helm install koordinator koordinator-sh/koordinator --version 1.6.0",
        ("helm install koordinator charts/koordinator", PATCH),
        f"{NO_REPOSITORY}; a node of 2 CPUs offers the 2 batch CPUs of the Job only above its own capacity",
    ),
    Substitution("kubectl top nodes", (), NO_METRICS_SERVER),
    Substitution("kubectl top pods -n batch-demo", (), NO_METRICS_SERVER),
    Substitution(
        "kubectl describe pod <pod-name> -n batch-demo",
        (f"kubectl describe {BATCH_POD} -n batch-demo",),
        "the name is the reader's to fill in",
    ),
    Substitution(
        "kubectl logs -n koordinator-system koordlet-xxx",
        (f"kubectl logs -n koordinator-system {KOORDLET_POD}",),
        "the name is the reader's to fill in",
    ),
)
INSTALLED_ALREADY = tuple(
    Substitution(each.command, (), "both guides install with the same command, and the second finds it installed")
    if each.command.startswith("helm install ")
    else each
    for each in SUBSTITUTIONS
)
INSTALLED = {"koord-manager": 2, "koord-scheduler": 2, "koordlet": 1}
CHECKS: Mapping[str, Check] = {
    "kubectl get pod -n koordinator-system": expectations.pods_run(INSTALLED),
    "kubectl get priorityclass | grep koord": expectations.lines_begin(
        "koord-batch 5000 false", "koord-free 3000 false", "koord-mid 7000 false", "koord-prod 9000 false"
    ),
    "kubectl get pod -n batch-demo -l app-type=batch -o yaml": expectations.some_item_has(
        next(block.text for block in guide.blocks(CHINESE) if block.text.startswith("metadata:"))
    ),
    'kubectl get node -o yaml | grep -A 10 "allocatable:"': expectations.contains(
        "kubernetes.io/batch-cpu: ", "kubernetes.io/batch-memory: "
    ),
    "kubectl get nodemetric -o yaml": expectations.nodemetric_is_complete(with_aggregates=False),
    "kubectl describe pod <pod-name> -n batch-demo": expectations.contains("kubernetes.io/batch-cpu", "koord-batch"),
    "kubectl logs -n koordinator-system koordlet-xxx": expectations.contains("koord-qosd"),
}
GIB = 1 << 30
JOBS = "/apis/batch/v1/namespaces/batch-demo/jobs"
PODS = objects.pods_of("batch-demo")
NAMESPACE = "/api/v1/namespaces/koordinator-system"
WITNESSES: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]] = {
    "burstable": ({"cpu": "100m", "memory": "32Mi"}, {"cpu": "500m", "memory": "64Mi"}),
    "best-effort": ({}, {}),
}
AGGREGATE_S = 240.0
REMOVED_S = 90.0

Snapshot = Mapping[str, str]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster.started(tmp_path_factory.mktemp("quickstart")) as running:
        yield running


@pytest.fixture(scope="module")
def admin(whole: Cluster) -> Iterator[Api]:
    with whole.plane.api() as client:
        yield client


@pytest.fixture(scope="module")
def untouched(whole: Cluster, admin: Api, tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """The node before Koord, with a pod in each of kubelet's tiers that stays."""
    path = objects.pods_of("default")
    for name, (requests, most) in WITNESSES.items():
        manifest = objects.pod(name, requests, most)
        manifest["spec"]["containers"][0] |= {"command": ["sleep", "100000"]}
        admin.create(path, manifest)
    wait_for(lambda: all(map(objects.ready, admin.items(path))), 60, "the witnesses to be Ready")
    return traces.snapshot(whole, tmp_path_factory.mktemp("before") / "node")


@pytest.fixture(autouse=True)
def nothing_left_for_the_next(whole: Cluster, admin: Api) -> Iterator[None]:
    """A guide that fails half-way leaves its installation; the next one starts without."""
    yield
    ending = Walk(whole.directory, whole.environment())
    ending.do(guide.Command("helm uninstall koordinator --ignore-not-found"))
    remove_work(whole)
    wait_removed(admin)


def test_our_guide(whole: Cluster, admin: Api, untouched: Snapshot, tmp_path: Path) -> None:
    """Without any substitution; outputs are the guide's but for ages, ends of names, and numbers where it says so."""
    document = OURS.read_text()
    own = Walk(whole.directory, whole.environment())
    try:
        own.through(document)
    finally:
        (tmp_path / "quick-start.md").write_text(walk.with_outputs(document, own.printed))
        print(walk.transcript(own.printed), f"\nas a document: {tmp_path / 'quick-start.md'}")
    wait_removed(admin)
    remove_work(whole)
    assert_no_trace(whole, untouched, tmp_path)


def test_both_guides_of_koordinator(
    whole: Cluster, admin: Api, untouched: Snapshot, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    """One in each language, on one installation: from ``helm install`` to a node on which nothing is left."""
    began = time.monotonic()
    chinese = Walk(whole.directory, whole.environment(), SUBSTITUTIONS, CHECKS)
    chinese.through(CHINESE)
    print(walk.transcript(chinese.printed))
    assert chinese.unused() == set()
    work_is_in_the_kernel(admin)
    for name, says in (("manual-batch-job", "你好,来自批处理作业\n"), ("data-processing-job", "作业完成!\n")):
        wait_complete(admin, name, 120)
        assert whole.plane.kubectl("logs", "-n", "batch-demo", f"job/{name}").endswith(says)
    figure(f"quick start: {time.monotonic() - began:.0f} s from helm install to the last line of its Job")
    patterns(whole, admin)
    orchestration_is_admitted(whole, admin)
    remove_work(whole)
    english = Walk(whole.directory, whole.environment(), INSTALLED_ALREADY, CHECKS)
    english.through(ENGLISH)
    assert english.unused() == set()
    work_is_in_the_kernel(admin)
    complete = expectations.nodemetric_is_complete(with_aggregates=True)
    wait_for(lambda: complete(whole.plane.kubectl("get", "nodemetric", "-o", "yaml")), AGGREGATE_S, "the aggregates")
    print(whole.plane.kubectl("get", "nodemetric", "-o", "yaml"))
    an_upgrade_preempts_nobody(english, admin)
    remove_work(whole)
    uninstall(chinese, admin, figure)
    assert_no_trace(whole, untouched, tmp_path)


def patterns(whole: Cluster, admin: Api) -> None:
    """The guide's pipeline, its CronJob (run now) and its Job with retries: admitted, run and completed."""
    found = guide.objects(CHINESE)
    for name in ("data-pipeline", "nightly-report", "resilient-batch-job"):
        whole.plane.kubectl("apply", "-f", "-", stdin=found[name])
    whole.plane.kubectl("create", "job", "--from=cronjob/nightly-report", "tonight", "-n", "batch-demo")
    for name in ("data-pipeline", "tonight", "resilient-batch-job"):
        wait_complete(admin, name, 240)
    assert admin.get(f"{JOBS}/data-pipeline")["status"]["succeeded"] == 5
    for pod in pods_of_job(admin, "data-pipeline"):
        assert pod["metadata"]["labels"]["koordinator.sh/qosClass"] == "BE"
        assert limits(pod) == {"kubernetes.io/batch-cpu": "4k", "kubernetes.io/batch-memory": "8Gi"}
    (report,) = pods_of_job(admin, "tonight")
    assert limits(report) == {"kubernetes.io/batch-cpu": "2k", "kubernetes.io/batch-memory": "4Gi"}


def orchestration_is_admitted(whole: Cluster, admin: Api) -> None:
    """Each of the four Deployments gets its pod, with the CPU fields as they were written."""
    written = {name: yaml.safe_load(text) for name, text in guide.objects(ORCHESTRATION).items()}
    for text in guide.objects(ORCHESTRATION).values():
        whole.plane.kubectl("apply", "-f", "-", stdin=text)
    path = objects.pods_of("default")
    for name, deployment in written.items():
        (pod,) = wait_for(lambda: admin.items(path, labelSelector=f"app={name}"), 30, f"the pod of {name}")  # noqa: B023
        template = deployment["spec"]["template"]
        assert expectations.has(pod["metadata"]["labels"], template["metadata"]["labels"])
        assert pod["spec"]["priorityClassName"] == template["spec"]["priorityClassName"]
        assert limits(pod) == template["spec"]["containers"][0]["resources"]["limits"]
    assert set(written) == {"nginx-lse", "nginx-lsr", "nginx-ls", "nginx-be"}


def work_is_in_the_kernel(admin: Api) -> None:
    """Both Jobs run with the shares, the quota and the memory limit that their batch amounts stand for."""
    assert values_of(admin, "data-processing-job") == (2048, 200_000, 4 * GIB)
    assert values_of(admin, "manual-batch-job") == (1024, 100_000, 2 * GIB)


def an_upgrade_preempts_nobody(reader: Walk, admin: Api) -> None:
    """Pods of three batch CPUs run on a node of two; the new agent, of a critical priority, needs most of the two."""
    batch = {"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "64Mi"}
    for name in ("left", "right"):
        manifest = objects.pod(name, batch, batch, {"koordinator.sh/qosClass": "BE"}, priorityClassName="koord-batch")
        manifest["spec"]["containers"][0] |= {"command": ["sleep", "100000"]}
        admin.create(PODS, manifest)

    def running() -> set[str]:
        found = admin.items(PODS, labelSelector=",".join(f"{key}={value}" for key, value in objects.FAKE.items()))
        return {pod["metadata"]["uid"] for pod in found if objects.ready(pod)}

    wait_for(lambda: len(running()) == 2, 60, "both batch pods to be Ready")
    before = running()
    upgrade = "helm upgrade koordinator charts/koordinator --reuse-values --set koordlet.resources.requests.cpu=1200m"
    for command in (upgrade, "kubectl rollout status daemonset/koordlet -n koordinator-system --timeout=120s"):
        reader.do(guide.Command(command))
    assert running() == before


def values_of(admin: Api, job: str) -> tuple[int, int, int]:
    """The kernel's shares, quota and memory limit of the container of a Job's pod, which runs."""
    (pod,) = wait_for(lambda: [each for each in pods_of_job(admin, job) if objects.ready(each)], 60, f"{job} to run")
    (container,) = pod["status"]["containerStatuses"]
    values = cgroups.read(cgroups.of_container(container["containerID"].removeprefix("containerd://")))
    return values.cpu_shares, values.cfs_quota_us, values.memory_limit_bytes


def pods_of_job(admin: Api, job: str) -> list[dict[str, Any]]:
    return admin.items(PODS, labelSelector=f"job-name={job}")


def limits(pod: Mapping[str, Any]) -> Mapping[str, str]:
    resources: Mapping[str, Mapping[str, str]] = pod["spec"]["containers"][0]["resources"]
    assert resources["requests"] == resources["limits"]
    return resources["limits"]


def wait_complete(admin: Api, job: str, deadline_s: float) -> None:
    path = f"{JOBS}/{job}"
    wait_for(lambda: objects.condition(admin.get(path), "Complete") == "True", deadline_s, f"{job} to complete")


def remove_work(whole: Cluster) -> None:
    """What a user of the guides has created; the chart keeps CRDs, and so this profile."""
    whole.plane.kubectl("delete", "namespace", "batch-demo", "batch-workloads", "--ignore-not-found")
    whole.plane.kubectl("delete", "clustercolocationprofile", "--all", "--ignore-not-found")
    whole.plane.kubectl("delete", "deployment", "--all", "-n", "default")


def uninstall(reader: Walk, admin: Api, figure: Callable[[str], None]) -> None:
    began = time.monotonic()
    reader.do(guide.Command("helm uninstall koordinator"))
    wait_removed(admin)
    figure(f"helm uninstall: {time.monotonic() - began:.0f} s")


def wait_removed(admin: Api) -> None:
    """No pod is left nor the namespace, and the Node offers nothing any more."""
    pods = objects.pods_of("koordinator-system")
    wait_for(lambda: admin.items(pods) == [], REMOVED_S, "Koord's pods to end")
    wait_for(lambda: not admin.exists(NAMESPACE), REMOVED_S, "Koord's namespace to end, so that it can be made anew")
    allocatable = admin.get(f"{objects.NODES}/{cluster.NODE_NAME}")["status"]["allocatable"]
    assert not [name for name in allocatable if "batch" in name or "mid" in name], allocatable


def assert_no_trace(whole: Cluster, untouched: Snapshot, tmp_path: Path) -> None:
    """Kubelet removes the cgroups of ended pods within seconds; then everything is as before Koord came."""
    left: list[str] = []

    def same() -> bool:
        left[:] = traces.differences(untouched, traces.snapshot(whole, tmp_path / "node"))
        return not left

    try:
        wait_for(same, REMOVED_S, "the node to be as before")
    except Exception as error:
        raise AssertionError("\n".join([f"{len(left)} traces (before -> now):", *left])) from error
