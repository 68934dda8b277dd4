"""``koordctl lint``: what it says of manifests, and that one bad document stops no other."""

from __future__ import annotations

import json
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
          priority: 5000
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
OWN_CLASS = "kind: PriorityClass\nmetadata: {name: own-batch}\nvalue: 5100\n"


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (PROFILE % "koord-batch", []),
        (PROFILE % "own-batch", [("ClusterColocationProfile batch", "spec.priorityClassName")]),
        (f"{PROFILE % 'own-batch'}---\n{OWN_CLASS}", []),
        (PROFILE % "koord-prod", [("ClusterColocationProfile batch", "spec.priorityClassName")]),
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
        ("{", [("f", "")]),
        ("- 1\n", [("f", "")]),
        (
            f"just text\n---\n{PROFILE % 'koord-prod'}",
            [("f#1", ""), ("ClusterColocationProfile batch", "spec.priorityClassName")],
        ),
        ("kind: List\nitems: [{kind: Service}, 5]\n", [("f.items[1]", "")]),
        ("kind: Pod\nmetadata: {name: p}\nspec: {containers: 5}\n", [("Pod p", "")]),
        ("kind: Deployment\nmetadata: {name: d}\n", []),
    ],
)
def test_findings(text: str, places: list[tuple[str, str]]) -> None:
    assert [(each.object, each.path) for each in findings([("f", text)])] == places


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
