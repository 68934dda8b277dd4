"""Layers make what one document of all of them would make, and what is wrong of one changes nothing of the others."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import assume, given, settings

from koord.model import schema, slo, slo_defaults, slo_rules
from koord.model.slo import NodeSLOSpec
from qosd.model.policy import NodeSettings
from qosd.policy import nodefile
from qosd.policy.nodeobject import NodeFacts
from qosd.policy.overlay import ClusterOverrides, NodePolicy, overlay
from tests.support.structs import documents

MAPS = (("systemStrategy", "schedFeatures"), ("extensions",))
"""What is a map, in which no two documents are one object."""
Document = Mapping[str, Any]


def merged(below: Document, over: Document, path: tuple[str, ...] = ()) -> dict[str, Any]:
    """One document of both."""
    result = dict(below)
    for key, member in over.items():
        place = (*path, key)
        is_object = isinstance(member, dict) and isinstance(result.get(key), dict)
        whole = any(place[: len(each)] == each and (each != ("extensions",) or len(place) == 2) for each in MAPS)
        result[key] = merged(result[key], member, place) if is_object and not whole else member
    return result


def checked(document: Document) -> NodeSLOSpec | None:
    """None: something of it is wrong."""
    try:
        return slo_rules.checked(slo.decode_spec(document))
    except schema.SchemaError:
        return None


def compose(
    file: NodeSLOSpec, over: Document | None, node: NodeSettings | None = None, facts: NodeFacts | None = None
) -> tuple[NodePolicy, list[str]]:
    problems: list[str] = []
    decoded = None if over is None else slo.decode_spec(over)
    by_file = NodePolicy(file, node or NodeSettings(), "rules.yaml")
    cluster = ClusterOverrides(decoded, 12, "NodeSLO generation 12", facts, "Node worker-1")
    return overlay(by_file, cluster, problems.append), problems


@settings(max_examples=400, deadline=None)
@given(documents(NodeSLOSpec), documents(NodeSLOSpec))
def test_layers_are_what_one_document_would_be(below: Document, over: Document) -> None:
    file, both = checked(below), checked(merged(below, over))
    assume(file is not None and both is not None)
    assert file is not None
    assert both is not None
    stated, problems = compose(file, over)
    assert problems == []
    assert slo_defaults.in_force(stated.spec) == slo_defaults.in_force(both)
    assert stated.slo_generation == 12


@settings(max_examples=200, deadline=None)
@given(documents(NodeSLOSpec))
def test_without_a_cluster_the_file_is_all_there_is(below: Document) -> None:
    file = checked(below)
    assume(file is not None)
    assert file is not None
    stated, problems = compose(file, None)
    assert stated.spec is file
    assert (problems, stated.slo_generation, stated.source) == ([], 0, "rules.yaml")


@settings(max_examples=200, deadline=None)
@given(documents(NodeSLOSpec))
def test_a_complete_object_leaves_nothing_of_the_file(below: Document) -> None:
    file, over = checked(below), schema.parse_json(schema.encode(slo_defaults.defaults()))
    assume(file is not None)
    assert file is not None
    assert isinstance(over, dict)
    spec = compose(file, over)[0].spec
    assert all(said[path] == value for said in [dict(leaves(spec))] for path, value in leaves(slo_defaults.defaults()))


def leaves(spec: NodeSLOSpec) -> Iterator[tuple[str, Any]]:
    from koord.model import leaves as model  # noqa: PLC0415 - its name is this function's

    yield from model.of_value(spec)


THRESHOLDS = "resourceUsedThresholdWithBE"
ALLOCATABLE = {"memoryAllocatableEvictThresholdPercent": 110, "memoryAllocatableEvictLowerPercent": 100}
PAIRS: list[tuple[str, Document, Document, Document, list[str]]] = [
    (
        "half of a pair from each",
        ALLOCATABLE,
        {"memoryAllocatableEvictThresholdPercent": 105},
        {"memoryAllocatableEvictThresholdPercent": 105, "memoryAllocatableEvictLowerPercent": 100},
        [],
    ),
    (
        "the cluster contradicts the file: a pair that is nothing without the other half",
        ALLOCATABLE,
        {"memoryAllocatableEvictThresholdPercent": 90},
        ALLOCATABLE,
        [
            "NodeSLO generation 12: spec.resourceUsedThresholdWithBE.memoryAllocatableEvictLowerPercent: 100 is not "
            "less than memoryAllocatableEvictThresholdPercent, 90; it counts as not set"
        ],
    ),
    (
        "the cluster contradicts itself: the file stays",
        {"memoryEvictThresholdPercent": 80, "memoryEvictLowerPercent": 75},
        {"memoryEvictThresholdPercent": 80, "memoryEvictLowerPercent": 90},
        {"memoryEvictThresholdPercent": 80, "memoryEvictLowerPercent": 75},
        [
            "NodeSLO generation 12: spec.resourceUsedThresholdWithBE.memoryEvictLowerPercent: 90 is not less than "
            "memoryEvictThresholdPercent, 80; it counts as not set"
        ],
    ),
    (
        "the cluster's bound makes the file's lower one senseless",
        {"memoryEvictThresholdPercent": 80, "memoryEvictLowerPercent": 75},
        {"memoryEvictThresholdPercent": 60},
        {"memoryEvictThresholdPercent": 60},
        [
            "rules.yaml under NodeSLO generation 12: spec.resourceUsedThresholdWithBE.memoryEvictLowerPercent: 75 is "
            "not less than memoryEvictThresholdPercent, 60; it counts as not set"
        ],
    ),
    (
        "half of a pair that nobody completes",
        {"cpuSuppressMinPercent": 10},
        {"memoryAllocatableEvictThresholdPercent": 105},
        {"cpuSuppressMinPercent": 10},
        [
            "NodeSLO generation 12: spec.resourceUsedThresholdWithBE.memoryAllocatableEvictThresholdPercent: 105 needs "
            "memoryAllocatableEvictLowerPercent too; it counts as not set"
        ],
    ),
]


@pytest.mark.parametrize(("below", "over", "counts", "told"), [row[1:] for row in PAIRS], ids=[row[0] for row in PAIRS])
def test_fields_that_contradict_each_other(below: Document, over: Document, counts: Document, told: list[str]) -> None:
    stated, problems = compose(slo.decode_spec({THRESHOLDS: below}), {THRESHOLDS: over})
    assert stated.spec == slo.decode_spec({THRESHOLDS: counts})
    assert problems == told


NETWORK = {"lsClass": {"networkQOS": {"ingressRequest": 80}}, "beClass": {"networkQOS": {"ingressRequest": 30}}}


def test_requests_for_more_bandwidth_than_there_is() -> None:
    file = slo.decode_spec({"resourceQOSStrategy": {"lsClass": NETWORK["lsClass"]}})
    stated, problems = compose(file, {"resourceQOSStrategy": {"beClass": NETWORK["beClass"]}})
    assert len(problems) == 2
    assert all("is part of requests for 80% + 30%, which are more than 100 %" in problem for problem in problems)
    assert dict(leaves(stated.spec)) == {}


@pytest.mark.parametrize("is_on", [True, False])
def test_a_class_that_the_cluster_switches_off_is_neutral(is_on: bool) -> None:
    file = {"resourceQOSStrategy": {"beClass": {"memoryQOS": {"enable": True, "lowLimitPercent": 50}}}}
    over = {"resourceQOSStrategy": {"beClass": {"memoryQOS": {"enable": is_on}}}}
    stated, _ = compose(slo.decode_spec(file), over)
    strategy = slo_defaults.in_force(stated.spec).resource_qos
    assert strategy is not None
    assert strategy.be_class is not None
    assert strategy.be_class.memory_qos is not None
    memory = strategy.be_class.memory_qos
    assert (memory.enable, memory.low_limit_percent) == ((True, 50) if is_on else (False, 0))


FACTS = NodeFacts("worker-1", annotations={"node.koordinator.sh/reservation": '{"reservedCPUs":"2"}'})
BAD_FACTS = NodeFacts("worker-1", annotations={"node.koordinator.sh/reservation": "{"})


def test_the_node_is_over_the_files_section_and_the_spec_is_the_files_object() -> None:
    file = slo.decode_spec({})
    stated, problems = compose(file, None, nodefile.read({"reservation": {"reservedCPUs": "0"}}), FACTS)
    assert stated.spec is file
    assert (stated.node.reserved_cpus, problems) == ("2", [])


def test_a_bad_annotation_is_told_with_its_nodes_name_and_the_nodeslo_counts() -> None:
    stated, problems = compose(slo.decode_spec({}), {"cpuBurstStrategy": {"policy": "auto"}}, NodeSettings(), BAD_FACTS)
    assert stated.node == NodeSettings()
    assert stated.spec == slo.decode_spec({"cpuBurstStrategy": {"policy": "auto"}})
    assert len(problems) == 1
    assert problems[0].startswith("Node worker-1: annotation node.koordinator.sh/reservation: '{': is not JSON")
    assert problems[0].endswith("; it counts as not set")


def test_nothing_is_changed_in_place() -> None:
    below, over = {THRESHOLDS: dict(ALLOCATABLE)}, {THRESHOLDS: {"memoryAllocatableEvictThresholdPercent": 90}}
    before = copy.deepcopy(over)
    file = slo.decode_spec(below)
    compose(file, over)
    assert (over, file) == (before, slo.decode_spec(below))
