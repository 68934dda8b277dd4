"""Admission against an oracle that was written separately: 0 pods wrongly admitted or refused.

More than 10,000 pods go the whole way, as AdmissionReviews: mutated, patched by the answer, validated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import groupby
from typing import Any

import pytest

from koord.admission import AdmissionContext, PriorityClassObject
from koord.admission.gates import REQUIRE_EQUAL_CPU_LIMITS
from koord.model import profile as profiles
from tests.admission.objects import mutate_pod, patch_of, patched, review, validate_pod
from tests.oracles.admission import PRIORITY_CLASSES, Refused, admitted, extended_resource_spec, mutated
from tests.oracles.objects import BATCH, Document, at, quantity
from tests.oracles.pods import NAMESPACE_LABELS, QOS, Case, cases, updates

EXTENDED_SPEC = "node.koordinator.sh/extended-resource-spec"
CLASSES = {name: PriorityClassObject(value) for name, value in PRIORITY_CLASSES.items()}
OF_CASES = {name: list(of) for name, of in groupby(cases(), lambda case: case.name.partition(",")[0])}


EQUAL_LIMITS = (False, True)
"""The gate RequireEqualCPULimits."""


def context(case: Case, equal_limits: bool = False) -> AdmissionContext:
    made = tuple(profiles.read(profile) for profile in case.profiles)
    gates = {REQUIRE_EQUAL_CPU_LIMITS: equal_limits}
    return AdmissionContext(made, {"default": NAMESPACE_LABELS}, CLASSES, feature_gates=gates)


def created(case: Case) -> tuple[Document | None, list[bool]]:
    """The pod as it is created, None if it cannot be made, and whether it is let in, by ``EQUAL_LIMITS``."""
    answer = mutate_pod(review(case.pod, namespace="default"), context(case))
    if not answer["response"]["allowed"]:
        return None, []
    made = patched(case.pod, patch_of(answer))
    asked = review(made, namespace="default")
    return made, [validate_pod(asked, context(case, equal))["response"]["allowed"] for equal in EQUAL_LIMITS]


def expected(case: Case) -> tuple[Document | None, list[bool]]:
    try:
        made = mutated(case.pod, case.profiles, NAMESPACE_LABELS)
    except Refused:
        return None, []
    return made, [admitted(made, equal_limits=equal) for equal in EQUAL_LIMITS]


def plain(value: Any, of: str = "") -> Any:
    """Amounts as numbers, without what is empty: that is no difference."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if of in ("requests", "limits", "overhead"):
        return {name: quantity(amount) for name, amount in value.items()}
    members = {key: plain(member, key) for key, member in value.items() if key != EXTENDED_SPEC}
    return {key: member for key, member in members.items() if member not in ({}, None)}


def annotated(pod: Document) -> Document | None:
    """What the annotation says of batch resources of regular containers."""
    said = json.loads(at(pod, "metadata", "annotations", EXTENDED_SPEC) or "{}").get("containers") or {}
    found = {name: {kind: of_batch(amounts) for kind, amounts in lists.items()} for name, lists in said.items()}
    batch = {name: {kind: amounts for kind, amounts in lists.items() if amounts} for name, lists in found.items()}
    return {"containers": {name: lists for name, lists in batch.items() if lists}} if any(batch.values()) else None


def of_batch(amounts: Mapping[str, Any]) -> dict[str, Fraction]:
    return {name: quantity(amount) for name, amount in amounts.items() if name in BATCH.values()}


def differences(of: Iterable[Case]) -> list[str]:
    found = []
    for case in of:
        (made, is_in), (wanted, is_wanted) = created(case), expected(case)
        if is_in != is_wanted:
            found.append(f"{case.name}: admitted {is_in}, and by the oracle {is_wanted}")
        if plain(made) != plain(wanted):
            found.append(f"{case.name}: becomes {made}, and by the oracle {wanted}")
        elif made is not None and wanted is not None and annotated(made) != extended_resource_spec(wanted):
            found.append(
                f"{case.name}: annotation {annotated(made)}, and by the oracle {extended_resource_spec(wanted)}"
            )
    return found


@pytest.mark.parametrize("qos", QOS, ids=str)
def test_pods_that_are_created(qos: str | None) -> None:
    assert differences(OF_CASES[str(qos)]) == []


def test_the_cases_are_more_than_10000() -> None:
    assert sum(len(of) for of in OF_CASES.values()) > 10_000


def test_pods_that_are_updated() -> None:
    wrong = []
    for case in updates():
        verdict = validate_pod(review(case.pod, "UPDATE", case.old, namespace="default"), context(case))
        if verdict["response"]["allowed"] != admitted(case.pod, case.old):
            wrong.append(case.name)
    assert wrong == []
