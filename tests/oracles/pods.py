"""Pods for admission: every QoS class with every priority, each with many resources, each under many profiles.

No chance in it: the same cases in the same order, each with a name that says what it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from tests.oracles.admission import LABEL_SUB_PRIORITY, SKIP_RESOURCES
from tests.oracles.objects import BATCH, CPU, LABEL_CLASS, LABEL_QOS, MEMORY, MID, Document

NAMESPACE_LABELS = {"kubernetes.io/metadata.name": "default", "colocation": "on"}
SELECTED = {"koordinator.sh/enable-colocation": "true"}


@dataclass(frozen=True)
class Case:
    name: str
    pod: Document
    profiles: list[Document] = field(default_factory=list)
    old: Document | None = None


QOS = (None, "LSE", "LSR", "LS", "BE", "SYSTEM", "lsr")

PRIORITIES: Mapping[str, tuple[str | None, int | None]] = {
    "none": (None, None),
    "prod": (None, 9000),
    "mid": (None, 7500),
    "batch": (None, 5999),
    "free": (None, 3000),
    "gap": (None, 6000),
    "system-critical": (None, 2_000_000_000),
    "label prod": ("koord-prod", None),
    "label mid over prod": ("koord-mid", 9500),
    "label batch over 0": ("koord-batch", 0),
    "label free": ("koord-free", None),
    "label unknown over batch": ("foo", 5500),
}


def resources(requests: Mapping[str, Any] | None = None, limits: Mapping[str, Any] | None = None) -> Document:
    return {"resources": {"requests": dict(requests or {}), "limits": dict(limits or {})}}


def equal(cpu: Any, memory: Any = "4Gi", names: Mapping[str, str] | None = None) -> Document:
    amounts = {(names or {}).get(CPU, CPU): cpu, (names or {}).get(MEMORY, MEMORY): memory}
    return resources(amounts, amounts)


def spec(*containers: Document, inits: tuple[Document, ...] = (), **members: Any) -> Document:
    named = [{"name": f"c{number}", **container} for number, container in enumerate(containers)]
    named_inits = [{"name": f"i{number}", **init} for number, init in enumerate(inits)]
    return {"containers": named, **({"initContainers": named_inits} if inits else {}), **members}


ALWAYS = {"restartPolicy": "Always"}
SPECS: Mapping[str, Document] = {
    "nothing": spec({}),
    "whole CPUs": spec(equal("2")),
    "1500m": spec(equal("1500m")),
    "request below limit": spec(resources({CPU: "1", MEMORY: "1Gi"}, {CPU: "2", MEMORY: "1Gi"})),
    "limit alone": spec(resources(None, {CPU: 1, MEMORY: "1Gi"})),
    "request alone": spec(resources({CPU: "1", MEMORY: "1Gi"})),
    "CPU alone": spec(resources({CPU: "3000m"}, {CPU: "3"})),
    "CPU 0": spec(equal("0")),
    "less than 1m": spec(equal("100u", "1k")),
    "two halves": spec(equal("500m"), equal("0.5")),
    "one of two limited": spec(equal("1"), resources({CPU: "1", MEMORY: "1Gi"})),
    "init needs more": spec(equal("1"), inits=(equal("4"), equal("2500m"))),
    "sidecar": spec(equal("1"), inits=({**equal("1"), **ALWAYS}, equal("500m"))),
    "overhead": spec(equal("2"), overhead={CPU: "250m", MEMORY: "120Mi"}),
    "batch": spec(equal(2000, "4Gi", BATCH)),
    "batch 0": spec(equal("0", "0", BATCH)),
    "batch in an init container": spec({}, inits=(equal("1k", "1Gi", BATCH),)),
    "batch and native": spec(equal("2k", "4Gi", BATCH), equal("2")),
    "mid": spec(equal("2k", "4Gi", MID)),
    "init limited above its request": spec(equal("2"), inits=(resources({CPU: "500m"}, {CPU: "1"}),)),
    "one of two without CPU": spec(equal("2"), resources({MEMORY: "1Gi"}, {MEMORY: "1Gi"})),
    "the pod as its containers": spec(equal("1"), equal("1", "1Gi"), **equal("2000m", "5Gi")),
    "the pod alone": spec({}, **equal("2")),
    "the pod more than its containers": spec(equal("1"), **equal("2")),
    "the pod without limit": spec(equal("1"), **resources({CPU: "1", MEMORY: "4Gi"})),
    "GPU too": spec(resources({CPU: "1", "nvidia.com/gpu": 1}, {CPU: "1", "nvidia.com/gpu": 1})),
}


def profile(name: str, skips: bool = False, **members: Any) -> Document:
    annotations = {SKIP_RESOURCES: ""} if skips else {}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"selector": {"matchLabels": SELECTED}, **members},
    }


TO_BATCH: Document = {"qosClass": "BE", "priorityClassName": "koord-batch", "schedulerName": "koord-scheduler"}
PROFILES: Mapping[str, list[Document]] = {
    "none": [],
    "quick start": [profile("p", **TO_BATCH, labels={"koordinator.sh/mutated": "true"}, koordinatorPriority=1000)],
    "of another namespace": [profile("p", **TO_BATCH, namespaceSelector={"matchLabels": {"colocation": "off"}})],
    "LSR by labels": [
        profile("p", labels={LABEL_QOS: "LSR"}, patch={"metadata": {"labels": {LABEL_CLASS: "koord-prod"}}})
    ],
    "only matches": [
        profile("p", namespaceSelector={"matchExpressions": [{"key": "colocation", "operator": "Exists"}]})
    ],
    "resources stay": [profile("p", True, **TO_BATCH)],
    "never": [profile("p", **TO_BATCH, probability=0)],
    "mid after batch": [profile("b", qosClass="LS", priorityClassName="koord-mid"), profile("a", **TO_BATCH)],
}


def pod(qos: str | None, label: str | None, priority: int | None, pod_spec: Document) -> Document:
    texts = {**SELECTED, LABEL_QOS: qos, LABEL_CLASS: label}
    made = {**deepcopy(pod_spec), **({} if priority is None else {"priority": priority})}
    return {
        "metadata": {"name": "p", "namespace": "default", "labels": {k: v for k, v in texts.items() if v is not None}},
        "spec": made,
    }


def cases() -> Iterator[Case]:
    """More than 10,000 pods that are new, with the profiles that there are."""
    for qos, (priority, said), (name, pod_spec), (of, profiles) in product(
        QOS, PRIORITIES.items(), SPECS.items(), PROFILES.items()
    ):
        yield Case(f"{qos}, {priority}, {name}, profile {of}", pod(qos, *said, pod_spec), profiles)


def updates() -> Iterator[Case]:
    """Every change of a pod's QoS class, priority, sub-priority or resources by one of them, and none at all."""
    states = list(product(QOS, PRIORITIES, (None, "0", "5"), ("whole CPUs",)))
    resized = list(product(QOS, PRIORITIES, (None,), [name for name in SPECS if name != "whole CPUs"]))
    for before, after in product(states, [*states, *resized]):
        if sum(one != other for one, other in zip(before, after, strict=True)) <= 1:
            yield Case(f"{before} becomes {after}", _in_state(*after), old=_in_state(*before))


def _in_state(qos: str | None, priority: str, sub_priority: str | None, resources_of: str) -> Document:
    made = pod(qos, *PRIORITIES[priority], SPECS[resources_of])
    if sub_priority is not None:
        made["metadata"]["labels"][LABEL_SUB_PRIORITY] = sub_priority
    return made
