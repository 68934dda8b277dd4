"""The webhooks of pods, as an API server meets them: what is unreadable, who passes untouched, refusals, patches."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.admission import UnknownNamespace
from koord.admission.pods import MAX_CONTAINERS
from koord.admission.schedulerkeys import RESOURCE_STATUS
from koord.model.profile import ClusterColocationProfile, ProfileSpec
from koord.model.selector import LabelSelector, Requirement
from koord.webhook.reviews import UndecodableError
from tests.admission.objects import (
    BATCH_CPU,
    BATCH_MEMORY,
    CLASS,
    EXTENDED_SPEC,
    MID_CPU,
    QOS,
    SUB_PRIORITY,
    context,
    mutate_pod,
    patch_of,
    patched,
    pod,
    profile,
    review,
    validate_pod,
)
from tests.support.kubernetes import container

UID = "705ab4f5-6393-11e8-b7cc-42010a800002"
BOUNDED = {BATCH_CPU: "1k", BATCH_MEMORY: "1Gi"}
BE_PROD = pod(labels={QOS: "BE"}, priority=9000)
EVERYTHING = context(profile(labels={"t": "1"}))
UNREAD = "ClusterColocationProfile batch is not applied: spec.selector: operator 'in' is not one of In, NotIn"
MIRROR = "kubernetes.io/config.mirror"
WEBHOOKS = pytest.mark.parametrize("webhook", [mutate_pod, validate_pod], ids=["mutate", "validate"])


def mirrored(document: dict[str, Any]) -> dict[str, Any]:
    """The pod as kubelet shows a static pod of its own to the API server."""
    annotations = {MIRROR: "0a1b", "kubernetes.io/config.source": "file"}
    metadata = {**document["metadata"], "annotations": annotations}
    return {**document, "metadata": metadata, "spec": {**document["spec"], "nodeName": "n1"}}


def status(answer: dict[str, Any]) -> tuple[int, str]:
    assert answer["response"].keys() == {"uid", "allowed", "status"}
    assert answer["response"]["allowed"] is False
    assert answer["response"]["status"]["status"] == "Failure"
    return answer["response"]["status"]["code"], answer["response"]["status"]["message"]


@WEBHOOKS
@pytest.mark.parametrize(
    ("obj", "message"),
    [
        pytest.param([1], "Expected `object`, got `array`", id="list"),
        pytest.param(None, "the request has none", id="none"),
        pytest.param({"spec": 3}, "Expected `object`, got `int`", id="no-pod-at-all"),
        pytest.param({"metadata": {"labels": {"a": 1}}}, "Expected `str`, got `int`", id="label"),
    ],
)
def test_what_cannot_be_read(webhook: Any, obj: Any, message: str) -> None:
    answer = webhook(review(obj), EVERYTHING)
    assert answer["response"]["uid"] == UID
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    code, said = status(answer)
    assert code == 400 and said.startswith(f"pod cannot be read: {message}")
    assert answer["response"]["status"]["reason"] == "BadRequest"


@WEBHOOKS
def test_a_pod_that_is_left_alone_may_be_one_that_nobody_can_read(webhook: Any) -> None:
    unreadable = {"metadata": {"namespace": "kube-system"}, "spec": 3}
    assert webhook(review(unreadable), EVERYTHING)["response"] == {"uid": UID, "allowed": True}


@WEBHOOKS
@pytest.mark.parametrize(
    ("obj", "request_members"),
    [
        pytest.param(
            {**BE_PROD, "metadata": {"namespace": "kube-system"}}, {"namespace": "kube-system"}, id="kube-system"
        ),
        pytest.param(
            {**BE_PROD, "metadata": {"namespace": "koordinator-system"}}, {"namespace": "koordinator-system"}, id="own"
        ),
        pytest.param({**BE_PROD, "metadata": {}}, {"namespace": "kube-system"}, id="namespace-of-the-request"),
        pytest.param(mirrored(BE_PROD), {}, id="mirror-of-a-static-pod"),
        pytest.param(mirrored(pod(container(requests={"cpu": "x"}))), {}, id="mirror-with-an-unreadable-amount"),
        pytest.param(BE_PROD, {"subResource": "binding"}, id="subresource"),
        pytest.param(BE_PROD, {"resource": {"group": "", "version": "v1", "resource": "nodes"}}, id="another-resource"),
        pytest.param(BE_PROD, {"resource": {"group": "x.io", "version": "v1", "resource": "pods"}}, id="another-group"),
        pytest.param(BE_PROD, {"resource": None}, id="no-resource"),
        pytest.param(BE_PROD, {"operation": "DELETE"}, id="DELETE"),
        pytest.param(BE_PROD, {"operation": "CONNECT"}, id="CONNECT"),
    ],
)
def test_who_passes_untouched(webhook: Any, obj: dict[str, Any], request_members: dict[str, Any]) -> None:
    answer = webhook(review(obj, **request_members), EVERYTHING)
    assert answer == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": UID, "allowed": True},
    }


@WEBHOOKS
def test_the_own_namespace_is_a_setting(webhook: Any) -> None:
    own = context(profile(labels={"t": "1"}), own_namespace="koord", namespaces={"koordinator-system": {}})
    document = {**BE_PROD, "metadata": {"namespace": "koord", "labels": {QOS: "BE"}}}
    assert webhook(review(document, namespace="koord"), own)["response"] == {"uid": UID, "allowed": True}
    document["metadata"]["namespace"] = "koordinator-system"
    assert webhook(review(document), own)["response"] != {"uid": UID, "allowed": True}


def test_an_update_of_a_mirror_pod_passes() -> None:
    """Its labels are its manifest's, which no webhook sees."""
    changed = mirrored(pod(labels={QOS: "LS"}, priority=5000))
    request = review(changed, "UPDATE", mirrored(pod(labels={QOS: "BE"}, priority=5000)))
    assert validate_pod(request, EVERYTHING)["response"] == {"uid": UID, "allowed": True}


def test_updates_are_not_mutated() -> None:
    assert mutate_pod(review(pod(), "UPDATE", pod()), EVERYTHING)["response"] == {"uid": UID, "allowed": True}


@pytest.mark.parametrize(
    ("items", "obj", "code", "message"),
    [
        pytest.param(
            [profile("x", priorityClassName="gold")],
            pod(),
            403,
            "ClusterColocationProfile x cannot be applied: there is no PriorityClass 'gold': create it, or name "
            "another in spec.priorityClassName of the profile",
            id="no-priority-class",
        ),
        pytest.param(
            [profile("x", patch={"spec": {"priorityClassName": "gold"}})],
            pod(),
            403,
            "there is no PriorityClass 'gold': create it, or name another in spec.patch of the profile",
            id="no-priority-class-of-a-patch",
        ),
        pytest.param(
            [profile("x", patch={"spec": {"containers": [{"image": "x"}]}})],
            pod(),
            403,
            "ClusterColocationProfile x cannot be applied: spec.patch: spec.containers",
            id="patch",
        ),
        pytest.param(
            [profile()],
            pod(container(requests={"cpu": "x"}), priority=5000),
            400,
            "spec.containers[0].resources.requests.cpu: 'x' is not a quantity",
            id="amount",
        ),
        pytest.param(
            [profile()], pod(container(requests={"cpu": "x"})), 400, "pod cannot be read: 'x' is not", id="qos"
        ),
        pytest.param([], pod(container(limits={BATCH_CPU: "x"})), 400, "batch-cpu: 'x' is not a quantity", id="batch"),
        pytest.param(
            [profile()],
            pod(priority=7000, resources={"limits": {"cpu": "1"}}),
            400,
            "for the pod as a whole",
            id="whole",
        ),
    ],
)
def test_mutation_refuses(items: list[ClusterColocationProfile], obj: dict[str, Any], code: int, message: str) -> None:
    answer = mutate_pod(review(obj), context(*items))
    said_code, said = status(answer)
    assert said_code == code and message in said
    assert answer["response"]["status"]["reason"] == {400: "BadRequest", 403: "Forbidden"}[code]


@pytest.mark.parametrize("api_version", ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"])
def test_mutation_answers_by_a_json_patch(api_version: str) -> None:
    document = pod(container(requests={BATCH_CPU: "2000"}), labels={QOS: "BE", "~a/b": "c"}, priority=5000)
    answer = mutate_pod(review(document, api_version=api_version), EVERYTHING)
    assert (answer["apiVersion"], answer["kind"], answer["response"]["uid"]) == (api_version, "AdmissionReview", UID)
    assert patch_of(answer) == [
        {
            "op": "add",
            "path": "/metadata/annotations",
            "value": {EXTENDED_SPEC: '{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"2k"}}}}'},
        },
        {"op": "add", "path": "/metadata/labels/t", "value": "1"},
    ]


def test_a_pod_that_needs_nothing_gets_no_patch() -> None:
    assert mutate_pod(review(pod()), context())["response"] == {"uid": UID, "allowed": True}


@pytest.mark.parametrize("metadata", [{}, {"namespace": ""}, {"namespace": None}, {"namespace": "batch-demo"}])
def test_the_namespace_of_the_request_is_looked_at_and_never_written(metadata: dict[str, Any]) -> None:
    document = {"metadata": metadata, "spec": {"containers": [container()]}}
    colocated = profile(
        namespaceSelector={"matchLabels": {"koordinator.sh/enable-colocation": "true"}}, labels={"t": "1"}
    )
    operations = patch_of(mutate_pod(review(document), context(colocated)))
    assert operations == [{"op": "add", "path": "/metadata/labels", "value": {"t": "1"}}]
    assert patch_of(mutate_pod(review(document, namespace="default"), context(colocated))) == (
        operations if metadata.get("namespace") else []
    )


def test_what_is_in_doubt_is_a_warning_and_no_refusal() -> None:
    never = LabelSelector(match_expressions=(Requirement(key="a", operator="Near"),))
    odd = ClusterColocationProfile(metadata=profile("odd").metadata, spec=ProfileSpec(selector=never))
    response = mutate_pod(review(pod()), context(odd))["response"]
    assert response["allowed"] is True and "patch" not in response
    assert len(response["warnings"]) == 1 and response["warnings"][0].startswith("ClusterColocationProfile odd matches")


@pytest.mark.parametrize(
    ("labels", "warnings"), [(None, [UNREAD]), ({"app": "a"}, None)], ids=["no profile matches", "another one matches"]
)
def test_a_profile_that_nobody_can_read_is_warned_of_where_it_may_be_missed(
    labels: dict[str, str] | None, warnings: list[str] | None
) -> None:
    """Whom it selects is not known, so of a pod that another one matches nothing is said."""
    readable = profile(selector={"matchLabels": {"app": "a"}}, labels={"t": "1"})
    response = mutate_pod(review(pod(labels=labels)), context(readable, unread_profiles=(UNREAD,)))["response"]
    assert response["allowed"] is True and ("patch" in response) is (warnings is None)
    assert response.get("warnings") == warnings


def test_a_dry_run_is_answered_alike() -> None:
    assert mutate_pod(review(pod(), dryRun=True), EVERYTHING) == mutate_pod(review(pod()), EVERYTHING)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param(
            review(BE_PROD),
            f"labels.{QOS}: Forbidden: {QOS}=BE and priorityClass=koord-prod cannot be used",
            id="created",
        ),
        pytest.param(
            review(pod(labels={QOS: "BE"}, priority=5000), "UPDATE", pod(labels={QOS: "LS"}, priority=5000)),
            f"labels.{QOS}: Invalid value: 'BE': field is immutable",
            id="an update of the class",
        ),
        pytest.param(review(pod(), "UPDATE", pod(labels={SUB_PRIORITY: "1"})), "Invalid value: '': field is", id="sub"),
        pytest.param(
            review(pod(container(limits={BATCH_CPU: "x"}))), "pod cannot be read: 'x' is not", id="unreadable"
        ),
        pytest.param(
            review(pod(), "UPDATE", {"spec": 3}), "pod cannot be read: Expected `object`", id="unreadable-old"
        ),
    ],
)
def test_validation_refuses(document: dict[str, Any], message: str) -> None:
    code, said = status(validate_pod(document, context()))
    assert code == 400 and message in said


def test_all_errors_are_in_one_message() -> None:
    old = pod(labels={QOS: "LS"}, priority=9000)
    _, message = status(validate_pod(review(pod(priority=5000), "UPDATE", old), context()))
    assert (
        message.startswith(f"[labels.{QOS}: Invalid value: '': ")
        and ", spec.priority: Invalid value: 'koord-batch'" in message
    )
    assert message.endswith("]")


@pytest.mark.parametrize(
    "document",
    [
        review(pod(container(limits=BOUNDED), labels={QOS: "BE"}, priority=5000)),
        review(BE_PROD, "UPDATE", BE_PROD),
        review(pod(labels={SUB_PRIORITY: "1"}), "UPDATE", pod(labels={SUB_PRIORITY: "1"})),
    ],
)
def test_validation_lets_pass(document: dict[str, Any]) -> None:
    assert validate_pod(document, context())["response"] == {"uid": UID, "allowed": True}


BATCH: dict[str, Any] = {"labels": {QOS: "BE"}, "priority": 5000}


@pytest.mark.parametrize(
    ("document", "names"),
    [
        pytest.param(review(pod(container(limits=BOUNDED, requests={"cpu": "1"}), **BATCH)), "cpu", id="cpu"),
        pytest.param(
            review(pod(container(limits=BOUNDED), container(limits={"memory": "1Gi", "cpu": "1"}), **BATCH)),
            "cpu and memory",
            id="another container's",
        ),
        pytest.param(
            review(pod(container(requests={MID_CPU: "1k", "memory": "1Gi"}), priority=7000)), "memory", id="mid"
        ),
        pytest.param(
            review(pod(container(limits={"cpu": "1", "memory": "1Gi"}), **BATCH)), None, id="not translated at all"
        ),
        pytest.param(review(pod(container(limits=BOUNDED), **BATCH)), None, id="translated"),
        pytest.param(review(pod(container(limits=BOUNDED), overhead={"cpu": "1"}, **BATCH)), None, id="overhead"),
        pytest.param(review(pod(container(requests={MID_CPU: "1k", "cpu": "1"}), priority=9000)), None, id="prod"),
        pytest.param(
            review(
                pod(container(limits=BOUNDED, requests={"cpu": "1"}), **BATCH),
                "UPDATE",
                pod(container(limits=BOUNDED, requests={"cpu": "1"}), **BATCH),
            ),
            None,
            id="update",
        ),
    ],
)
def test_native_amounts_beside_translated_ones_are_warned_of(document: dict[str, Any], names: str | None) -> None:
    response = validate_pod(document, context())["response"]
    assert response["allowed"]
    if names is None:
        assert "warnings" not in response
    else:
        (warning,) = response["warnings"]
        assert f"the pod has {names} beside" in warning and f"take {names} out" in warning and len(warning) <= 256


def test_the_defaults_of_a_limit_range_after_the_mutation_are_warned_of() -> None:
    batch = profile(labels={QOS: "BE", CLASS: "koord-batch"})
    sent = pod(container(requests={"cpu": "2"}))
    made = patched(sent, patch_of(mutate_pod(review(sent), context(batch))))
    made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "100m"
    response = validate_pod(review(made), context(batch))["response"]
    assert response["allowed"] and "cpu" in response["warnings"][0]


DOUBTFUL = pod(container(limits={BATCH_CPU: "1500m", BATCH_MEMORY: "512m"}), **BATCH)


@pytest.mark.parametrize(
    ("document", "warnings"),
    [
        pytest.param(
            review(DOUBTFUL),
            [
                f"spec.containers[0].resources.limits.{BATCH_CPU}: '1500m' counts as 2: {BATCH_CPU} is in thousandths "
                "of a CPU, write 1500",
                f"spec.containers[0].resources.limits.{BATCH_MEMORY}: '512m' counts as 1 byte, since m is thousandths: "
                "write 512Mi",
            ],
            id="amounts",
        ),
        pytest.param(
            review(pod(labels={QOS: "BESTEFFORT"})),
            [
                f"metadata.labels['{QOS}']: 'BESTEFFORT' is not one of LSE, LSR, LS, BE, SYSTEM, so the pod has no QoS "
                "class of its own"
            ],
            id="unknown-class",
        ),
        pytest.param(review(DOUBTFUL, "UPDATE", DOUBTFUL), None, id="update"),
        pytest.param(review(mirrored(DOUBTFUL)), None, id="mirror"),
    ],
)
def test_what_is_probably_not_meant_is_warned_of(document: dict[str, Any], warnings: list[str] | None) -> None:
    response = validate_pod(document, context())["response"]
    assert response["allowed"] and response.get("warnings") == warnings


def test_the_fraction_of_a_byte_that_translation_hides_from_the_api_server_is_warned_of() -> None:
    """Of the native resource the API server warns itself."""
    batch = profile(labels={QOS: "BE", CLASS: "koord-batch"})
    sent = pod(container(limits={"cpu": "1", "memory": "512m"}))
    made = patched(sent, patch_of(mutate_pod(review(sent), context(batch))))
    warning, *_ = validate_pod(review(made), context(batch))["response"]["warnings"]
    assert "'512m' counts as 1 byte" in warning and "write 512Mi" in warning


def test_warnings_are_bounded() -> None:
    many = pod(*[container(f"c{index}", limits={BATCH_CPU: "1"}) for index in range(50)], **BATCH)
    warnings = validate_pod(review(many), context())["response"]["warnings"]
    assert len(warnings) == 6 and warnings[-1] == "and 95 more: koordctl lint lists them"
    assert sum(map(len, warnings)) < 4096


@pytest.mark.parametrize("is_on", [True, False])
def test_the_gate_of_the_sub_priority(is_on: bool) -> None:
    document = review(pod(labels={SUB_PRIORITY: "1"}), "UPDATE", pod())
    gates = {"ColocationProfileSkipValidatingPriority": is_on}
    assert validate_pod(document, context(feature_gates=gates))["response"]["allowed"] is is_on


@pytest.mark.parametrize(
    ("document", "name"),
    [
        (review(pod(namespace="new")), "new"),
        (review({"metadata": {}, "spec": {}}, namespace="new"), "new"),
        (review(pod(namespace="default")), None),
        (review(pod(namespace="gone")), None),
        (review(pod(namespace="kube-system")), None),
        (review(mirrored(pod(namespace="new"))), None),
        (review(pod(namespace="new"), "UPDATE"), None),
        (review(pod(namespace="new"), subResource="status"), None),
        (review(3, namespace="new"), None),
    ],
)
def test_a_namespace_that_is_to_be_looked_up(document: Any, name: str | None) -> None:
    cluster = context(namespaces={"default": {}, "gone": None})
    try:
        mutate_pod(document, cluster)
        assert name is None
    except UnknownNamespace as unknown:
        assert unknown.name == name


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["CREATE", "pods", "x"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["uid", "request", "object", "resource", "operation", "metadata", "spec", "apiVersion"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=8,
)


@WEBHOOKS
@given(document=ANYTHING, obj=ANYTHING)
def test_each_document_has_an_answer(webhook: Any, document: Any, obj: Any) -> None:
    answer = webhook(review(obj), EVERYTHING)
    assert answer["kind"] == "AdmissionReview" and isinstance(answer["response"]["allowed"], bool)
    with contextlib.suppress(UndecodableError):
        webhook(document, EVERYTHING)


@given(st.dictionaries(st.sampled_from(["t", "a/b", "~"]), st.text(max_size=3)), st.booleans())
def test_the_patch_leads_to_what_the_profile_sets(labels: dict[str, str], is_created_by_name: bool) -> None:
    document = pod(labels=labels)
    if not is_created_by_name:
        del document["metadata"]["name"]
    result = patched(document, patch_of(mutate_pod(review(document), EVERYTHING)))
    document["metadata"]["labels"] = {**labels, "t": "1"}
    assert result == document


def crowd(count: int, init: int = 0, **metadata: Any) -> dict[str, Any]:
    """A pod with so many containers."""
    return pod(*[container()] * count, initContainers=[container()] * init, **metadata)


@WEBHOOKS
@pytest.mark.parametrize(
    ("count", "init", "is_judged"),
    [(MAX_CONTAINERS, 0, True), (MAX_CONTAINERS - 1, 1, True), (MAX_CONTAINERS, 1, False), (1, MAX_CONTAINERS, False)],
)
def test_the_containers_of_a_pod_are_bounded(webhook: Any, count: int, init: int, is_judged: bool) -> None:
    answer = webhook(review(crowd(count, init)), context())
    assert answer["response"]["allowed"] is is_judged
    if not is_judged:
        found = f"{count + init} are more than the {MAX_CONTAINERS} of a pod that is judged"
        assert status(answer) == (400, f"spec.containers and spec.initContainers: {found}")


@pytest.mark.parametrize(
    ("labels", "annotations", "count", "message"),
    [
        ({}, {}, MAX_CONTAINERS + 1, ""),
        ({"app": "x"}, {}, MAX_CONTAINERS + 1, ""),
        ({QOS: "LSE"}, {}, MAX_CONTAINERS + 1, "field is immutable"),
        ({}, {RESOURCE_STATUS: "{}"}, MAX_CONTAINERS + 1, RESOURCE_STATUS),
        ({}, {EXTENDED_SPEC: '{"containers": {}}'}, MAX_CONTAINERS + 1, EXTENDED_SPEC),
        ({}, {}, MAX_CONTAINERS + 2, "are more than the"),
        ({}, {}, 1, "are more than the"),
    ],
)
def test_an_update_of_a_pod_with_more_is_judged_by_everything_else(
    labels: dict[str, str], annotations: dict[str, str], count: int, message: str
) -> None:
    """One came while no webhook answered, and somebody has to be able to take its finalizers away."""
    old = crowd(MAX_CONTAINERS + 1)
    new = crowd(count, labels=labels, annotations=annotations)
    answer = validate_pod(review(new, operation="UPDATE", old=old), context())
    if message:
        code, found = status(answer)
        assert code == 400 and message in found
    else:
        assert answer["response"] == {"uid": UID, "allowed": True}
