"""The webhooks of ElasticQuotas: what a quota gets, what is refused, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from koord.model.admissionreview import AdmissionResponse
from tests.admission.quotaobjects import PREFIX, Document, completed, judged, parent, quota, tree_of

CPU_MEMORY = {"cpu": "40", "memory": "40Gi"}
ROOT, SYSTEM, DEFAULT = (f"koordinator-{name}-quota" for name in ("root", "system", "default"))


def added(response: AdmissionResponse) -> dict[str, Any]:
    """The labels and annotations that a patch sets, without their prefix."""
    assert response.is_allowed, response.message
    found: dict[str, Any] = {}
    for each in response.patch:
        path, value = each["path"].removeprefix("/metadata/"), each["value"]
        _, _, key = path.partition("/")
        members = value if not key else {key.replace("~1", "/"): value}
        found |= {name.removeprefix(PREFIX): text for name, text in members.items()}
    return found


@pytest.mark.parametrize(
    ("new", "others", "gets"),
    [
        (quota("a", high="40"), (), {"parent": ROOT, "shared-weight": '{"cpu":"40"}'}),
        (quota("a", parent=""), (), {"parent": ROOT, "shared-weight": '{"cpu":"100"}'}),
        (quota("a", parent="p"), (parent("p", tree_id="t1"),), {"tree-id": "t1", "shared-weight": '{"cpu":"100"}'}),
        (quota("a", parent="p"), (parent("p"),), {"shared-weight": '{"cpu":"100"}'}),
        (quota("a", parent="p", tree_id="t2"), (), {"shared-weight": '{"cpu":"100"}'}),
        (quota("a", high=CPU_MEMORY, parent=ROOT), (), {"shared-weight": '{"cpu":"40","memory":"40Gi"}'}),
        (
            quota("a", high=CPU_MEMORY, parent=ROOT, annotations={"shared-weight": '{"cpu":"3","gpu":"1"}'}),
            (),
            {"shared-weight": '{"cpu":"3","memory":"40Gi"}'},
        ),
        (quota("a", parent=ROOT, annotations={"shared-weight": '{ "cpu": 3 }'}), (), {}),
        (quota(ROOT), (), {}),
    ],
)
def test_what_a_quota_gets(new: Document, others: tuple[Document, ...], gets: dict[str, str]) -> None:
    assert added(completed(new, *others)) == gets


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (quota("a", parent="p"), "'p' does not exist"),
        (quota("a", annotations={"shared-weight": "{cpu"}), "shared-weight]: cannot be read"),
    ],
)
def test_what_cannot_be_completed(new: Document, why: str) -> None:
    response = completed(new)
    assert (response.code, why in response.message) == (400, True), response.message


P = parent("p", "40", "100")
TAKEN = (P, quota("a", "30", parent="p"))
LISTING = quota("b", annotations={"namespaces": '["jobs"]'})


@pytest.mark.parametrize(
    ("new", "others", "why"),
    [
        # names and namespaces
        (
            quota("a"),
            (quota("a", namespace="other"),),
            "metadata.name: 'a' is the name of an ElasticQuota in namespace",
        ),
        (quota("a", annotations={"namespaces": '["x","jobs"]'}), (LISTING,), "'jobs' is listed by ElasticQuota b"),
        (quota("a", annotations={"namespaces": '{"x":1}'}), (), "namespaces]: cannot be read"),
        # by itself
        (quota("a", "-1"), (), "spec.min[cpu]: '-1' is negative"),
        (quota("a", high="-1"), (), "spec.max[cpu]: '-1' is negative"),
        (quota("a", high="many"), (), "spec.max[cpu]: 'many'"),
        (quota("a", annotations={"shared-weight": '{"cpu":"-2"}'}), (), "shared-weight]: cannot be read: '-2' is neg"),
        (quota("a", {"cpu": "1", "memory": "1Gi"}), (), "spec.min[memory]: 1Gi has no maximum in spec.max"),
        (quota("a", "101"), (), "spec.min[cpu]: 101 is more than spec.max[cpu], 100"),
        (
            quota("a", high="2", used={"cpu": "3"}, annotations={"max-strict-check-resource-keys": '["cpu"]'}),
            (),
            "spec.max[cpu]: 2 is less than what is used, 3",
        ),
        (
            quota("a", used={"memory": "3"}, annotations={"max-strict-check-resource-keys": '["memory"]'}),
            (),
            "spec.max[memory]: nothing is less than what is used, 3",
        ),
        (quota("a", annotations={"max-strict-check-resource-keys": "cpu"}), (), "resource-keys]: cannot be read"),
        # trees
        (quota("a", parent="p", tree_id="t1"), (P,), "tree-id]: 't1' is not that of the parent p: ''"),
        (parent("a", tree_id="t1"), (quota("c", parent="a"),), "tree-id]: 't1' is not that of c, below it: ''"),
        # parents
        (quota("a", parent="p"), (), "parent]: 'p' does not exist"),
        (quota("a", parent="p"), (quota("p"),), "parent]: 'p' is no parent"),
        (quota("a", parent=SYSTEM), (parent(SYSTEM),), f"parent]: '{SYSTEM}' is no parent"),
        (parent("a", parent="a"), (), "parent]: 'a' does not exist"),
        # keys
        (
            quota("a", parent="p"),
            (parent("p", high=CPU_MEMORY),),
            "spec.max: names cpu, and that of the parent p cpu, m",
        ),
        (quota("a", high=CPU_MEMORY, parent="p"), (P,), "spec.max: names cpu, memory, and that of the parent p cpu"),
        (parent("a"), (quota("c", high=CPU_MEMORY, parent="a"),), "names cpu, and that of c, below it, cpu, memory"),
        (
            quota("a", {"memory": "1Gi"}, CPU_MEMORY, parent="p"),
            (parent("p", "1", CPU_MEMORY),),
            "spec.min: names memory, which that of the parent p lacks",
        ),
        (
            parent("a", {}, CPU_MEMORY),
            (quota("c", {"memory": "1Gi"}, CPU_MEMORY, parent="a"),),
            "spec.min: lacks memory, which that of c, below it, names",
        ),
        # minima
        (
            quota("c", "11", parent="p"),
            TAKEN,
            "11 and 30 of the parent's other children are more than spec.min of p, 40",
        ),
        (parent("a", "5"), (quota("c", "6", parent="a"),), "spec.min[cpu]: 5 is less than those of its children, 6"),
    ],
)
def test_what_is_refused(new: Document, others: tuple[Document, ...], why: str) -> None:
    response = judged("CREATE", new, others=others)
    assert (response.code, why in response.message) == (400, True), response.message


@pytest.mark.parametrize(
    ("new", "others", "gates"),
    [
        (quota("a"), (), {}),
        (quota("a", annotations={"namespaces": '["jobs"]'}), (quota("a", annotations={"namespaces": '["jobs"]'}),), {}),
        (quota("c", "10", parent="p"), TAKEN, {}),
        (quota("c", "11", parent="p", allow_force_update="true"), TAKEN, {}),
        (parent("r", "11", is_root="true"), (quota("c", "50", parent="r"),), {}),
        (parent("a", "1000", "1000"), (), {}),
        (quota("a", parent="p"), (parent("p", high=CPU_MEMORY),), {"ElasticQuotaEnableUpdateResourceKey": True}),
        (quota("a", used={"cpu": "300"}), (), {}),
        (quota("a", "0", "1"), (parent(ROOT, "1", CPU_MEMORY),), {}),
        (parent(ROOT, "1", CPU_MEMORY, tree_id="t"), (quota("a"),), {}),
    ],
)
def test_what_may_be_created(new: Document, others: tuple[Document, ...], gates: dict[str, bool]) -> None:
    response = judged("CREATE", new, others=others, gates=gates)
    assert response.is_allowed, response.message


PODS = {"p": ("jobs/w1", "jobs/w2")}


@pytest.mark.parametrize(
    ("new", "old", "others", "pods", "why"),
    [
        (quota("p"), P, TAKEN, {}, 'is-parent]: must stay "true": it is the parent of a'),
        (P, quota("p", "40"), (), PODS, 'is-parent]: cannot become "true": pods are in it: jobs/w1, jobs/w2'),
        (
            parent("p", annotations={"namespaces": '["ns"]'}),
            quota("p", annotations={"namespaces": '["ns"]'}),
            (),
            {"ns": ("ns/w",)},
            "pods are in it: ns/w",
        ),
        (
            quota("a", tree_id="t2"),
            quota("a", tree_id="t1"),
            (),
            {},
            "'t2' cannot be instead of 't1': it never changes",
        ),
        (parent("p", "29"), P, TAKEN, {}, "spec.min[cpu]: 29 is less than those of its children, 30"),
        (
            parent("p", parent="c"),
            parent("p"),
            (parent("p"), parent("c", parent="p")),
            {},
            "parent]: 'c' is below p",
        ),
        (parent("p", parent="p"), parent("p"), (parent("p"),), {}, "parent]: 'p' is p itself"),
        (quota(SYSTEM, high="5"), quota(SYSTEM), (), {}, f"metadata.name: {SYSTEM} cannot be changed"),
        (quota(ROOT, high="5"), quota(ROOT), (), {}, f"metadata.name: {ROOT} cannot be changed"),
        (quota("a", annotations={"shared-weight": '{"cpu":-1}'}), quota("a"), (), {}, "shared-weight]: cannot be read"),
    ],
)
def test_what_cannot_change(
    new: Document, old: Document, others: tuple[Document, ...], pods: dict[str, tuple[str, ...]], why: str
) -> None:
    response = judged("UPDATE", new, old, others, pods)
    assert (response.code, why in response.message) == (400, True), response.message


@pytest.mark.parametrize(
    ("new", "old", "others"),
    [
        (quota(SYSTEM, used={"cpu": "3"}, annotations={"runtime": "{}"}), quota(SYSTEM), ()),
        (quota("a", "-1", used={"cpu": "3"}), quota("a", "-1"), ()),
        (quota(DEFAULT, high="50"), quota(DEFAULT), ()),
        (parent("p", "40", "90"), P, TAKEN),
        (P, quota("p", "40"), ()),
        (quota("a", "40", parent="p"), quota("a", "30", parent="p"), TAKEN),
    ],
)
def test_what_may_change(new: Document, old: Document, others: tuple[Document, ...]) -> None:
    """What the scheduler writes passes also on a quota that would not be let in today."""
    response = judged("UPDATE", new, old, others)
    assert response.is_allowed, response.message


@pytest.mark.parametrize(
    ("old", "others", "pods", "why"),
    [
        *((quota(name), (), {}, f"metadata.name: {name} cannot be deleted") for name in (ROOT, SYSTEM, DEFAULT)),
        (P, TAKEN, {}, "metadata.name: p is the parent of a"),
        (P, (P, *(quota(f"c{i}", parent="p") for i in range(5))), {}, "p is the parent of c0, c1 and 3 more"),
        (quota("p"), (quota("p"),), PODS, "metadata.name: pods are in p: jobs/w1, jobs/w2"),
    ],
)
def test_what_cannot_be_deleted(
    old: Document, others: tuple[Document, ...], pods: dict[str, tuple[str, ...]], why: str
) -> None:
    response = judged("DELETE", None, old, others, pods)
    assert (response.code, why in response.message) == (400, True), response.message


@pytest.mark.parametrize(
    ("old", "others"),
    [
        (quota("p"), (quota("p"),)),
        (quota("p"), ()),
        (quota("p", namespace="other", created="2027"), (quota("p", created="2026"), quota("a", parent="p"))),
    ],
    ids=["empty", "one that no event told of", "a second one of its name"],
)
def test_what_may_be_deleted(old: Document, others: tuple[Document, ...]) -> None:
    response = judged("DELETE", None, old, others)
    assert response.is_allowed, response.message


def test_of_two_of_one_name_the_older_counts() -> None:
    older, younger = quota("a", created="2026-01-02"), quota("a", "5", namespace="x", created="2026-01-03")
    assert tree_of(younger, older).quotas["a"].namespace == "teams"


def test_all_that_is_wrong_is_told_and_no_more_than_can_be_read() -> None:
    many = {f"r{number}": "-1" for number in range(30)}
    message = judged("CREATE", quota("a", many, {})).message
    assert message.startswith("ElasticQuota cannot be as it is: spec.min[r0]: '-1' is negative; ")
    assert message.endswith("and 50 more")


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
def test_what_is_no_quota_is_refused(operation: str) -> None:
    for new in (None, {"spec": 3}):
        response = judged(operation, new, new)
        assert (response.code, response.message[:28]) == (400, "ElasticQuota cannot be read:"), response.message
