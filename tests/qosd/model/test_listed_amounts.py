"""Which batch and mid amounts count: the spec's where somebody lists it, whatever the annotation says."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from koord.model import quantity
from koord.model.annotations import ContainerResources, ExtendedResourceSpec
from qosd.model.pod import HookStage, PodContext, Resources, RuntimeRequest

CPU, MEMORY, MID_CPU = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory", "kubernetes.io/mid-cpu"
Texts = Mapping[str, str]


def amounts(requests: Texts, limits: Texts) -> ContainerResources:
    read = [{name: quantity.parse(text) for name, text in each.items()} for each in (requests, limits)]
    return ContainerResources(requests=read[0], limits=read[1])


def context(
    annotation: Mapping[str, tuple[Texts, Texts]], listed: Mapping[str, tuple[Texts, Texts]] | None
) -> PodContext:
    containers = {name: {"requests": requests, "limits": limits} for name, (requests, limits) in annotation.items()}
    text = json.dumps({"containers": containers})
    spec = None if listed is None else {name: amounts(*each) for name, each in listed.items()}
    labels, requested = {"koordinator.sh/qosClass": "BE"}, Resources()
    annotations = {"node.koordinator.sh/extended-resource-spec": text}
    extended = None if spec is None else ExtendedResourceSpec(containers=spec)
    stage, parent = HookStage.POD_CGROUP, "/kubepods/besteffort/podu"
    return PodContext.read(
        RuntimeRequest(stage, "default", "p", "u", labels, annotations, parent, requested, extended=extended)
    )


def both(**texts: str) -> tuple[Texts, Texts]:
    named = {f"kubernetes.io/{name.replace('_', '-')}": text for name, text in texts.items()}
    return named, named


ONE, MUCH = both(batch_cpu="1k", batch_memory="1Gi"), both(batch_cpu="64k", batch_memory="1Gi")
REQUESTS_ONLY: tuple[Texts, Texts] = (ONE[0], {})
LIMITS_ONLY: tuple[Texts, Texts] = ({}, ONE[1])
UNLIMITED_CPU: tuple[Texts, Texts] = (ONE[0], {MEMORY: "1Gi"})
MID: tuple[Texts, Texts] = both(mid_cpu="2k")


@pytest.mark.parametrize(
    ("annotation", "listed", "cpu_milli", "is_told"),
    [
        ({"c": ONE}, None, 1000, False),
        ({"c": MUCH}, None, 64_000, False),
        ({"c": ONE}, {"c": ONE}, 1000, False),
        ({"c": LIMITS_ONLY}, {"c": ONE}, 1000, False),
        ({"c": ONE}, {"c": LIMITS_ONLY}, 1000, False),
        ({"c": MUCH}, {"c": ONE}, 1000, True),
        ({"c": UNLIMITED_CPU}, {"c": ONE}, 1000, True),
        ({"c": REQUESTS_ONLY}, {"c": ONE}, 1000, True),
        ({"c": ONE}, {"c": MUCH}, 64_000, False),
        ({"c": MUCH}, {"c": ({}, {})}, None, True),
        ({"c": MUCH}, {"d": ONE}, None, True),
        ({"c": MID}, {"c": ONE}, 1000, True),
    ],
    ids=[
        "nobody lists it", "nobody lists what is made up", "the same", "limits alone", "limits alone in the spec",
        "more",
        "a limit left out", "no limits", "less", "nothing in the spec", "another container's", "of the other kind",
    ],
)  # fmt: skip
def test_the_spec_counts(
    annotation: Mapping[str, tuple[Texts, Texts]],
    listed: Mapping[str, tuple[Texts, Texts]] | None,
    cpu_milli: int | None,
    is_told: bool,
) -> None:
    pod = context(annotation, listed)
    found = pod.amounts_of("c")
    assert (None if found is None else found.cpu_limit_milli) == cpu_milli
    sentence = "annotation extended-resource-spec: container c has more there than in the pod's spec, which counts"
    assert list(pod.problems) == [sentence] * is_told
