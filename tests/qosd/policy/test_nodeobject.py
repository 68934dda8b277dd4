"""What a Node's labels, annotations and status say over the section ``node`` of the rules file."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from koord.model.core import Node, NodeStatus, ObjectMeta
from koord.model.problem import Problem
from qosd.model.policy import NodeSettings
from qosd.policy import nodefile, nodeobject
from qosd.policy.nodeobject import NodeFacts

FILE = {
    "reservation": {"reservedCPUs": "0-1"},
    "systemQOS": {"cpuset": "7", "cpusetExclusive": False},
    "cpuNormalizationRatio": 1.5,
    "allocatableMemory": "10Gi",
    "allocatable": {"kubernetes.io/batch-cpu": 1000, "kubernetes.io/mid-cpu": 500},
    "guaranteedAs": "LSR",
}
RULES = nodefile.read(FILE)
PREFIX = "node.koordinator.sh/"
RATIO = {"resource-amplification-ratio": '{"cpu":1.50,"memory":2.00}'}


def facts(
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    allocatable: Mapping[str, Any] | None = None,
) -> NodeFacts:
    return NodeFacts(
        "worker-1",
        labels={f"{PREFIX}{key}": text for key, text in (labels or {}).items()},
        annotations={f"{PREFIX}{key}": text for key, text in (annotations or {}).items()},
        allocatable=allocatable or {},
    )


def read(node: NodeFacts, policy: NodeSettings = RULES) -> tuple[NodeSettings, list[str]]:
    problems: list[Problem] = []
    policy = nodeobject.over(policy, node, problems.append)
    return policy, [str(each) for each in problems]


def test_a_node_that_says_nothing_changes_nothing() -> None:
    policy, problems = read(facts())
    assert policy is RULES
    assert problems == []


@pytest.mark.parametrize(
    ("text", "cpus", "cpu_milli"),
    [
        ('{"reservedCPUs":"2-3"}', "2-3", 0),
        ('{"resources":{"cpu":"1500m"}}', "", 1500),
        ('{"resources":{"cpu":2}}', "", 2000),
        ('{"resources":{"cpu":"9"},"reservedCPUs":"2"}', "2", 9000),
        ('{"reservedCPUs":"2","applyPolicy":"ReservedCPUsOnly"}', "2", 0),
        ('{"RESERVEDCPUS":"2"}', "2", 0),
        ('{"resources":{"memory":"1Gi"}}', "0-1", 0),
        ('{"reservedCPUs":""}', "0-1", 0),
        ("{}", "0-1", 0),
        ("null", "0-1", 0),
    ],
)
def test_a_reservation(text: str, cpus: str, cpu_milli: int) -> None:
    policy, problems = read(facts({"reservation": text}))
    assert (policy.reserved_cpus, policy.reserved_cpu_milli, problems) == (cpus, cpu_milli, [])


@pytest.mark.parametrize(
    ("text", "cpuset", "is_exclusive"),
    [
        ('{"cpuset":"3"}', "3", True),
        ('{"cpuset":"3","cpusetExclusive":true}', "3", True),
        ('{"cpuset":"3","cpusetExclusive":false}', "3", False),
        ('{"cpuset":"3","cpusetExclusive":null}', "3", True),
        ('{"cpusetExclusive":true}', "7", False),
        ('{"cpuset":""}', "7", False),
    ],
)
def test_the_cpus_of_system_pods(text: str, cpuset: str, is_exclusive: bool) -> None:
    policy, problems = read(facts({"system-qos-resource": text}))
    assert (policy.system_cpuset, policy.system_exclusive, problems) == (cpuset, is_exclusive, [])


@pytest.mark.parametrize(
    ("annotation", "label", "ratio"),
    [
        (None, None, Fraction(3, 2)),
        ("1.20", None, Fraction(6, 5)),
        ("1.00", None, Fraction(1)),
        ("1.20", "true", Fraction(6, 5)),
        ("1.20", "false", None),
        (None, "false", None),
        (None, "true", Fraction(3, 2)),
        ("1.20", "0", None),
    ],
)
def test_the_normalization_ratio_and_its_label(
    annotation: str | None, label: str | None, ratio: Fraction | None
) -> None:
    annotations = {} if annotation is None else {"cpu-normalization-ratio": annotation}
    policy, problems = read(facts(annotations, {} if label is None else {"cpu-normalization-enabled": label}))
    assert (policy.cpu_normalization_ratio, problems) == (ratio, [])


GIB = 1 << 30


@pytest.mark.parametrize(
    ("allocatable", "raw", "memory_bytes"),
    [
        ({}, None, 10 * GIB),
        ({"cpu": "4", "memory": "6Gi"}, None, 6 * GIB),
        ({"cpu": "6", "memory": "12Gi"}, '{"cpu":"4","memory":"6Gi"}', 6 * GIB),
        ({"cpu": "6", "memory": "12Gi"}, '{"cpu":"4"}', 12 * GIB),
        ({}, '{"memory":"5Gi"}', 5 * GIB),
        ({"cpu": "4"}, None, 10 * GIB),
    ],
)
def test_allocatable_memory_is_what_kubelet_said(
    allocatable: Mapping[str, str], raw: str | None, memory_bytes: int
) -> None:
    policy, problems = read(facts({} if raw is None else {"raw-allocatable": raw, **RATIO}, allocatable=allocatable))
    assert (policy.allocatable_memory_bytes, problems) == (memory_bytes, [])


def test_raw_allocatable_without_a_ratio_is_of_the_past() -> None:
    node = facts({"raw-allocatable": '{"cpu":"4","memory":"6Gi"}'}, allocatable={"cpu": "6", "memory": "9Gi"})
    assert read(node)[0].allocatable_memory_bytes == 9 * GIB
    assert node.kubelets_allocatable()[:2] == (6000, 9 * GIB)


def test_what_prediction_works_on() -> None:
    raw = {"raw-allocatable": '{"cpu":"4","memory":"6Gi"}', **RATIO}
    assert facts(raw, allocatable={"cpu": "6", "memory": "12Gi"}).kubelets_allocatable()[:2] == (4000, 6 * GIB)
    assert facts(allocatable={"cpu": "1900m"}).kubelets_allocatable()[:2] == (1900, None)


def test_extended_resources_by_name() -> None:
    policy, problems = read(
        facts(allocatable={"koordinator.sh/batch-cpu": "3k", "kubernetes.io/batch-memory": "1Gi", "pods": "110"})
    )
    assert {name: amount.value() for name, amount in policy.allocatable.items()} == {
        "kubernetes.io/batch-cpu": 3000,
        "kubernetes.io/batch-memory": GIB,
        "kubernetes.io/mid-cpu": 500,
    }
    assert problems == []


BAD: list[tuple[NodeFacts, str]] = [
    (facts({"reservation": "{"}), f"annotation {PREFIX}reservation: '{{': is not JSON"),
    (facts({"reservation": "[]"}), f"annotation {PREFIX}reservation: '[]': a list is not an object"),
    (
        facts({"reservation": '{"reservedCPUs":"3-1"}'}),
        f"annotation {PREFIX}reservation: '{{\"reservedCPUs\":\"3-1\"}}': reservedCPUs: '3-1' is not",
    ),
    (facts({"reservation": '{"resources":{"cpu":"x"}}'}), f"annotation {PREFIX}reservation: resources: cpu 'x' is no"),
    (facts({"reservation": '{"resources":{"cpu":"-1"}}'}), f"annotation {PREFIX}reservation: resources: cpu '-1' is"),
    (
        facts({"system-qos-resource": '{"cpuset":7}'}),
        f"annotation {PREFIX}system-qos-resource: '{{\"cpuset\":7}}': cpuset: 7 is not a string",
    ),
    (facts({"cpu-normalization-ratio": "-1"}), f"annotation {PREFIX}cpu-normalization-ratio: '-1' is not a positive"),
    (facts({"cpu-normalization-ratio": "x"}), f"annotation {PREFIX}cpu-normalization-ratio: 'x' is not a positive"),
    (facts(labels={"cpu-normalization-enabled": "si"}), f"label {PREFIX}cpu-normalization-enabled: 'si' is neither"),
    (facts({"raw-allocatable": '{"memory":"x"}', **RATIO}), f"annotation {PREFIX}raw-allocatable: memory 'x' is not a"),
    (facts(allocatable={"memory": "lots"}), "status.allocatable: memory 'lots' is not a quantity"),
    (facts(allocatable={"kubernetes.io/mid-cpu": "x"}), "status.allocatable: kubernetes.io/mid-cpu 'x' is not a"),
    (facts(allocatable={"kubernetes.io/mid-cpu": -2}), "status.allocatable: kubernetes.io/mid-cpu '-2' is negative"),
]


@pytest.mark.parametrize(("node", "problem"), BAD, ids=[problem for _, problem in BAD])
def test_what_is_bad_is_told_and_leaves_the_file_as_it_is(node: NodeFacts, problem: str) -> None:
    policy, problems = read(node)
    assert policy == RULES
    assert len(problems) == 1
    assert problems[0].startswith(problem)


GOOD = {
    "reservation": '{"reservedCPUs":"2"}',
    "system-qos-resource": '{"cpuset":"3"}',
    "cpu-normalization-ratio": "1.20",
    "raw-allocatable": '{"memory":"6Gi"}',
}


@pytest.mark.parametrize("spoilt", GOOD)
def test_a_bad_annotation_stops_none_of_the_others(spoilt: str) -> None:
    policy, problems = read(facts({**RATIO, **GOOD, spoilt: "{"}))
    without, _ = read(facts(RATIO | {key: text for key, text in GOOD.items() if key != spoilt}))
    assert policy == without
    assert [problem for problem in problems if spoilt in problem] == problems != []


@pytest.mark.parametrize("text", ["[" * 100_000, '"' + "x" * 300_000 + '"', "\x00", '{"cpuset":' * 5000])
@pytest.mark.parametrize("key", GOOD)
def test_nothing_raises(key: str, text: str) -> None:
    policy, problems = read(facts({**RATIO, key: text}))
    assert policy == RULES
    assert len(problems) == 1
    assert len(problems[0]) < 1000


def test_the_bad_member_alone_does_not_count() -> None:
    text = '{"reservedCPUs":"x","resources":{"cpu":"1","memory":"y"}}'
    policy, problems = read(facts({"reservation": text}))
    assert (policy.reserved_cpus, policy.reserved_cpu_milli, len(problems)) == ("", 1000, 2)
    policy, problems = read(facts({"system-qos-resource": '{"cpuset":"3","cpusetExclusive":"x"}'}))
    assert (policy.system_cpuset, policy.system_exclusive, len(problems)) == ("3", True, 1)


def test_what_is_taken_of_a_node() -> None:
    node = Node(
        ObjectMeta("worker-1", uid="u", labels={"a": "b"}, annotations={"c": "d"}),
        status=NodeStatus(capacity={"cpu": "4"}, allocatable={"cpu": "3"}),
    )
    assert NodeFacts.of(node) == NodeFacts("worker-1", "u", {"a": "b"}, {"c": "d"}, {"cpu": "4"}, {"cpu": "3"})
