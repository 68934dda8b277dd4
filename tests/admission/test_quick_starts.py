"""The documents that users start with: their YAML, admitted as the documents say."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from koord.admission import AdmissionContext
from koord.model import profile as profiles
from tests.admission.objects import (
    BATCH_CPU,
    BATCH_MEMORY,
    CLASSES,
    EXTENDED_SPEC,
    QOS,
    mutate_pod,
    patch_of,
    patched,
    review,
    validate_pod,
)
from tests.support.kubernetes import QUICK_START_PROFILE

CLUSTER = AdmissionContext(
    profiles=(profiles.read(QUICK_START_PROFILE),),
    namespaces={"batch-demo": {"koordinator.sh/enable-colocation": "true"}, "default": {}},
    priority_classes=CLASSES,
)

BATCH_JOB = """
metadata:
  labels:
    app-type: batch
spec:
  containers:
  - name: worker
    image: python:3.9
    command: ["python", "-c", "import time"]
    resources:
      requests:
        cpu: "2"
        memory: "4Gi"
      limits:
        cpu: "2"
        memory: "4Gi"
  restartPolicy: Never
"""
MANUAL_JOB = """
metadata:
  labels:
    koordinator.sh/qosClass: BE
spec:
  priorityClassName: koord-batch
  schedulerName: koord-scheduler
  containers:
  - name: worker
    image: python:3.9
    resources:
      requests:
        kubernetes.io/batch-cpu: "1000"
        kubernetes.io/batch-memory: "2Gi"
      limits:
        kubernetes.io/batch-cpu: "1000"
        kubernetes.io/batch-memory: "2Gi"
  restartPolicy: Never
"""
RESILIENT_JOB = """
metadata:
  labels:
    app-type: batch
spec:
  restartPolicy: OnFailure
  containers:
  - name: worker
    image: your-batch-image
"""
NGINX = """
metadata:
  labels:
    app: nginx
    koordinator.sh/qosClass: {qos}
  annotations:
    scheduling.koordinator.sh/resource-spec: '{{"preferredCPUBindPolicy": "SpreadByPCPUs"}}'
spec:
  schedulerName: koord-scheduler
  containers:
  - name: nginx
    image: release.daocloud.io/kpanda/nginx:1.25.3-alpine
    resources:
      limits:
        {resource}: {amount}
      requests:
        {resource}: {amount}
  priorityClassName: {priority_class}
"""
NOBODY = {"metadata": {"generateName": "data-processing-job-"}}


def submitted(text: str, priority: int) -> dict[str, Any]:
    """As a Job's controller sends it, and the API server's Priority plugin fills it in."""
    template = yaml.safe_load(text)
    metadata = {**template["metadata"], **NOBODY["metadata"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**template["spec"], "priority": priority}}


def created(document: dict[str, Any], namespace: str) -> dict[str, Any]:
    """What both webhooks make of it."""
    mutated = patched(document, patch_of(mutate_pod(review(document, namespace=namespace), CLUSTER)))
    answer = validate_pod(review(mutated, namespace=namespace), CLUSTER)
    assert answer["response"]["allowed"] is True, answer
    assert isinstance(mutated, dict)
    return mutated


def test_method_1_the_profile_injects() -> None:
    document = submitted(BATCH_JOB, 0)
    pod = created(document, "batch-demo")
    assert pod["metadata"]["labels"] == {"app-type": "batch", QOS: "BE", "koordinator.sh/mutated": "true"}
    assert pod["metadata"]["annotations"] == {
        EXTENDED_SPEC: '{"containers":{"worker":{'
        '"limits":{"kubernetes.io/batch-cpu":"2k","kubernetes.io/batch-memory":"4Gi"},'
        '"requests":{"kubernetes.io/batch-cpu":"2k","kubernetes.io/batch-memory":"4Gi"}}}}'
    }
    amounts = {BATCH_CPU: "2k", BATCH_MEMORY: "4Gi"}
    worker = {**document["spec"]["containers"][0], "resources": {"requests": amounts, "limits": amounts}}
    assert pod["spec"] == {
        "containers": [worker],
        "restartPolicy": "Never",
        "priorityClassName": "koord-batch",
        "priority": 5000,
        "preemptionPolicy": "PreemptLowerPriority",
        "schedulerName": "koord-scheduler",
    }


def test_method_1_elsewhere_nothing_happens() -> None:
    document = submitted(BATCH_JOB, 0)
    assert created(document, "default") == document


def test_method_2_by_hand_gets_the_annotation_alone() -> None:
    document = submitted(MANUAL_JOB, 5000)
    pod = created(document, "batch-demo")
    annotations = pod["metadata"].pop("annotations")
    assert pod == document
    assert annotations == {
        EXTENDED_SPEC: '{"containers":{"worker":{'
        '"limits":{"kubernetes.io/batch-cpu":"1k","kubernetes.io/batch-memory":"2Gi"},'
        '"requests":{"kubernetes.io/batch-cpu":"1k","kubernetes.io/batch-memory":"2Gi"}}}}'
    }


def test_a_job_without_resources_becomes_be() -> None:
    pod = created(submitted(RESILIENT_JOB, 0), "batch-demo")
    assert (pod["metadata"]["labels"][QOS], pod["spec"]["priority"]) == ("BE", 5000)
    assert "annotations" not in pod["metadata"] and "resources" not in pod["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("qos", "resource", "amount", "priority_class", "annotation"),
    [
        ("LSE", "cpu", "'2'", "koord-prod", None),
        ("LSR", "cpu", "'2'", "koord-prod", None),
        ("LS", "cpu", "'2'", "koord-prod", None),
        (
            "BE", BATCH_CPU, "2k", "koord-batch",
            '{"containers":{"nginx":{"limits":{"kubernetes.io/batch-cpu":"2k"},'
            '"requests":{"kubernetes.io/batch-cpu":"2k"}}}}',
        ),
    ],
)  # fmt: skip
def test_the_four_classes(qos: str, resource: str, amount: str, priority_class: str, annotation: str | None) -> None:
    text = NGINX.format(qos=qos, resource=resource, amount=amount, priority_class=priority_class)
    document = submitted(text, CLASSES[priority_class].value)
    pod = created(document, "default")
    assert pod["metadata"]["annotations"].pop(EXTENDED_SPEC, None) == annotation
    assert pod == document
