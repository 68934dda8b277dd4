"""``koordctl lint``: what it says of manifests, and that one bad document stops no other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from koordctl.exits import FAILED, OK, USAGE
from koordctl.manifests import findings
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
              resources: {requests: {kubernetes.io/batch-cpu: 2}, limits: {kubernetes.io/batch-cpu: 2}}
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
        (NGINX_BE, []),
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
        ("---\n---\n", []),
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
    assert [(each.object, each.path) for each in findings([("f", text.encode())])] == places


def test_an_error_names_the_line_of_the_file() -> None:
    (found,) = findings([("f", b"# one\n---\nkind: Service\n---\na: [\n")])
    assert "line 6" in found.sentence


def test_a_priority_that_the_manifest_states_counts() -> None:
    stated = (MANUAL % ("BE", "koord-batch")).replace("schedulerName:", "priority: 9000\n      schedulerName:")
    assert [each.path for each in findings([("f", stated.encode())])] == [LABEL]


async def test_a_file_that_is_not_utf_8_stops_no_other(tmp_path: Path) -> None:
    binary, bad = tmp_path / "binary.yaml", tmp_path / "bad.yaml"
    binary.write_bytes(b"kind: \xff\n")
    bad.write_text(JOB)
    code, out, _ = await koordctl("lint", str(binary), str(bad))
    assert (code, f"{binary} " in out, "CronJob jobs/nightly" in out) == (FAILED, True, True)


@pytest.mark.parametrize(("name", "manifest"), _BLOCKS, ids=[name for name, _ in _BLOCKS])
def test_nothing_is_to_be_said_against_the_quick_start(name: str, manifest: str) -> None:
    assert findings([(name, manifest.encode())]) == []


async def test_the_command(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(PROFILE % "koord-batch")
    bad.write_text(JOB)
    assert await koordctl("lint", str(good)) == (OK, "Nothing to say against it.\n", "")
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
