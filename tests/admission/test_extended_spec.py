"""The annotation extended-resource-spec, to the byte."""

from __future__ import annotations

from typing import Any

import pytest

from koord.admission import annotate
from koord.admission.errors import TranslationError
from koord.model.annotations import PodAnnotations
from tests.admission.objects import BATCH_CPU, BATCH_MEMORY, EXTENDED_SPEC, MID_CPU, MID_MEMORY, pod
from tests.support.kubernetes import container

AMOUNTS = {BATCH_CPU: "2000", BATCH_MEMORY: "4096Mi"}
QUICK_START = (
    '{"containers":{"worker":{"limits":{"kubernetes.io/batch-cpu":"2k","kubernetes.io/batch-memory":"4Gi"},'
    '"requests":{"kubernetes.io/batch-cpu":"2k","kubernetes.io/batch-memory":"4Gi"}}}}'
)


def written(document: dict[str, Any]) -> str | None:
    text: str | None = annotate(document)["metadata"].get("annotations", {}).get(EXTENDED_SPEC)
    return text


@pytest.mark.parametrize("amount", ["2x", "", "--1"])
def test_an_amount_that_is_none(amount: str) -> None:
    with pytest.raises(TranslationError, match=r"spec.containers\[1\].resources.limits.kubernetes.io/batch-cpu: "):
        annotate(pod(container(), container(limits={BATCH_CPU: amount})))


@pytest.mark.parametrize(
    ("document", "text"),
    [
        pytest.param(pod(container("worker", AMOUNTS, AMOUNTS)), QUICK_START, id="quick-start"),
        pytest.param(
            pod(container("z", {BATCH_CPU: 500}), container("a", None, {BATCH_MEMORY: "1G"}), container("n")),
            '{"containers":{"a":{"limits":{"kubernetes.io/batch-memory":"1G"}},'
            '"z":{"requests":{"kubernetes.io/batch-cpu":"500"}}}}',
            id="sorted-without-what-is-empty",
        ),
        pytest.param(
            pod(container("c", {"cpu": "1", BATCH_CPU: "1k", "nvidia.com/gpu": "1"})),
            '{"containers":{"c":{"requests":{"kubernetes.io/batch-cpu":"1k"}}}}',
            id="no-others",
        ),
        pytest.param(
            pod(container("c", {MID_MEMORY: "1Gi", MID_CPU: "2k"})),
            '{"containers":{"c":{"requests":{"kubernetes.io/mid-cpu":"2k","kubernetes.io/mid-memory":"1Gi"}}}}',
            id="mid",
        ),
        pytest.param(
            pod(
                container("c", {BATCH_CPU: "1k"}),
                initContainers=[container("s", {BATCH_CPU: "1"}, restartPolicy="Always"), container("i")],
            ),
            '{"containers":{"c":{"requests":{"kubernetes.io/batch-cpu":"1k"}}},'
            '"initContainers":{"s":{"requests":{"kubernetes.io/batch-cpu":"1"}}}}',
            id="init-containers-beside-them",
        ),
        pytest.param(pod(container(requests={"cpu": "1"})), None, id="nothing"),
        pytest.param(pod(annotations={"a": "b"}), None, id="nothing-among-others"),
        pytest.param(
            pod(container("worker", AMOUNTS, AMOUNTS), annotations={EXTENDED_SPEC: "{"}), QUICK_START, id="bad"
        ),
        pytest.param(
            pod(container("worker", AMOUNTS, AMOUNTS), annotations={EXTENDED_SPEC: '{"containers":{"x":{}}}'}),
            QUICK_START,
            id="another",
        ),
        pytest.param(pod(annotations={EXTENDED_SPEC: QUICK_START}), None, id="amounts-that-nobody-requests"),
        pytest.param(pod(annotations={EXTENDED_SPEC: ""}), None, id="an-empty-one"),
    ],
)
def test_text(document: dict[str, Any], text: str | None) -> None:
    assert written(document) == text


def test_others_stay_and_the_pod_that_was_sent_too() -> None:
    document = pod(container("worker", AMOUNTS, AMOUNTS), annotations={"a": "b"})
    assert annotate(document)["metadata"]["annotations"] == {"a": "b", EXTENDED_SPEC: QUICK_START}
    assert document["metadata"]["annotations"] == {"a": "b"}
    assert annotate(annotate(document)) == annotate(document)


def test_the_node_reads_what_is_written() -> None:
    text = written(pod(container("worker", AMOUNTS, AMOUNTS), initContainers=[container("i", AMOUNTS)]))
    assert text is not None
    read = PodAnnotations.read({}, {EXTENDED_SPEC: text})
    assert read.problems == () and read.extended_resource_spec is not None
    assert set(read.extended_resource_spec.containers) == {"worker"}
    assert set(read.extended_resource_spec.init_containers) == {"i"}
