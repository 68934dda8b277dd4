"""When a Node is written, and what."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model.core import Node, NodeStatus, ObjectMeta
from koord.overcommit import publish
from koord.overcommit.amounts import ZERO, CPUMemory
from koord.overcommit.publish import RESET, DesiredResources, decide, is_due, observed_batch
from koord.overcommit.strategy import DEFAULTS
from tests.overcommit.nodes import GIB

BATCH_CPU, BATCH_MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
MID_CPU, MID_MEMORY = "kubernetes.io/mid-cpu", "kubernetes.io/mid-memory"
RATIO, AMPLIFICATION = "node.koordinator.sh/cpu-normalization-ratio", "node.koordinator.sh/resource-amplification-ratio"
ORIGINAL = "node.koordinator.sh/originExtendedAllocatable"
OWN = {BATCH_CPU: "25k", BATCH_MEMORY: "4Gi", MID_CPU: "1k", MID_MEMORY: "1Gi"}
OTHERS = {"cpu": "8", "pods": "110"}
MID = CPUMemory(1000, GIB)
AMOUNT = {"capacity": {BATCH_CPU: "25k"}}


def shows(resources: Mapping[str, Any], annotations: Mapping[str, str] | None = None) -> Node:
    """In capacity and allocatable alike, beside the resources of others."""
    stated = {**OTHERS, **resources}
    return Node(ObjectMeta(annotations=annotations or {}), status=NodeStatus(stated, stated))


def original(cpu: str, memory: str) -> str:
    return json.dumps({"resources": {BATCH_CPU: cpu, BATCH_MEMORY: memory}}, separators=(",", ":"))


SHOWN = shows(OWN, {ORIGINAL: original("25k", "4Gi")})


def batch(cpu_milli: int, memory_bytes: int = 4 * GIB, **more: Any) -> DesiredResources:
    return DesiredResources(batch=CPUMemory(cpu_milli, memory_bytes), mid=MID, **more)


@pytest.mark.parametrize(
    ("node", "desired", "idle_s", "is_written"),
    [
        pytest.param(SHOWN, batch(27500), 10, False, id="16 ten percent are no difference"),
        pytest.param(SHOWN, batch(27501), 10, True, id="16 more than ten are one"),
        pytest.param(SHOWN, batch(22500), 10, False, id="ten percent less"),
        pytest.param(SHOWN, batch(22499), 10, True, id="more than ten percent less"),
        pytest.param(SHOWN, batch(25000, 5 * GIB), 10, True, id="memory alone"),
        pytest.param(
            SHOWN, DesiredResources(batch=CPUMemory(25000, 4 * GIB), mid=CPUMemory(2, 2)), 10, True, id="mid alone"
        ),
        pytest.param(SHOWN, batch(27500), 299, False, id="16 a moment before the refresh"),
        pytest.param(SHOWN, batch(27500), 300, True, id="16 the refresh"),
        pytest.param(SHOWN, batch(27500), None, True, id="the manager has just started"),
        pytest.param(SHOWN, batch(25000), None, False, id="nothing differs"),
        pytest.param(shows({**OWN, BATCH_CPU: "0"}), batch(1), 10, True, id="16 from 0 to 1"),
        pytest.param(shows({**OWN, BATCH_CPU: "0"}), batch(0), 10, False, id="0 as before"),
        pytest.param(shows({}), batch(0, 0), 10, True, id="16 from missing to present"),
        pytest.param(SHOWN, DesiredResources(batch=None, mid=MID), 10, True, id="from present to missing"),
        pytest.param(shows({}), RESET, None, False, id="missing as before"),
        pytest.param(shows({**OWN, BATCH_CPU: "lots"}), batch(25000), 10, True, id="what is shown cannot be read"),
        pytest.param(
            Node(status=NodeStatus({**OTHERS, BATCH_CPU: "5"}, OTHERS)), RESET, 10, True, id="in capacity alone"
        ),
    ],
)
def test_when_the_status_is_written(
    node: Node, desired: DesiredResources, idle_s: float | None, is_written: bool
) -> None:
    assert (decide(node, desired, DEFAULTS, is_due(idle_s, DEFAULTS)).status is not None) is is_written


@pytest.mark.parametrize(
    ("node", "desired", "patch"),
    [
        pytest.param(
            SHOWN,
            batch(2000),
            {
                "status": {"capacity": {BATCH_CPU: "2k"}, "allocatable": {BATCH_CPU: "2k"}},
                "metadata": {"annotations": {ORIGINAL: original("2k", "4Gi")}},
            },
            id="what differs",
        ),
        pytest.param(
            SHOWN,
            batch(25000, third_party=CPUMemory(10000, 5 * GIB)),
            {"status": {place: {BATCH_CPU: "15k", BATCH_MEMORY: "0"} for place in ("capacity", "allocatable")}},
            id="without what other schedulers have",
        ),
        pytest.param(
            SHOWN,
            DesiredResources(batch=None, mid=None),
            {
                "status": {place: dict.fromkeys(OWN) for place in ("capacity", "allocatable")},
                "metadata": {"annotations": {ORIGINAL: original("0", "0")}},
            },
            id="removed, not 0",
        ),
        pytest.param(
            shows({BATCH_CPU: "1"}),
            DesiredResources(batch=None, mid=None),
            {"status": {place: {BATCH_CPU: None} for place in ("capacity", "allocatable")}},
            id="only what is there is removed",
        ),
        pytest.param(
            shows({BATCH_CPU: "lots"}),
            DesiredResources(batch=None, mid=None),
            {"status": {place: {BATCH_CPU: None} for place in ("capacity", "allocatable")}},
            id="what cannot be read is removed",
        ),
        pytest.param(
            Node(status=NodeStatus({**OTHERS, MID_CPU: "5"}, OTHERS)),
            DesiredResources(batch=None, mid=None),
            {"status": {"capacity": {MID_CPU: None}}},
            id="in capacity alone",
        ),
        pytest.param(
            shows({}),
            DesiredResources(batch=ZERO, mid=None),
            {
                "status": {place: {BATCH_CPU: "0", BATCH_MEMORY: "0"} for place in ("capacity", "allocatable")},
                "metadata": {"annotations": {ORIGINAL: original("0", "0")}},
            },
            id="0 is an offer",
        ),
        pytest.param(
            shows({**OWN, BATCH_CPU: 25000}, SHOWN.metadata.annotations), batch(25000), None, id="same amount"
        ),
    ],
)
def test_the_patch_of_the_status(node: Node, desired: DesiredResources, patch: Any) -> None:
    assert decide(node, desired, DEFAULTS, True).status == patch


def annotated(**annotations: str) -> Node:
    names = {"ratio": RATIO, "amplification": AMPLIFICATION}
    return shows(OWN, {"other": "x", **{names[key]: text for key, text in annotations.items()}})


@pytest.mark.parametrize(
    ("node", "ratio", "amplified", "changes"),
    [
        pytest.param(annotated(), 1.0, {}, {RATIO: "1.00"}, id="appears"),
        pytest.param(annotated(ratio="1.20"), 1.2, {}, None, id="the same"),
        pytest.param(annotated(ratio="1.20"), 1.21, {}, {RATIO: "1.21"}, id="differs"),
        pytest.param(annotated(ratio="x"), 1.2, {}, {RATIO: "1.20"}, id="cannot be read"),
        pytest.param(annotated(ratio="1.20"), None, {}, None, id="not told: stays"),
        pytest.param(annotated(), 1.0, {"cpu": 1.5}, {RATIO: "1.00", AMPLIFICATION: '{"cpu":1.50}'}, id="both"),
        pytest.param(annotated(amplification='{"cpu":1.50}'), None, {"cpu": 1.5}, None, id="the same ratios"),
        pytest.param(annotated(amplification='{"cpu":1.50}'), None, {}, {AMPLIFICATION: None}, id="removed"),
        pytest.param(annotated(amplification='{"cpu":1.50}'), None, None, None, id="ratios not told: stay"),
        pytest.param(annotated(), None, {}, None, id="nothing to remove"),
    ],
)
def test_the_patch_of_the_annotations(
    node: Node, ratio: float | None, amplified: dict[str, float] | None, changes: Any
) -> None:
    desired = batch(25000, normalization_ratio=ratio, amplification=amplified)
    patch = decide(node, desired, DEFAULTS, False).metadata
    assert patch == (None if changes is None else {"metadata": {"annotations": changes}})


def test_a_node_without_colocation_loses_what_the_manager_put_there_and_keeps_its_normalization() -> None:
    node = shows(OWN, {RATIO: "1.20", AMPLIFICATION: '{"cpu":1.50}', ORIGINAL: original("25k", "4Gi")})
    writes = decide(node, RESET, DEFAULTS, False)
    assert writes.metadata == {"metadata": {"annotations": {AMPLIFICATION: None}}}
    after = applied(node, writes.status)
    assert after.status == NodeStatus(OTHERS, OTHERS)
    assert after.metadata.annotations[RATIO] == "1.20"


@pytest.mark.parametrize(
    ("status", "ratios", "patch"),
    [
        (None, None, None),
        ({"status": AMOUNT}, None, {"status": AMOUNT}),
        (None, {RATIO: "1.00"}, {"metadata": {"annotations": {RATIO: "1.00"}}}),
        (
            {"status": AMOUNT, "metadata": {"annotations": {ORIGINAL: "x"}}},
            {RATIO: None},
            {"status": AMOUNT, "metadata": {"annotations": {ORIGINAL: "x", RATIO: None}}},
        ),
    ],
    ids=["nothing", "amounts", "ratios", "both"],
)
def test_both_parts_are_one_patch(status: Any, ratios: Any, patch: Any) -> None:
    metadata = None if ratios is None else {"metadata": {"annotations": ratios}}
    assert publish.Writes(status=status, metadata=metadata).patch == patch


@pytest.mark.parametrize(
    ("node", "amount"),
    [
        pytest.param(shows({}), None, id="none"),
        pytest.param(shows({BATCH_CPU: "1"}), None, id="half"),
        pytest.param(shows(OWN), CPUMemory(25000, 4 * GIB), id="no other scheduler"),
        pytest.param(shows(OWN, {ORIGINAL: original("30k", "5Gi")}), CPUMemory(30000, 5 * GIB), id="with theirs"),
        pytest.param(shows(OWN, {ORIGINAL: "x"}), CPUMemory(25000, 4 * GIB), id="annotation that cannot be read"),
        pytest.param(shows({}, {ORIGINAL: original("0", "0")}), None, id="removed"),
    ],
)
def test_what_a_node_shows(node: Node, amount: CPUMemory | None) -> None:
    assert observed_batch(node) == amount


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def applied(node: Node, patch: Any) -> Node:
    return msgspec.convert(merged(msgspec.to_builtins(node), patch or {}), Node)


AMOUNTS = st.none() | st.builds(CPUMemory, st.integers(0, 10**6), st.integers(0, 10**12))
DESIRED = st.builds(
    DesiredResources,
    batch=AMOUNTS,
    mid=AMOUNTS,
    third_party=st.builds(CPUMemory, st.integers(0, 10**6), st.integers(0, 10**12)),
    normalization_ratio=st.none() | st.sampled_from((1.0, 1.2)),
    amplification=st.none() | st.sampled_from(({}, {"cpu": 1.5})),
)


@given(st.lists(DESIRED, min_size=1, max_size=4))
def test_what_is_written_once_is_not_written_again(sequence: list[DesiredResources]) -> None:
    node = shows({})
    for desired in sequence:
        writes = decide(node, desired, DEFAULTS, True)
        node = applied(node, writes.patch)
        assert decide(node, desired, DEFAULTS, True) == publish.Writes()
        assert observed_batch(node) == desired.batch
        assert {key: node.status.allocatable[key] for key in OTHERS} == OTHERS


@pytest.mark.parametrize(
    ("observed", "desired", "is_significant"),
    [
        (None, None, False),
        (None, 0, True),
        (0, None, True),
        (0, 0, False),
        (0, 1, True),
        (30, 33, False),
        (30, 34, True),
        (30, 27, False),
        (30, 26, True),
        (10**15, 10**15 + 10**14, False),
        (10**15, 10**15 + 10**14 + 1, True),
    ],
)
def test_differences_at_a_tenth(observed: int | None, desired: int | None, is_significant: bool) -> None:
    assert publish.differs(observed, desired, publish.threshold(0.1)) is is_significant
