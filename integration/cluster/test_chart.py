"""The chart by a real helm on a real API server: what it makes, what it takes, and what it leaves.

No pod runs here. The managers and the Job of the hook are processes with the rights that the chart gives them, and the
test says of the Job what its controller would.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration import build
from integration.cluster import controlplane, objects
from integration.cluster.api import Api
from integration.cluster.controlplane import ControlPlane, Options
from integration.cluster.helm import CHART, RELEASE, Helm, documents, template
from integration.cluster.manager import NAMESPACE, Replica
from integration.harness.processes import HarnessError, wait_for
from koord.model.nodestate import ANNOTATION, UNINSTALLED, NodeState
from koord_manager.options import WEBHOOK_FRAMEWORK, WEBHOOK_GATES, feature_gates
from koord_manager.options import Options as ManagerOptions
from tests.charts.koordinator_values import VALUES

ROOT = Path(__file__).parents[2]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SLO = "/apis/slo.koordinator.sh/v1alpha1"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
JOB = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/koordinator-uninstall"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/koord-manager"
UNINSTALLER = f"system:serviceaccount:{NAMESPACE}:koordinator-uninstall"
OURS = (
    "nodemetrics.slo.koordinator.sh",
    "nodeslos.slo.koordinator.sh",
    "clustercolocationprofiles.config.koordinator.sh",
)
FOREIGN = "reservations.scheduling.koordinator.sh"
QUOTA_WEBHOOKS = f"{WEBHOOKS}/mutatingwebhookconfigurations/koordinator-mutating-webhook-configuration"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own: helm's objects must not be there before."""
    options = Options(api_server_flags=("--enable-aggregator-routing=true",))  # a Service without pods is told at once
    with controlplane.private(tmp_path_factory.mktemp("chart") / "plane", options) as made:
        yield made


@pytest.fixture(scope="module")
def helm(plane: ControlPlane) -> Helm:
    return Helm(build.program("helm"), plane.admin, plane.directory / "helm")


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    with plane.api() as client:
        yield client


@pytest.fixture
def namespace(api: Api) -> Iterator[None]:
    """Without which the API server takes nothing that has one."""
    api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    yield
    api.delete(f"/api/v1/namespaces/{NAMESPACE}")
    finalize(api)


@pytest.fixture
def koordinators(tmp_path: Path) -> Path:
    """The values that an installed Koordinator may have, all of them."""
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(VALUES))
    return file


def test_helm_finds_nothing_to_complain_of(helm: Helm) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


ALL_WEBHOOKS = ",".join(f"{gate}=true" for gate in sorted(set(WEBHOOK_GATES.values())))


def asked(helm: Helm, gates: str) -> set[str]:
    """Names of webhooks that the chart registers."""
    made = documents(template(helm, "--set", f"featureGates={gates.replace(',', chr(92) + ',')}"))
    found = [each for each in made.values() if "WebhookConfiguration" in each["kind"]]
    assert len(found) == 2
    return {webhook["name"] for each in found for webhook in each["webhooks"] or ()}


@pytest.mark.parametrize(
    "gates",
    [
        "",
        ALL_WEBHOOKS,
        "NodeMutatingWebhook=1,NodeValidatingWebhook=T,ConfigMapValidatingWebhook=True",
        " NodeMutatingWebhook = t , NodeValidatingWebhook=TRUE",
        "NodeMutatingWebhook=true,NodeMutatingWebhook=false,NodeValidatingWebhook=0,NodeValidatingWebhook=1",
        "NodeMutatingWebhook=F,AllAlpha=1",
        "AllAlpha=true,AllAlpha=0",
        "PodMutatingWebhook=false",
        "AllBeta=f,PodValidatingWebhook=true",
        "WebhookFramework=0,AllAlpha=true",
        "AllBeta=false,WebhookFramework=true",
    ],
)
def test_the_webhooks_are_those_that_the_manager_serves(helm: Helm, gates: str) -> None:
    """Any spelling that Kubernetes takes for true."""
    read = ManagerOptions(feature_gates=feature_gates(gates))
    served = {name for name, gate in WEBHOOK_GATES.items() if read.is_on(WEBHOOK_FRAMEWORK) and read.is_on(gate)}
    assert asked(helm, gates) == served


def test_with_its_defaults_it_is_what_the_manifests_say(helm: Helm) -> None:
    made = documents(template(helm))
    parts = ("crds", "koord-manager", "koord-scheduler", "koordlet")
    files = [file for part in parts for file in (ROOT / "manifests" / part).glob("*.yaml")]
    for file in files:
        for key, manifest in documents(file.read_text()).items():
            found = made[key]
            if key[0] == "CustomResourceDefinition":
                assert found["metadata"]["annotations"].pop("helm.sh/resource-policy") == "keep"
                found["metadata"] = {name: value for name, value in found["metadata"].items() if value}
            for each in found.get("webhooks", ()):
                each.pop("matchConditions", None)  # kubectl refuses it where the API server does not know it
            assert found == manifest, key


def test_with_every_gate_its_webhooks_are_those_of_the_manifest(helm: Helm) -> None:
    made = documents(template(helm, "--set", f"featureGates={ALL_WEBHOOKS.replace(',', chr(92) + ',')}"))
    every = documents((ROOT / "manifests" / "optional" / "webhooks.yaml").read_text())
    assert {key: made[key] for key in every} == every


def test_rights_of_units_are_there_where_they_are_asked_for(helm: Helm) -> None:
    units = documents((ROOT / "manifests" / "optional" / "node-units.yaml").read_text())
    assert documents(template(helm)).keys().isdisjoint(units)
    for daemonset in ("true", "false"):
        made = documents(template(helm, "--set", f"koordlet.enabled={daemonset},units.enabled=true"))
        assert {key: made.get(key) for key in units} == units
    made = documents(template(helm, "--set", "koordlet.enabled=false"))
    assert made.keys().isdisjoint(units)
    assert ("ServiceAccount", "koordlet") not in made


def test_who_is_the_scheduler(helm: Helm) -> None:
    """Without a list it is koord-scheduler's account in the namespace that the manager is told."""

    def flags(*arguments: str) -> list[str]:
        workload = documents(template(helm, *arguments))["Deployment", "koord-manager"]
        return [each for each in workload["spec"]["template"]["spec"]["containers"][0]["args"] if "users" in each]

    assert flags() == []
    users = "system:serviceaccount:x:koord-scheduler", "batch"
    assert flags("--set", f"manager.schedulerUsers={{{','.join(users)}}}") == [f"--scheduler-users={','.join(users)}"]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--set", "koordlet.enabled=false"),
        ("--set", "koordlet.attachment=NRI"),
        ("--set", "koordlet.attachment=reconciler,koordlet.hostDirs.dbusDir="),
        ("--set", "koordlet.hostDirs.resctrlDir=/sys/fs/resctrl,koordlet.extraCapabilities={SYS_NICE}"),
        ("--set", "koordlet.failurePolicy=Fail,koordlet.kubelet.insecureTLS=true,koordlet.log.level=debug"),
        ("--set", "koordlet.metrics.addr=0.0.0.0,koordlet.metrics.tokenSecret=t,koordlet.enableServiceMonitor=true",
         "--api-versions", "monitoring.coreos.com/v1"),
        ("--set", "koordlet.metrics.addr=::,koordlet.metrics.tokenSecret=t"),
        ("--set", "featureGates=AllAlpha=true\\,NodeMutatingWebhook=true\\,MultiQuotaTree=true"),
        ("--set", "manager.nodeLink.port=0,uninstall.enabled=false,crds.managed=false"),
        ("--set", "manager.tolerations[0].operator=Exists,manager.nodeSelector.a=b"),
        ("--set-string", "serviceAccount.annotations.a=b,imagePullSecrets[0].name=pull"),
        ("--set", "manager.networkPolicy.enabled=true,manager.networkPolicy.apiServers={10.0.0.0/28,fd00::/64}"),
        ("--set", "manager.networkPolicy.enabled=true,manager.networkPolicy.apiServers={10.0.0.0/28},"
         "manager.networkPolicy.nodes={10.0.0.0/16},manager.networkPolicy.metrics[0].podSelector.matchLabels.a=b"),
        ("--set", "manager.webhook.clientCASecret=ca,manager.webhook.clientNames={apiserver,other}"),
        ("--set", "scheduler.enabled=false"),
        ("--set", "scheduler.priorityClassName=,scheduler.nodeSelector.a=b,scheduler.tolerations[0].operator=Exists,"
         "scheduler.extraArgs={--seed=1},scheduler.log.level=debug"),
        ("--set", "scheduler.metrics.addr=0.0.0.0,scheduler.metrics.tokenSecret=t,scheduler.monitorEnabled=true",
         "--api-versions", "monitoring.coreos.com/v1"),
        ("--set", "scheduler.configuration.profiles[0].schedulerName=batch,scheduler.configuration.parallelism=8"),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.usefixtures("namespace")
def test_the_api_server_takes_it(helm: Helm, plane: ControlPlane, arguments: tuple[str, ...]) -> None:
    made = documents(template(helm, *arguments))
    text = yaml.safe_dump_all(each for each in made.values() if "monitoring" not in each["apiVersion"])
    plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)


@pytest.mark.usefixtures("namespace")
def test_the_api_server_takes_it_with_koordinators_values(helm: Helm, koordinators: Path, plane: ControlPlane) -> None:
    text = template(helm, "-f", str(koordinators))
    plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)


def test_values_without_effect_are_said(helm: Helm, koordinators: Path) -> None:
    notes = helm(
        *("install", "--dry-run=server", RELEASE, str(CHART), "-f", str(koordinators)),
        *("--set", "koordlet.features=Accelerators=true\\,NoSuchGate=true,manager.replica=3,unheard.of=1"),
    ).partition("NOTES:")[2]
    for said in (
        "* scheduler.featureGates: koord-scheduler has no gates",
        "* scheduler.enableJobPreemption: ",
        "* crds.devices: ",
        "* manager.resyncPeriod: ",
        "* manager.replica: no such value is known",
        "* unheard: no such value is known",
        "koordlet.features: the node agent has no NoSuchGate",
        "manager.image.tag is v1.8.0",
        "scheduler.image.repository is koordinator-sh/koord-scheduler",
    ):
        assert said in notes
    assert "koordlet.nodeAffinity" not in notes
    plain = helm("install", "--dry-run=server", RELEASE, str(CHART)).partition("NOTES:")[2]
    assert "Without effect" not in plain


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("koordlet.attachment=proxy", "attachment"),
        ("webhookConfiguration.failurePolicy.pods=ignore", "failurePolicy"),
        ("koordlet.metrics.addr=0.0.0.0", "koordlet.metrics.tokenSecret"),
        ("sloControllerConfig.colocation-config.enble=true", "enble"),
        ("sloControllerConfig.colocation-config.cpuReclaimThresholdPercent=-5", "cpuReclaimThresholdPercent"),
        ("sloControllerConfig.colocation-confg.enable=true", "colocation-confg"),
        ("sloControllerConfig.resource-threshold-config.clusterStrategy.enable=yes", "enable"),
        ("sloControllerConfig.resource-qos-config.clusterStrategy.beClass.cpuQOS.groupIdentiy=1", "groupIdentiy"),
        ("sloControllerConfig.colocation-config.nodeConfigs[0].nodeselector.a=b", "nodeselector"),
        ("sloControllerConfig.system-config=\\{bad", "sloControllerConfig.system-config is text that is no JSON"),
        ("manager.networkPolicy.enabled=true", "manager.networkPolicy.apiServers is empty"),
        ("manager.networkPolicy.apiServers={10.0.0.1}", "apiServers"),
        ("manager.networkPolicy.enabled=true,manager.hostNetwork=true", "manager.hostNetwork"),
        ("manager.webhook.clientNames={apiserver}", "manager.webhook.clientCASecret"),
        ("scheduler.metrics.addr=0.0.0.0", "scheduler.metrics.tokenSecret"),
        ("scheduler.configuration.leaderElection.leaderElect=false", "scheduler.configuration.leaderElection"),
        ("scheduler.replicas=two", "replicas"),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_its_name(helm: Helm, value: str, complaint: str) -> None:
    with pytest.raises(HarnessError, match=complaint):
        template(helm, "--set", value)


def test_a_policy_may_be_yaml_or_json_text(helm: Helm, tmp_path: Path) -> None:
    strategy = {"enable": True, "memoryReclaimThresholdPercent": 60, "resourceDiffThreshold": 0.05}
    entry = {"name": "a", "nodeSelector": {"matchLabels": {"pool": "a"}}, "cpuReclaimThresholdPercent": 50}
    policies = {
        "colocation-config": {**strategy, "nodeConfigs": [entry]},
        "resource-threshold-config": json.dumps({"clusterStrategy": {"enable": True}, "of-another-release": 1}),
        "cpu-burst-config": {"nodeStrategies": [{"nodeSelector": {}, "policy": "auto"}]},
        "system-config": "",
    }
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"sloControllerConfig": policies}))
    data = documents(template(helm, "-f", str(file)))["ConfigMap", "slo-controller-config"]["data"]
    assert {key: json.loads(text or "null") for key, text in data.items()} == {
        key: json.loads(policy or "null") if isinstance(policy, str) else policy for key, policy in policies.items()
    }


@pytest.mark.parametrize("is_kept", [True, False])
def test_an_upgrade_from_another_chart_keeps_what_says_so(
    helm: Helm, plane: ControlPlane, api: Api, tmp_path: Path, is_kept: bool
) -> None:
    """CRDs, and the webhooks of quotas, which a manager of the other release answers on."""
    another_chart(tmp_path)
    helm("install", RELEASE, str(tmp_path))
    before = api.get(QUOTA_WEBHOOKS)["webhooks"]
    if is_kept:
        for kept in (f"crd/{FOREIGN}", f"mutatingwebhookconfiguration/{QUOTA_WEBHOOKS.rpartition('/')[2]}"):
            plane.kubectl("annotate", kept, "helm.sh/resource-policy=keep")
    helm("upgrade", RELEASE, str(CHART), "--reset-values")
    wait_for(lambda: api.exists(f"{CRDS}/{FOREIGN}") == is_kept, 10, "the CRD to stay or to go")
    assert all(api.exists(f"{CRDS}/{name}") for name in OURS)
    plane.kubectl("apply", "-f", str(ROOT / "manifests" / "koord-manager" / "webhooks.yaml"))
    assert len(api.items(f"{WEBHOOKS}/mutatingwebhookconfigurations")) == 1 + is_kept
    helm("uninstall", RELEASE, "--no-hooks")
    assert api.exists(QUOTA_WEBHOOKS) == is_kept
    if is_kept:
        assert api.get(QUOTA_WEBHOOKS)["webhooks"] == before
        api.delete(QUOTA_WEBHOOKS)
        api.delete(f"{CRDS}/{FOREIGN}")
        wait_for(lambda: not api.exists(f"{CRDS}/{FOREIGN}"), 10, "the CRD to go")
    assert all(api.exists(f"{CRDS}/{name}") for name in OURS)
    finalize(api)


@pytest.mark.usefixtures("namespace")
def test_secrets_that_somebody_else_has_made_stay_as_they_are(helm: Helm, plane: ControlPlane, api: Api) -> None:
    """Managers before this chart made theirs, and kubectl makes them."""
    keys = {"ca.crt": "eA=="}
    made = {"metadata": {"name": "koordinator-webhook-certs", "namespace": NAMESPACE}, "data": keys}
    api.create(SECRETS, made)
    for step in ("install", "upgrade"):
        helm(step, RELEASE, str(CHART), "--set", "installation.createNamespace=false")
        if step == "install":
            api.merge(f"{SECRETS}/koordinator-nodelink-certs", {"data": keys})
        found = {each["metadata"]["name"]: each for each in api.items(SECRETS) if each["type"] == "Opaque"}
        assert {name: secret["data"] for name, secret in found.items()} == dict.fromkeys(
            ("koordinator-nodelink-certs", "koordinator-webhook-certs"), keys
        )
        assert "annotations" not in found["koordinator-webhook-certs"]["metadata"]
        assert found["koordinator-nodelink-certs"]["metadata"]["annotations"]["meta.helm.sh/release-name"] == RELEASE
    helm("uninstall", RELEASE, "--no-hooks")
    assert [name for name in found if api.exists(f"{SECRETS}/{name}")] == ["koordinator-webhook-certs"]
    api.delete(f"{SECRETS}/koordinator-webhook-certs")


def test_a_hook_that_fails_leaves_its_log_and_no_account(helm: Helm, plane: ControlPlane, api: Api) -> None:
    helm("install", RELEASE, str(CHART))
    running = helm.start("uninstall", RELEASE)
    wait_for(lambda: api.exists(JOB), 30, "the hook's Job")
    assert api.exists(f"{RBAC}/clusterroles/koordinator-uninstall")
    end(api, "FailureTarget", "Failed")
    _, complaint = running.communicate(timeout=60)
    assert running.returncode != 0 and "koordinator-uninstall" in complaint
    assert api.exists(JOB) and api.exists(DEPLOYMENT), "it can be read, and nothing else has gone"
    own = f"{RBAC}/namespaces/{NAMESPACE}"
    for path in (
        *(f"{RBAC}/clusterroles", f"{RBAC}/clusterrolebindings", f"{own}/roles", f"{own}/rolebindings"),
        f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
    ):
        assert not api.exists(f"{path}/koordinator-uninstall")
    helm("uninstall", RELEASE, "--no-hooks")
    api.delete(JOB, propagationPolicy="Background")
    finalize(api)


def test_installed_and_uninstalled(helm: Helm, plane: ControlPlane, api: Api, figure: Callable[[str], None]) -> None:
    helm("install", RELEASE, str(CHART))
    plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", *(f"crd/{name}" for name in OURS))
    objects.create_nodes(plane.api, [objects.node(name) for name in ("n1", "n2")])
    replica = Replica(plane, "m1")
    try:
        replica.wait_ready()
        with others(plane, {"n1": True, "n2": False}, replica):
            wait_for(lambda: all(offered(api, name) for name in ("n1", "n2")), 60, "batch resources on both nodes")
            said = uninstall(helm, plane, api)
            figure("\n" + said)
        lines = {line.partition(": ")[0]: line for line in said.splitlines()}
        assert "1 of 2 nodes have not given back" in said
        assert "n2" in said and "node n1" not in said
        assert lines["managers"].endswith("has no replicas; nobody leads")
        assert set(lines) >= {"policy", "node SLOs", "release", "webhooks", "managers", "nodes", "agents", "pods"}
        assert lines["reports"].endswith("off 1 of 2 NodeMetrics"), "what n2 holds may be read on"
        assert "1 of 2 nodes hold values of Koord's" in lines["pods"]
        assert [offered(api, name) for name in ("n1", "n2")] == [{}, {}]
    finally:
        replica.process.stop()
    assert not api.items(f"{WEBHOOKS}/mutatingwebhookconfigurations")
    assert not api.items(f"{WEBHOOKS}/validatingwebhookconfigurations")
    assert not [
        each for each in api.items("/apis/scheduling.k8s.io/v1/priorityclasses") if "koord" in each["metadata"]["name"]
    ]
    assert all(api.exists(f"{CRDS}/{name}") for name in OURS)
    assert not api.items(SECRETS)
    assert len(api.items(f"{SLO}/nodeslos")) == 2
    assert json.loads(helm("list", "--all", "-o", "json")) == []
    finalize(api)


# What is not there: nodes' agents, and the controllers of the Deployment and of the Job


@contextmanager
def others(plane: ControlPlane, released: Mapping[str, bool], replica: Replica) -> Iterator[None]:
    """Nodes that report, hold files, and give them back once their NodeSLO says so, if they do at all; and the
    Deployment's controller, which ends ``replica`` when there is to be none."""
    stop = threading.Event()

    def work() -> None:
        with plane.api() as api:
            while not stop.wait(0.2):
                for name, gives_back in released.items():
                    report(api, name, gives_back)
                if api.exists(DEPLOYMENT) and api.get(DEPLOYMENT)["spec"]["replicas"] == 0:
                    replica.process.stop()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def report(api: Api, name: str, gives_back: bool) -> None:
    path = f"{SLO}/nodemetrics/{name}"
    if not (api.exists(path) and api.exists(f"{SLO}/nodeslos/{name}")):
        return
    slo = api.get(f"{SLO}/nodeslos/{name}")
    is_off = not slo["spec"]["resourceUsedThresholdWithBE"]["enable"]
    is_dismissed = gives_back and UNINSTALLED in slo["metadata"].get("annotations", {})
    state = NodeState(0 if is_off and gives_back else 5, slo["metadata"]["generation"], is_dismissed)
    resources = {"resources": {"cpu": "400m", "memory": "800Mi"}}
    api.merge(path, {"metadata": {"annotations": {ANNOTATION: state.encoded()}}})
    status = {
        "updateTime": now(),
        "nodeMetric": {"nodeUsage": resources, "systemUsage": resources},
    }
    api.merge(f"{path}/status", {"status": status})


def offered(api: Api, name: str) -> dict[str, str]:
    found = api.get(f"/api/v1/nodes/{name}")["status"]
    return {key: text for place in ("capacity", "allocatable") for key, text in found[place].items() if "batch" in key}


def uninstall(helm: Helm, plane: ControlPlane, api: Api) -> str:
    """``helm uninstall``, its hook's Job run as a process; returns what the Job said."""
    running = helm.start("uninstall", RELEASE)
    wait_for(lambda: api.exists(JOB), 30, "the hook's Job")
    container = api.get(JOB)["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["koord-manager", "uninstall"]
    argv = [sys.executable, "-m", "koord_manager", "uninstall", *container["args"], "--timeout=3"]
    done = subprocess.run(
        [*argv, f"--kubeconfig={plane.kubeconfig(UNINSTALLER)}"],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    end(api, "SuccessCriteriaMet", "Complete", succeeded=1, completionTime=now())
    output, complaint = running.communicate(timeout=60)
    assert running.returncode == 0, output + complaint
    return messages(done.stderr)


def end(api: Api, *conditions: str, **members: Any) -> None:
    """What the Job's controller says of its end."""
    ended = now()
    true = [
        {"type": name, "status": "True", "lastTransitionTime": ended, "lastProbeTime": ended} for name in conditions
    ]
    api.merge(f"{JOB}/status", {"status": {"startTime": ended, "conditions": true, **members}})


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def messages(log: str) -> str:
    """Without what is before each message."""
    return "\n".join(line.rpartition("koord_manager.uninstall: ")[2] for line in log.splitlines())


def finalize(api: Api) -> None:
    """Does what the namespace controller does with a namespace that is being deleted."""
    path = f"/api/v1/namespaces/{NAMESPACE}"
    if api.exists(path):
        found = api.get(path)
        api.replace(f"{path}/finalize", {**found, "spec": {"finalizers": []}})
        wait_for(lambda: not api.exists(path), 10, "the namespace to go")


def another_chart(directory: Path) -> None:
    """With a CRD as an ordinary template, and a webhook."""
    group = FOREIGN.partition(".")[2]
    schema = {"openAPIV3Schema": {"type": "object"}}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": FOREIGN},
        "spec": {
            "group": group,
            "names": {"kind": "Reservation", "plural": "reservations"},
            "scope": "Cluster",
            "versions": [{"name": "v1alpha1", "served": True, "storage": True, "schema": schema}],
        },
    }
    (directory / "templates").mkdir()
    (directory / "Chart.yaml").write_text(yaml.safe_dump({"apiVersion": "v2", "name": RELEASE, "version": "1.6.0"}))
    service = {"name": "quota-webhook-service", "namespace": NAMESPACE, "path": "/mutate-elasticquota"}
    quotas = {"apiGroups": ["scheduling.sigs.k8s.io"], "apiVersions": ["v1alpha1"], "resources": ["elasticquotas"]}
    webhook = {
        "name": "melasticquota.koordinator.sh",
        "clientConfig": {"service": service},
        "rules": [{**quotas, "operations": ["CREATE"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": QUOTA_WEBHOOKS.rpartition("/")[2]},
        "webhooks": [webhook],
    }
    (directory / "templates" / "crd.yaml").write_text(yaml.safe_dump(crd))
    (directory / "templates" / "webhooks.yaml").write_text(yaml.safe_dump(configuration))
