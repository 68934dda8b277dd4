"""``koordctl lint``: what it says of manifests, and that one bad document stops no other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from koordctl.exits import FAILED, OK, USAGE
from koordctl.linting import lint
from tests.koordctl.runs import koordctl

PROFILE = """\
apiVersion: config.koordinator.sh/v1alpha1
kind: ClusterColocationProfile
metadata: {name: batch}
spec:
  selector: {matchLabels: {app-type: batch}}
  qosClass: BE
  priorityClassName: %s
"""
JOB = """\
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly, namespace: jobs}
spec:
  jobTemplate:
    spec:
      template:
        metadata:
          labels: {koordinator.sh/qosClass: BE}
        spec:
          priorityClassName: koord-batch
          containers:
            - name: main
              resources:
                requests: {kubernetes.io/batch-cpu: 2}
                limits: {kubernetes.io/batch-cpu: 2, kubernetes.io/batch-memory: 1Gi}
"""
CONFIG = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: slo-controller-config, namespace: koordinator-system}
data:
  colocation-config: '{"enable": true, "cpuReclaimThresholdPercent": -1, "cpuReclaimTreshold": 5}'
"""
MANUAL = """\
apiVersion: batch/v1
kind: Job
metadata: {name: manual-batch-job, namespace: batch-demo}
spec:
  completions: 1
  template:
    metadata:
      labels: {koordinator.sh/qosClass: %s}
    spec:
      priorityClassName: %s
      schedulerName: koord-scheduler
      containers:
        - name: worker
          image: python:3.9
          resources:
            requests: {kubernetes.io/batch-cpu: "1000", kubernetes.io/batch-memory: "2Gi"}
            limits: {kubernetes.io/batch-cpu: "1000", kubernetes.io/batch-memory: "2Gi"}
      restartPolicy: Never
"""
"""Koordinator's batch quick start guide, "Manual Configuration"."""

NGINX_BE = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: nginx-be, labels: {app: nginx-be}}
spec:
  replicas: 1
  selector: {matchLabels: {app: nginx-be}}
  template:
    metadata:
      labels: {app: nginx-be, koordinator.sh/qosClass: BE}
      annotations: {scheduling.koordinator.sh/resource-spec: '{"preferredCPUBindPolicy": "SpreadByPCPUs"}'}
    spec:
      schedulerName: koord-scheduler
      containers:
        - name: nginx
          resources: {limits: {kubernetes.io/batch-cpu: 2k}, requests: {kubernetes.io/batch-cpu: 2k}}
      priorityClassName: koord-batch
"""
"""A vendor's guide to colocation by Koordinator."""

_QUICK_START = Path(__file__).parents[2] / "docs" / "quick-start.md"
_BLOCKS = re.findall(r"```yaml (\S+)\n(.*?)```", _QUICK_START.read_text(encoding="utf-8"), re.DOTALL)
LABEL = "spec.template.metadata.labels.koordinator.sh/qosClass"
MEMORY_LIMIT = "spec.template.spec.containers[0].resources.limits.kubernetes.io/batch-memory"
OWN_CLASS = "kind: PriorityClass\nmetadata: {name: own-batch}\nvalue: 5100\n"


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("{", [("f", "")]),
        ("- 1\n", [("f", "")]),
        ("a: 2024-13-45\n", [("f", "")]),
        ("!!int foo\n", [("f", "")]),
        ("!!bool foo\n", [("f", "")]),
        ('!!float ""\n', [("f", "")]),
        ("!!timestamp foo\n", [("f", "")]),
        (PROFILE % "koord-batch", []),
        (PROFILE % "own-batch", [("ClusterColocationProfile batch", "spec.priorityClassName")]),
        (f"{PROFILE % 'own-batch'}---\n{OWN_CLASS}", []),
        (PROFILE % "koord-prod", [("ClusterColocationProfile batch", "spec.priorityClassName")]),
        (PROFILE % "system-node-critical", [("ClusterColocationProfile batch", "spec.priorityClassName")]),
        (f"{PROFILE % 'koord-batch'}  priorityClass: x\n", [("ClusterColocationProfile batch", "spec.priorityClass")]),
        (
            f"{PROFILE % 'koord-batch'}  probability: often\n  label: {{}}\n",
            [("ClusterColocationProfile batch", path) for path in ("spec.probability", "spec.label")],
        ),
        (MANUAL % ("BE", "koord-batch"), []),
        (MANUAL % ("BE", "koord-prod"), [("Job batch-demo/manual-batch-job", LABEL)]),
        (MANUAL % ("BE", "system-cluster-critical"), [("Job batch-demo/manual-batch-job", LABEL)]),
        (MANUAL % ("BE", "own-batch"), [("Job batch-demo/manual-batch-job", LABEL)]),
        (f"{MANUAL % ('BE', 'own-batch')}---\n{OWN_CLASS}", []),
        (MANUAL % ("LS", "koord-batch"), [("Job batch-demo/manual-batch-job", LABEL)]),
        (NGINX_BE, [("Deployment nginx-be", MEMORY_LIMIT)]),
        (f"{PROFILE % 'koord-batch'}  probability: often\n", [("ClusterColocationProfile batch", "spec.probability")]),
        (
            JOB,
            [
                (
                    "CronJob jobs/nightly",
                    f"spec.jobTemplate.spec.template.spec.containers[0].resources.{kind}.kubernetes.io/batch-cpu",
                )
                for kind in ("requests", "limits")
            ],
        ),
        (
            CONFIG,
            [
                ("ConfigMap koordinator-system/slo-controller-config", "colocation-config.cpuReclaimThresholdPercent"),
                ("ConfigMap koordinator-system/slo-controller-config", "colocation-config.cpuReclaimTreshold"),
            ],
        ),
        ("kind: Service\nmetadata: {name: web}\n", []),
        ("", [("f", "")]),
        ("---\n---\n", [("f", "")]),
        ("# only a comment\n", [("f", "")]),
        (
            f"just text\n---\n{PROFILE % 'koord-prod'}",
            [("f#1", ""), ("ClusterColocationProfile batch", "spec.priorityClassName")],
        ),
        # a document that cannot be read stops none of its file
        (f"{{\n---\n{PROFILE % 'koord-prod'}",
         [("f#1", ""), ("ClusterColocationProfile batch", "spec.priorityClassName")]),
        (f"{PROFILE % 'koord-prod'}--- # next\n!!int foo\n---\n{{\n",
         [("f#2", ""), ("f#3", ""), ("ClusterColocationProfile batch", "spec.priorityClassName")]),
        (f"%YAML 1.1\n# a comment\n---\n{PROFILE % 'koord-batch'}...\n", []),
        ("kind: List\nitems: [{kind: Service}, 5]\n", [("f.items[1]", "")]),
        ("kind: Pod\nmetadata: {name: p}\nspec: {containers: 5}\n", [("Pod p", "")]),
        ("kind: Deployment\nmetadata: {name: d}\n", []),
    ],
)  # fmt: skip
def test_findings(text: str, places: list[tuple[str, str]]) -> None:
    assert [(each.object, each.problem.path) for each in lint([("f", text.encode())]).findings] == places


def test_an_error_names_the_line_of_the_file() -> None:
    (found,) = lint([("f", b"# one\n---\nkind: Service\n---\na: [\n")]).findings
    assert "line 6" in found.problem.message


def test_a_priority_that_the_manifest_states_counts() -> None:
    stated = (MANUAL % ("BE", "koord-batch")).replace("schedulerName:", "priority: 9000\n      schedulerName:")
    assert [each.problem.path for each in lint([("f", stated.encode())]).findings] == [LABEL]


CONFIG_NAME = "ConfigMap koordinator-system/slo-controller-config"


def config(name: str = "slo-controller-config", **data: str) -> str:
    keys = {key.replace("_", "-"): text for key, text in data.items()}
    metadata = {"name": name, "namespace": "koordinator-system"}
    return json.dumps({"kind": "ConfigMap", "metadata": metadata, "data": keys})


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        pytest.param("", ("f", ""), "is empty", id="empty"),
        pytest.param(
            config(colocation_confg='{"enable": true}'),
            (CONFIG_NAME, "colocation-confg"),
            "there is no such key (did you mean colocation-config?): it is ignored",
            id="mistyped-key",
        ),
        pytest.param(
            config(whatever="{}"), (CONFIG_NAME, "whatever"), "there is no such key: it is ignored", id="unknown-key"
        ),
        pytest.param(
            '{"kind": "ConfigMap", "metadata": {"name": "slo-controller-config"}}',
            ("ConfigMap slo-controller-config", "data"),
            "has no key",
            id="no-data",
        ),
        pytest.param(
            "kind: ConfigMap\nmetadata: {name: slo-controller-config}\ndata: {colocation-config: {enable: true}}\n",
            ("ConfigMap slo-controller-config", "data.colocation-config"),
            "is no string",
            id="YAML-for-JSON",
        ),
        pytest.param(
            config("slo-controler-config", x="{}"),
            ("ConfigMap koordinator-system/slo-controler-config", "metadata.name"),
            "did you mean slo-controller-config?",
            id="mistyped-name",
        ),
        pytest.param(
            config("slo", colocation_config="{}"),
            ("ConfigMap koordinator-system/slo", "metadata.name"),
            "has colocation-config, but only the ConfigMap slo-controller-config is read",
            id="another-name",
        ),
        pytest.param(
            "kind: ClusterColocationProfle\nmetadata: {name: x}\n",
            ("ClusterColocationProfle x", "kind"),
            "did you mean ClusterColocationProfile?",
            id="mistyped-kind",
        ),
        pytest.param(
            (PROFILE % "koord-batch").replace("v1alpha1", "v1"),
            ("ClusterColocationProfile batch", "apiVersion"),
            "'config.koordinator.sh/v1' has no ClusterColocationProfile: write config.koordinator.sh/v1alpha1",
            id="version",
        ),
    ],
)
def test_what_would_not_be_read_is_said(text: str, place: tuple[str, str], words: str) -> None:
    (found,) = lint([("f", text.encode())]).findings
    assert (found.object, found.problem.path) == place and words in found.problem.message


def test_one_bad_member_of_a_profile_hides_no_other() -> None:
    bad = PROFILE % "own-batch" + "  probability: often\n  koordinatorPriority: high\n  labels: {a: 1, b: 2}\n"
    bad = bad.replace("qosClass: BE", "qosClass: be")
    assert [each.problem.path for each in lint([("f", bad.encode())]).findings] == [
        "spec.qosClass",
        "spec.probability",
        "spec.koordinatorPriority",
        "spec.labels.a",
        "spec.labels.b",
        "spec.priorityClassName",
    ]


def test_a_bad_selector_is_not_taken_for_an_absent_one() -> None:
    bad = (PROFILE % "koord-batch").replace("{matchLabels: {app-type: batch}}", "{matchLabels: {'a b': x}}")
    assert [each.problem.path for each in lint([("f", bad.encode())]).findings] == ["spec.selector.matchLabels"]


@pytest.mark.parametrize(
    ("texts", "examined", "passed_over"),
    [
        (["kind: Service\nmetadata: {name: web}\n"], (), ("Service web",)),
        (["kind: ConfigMap\nmetadata: {name: mine}\ndata: {a: b}\n"], (), ("ConfigMap mine",)),
        ([PROFILE % "koord-batch", "kind: Rollout\n"], ("ClusterColocationProfile batch",), ("Rollout f1",)),
        (["kind: Deploymnet\nmetadata: {name: x}\n"], (), ()),
        ([config(), NGINX_BE], (CONFIG_NAME, "Deployment nginx-be"), ()),
    ],
)
def test_what_is_looked_at_is_said(texts: list[str], examined: tuple[str, ...], passed_over: tuple[str, ...]) -> None:
    report = lint((f"f{number}", text.encode()) for number, text in enumerate(texts))
    assert (report.examined, report.passed_over) == (examined, passed_over)


async def test_what_is_passed_over_is_no_approval(tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text("kind: Service\nmetadata: {name: web}\n")
    code, out, _ = await koordctl("lint", str(tmp_path / "service.yaml"))
    assert (code, out) == (OK, "There is nothing in it that Koord reads.\nNot looked at: Service web.\n")
    code, out, _ = await koordctl("lint", "-o", "json", str(tmp_path / "service.yaml"))
    assert json.loads(out) == {"findings": [], "examined": [], "passed_over": ["Service web"]}


QUOTA = """\
kind: ResourceQuota
metadata: {name: team, namespace: batch-demo}
spec:
  hard: {limits.cpu: "8", requests.memory: 8Gi, pods: "20"}
"""
OF_NAMESPACE = "kind: Namespace\nmetadata: {name: batch-demo, labels: {colocation: %s}}\n"
SELECTING = PROFILE % "koord-batch" + "  namespaceSelector: {matchLabels: {colocation: 'on'}}\n"
REFUSING = ["spec.hard.requests.memory", "spec.hard.limits.cpu"]


@pytest.mark.parametrize(
    ("others", "scopes", "paths"),
    [
        pytest.param([], "", [], id="nothing-tells-of-batch-pods"),
        pytest.param([PROFILE % "koord-batch"], "", REFUSING, id="a-profile-of-all-namespaces"),
        pytest.param([SELECTING], "", REFUSING, id="a-namespace-whose-labels-are-not-known"),
        pytest.param([SELECTING, OF_NAMESPACE % "'on'"], "", REFUSING, id="a-namespace-that-is-selected"),
        pytest.param([SELECTING, OF_NAMESPACE % "'off'"], "", [], id="a-namespace-that-is-not"),
        pytest.param([PROFILE % "koord-prod"], "", [], id="a-profile-that-translates-nothing"),
        pytest.param([MANUAL % ("BE", "koord-batch")], "", REFUSING, id="a-batch-pod"),
        pytest.param([(MANUAL % ("BE", "koord-batch")).replace("batch-demo", "x")], "", [], id="of-another-namespace"),
        pytest.param([MANUAL % ("BE", "koord-batch")], "scopes: [NotBestEffort]", [], id="left-out-by-class"),
        pytest.param(
            [MANUAL % ("BE", "koord-batch")],
            "scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: NotIn, values: [koord-batch]}]}",
            [],
            id="left-out-by-priority",
        ),
        pytest.param(
            [MANUAL % ("BE", "koord-batch")],
            "scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [koord-prod]}]}",
            [],
            id="of-others-alone",
        ),
        pytest.param(
            [MANUAL % ("BE", "koord-batch")],
            "scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: Exists}]}",
            REFUSING,
            id="of-any-class",
        ),
    ],
)
def test_a_quota_that_refuses_batch_pods(others: list[str], scopes: str, paths: list[str]) -> None:
    files = [("q", f"{QUOTA}  {scopes}\n".encode()), *(("o", text.encode()) for text in others)]
    found = [each for each in lint(files).findings if each.object == "ResourceQuota batch-demo/team"]
    assert [each.problem.path for each in found] == paths
    assert all("is refused" in str(each) and "scopes: [NotBestEffort]" in str(each) for each in found)


def test_a_quota_of_batch_resources_bounds_nothing() -> None:
    quota = QUOTA.replace("limits.cpu", "requests.kubernetes.io/batch-cpu").replace("requests.memory", "count/jobs")
    (found,) = lint([("q", quota.encode())]).findings
    assert found.problem.path == "spec.hard.requests.kubernetes.io/batch-cpu"
    assert "bounds nothing" in found.problem.message


async def test_a_file_that_is_not_utf_8_stops_no_other(tmp_path: Path) -> None:
    binary, bad = tmp_path / "binary.yaml", tmp_path / "bad.yaml"
    binary.write_bytes(b"kind: \xff\n")
    bad.write_text(JOB)
    code, out, _ = await koordctl("lint", str(binary), str(bad))
    assert (code, f"{binary} " in out, "CronJob jobs/nightly" in out) == (FAILED, True, True)


@pytest.mark.parametrize(("name", "manifest"), _BLOCKS, ids=[name for name, _ in _BLOCKS])
def test_nothing_is_to_be_said_against_the_quick_start(name: str, manifest: str) -> None:
    assert lint([(name, manifest.encode())]).findings == ()


async def test_the_command(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(PROFILE % "koord-batch")
    bad.write_text(JOB)
    assert await koordctl("lint", str(good)) == (OK, "Nothing to say against ClusterColocationProfile batch.\n", "")
    code, out, _ = await koordctl("lint", str(good), str(bad))
    assert code == FAILED
    assert "CronJob jobs/nightly" in out and "write 2000 if 2 CPUs are meant" in out
    code, out, _ = await koordctl("lint", "-o", "json", "-", stdin=JOB)
    assert (code, len(json.loads(out)["findings"])) == (FAILED, 2)


@pytest.mark.parametrize("arguments", [(), ("/no/such/file",)])
async def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    code, _, err = await koordctl("lint", *arguments)
    assert code == USAGE
    assert "FILES" in err or "/no/such/file" in err


GPU_JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: ml}
spec:
  template:
    metadata: {labels: {quota.scheduling.koordinator.sh/name: ml, koordinator.sh/qosClass: LS}}
    spec:
      initContainers: [{name: load, resources: {limits: {koordinator.sh/rdma: 1}}}]
      containers:
        - name: main
          resources: {requests: {koordinator.sh/gpu: 100}, limits: {koordinator.sh/gpu: 100, nvidia.com/gpu: 1}}
"""
OF_JOB = "spec.template.spec"
NODE = """\
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {node.koordinator.sh/numa-topology-policy: %s}}
status: {allocatable: {cpu: "8", koordinator.sh/gpu-core: "200", nvidia.com/gpu: "2"}}
"""
TOPOLOGY = """\
apiVersion: topology.node.k8s.io/v1alpha1
kind: NodeResourceTopology
metadata: {name: n1}
zones: [5, {name: node-0, resources: [{name: cpu}]}, {name: node-1, resources: [{name: %s}, 7]}]
"""


@pytest.mark.parametrize(
    ("text", "places", "words"),
    [
        (
            GPU_JOB,
            [
                f"{OF_JOB}.initContainers[0].resources.limits.koordinator.sh/rdma",
                f"{OF_JOB}.containers[0].resources.requests.koordinator.sh/gpu",
                f"{OF_JOB}.containers[0].resources.limits.koordinator.sh/gpu",
            ],
            "neither makes gpu-core and gpu-memory-ratio of it nor writes it onto Nodes",
        ),
        ("apiVersion: scheduling.sigs.k8s.io/v1alpha1\nkind: ElasticQuota\n", [], ""),
        ("apiVersion: scheduling.koordinator.sh/v1alpha1\nkind: Device\n", ["kind"], "no resources of devices"),
        ("apiVersion: devices.example.com/v1\nkind: Device\n", [], ""),
        (NODE % "''", ["status.allocatable.koordinator.sh/gpu-core"], "does not keep it up to date"),
        (
            NODE % "SingleNUMANode",
            [
                "status.allocatable.koordinator.sh/gpu-core",
                "metadata.labels.node.koordinator.sh/numa-topology-policy",
            ],
            "no batch amounts of zones",
        ),
        ("apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: 5\n", [], ""),
        (TOPOLOGY % "memory", [], ""),
        (TOPOLOGY % "kubernetes.io/batch-memory", ["zones[2].resources"], "no batch amounts of zones"),
    ],
)
def test_what_only_koordinators_manager_does_is_said(text: str, places: list[str], words: str) -> None:
    """With a way out; kinds and resources of other projects are none of it."""
    report = lint([("f", text.encode())])
    said = [each for each in report.findings if "(docs/migration.md, Do not migrate yet)" in each.problem.message]
    assert [each.problem.path for each in said] == places
    assert len(report.findings) == len(said)
    assert all("keep what Koordinator has" in each.problem.message for each in said)
    assert any(words in each.problem.message for each in said) == bool(words)
