"""What a pod says that is accepted and probably not meant, place by place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from koord.admission import doubts
from koord.admission.documents import typed
from tests.admission.objects import BATCH_CPU, BATCH_MEMORY, CLASS, MID_CPU, MID_MEMORY, QOS, pod
from tests.admission.test_mutation import PODS
from tests.support.kubernetes import container

BATCH: dict[str, Any] = {"labels": {QOS: "BE"}, "priority": 5000}
REQUESTS = "spec.containers[0].resources.requests"
LIMITS = "spec.containers[0].resources.limits"


def limited(**amounts: Any) -> dict[str, Any]:
    """A pod whose one container has these limits, and enough of what they leave out."""
    return pod(container(limits={BATCH_CPU: "1k", BATCH_MEMORY: "1Gi", **amounts}), **BATCH)


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        pytest.param("2", "'2' is 2 thousandths of a CPU: write 2000 if 2 CPUs are meant", id="2-CPUs"),
        pytest.param(99, "99 is 99 thousandths of a CPU: write 99000 if 99 CPUs are meant", id="a-number"),
        pytest.param("1500m", f"'1500m' counts as 2: {BATCH_CPU} is in thousandths of a CPU, write 1500", id="1500m"),
        pytest.param("2000m", f"'2000m' counts as 2: {BATCH_CPU} is in thousandths of a CPU, write 2000", id="2000m"),
        pytest.param("500m", f"'500m' counts as 1: {BATCH_CPU} is in thousandths of a CPU, write 500", id="500m"),
        pytest.param("200000m", f"counts as 200: {BATCH_CPU} is in thousandths of a CPU, write 200000", id="200-CPUs"),
        pytest.param("0.5", f"'0.5' counts as 1: {BATCH_CPU} is in thousandths of a CPU, write 500", id="half"),
        pytest.param(1.5, f"1.5 counts as 2: {BATCH_CPU} is in thousandths of a CPU, write 1500", id="one-and-a-half"),
    ],
)
def test_cpu(amount: Any, words: str) -> None:
    ((path, sentence),) = doubts.of_pod(typed(limited(**{BATCH_CPU: amount})))
    assert path == f"{LIMITS}.{BATCH_CPU}" and words in sentence


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        pytest.param("256", "'256' is 256 bytes: write 256Mi if 256 MiB are meant", id="256"),
        pytest.param(512, "512 is 512 bytes: write 512Mi if 512 MiB are meant", id="a-number"),
        pytest.param("256Ki", "'256Ki' is 262144 bytes: write 256Mi if 256 MiB are meant", id="Ki"),
        pytest.param("0.5", "'0.5' counts as 1 byte: write an amount with Mi or Gi", id="half-a-byte"),
        pytest.param("512m", "'512m' counts as 1 byte, since m is thousandths: write 512Mi", id="512m"),
        pytest.param("4000000m", "counts as 4000 bytes, since m is thousandths: write 4000000Mi", id="4e6m"),
        pytest.param(
            "1000000", "'1000000' counts as 1000000 bytes: write an amount with Mi or Gi", id="a-megabyte-less"
        ),
    ],
)
@pytest.mark.parametrize("resource", [BATCH_MEMORY, MID_MEMORY, "memory"])
def test_memory(amount: Any, words: str, resource: str) -> None:
    ((path, sentence),) = doubts.of_pod(typed(limited(**{resource: amount})))
    assert path == f"{LIMITS}.{resource}" and words in sentence


@pytest.mark.parametrize(
    ("document", "place", "words"),
    [
        pytest.param(
            pod(container(requests={MID_CPU: "1"}), priority=7000), f"{REQUESTS}.{MID_CPU}", "1000 if 1", id="mid"
        ),
        pytest.param(
            pod(container(requests={BATCH_CPU: "x"}, limits={BATCH_MEMORY: "1Gi"}), **BATCH),
            f"{REQUESTS}.{BATCH_CPU}",
            "'x' is not a quantity",
            id="no-quantity",
        ),
        pytest.param(
            pod(container(), initContainers=[container(limits={"memory": "1"})]),
            "spec.initContainers[0].resources.limits.memory",
            "'1' is 1 byte: write 1Mi if 1 MiB",
            id="an-init-container-of-any-class",
        ),
        pytest.param(
            pod(resources={"limits": {"memory": "64"}}), "spec.resources.limits.memory", "'64' is 64", id="pod-level"
        ),
        pytest.param(
            pod(container("a"), container("b"), **BATCH),
            "spec.containers",
            "the pod requests neither CPU nor memory: the scheduler puts any number of such pods on a node",
            id="nothing-at-all",
        ),
        pytest.param(
            pod(container(limits={BATCH_CPU: "1k"}), **BATCH),
            f"{LIMITS}.{BATCH_MEMORY}",
            "without a limit nothing but eviction bounds the memory of container main",
            id="no-memory-limit",
        ),
        pytest.param(
            pod(container(limits={BATCH_CPU: "1k"}, requests={BATCH_MEMORY: "1Gi"}), **BATCH),
            f"{LIMITS}.{BATCH_MEMORY}",
            "without a limit",
            id="a-request-is-no-limit",
        ),
        pytest.param(limited(**{BATCH_MEMORY: "0"}), f"{LIMITS}.{BATCH_MEMORY}", "without a limit", id="0-is-no-limit"),
        pytest.param(
            pod(container(limits={"cpu": "1"}), labels={QOS: "BE"}, priority=3000),
            f"{LIMITS}.memory",
            "without a limit",
            id="free",
        ),
        pytest.param(
            pod(labels={QOS: "BESTEFFORT"}),
            f"metadata.labels['{QOS}']",
            "'BESTEFFORT' is not one of LSE, LSR, LS, BE, SYSTEM, so the pod has no QoS class of its own",
            id="unknown-QoS",
        ),
        pytest.param(
            pod(labels={CLASS: "batch"}),
            f"metadata.labels['{CLASS}']",
            "'batch' is not one of koord-prod",
            id="unknown-class",
        ),
        pytest.param(
            pod(annotations={"koordinator.sh/cpuBurst": "{"}),
            "metadata.annotations['koordinator.sh/cpuBurst']",
            "'{' is not JSON",
            id="annotation",
        ),
    ],
)
def test_one_doubt(document: dict[str, Any], place: str, words: str) -> None:
    ((path, sentence),) = doubts.of_pod(typed(document))
    assert path == place and words in sentence


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(pod(), id="no-class"),
        pytest.param(pod(container(requests={"cpu": "2"}), labels={QOS: "LS"}, priority=9000), id="service"),
        pytest.param(limited(), id="batch"),
        pytest.param(limited(**{BATCH_CPU: "100"}), id="a-tenth"),
        pytest.param(limited(**{BATCH_CPU: "0"}), id="no-limit-of-CPU"),
        pytest.param(limited(**{BATCH_MEMORY: "1Mi"}), id="1Mi"),
        pytest.param(pod(container(limits={"cpu": "1", "memory": "1Gi"}), **BATCH), id="before-translation"),
        pytest.param(pod(container(), resources={"limits": {"memory": "1Gi"}}, **BATCH), id="limit-of-the-whole"),
    ],
)
def test_nothing_is_doubtful(document: dict[str, Any]) -> None:
    assert doubts.of_pod(typed(document)) == ()


def test_one_bad_amount_hides_no_other() -> None:
    two = pod(
        container("a", limits={BATCH_CPU: "x", BATCH_MEMORY: "256"}), container("b", limits={BATCH_CPU: "1"}), **BATCH
    )
    assert [path for path, _ in doubts.of_pod(typed(two))] == [
        f"spec.containers[0].resources.limits.{BATCH_CPU}",
        f"spec.containers[0].resources.limits.{BATCH_MEMORY}",
        f"spec.containers[1].resources.limits.{BATCH_CPU}",
        f"spec.containers[1].resources.limits.{BATCH_MEMORY}",
    ]


@given(PODS)
def test_whatever_a_pod_says_nothing_is_raised(document: dict[str, Any]) -> None:
    assert all(path and sentence for path, sentence in doubts.of_pod(typed(document)))
