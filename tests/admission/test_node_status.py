"""/mutate-node-status: whose value it is, what is made of it, and that a status is never refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord import admission
from koord.admission import amplify
from tests.admission.objects import over_the_wire, patch_of, patched, review
from tests.support import kubernetes

RATIO, RAW = "node.koordinator.sh/resource-amplification-ratio", "node.koordinator.sh/raw-allocatable"
NODES = {"group": "", "version": "v1", "resource": "nodes"}
Amounts = Mapping[str, Any]
mutate_node_status = over_the_wire(admission.mutate_node_status)


def amounts(cpu: Any, memory: Any = "16Gi") -> dict[str, Any]:
    return {"cpu": cpu, "memory": memory}


def node(
    allocatable: Amounts, ratio: Any = None, raw: Amounts | str | None = None, capacity: Amounts | None = None
) -> dict[str, Any]:
    texts = {RATIO: ratio if isinstance(ratio, str) else json.dumps(ratio)} if ratio is not None else {}
    if raw is not None:
        texts[RAW] = raw if isinstance(raw, str) else json.dumps(raw, separators=(",", ":"))
    has = dict(capacity or amounts("64", "64Gi"))
    return kubernetes.node("n1", dict(allocatable), has, annotations={"a": "b", **texts}, unknown=[1])


def sent(obj: Any, old: Any, operation: str = "UPDATE", **request: Any) -> dict[str, Any]:
    return review(obj, operation, old, **{"resource": NODES, "subResource": "status", "namespace": "", **request})


def result(obj: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    answer = mutate_node_status(sent(obj, old))
    assert answer["response"]["allowed"] is True and "warnings" not in answer["response"]
    changed = patched(obj, patch_of(answer))
    assert changed["status"]["unknown"] == [1] and changed["metadata"]["annotations"]["a"] == "b"
    assert isinstance(changed, dict)
    return changed


@pytest.mark.parametrize(
    ("obj", "warning"),
    [
        pytest.param(node(amounts("8"), "{"), "resource-amplification-ratio|is not JSON", id="ratio-no-json"),
        pytest.param(node(amounts("8"), "[]"), "resource-amplification-ratio: .* is not an object", id="ratio-a-list"),
        pytest.param(node(amounts("8"), {"cpu": "2"}), "ratio.cpu: '2' is not a number", id="ratio-a-text"),
        pytest.param(node(amounts("8"), {"cpu": True}), "ratio.cpu: True is not a number", id="ratio-true"),
        pytest.param(node(amounts("8"), {"cpu": 2}, "{"), "is not JSON", id="raw-no-json"),
        pytest.param(node(amounts("8"), {"cpu": 2}, {"cpu": "x"}), "'x' is not a quantity", id="raw-no-quantity"),
        pytest.param(node(amounts("many"), {"cpu": 2}), "'many' is not a quantity", id="allocatable"),
        pytest.param(
            {"metadata": {"annotations": {RATIO: '{"cpu":2}'}}, "status": []},
            "status: a list is not an object",
            id="status",
        ),
        pytest.param({"metadata": 3}, "metadata: 3 is not an object", id="metadata"),
        pytest.param({"metadata": {"annotations": {RATIO: 7}}}, "ratio: 7 is not a text", id="annotation"),
    ],
)
def test_what_cannot_be_read_changes_nothing_and_refuses_nothing(obj: dict[str, Any], warning: str) -> None:
    response = mutate_node_status(sent(obj, node(amounts("8"))))["response"]
    assert response["allowed"] is True and "patch" not in response
    (said,) = response["warnings"]
    assert said.startswith("allocatable is not amplified: ")
    assert any(part.replace(".*", "") in said or _matches(part, said) for part in warning.split("|"))


def _matches(pattern: str, text: str) -> bool:
    first, _, last = pattern.partition(" .* ")
    return first in text and last in text


@pytest.mark.parametrize(
    ("operation", "request_members"),
    [("CREATE", {}), ("UPDATE", {"subResource": ""}), ("UPDATE", {"resource": {"resource": "pods"}})],
)
def test_what_passes_untouched(operation: str, request_members: dict[str, Any]) -> None:
    document = sent(node(amounts("8"), {"cpu": 1.5}), node(amounts("8")), operation, **request_members)
    assert mutate_node_status(document)["response"].keys() == {"uid", "allowed"}


@pytest.mark.parametrize(
    ("sent_cpu", "cpu"),
    [
        pytest.param("8", "8", id="kubelets"),
        pytest.param("12", "8", id="another-writer-repeats-what-it-read"),
        pytest.param("12000m", "8", id="in-other-words"),
        pytest.param("9", "9", id="kubelet-offers-more"),
    ],
)
def test_without_a_ratio_what_was_remembered_is_put_back_and_goes(sent_cpu: str, cpu: str) -> None:
    changed = result(node(amounts(sent_cpu), raw=amounts("8")), node(amounts("12"), {"cpu": 1.5}, amounts("8")))
    assert changed["metadata"]["annotations"] == {"a": "b"}
    assert changed["status"]["allocatable"] == amounts(cpu)


def test_what_was_remembered_goes_even_if_it_cannot_be_read() -> None:
    changed = result(node(amounts("12"), raw="{"), node(amounts("12"), {"cpu": 1.5}, "{"))
    assert changed["metadata"]["annotations"] == {"a": "b"}
    assert changed["status"]["allocatable"] == amounts("12")


@pytest.mark.parametrize(
    ("ratio", "raw", "allocatable"),
    [
        ({"cpu": 1.50}, amounts("8"), amounts("12")),
        ({"cpu": 1.5, "memory": 1.2}, amounts("8"), amounts("12", "20615843020")),
        ({"cpu": 1.0, "memory": 0.5}, amounts("8"), amounts("8")),
        ({}, amounts("8"), amounts("8")),
        ({"cpu": 1.15}, amounts("1234m"), amounts("1419m")),
        ({"cpu": 1.2}, amounts("10"), amounts("12")),
        ({"memory": 2}, amounts("8", "16Gi"), amounts("8", "32Gi")),
        ({"nvidia.com/gpu": 2.0, "cpu": 3}, amounts("100m"), amounts("300m")),
    ],
)
def test_amounts(ratio: dict[str, float], raw: Amounts, allocatable: Amounts) -> None:
    changed = result(node(raw, ratio), node(raw))
    assert changed["status"]["allocatable"] == allocatable
    assert json.loads(changed["metadata"]["annotations"][RAW]) == raw


SMALL, LARGE = amounts("16", "64Gi"), amounts("32", "64Gi")


@pytest.mark.parametrize(
    ("submitted", "old", "raw", "capacity", "old_capacity", "cpu", "remembered"),
    [
        pytest.param("8", "8", None, SMALL, SMALL, "12", "8", id="the-first-time"),
        pytest.param("8", "12", "8", SMALL, SMALL, "12", "8", id="kubelets-heartbeat"),
        pytest.param("12", "12", "8", SMALL, SMALL, "12", "8", id="another-writer-repeats-what-it-read"),
        pytest.param("10", "12", "8", SMALL, SMALL, "15", "10", id="kubelet-offers-more"),
        pytest.param("6", "12", "8", SMALL, SMALL, "9", "6", id="kubelet-offers-less"),
        pytest.param("12000m", "12", "8", SMALL, SMALL, "12", "8", id="the-same-amount-in-other-words"),
        pytest.param("12", "12", "8", LARGE, SMALL, "18", "12", id="the-amplified-value-by-a-new-capacity"),
        pytest.param("6", "6", "8", SMALL, SMALL, "9", "6", id="it-offered-less-while-no-webhook-answered"),
        pytest.param("24", "24", "16", SMALL, LARGE, "24", "16", id="more-than-the-capacity-is-not-kubelets"),
        pytest.param("24", "20", None, SMALL, SMALL, "24", None, id="nor-is-it-remembered"),
    ],
)
def test_whose_value_it_is(
    submitted: str,
    old: str,
    raw: str | None,
    capacity: Amounts,
    old_capacity: Amounts,
    cpu: str,
    remembered: str | None,
) -> None:
    before = None if raw is None else amounts(raw)
    ratio = {"cpu": 1.5}
    changed = result(node(amounts(submitted), ratio, before, capacity), node(amounts(old), ratio, before, old_capacity))
    assert changed["status"]["allocatable"]["cpu"] == cpu
    text = changed["metadata"]["annotations"].get(RAW)
    assert (None if text is None else json.loads(text)["cpu"]) == remembered


def test_a_change_of_memory_tells_of_cpu_too() -> None:
    """kubelet writes both at once, so its CPU is its own even where it is the amplified value."""
    ratio = {"cpu": 1.5, "memory": 2}
    changed = result(node(amounts("12", "16Gi"), ratio, amounts("8")), node(amounts("12", "32Gi"), ratio, amounts("8")))
    assert changed["status"]["allocatable"] == amounts("18", "32Gi")


def test_the_node_that_was_sent_is_not_changed() -> None:
    obj = node(amounts("8"), {"cpu": 1.5})
    before = copy.deepcopy(obj)
    amplify(obj, node(amounts("8")))
    assert obj == before


@given(st.integers(1, 64_000), st.integers(100, 300))
def test_a_heartbeat_and_an_echo_say_the_same(raw_milli: int, ratio_percent: int) -> None:
    ratio = {"cpu": ratio_percent / 100}
    kubelets = node(amounts(f"{raw_milli}m"), ratio, capacity=amounts("64"))
    stored = amplify(kubelets, kubelets)
    assert amplify(stored, stored) == stored, "written by another"
    annotations = stored["metadata"]["annotations"]
    heartbeat = {**stored, "status": {**kubelets["status"]}, "metadata": {"name": "n1", "annotations": annotations}}
    assert amplify(heartbeat, stored) == stored


@given(st.integers(1, 64_000), st.integers(1, 64_000), st.booleans(), st.integers(100, 300))
def test_a_write_that_is_asked_about_twice_is_amplified_once(
    raw_milli: int, before_milli: int, is_first: bool, ratio_percent: int
) -> None:
    """As by a webhook configuration of another release beside ours."""
    ratio, capacity = {"cpu": ratio_percent / 100}, amounts("200")
    kubelets = node(amounts(f"{before_milli}m"), ratio, capacity=capacity)
    stored = kubelets if is_first else amplify(kubelets, kubelets)
    status = {**stored["status"], "allocatable": amounts(f"{raw_milli}m")}
    once = amplify({**stored, "status": status}, stored)
    assert amplify(once, stored) == once
