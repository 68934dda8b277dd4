"""What pods may not say: reserved annotation, changes, the whole matrix, CPUs of LSE and LSR."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from koord.admission import ErrorType, FieldError, doubts, validate, validation
from koord.admission.documents import typed
from koord.admission.errors import UnreadableError
from koord.model.problem import Problem
from tests.admission.objects import BATCH_CPU, BATCH_MEMORY, CLASS, MID_CPU, PRIORITIES, QOS, SUB_PRIORITY, pod
from tests.support.kubernetes import container

RESERVED = "scheduling.koordinator.sh/reserve-pod"
QOS_FIELD, SUB_FIELD = f"labels.{QOS}", f"labels.{SUB_PRIORITY}"
REQUESTS, LIMIT = "spec.containers[*].resources.requests.cpu", "spec.containers[0].resources.limits.cpu"
TWO = {"cpu": "2"}
MATRIX = {
    #         prod   mid    batch  free   none
    "LSE":    "A      A      A      A      A",
    "LSR":    "A      X      X      X      X",
    "LS":     "A      A      A      A      A",
    "BE":     "X      A      A      A      X",
    "SYSTEM": "A      A      A      A      A",
    None:     "A      A      A      A      A",
}  # fmt: skip
CELLS = [
    (qos, cls, verdict == "A")
    for qos, row in MATRIX.items()
    for cls, verdict in zip(PRIORITIES, row.split(), strict=True)
]


def errors(document: dict[str, Any], old: dict[str, Any] | None = None, **settings: bool) -> list[tuple[str, str]]:
    found = validate(typed(document), None if old is None else typed(old), **settings)
    assert all(error.problem.message for error in found)
    return [(error.problem.path, error.type.name) for error in found]


def the_error(document: dict[str, Any]) -> FieldError:
    (error,) = validate(typed(document))
    return error


# created


@pytest.mark.parametrize("requests", [{BATCH_CPU: "x"}, {BATCH_MEMORY: "-1"}])
def test_amounts_that_are_none(requests: dict[str, str]) -> None:
    with pytest.raises(UnreadableError, match=r"is not a quantity|is negative"):
        validate(typed(pod(container(requests=requests))))


@pytest.mark.parametrize("value", ["true", ""])
def test_the_reserved_annotation_is_refused_before_all_else(value: str) -> None:
    document = pod(annotations={RESERVED: value}, labels={QOS: "BE"})
    assert errors(document) == [(f"annotations.{RESERVED}", "FORBIDDEN")]
    assert "reserved" in the_error(document).problem.message


@pytest.mark.parametrize(("qos", "cls", "is_accepted"), CELLS)
@pytest.mark.parametrize("by", ["spec.priority", "label"])
def test_the_matrix(qos: str | None, cls: str | None, is_accepted: bool, by: str) -> None:
    amounts = TWO if qos in ("LSE", "LSR") else None
    labels = {QOS: qos} if qos is not None else {}
    if by == "label":
        labels |= {CLASS: cls or "unknown"}
        document = pod(container(requests=amounts, limits=amounts), labels=labels, priority=9999)
    else:
        document = pod(container(requests=amounts, limits=amounts), labels=labels, priority=PRIORITIES[cls])
    assert errors(document) == ([] if is_accepted else [(QOS_FIELD, "FORBIDDEN")])
    if not is_accepted:
        assert f"{QOS}={qos} and priorityClass={cls or 'none'} cannot be used" in the_error(document).problem.message


@pytest.mark.parametrize(("qos", "cls"), list(itertools.product(MATRIX, PRIORITIES)))
@pytest.mark.parametrize("name", [BATCH_CPU, BATCH_MEMORY])
def test_batch_resources_need_be(qos: str | None, cls: str | None, name: str) -> None:
    labels = {QOS: qos} if qos is not None else {}
    document = pod(container(requests={name: "1000", **TWO}, limits=TWO), labels=labels, priority=PRIORITIES[cls])
    assert ((QOS_FIELD, "REQUIRED") in errors(document)) is (qos != "BE")


@pytest.mark.parametrize(
    "members",
    [
        pytest.param({"initContainers": [container("i", requests={BATCH_CPU: 1})]}, id="init-container"),
        pytest.param({"overhead": {BATCH_MEMORY: "1Mi"}}, id="overhead"),
    ],
)
def test_batch_resources_of_the_whole_pod_count(members: dict[str, Any]) -> None:
    assert errors(pod(**members)) == [(QOS_FIELD, "REQUIRED")]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (pod(container(limits={BATCH_CPU: "1k"})), f"requests {BATCH_CPU} must have the label {QOS}: BE"),
        (pod(labels={QOS: "BE"}, priority=9500), "write priorityClassName: koord-mid or koord-batch or koord-free"),
        (pod(container(limits=TWO), labels={QOS: "LSR"}), "write priorityClassName: koord-prod "),
    ],
)
def test_messages_say_what_to_write(document: dict[str, Any], message: str) -> None:
    assert message in the_error(document).problem.message


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(pod(container(requests={BATCH_CPU: "0"})), id="batch-cpu-0"),
        pytest.param(pod(container(requests={MID_CPU: "2k"})), id="mid-needs-no-class"),
        pytest.param(pod(labels={QOS: "be"}), id="an-unknown-class-is-none"),
        pytest.param(pod(labels={QOS: "BE"}, priority=3500), id="BE of free"),
        pytest.param(pod(container(limits=TWO), labels={QOS: "LSE"}, priority=5000), id="LSE of batch"),
        pytest.param(pod(container("main", TWO, TWO), labels={QOS: "LSR"}, priority=9000), id="LSR"),
        pytest.param(
            pod(container(limits={"cpu": "500m"}), container("b", limits={"cpu": "1.5"}), labels={QOS: "LSE"}),
            id="whole-CPUs-of-all-containers",
        ),
        pytest.param(
            pod(container("main", TWO, TWO), container("log"), labels={QOS: "LSE"}), id="a-container-without-cpu"
        ),
        pytest.param(
            pod(container(requests={"cpu": "1"}), labels={QOS: "LSE"}, resources={"requests": TWO, "limits": TWO}),
            id="amounts-of-the-pod-replace-those-of-containers",
        ),
        pytest.param(pod(container(requests={"cpu": "1500m"}), labels={QOS: "SYSTEM"}), id="SYSTEM-may-have-any"),
    ],
)
def test_accepted(document: dict[str, Any]) -> None:
    assert errors(document) == []


@pytest.mark.parametrize("qos", ["LSE", "LSR"])
@pytest.mark.parametrize(
    ("requests", "limits", "expected", "words"),
    [
        pytest.param(None, None, [(REQUESTS, "REQUIRED")], "pods must request CPUs", id="no-cpu"),
        pytest.param({"memory": "1Gi"}, None, [(REQUESTS, "REQUIRED")], "pods must request CPUs", id="memory-only"),
        pytest.param({"cpu": "1500m"}, {"cpu": "1500m"}, [(REQUESTS, "INVALID")], "must be a whole number", id="half"),
        pytest.param({"cpu": "100m"}, {"cpu": "100m"}, [(REQUESTS, "INVALID")], "a whole number", id="below-one"),
        pytest.param({"cpu": "1500m"}, None, [(REQUESTS, "INVALID")], "must be a whole number", id="no-limit"),
    ],
)  # fmt: skip
def test_cpus_of_lse_and_lsr(qos: str, requests: Any, limits: Any, expected: list[tuple[str, str]], words: str) -> None:
    document = pod(container(requests=requests, limits=limits), labels={QOS: qos}, priority=9000)
    assert errors(document) == expected
    for error in validate(typed(document)):
        message = error.problem.message
        assert qos in message and words in message
        assert {"LSE", "LSR"} - {qos} - set(message.split()) == {"LSE", "LSR"} - {qos}, "the pod's class alone"


@pytest.mark.parametrize("qos", ["LSE", "LSR"])
@pytest.mark.parametrize(
    ("requests", "limits", "expected", "words"),
    [
        pytest.param(TWO, TWO, [], "", id="equal"),
        pytest.param(TWO, {"cpu": "4"}, [(LIMIT, "INVALID")], "equal to the request: write 2000m", id="limit-above"),
        pytest.param(TWO, None, [(LIMIT, "REQUIRED")], "limit equal to the request: write 2000m", id="no-limit"),
        pytest.param(
            {"cpu": "1500m"}, TWO, [(LIMIT, "INVALID"), (REQUESTS, "INVALID")], "", id="both-are-told"
        ),
    ],
)  # fmt: skip
def test_limits_of_lse_and_lsr(
    qos: str, requests: Any, limits: Any, expected: list[tuple[str, str]], words: str
) -> None:
    """Refused by the gate; else a doubt, as upstream takes them."""
    document = pod(container(requests=requests, limits=limits), labels={QOS: qos}, priority=9000)
    assert errors(document, equal_limits=True) == expected
    of_limits = [(path, kind) for path, kind in expected if path == LIMIT]
    assert errors(document) == [each for each in expected if each not in of_limits]
    told = doubts.of_pod(typed(document))
    assert [path for path, _ in told] == [path for path, _ in of_limits]
    assert all(qos in sentence and words in sentence for _, sentence in told)


def test_each_container_is_looked_at() -> None:
    document = pod(
        container("main", TWO, TWO), container("b", {"cpu": "1"}), labels={QOS: "LSE"},
        initContainers=[container("i", {"cpu": "1"}, {"cpu": "2"})],
    )  # fmt: skip
    assert errors(document, equal_limits=True) == [
        ("spec.initContainers[0].resources.limits.cpu", "INVALID"),
        ("spec.containers[1].resources.limits.cpu", "REQUIRED"),
    ]


def test_amounts_of_the_pod_as_a_whole_must_be_equal_too() -> None:
    document = pod(
        container("main", TWO, TWO), labels={QOS: "LSE"}, resources={"requests": TWO, "limits": {"cpu": "4"}}
    )
    assert errors(document, equal_limits=True) == [("spec.resources.limits.cpu", "INVALID")]


# updated


@pytest.mark.parametrize(
    ("labels", "old_labels", "priority", "old_priority", "expected"),
    [
        pytest.param({QOS: "BE"}, {QOS: "LS"}, 5000, 5000, [(QOS_FIELD, "IMMUTABLE")], id="LS becomes BE"),
        pytest.param({}, {QOS: "LS"}, None, None, [(QOS_FIELD, "IMMUTABLE")], id="taken-away"),
        pytest.param({QOS: "LS"}, {}, None, None, [(QOS_FIELD, "IMMUTABLE")], id="added"),
        pytest.param({QOS: "x"}, {QOS: "y"}, None, None, [], id="unknown-texts-are-no-class"),
        pytest.param({}, {}, 7000, 9000, [("spec.priority", "IMMUTABLE")], id="another-band"),
        pytest.param({}, {}, 9001, 9000, [], id="the-same-band"),
        pytest.param({CLASS: "koord-mid"}, {}, 9000, 9000, [("spec.priority", "IMMUTABLE")], id="class-by-label"),
        pytest.param({CLASS: "koord-prod"}, {}, 9000, 9000, [], id="the-same-class-by-label"),
        pytest.param({SUB_PRIORITY: "2"}, {SUB_PRIORITY: "1"}, None, None, [(SUB_FIELD, "IMMUTABLE")], id="another"),
        pytest.param({SUB_PRIORITY: "2"}, {}, None, None, [(SUB_FIELD, "IMMUTABLE")], id="sub-priority-added"),
        pytest.param({}, {SUB_PRIORITY: "2"}, None, None, [(SUB_FIELD, "IMMUTABLE")], id="sub-priority-taken-away"),
        pytest.param(
            {QOS: "LS", SUB_PRIORITY: "2"}, {QOS: "SYSTEM"}, 9000, 7000,
            [(QOS_FIELD, "IMMUTABLE"), ("spec.priority", "IMMUTABLE"), (SUB_FIELD, "IMMUTABLE")], id="all-are-told",
        ),
        pytest.param(
            {QOS: "BE"}, {QOS: "BE"}, 9000, 5000,
            [("spec.priority", "IMMUTABLE"), (QOS_FIELD, "FORBIDDEN")], id="and-what-does-not-go-together",
        ),
    ],
)  # fmt: skip
def test_what_cannot_change(
    labels: dict[str, str], old_labels: dict[str, str], priority: int | None, old_priority: int | None, expected: Any
) -> None:
    document, old = pod(labels=labels, priority=priority), pod(labels=old_labels, priority=old_priority)
    assert errors(document, old) == expected
    without = [error for error in expected if error[0] != SUB_FIELD]
    assert errors(document, old, may_change_sub_priority=True) == without, "by feature gate"


OLD_SINS = [
    pytest.param(pod(container(requests={BATCH_CPU: "1k"})), id="batch resources without class BE"),
    pytest.param(pod(labels={QOS: "BE"}, priority=9000), id="BE-prod"),
    pytest.param(
        pod(container("main", {"cpu": "1500m"}, {"cpu": "2"}), labels={QOS: "LSR"}), id="LSR-without-priority"
    ),
    pytest.param(pod(labels={QOS: "LSE"}), id="LSE-without-cpu"),
    pytest.param(pod(annotations={RESERVED: "true"}), id="reserved"),
]


@pytest.mark.parametrize("document", OLD_SINS)
def test_a_pod_that_was_let_in_once_can_be_updated(document: dict[str, Any]) -> None:
    assert errors(document), "it would not be let in today"
    annotations = {**document["metadata"].get("annotations", {}), "a": "b"}
    updated = {**document, "metadata": {**document["metadata"], "annotations": annotations}}
    assert errors(updated, document) == []


@pytest.mark.parametrize(
    ("document", "old", "expected"),
    [
        pytest.param(
            pod(annotations={RESERVED: "true"}), pod(), [(f"annotations.{RESERVED}", "FORBIDDEN")], id="reserved"
        ),
        pytest.param(
            pod(container("main", {"cpu": "3500m"}, {"cpu": "4"}), labels={QOS: "LSE"}),
            pod(container("main", {"cpu": "1500m"}, {"cpu": "4"}), labels={QOS: "LSE"}),
            [(REQUESTS, "INVALID")],
            id="other-amounts-are-judged",
        ),
    ],
)
def test_an_update_is_judged_by_what_it_changes(
    document: dict[str, Any], old: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert errors(document, old) == expected


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FieldError(Problem("a.b", "write c"), ErrorType.REQUIRED), "a.b: Required value: write c"),
        (FieldError(Problem("a.b", "leave it out"), ErrorType.FORBIDDEN, "x"), "a.b: Forbidden: leave it out"),
        (FieldError(Problem("a.b", "write c"), ErrorType.INVALID, "x"), "a.b: Invalid value: 'x': write c"),
        (
            FieldError(Problem("a.b", "field is immutable"), ErrorType.IMMUTABLE, "x"),
            "a.b: Invalid value: 'x': field is immutable",
        ),
    ],
)
def test_texts(error: FieldError, text: str) -> None:
    assert validation.text((error,)) == text
    assert validation.text((error, error)) == f"[{text}, {text}]"
