"""Who may write the annotations by which a node gives a pod CPUs and limits, on creation and on update."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.admission.objects import BATCH_CPU, EXTENDED_SPEC, QOS, context, pod, review, validate_pod
from tests.support.kubernetes import container

STATUS = "scheduling.koordinator.sh/resource-status"
TENANT = {"username": "system:serviceaccount:default:deployer", "groups": ["system:authenticated"]}
SCHEDULER = {"username": "system:serviceaccount:koordinator-system:koord-scheduler", "groups": []}
ADMINISTRATOR = {"username": "kubernetes-admin", "groups": ["system:masters"]}
CPUS = {STATUS: '{"cpuset":"1-63"}'}
AMOUNTS = {BATCH_CPU: "500"}
OF_SPEC = {EXTENDED_SPEC: json.dumps(
    {"containers": {"main": {"limits": AMOUNTS, "requests": AMOUNTS}}}, separators=(",", ":"), sort_keys=True
)}  # fmt: skip
OTHER = {EXTENDED_SPEC: OF_SPEC[EXTENDED_SPEC].replace("500", "64k")}


def batch(annotations: dict[str, str], **labels: str) -> dict[str, Any]:
    marks = {QOS: "BE", **labels}
    return pod(container(requests=AMOUNTS, limits=AMOUNTS), labels=marks, priority=5000, annotations=annotations)


def verdict(user: Any, new: dict[str, str], old: dict[str, str] | None = None, **facts: Any) -> str:
    """ "" if it passes, else the message."""
    operation = "CREATE" if old is None else "UPDATE"
    asked = review(batch(new), operation, None if old is None else batch(old), userInfo=user)
    response = validate_pod(asked, context(**facts))["response"]
    return "" if response["allowed"] else str(response["status"]["message"])


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        pytest.param(None, {}, "", id="created without"),
        pytest.param(None, OF_SPEC, "", id="as the webhook writes it"),
        pytest.param(None, CPUS, f"annotations.{STATUS}: Forbidden: the scheduler writes it: leave it out", id="CPUs"),
        pytest.param(None, OTHER, f"annotations.{EXTENDED_SPEC}: Forbidden", id="other amounts"),
        pytest.param(OF_SPEC, OF_SPEC, "", id="kept"),
        pytest.param(OTHER, OTHER, "", id="wrong already, and kept"),
        pytest.param(OTHER, OF_SPEC, "", id="put right"),
        pytest.param({}, OF_SPEC, "", id="added as the webhook writes it"),
        pytest.param({}, OTHER, f"annotations.{EXTENDED_SPEC}: Forbidden", id="added"),
        pytest.param(OF_SPEC, OTHER, f"annotations.{EXTENDED_SPEC}: Forbidden", id="changed"),
        pytest.param(OF_SPEC, {}, "it says what the pod's resources say: keep it as it is", id="removed"),
        pytest.param({}, CPUS, f"annotations.{STATUS}: Forbidden", id="CPUs taken"),
        pytest.param(CPUS, {STATUS: "{}"}, "the scheduler writes it: keep it as it is", id="other CPUs"),
        pytest.param(CPUS, {}, "keep it as it is", id="CPUs given up"),
        pytest.param(CPUS, {**CPUS, "note": "x"}, "", id="another annotation"),
    ],
)
def test_what_a_tenant_may_write(old: dict[str, str] | None, new: dict[str, str], refused: str) -> None:
    said = verdict(TENANT, new, old)
    assert refused in said and bool(refused) == bool(said)
    assert [verdict(user, new, old) for user in (SCHEDULER, ADMINISTRATOR)] == ["", ""]


def test_both_are_told_at_once() -> None:
    said = verdict(TENANT, {**CPUS, **OTHER})
    assert STATUS in said and EXTENDED_SPEC in said


def test_the_list_of_schedulers() -> None:
    users = frozenset({TENANT["username"]})
    assert verdict(TENANT, CPUS, scheduler_users=users) == ""
    assert verdict(SCHEDULER, CPUS, scheduler_users=users)


@pytest.mark.parametrize("user", [None, {}, {"username": "x", "groups": None}, {"groups": ["system:masters2"]}])
def test_who_is_not_named_is_no_scheduler(user: Any) -> None:
    assert verdict(user, CPUS)
