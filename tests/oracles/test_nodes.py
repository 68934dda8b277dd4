"""The generated nodes meet everything that the formulas tell apart, and all that documents may hold."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache

import pytest

from tests.oracles.nodes import CLASSES, PHASES, PRIORITIES, QOS, Documents, documents
from tests.oracles.objects import BATCH, LABEL_CLASS, LABEL_QOS, MID, Document, at
from tests.oracles.overcommit import Branches, expected

SEEDS = range(2000)

Predicate = Callable[[Document], bool]


def has(value: object, *path: str) -> Predicate:
    return lambda pod: bool(at(pod, *path) == value)


PODS: Mapping[str, Predicate] = {
    **{f"QoS {text!r}": has(text, "metadata", "labels", LABEL_QOS) for text in QOS},
    **{f"class {text!r}": has(text, "metadata", "labels", LABEL_CLASS) for text in CLASSES},
    **{f"priority {number}": has(number, "spec", "priority") for number in PRIORITIES},
    **{f"phase {text!r}": has(text, "status", "phase") for text in PHASES},
    "no priority": lambda pod: "priority" not in pod["spec"],
    "no labels": lambda pod: "labels" not in pod["metadata"],
    "Kubernetes QoS computed": lambda pod: "qosClass" not in pod["status"],
    "init container": lambda pod: any(init.get("restartPolicy") is None for init in inits(pod)),
    "sidecar": lambda pod: any(init.get("restartPolicy") == "Always" for init in inits(pod)),
    "overhead": lambda pod: bool(at(pod, "spec", "overhead")),
    "resources of the pod": lambda pod: bool(at(pod, "spec", "resources", "requests")),
    "limit without request": lambda pod: any(
        at(container, "resources", "limits") and not at(container, "resources", "requests")
        for container in pod["spec"]["containers"]
    ),
    "mid resources": lambda pod: any(name in json.dumps(pod) for name in MID.values()),
    "batch resources": lambda pod: any(name in json.dumps(pod) for name in BATCH.values()),
    "null": lambda pod: None in (*pod["metadata"].values(), *pod["spec"].values(), *pod["status"].values()),
}


def inits(pod: Document) -> list[Document]:
    return at(pod, "spec", "initContainers") or []


@cache
def generated() -> tuple[Documents, ...]:
    return tuple(documents(seed) for seed in SEEDS)


def pods() -> Iterator[Document]:
    return (pod for made in generated() for pod in made[1])


@pytest.mark.parametrize("predicate", PODS.values(), ids=PODS.keys())
def test_pods_of_every_kind(predicate: Predicate) -> None:
    assert any(predicate(pod) for pod in pods())
    assert not all(predicate(pod) for pod in pods())


@cache
def results() -> tuple[list[dict[str, int | None]], Branches]:
    branches: Branches = Counter()
    return [expected(*made, branches=branches) for made in generated()], branches


def test_every_branch_of_the_oracle_both_ways() -> None:
    _, branches = results()
    names = {name for name, _ in branches}
    assert {(name, holds) for name in names for holds in (True, False)} == set(branches)
    assert len(names) >= 43


def test_what_nodes_offer_is_something_nothing_or_absent() -> None:
    for key in ("batch_cpu_milli", "batch_memory_bytes", "mid_cpu_milli", "mid_memory_bytes"):
        offers = [offer[key] for offer in results()[0]]
        assert min(sum(bool(offer) for offer in offers), offers.count(0), offers.count(None)) > len(SEEDS) // 10


def test_a_seed_makes_the_same_node_each_time() -> None:
    assert documents(7) == documents(7)
    assert documents(7) != documents(8)
