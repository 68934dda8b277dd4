"""The webhooks as the API server meets them: with the cluster that the caches hold at that moment."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from koord.admission.quotas import RESOURCE
from koord.model.admissionreview import AdmissionRequest, AdmissionResponse
from koord_manager.webhooks.judges import (
    MUTATE_NODE_STATUS,
    MUTATE_POD,
    MUTATE_QUOTA,
    VALIDATE_CONFIG_MAP,
    VALIDATE_NODE,
    VALIDATE_POD,
    VALIDATE_QUOTA,
)
from tests.koord_manager.support import CONFIG
from tests.koord_manager.webhooks.rig import (
    COLOCATED,
    NAMESPACES,
    SPEC,
    Rig,
    config_review,
    node_review,
    patched,
    review,
)
from tests.support.cluster import PROFILES
from tests.support.waiting import until

UNREADABLE = {
    path: AdmissionRequest(
        "u", "UPDATE" if subresource else "CREATE", resource, subresource, CONFIG.namespace, msgspec.Raw(b"3")
    )
    for path, resource, subresource in (
        (MUTATE_POD, "pods", ""),
        (VALIDATE_POD, "pods", ""),
        (MUTATE_NODE_STATUS, "nodes", "status"),
        (VALIDATE_NODE, "nodes", ""),
        (VALIDATE_CONFIG_MAP, "configmaps", ""),
        (MUTATE_QUOTA, RESOURCE, ""),
        (VALIDATE_QUOTA, RESOURCE, ""),
    )
}
"""Requests that each webhook refuses."""


async def test_a_profile_is_applied(rig: Rig) -> None:
    changes = patched(await rig.ask(MUTATE_POD, review("jobs")))
    assert changes["/spec/priorityClassName"] == "koord-batch"
    assert changes["/spec/priority"] == 5000


async def test_one_that_came_or_went_counts_with_its_event(rig: Rig) -> None:
    rig.cluster.server.delete(PROFILES, "", "batch")
    await until(lambda: not rig.cluster.view.admission().profiles)
    assert patched(await rig.ask(MUTATE_POD, review("jobs"))) == {}


async def test_a_namespace_that_no_event_has_told_of_is_looked_up(rig: Rig) -> None:
    context = rig.cluster.view.admission()
    rig.cluster.server.put(NAMESPACES, "", "brand-new", metadata=dict(COLOCATED))
    assert "brand-new" not in context.namespaces
    changes = patched(await rig.ask(MUTATE_POD, review("brand-new")))
    assert changes["/spec/priorityClassName"] == "koord-batch"


async def test_a_namespace_that_does_not_exist_has_no_profile(rig: Rig) -> None:
    response = await rig.ask(MUTATE_POD, review("nowhere"))
    assert response["allowed"] is True
    assert patched(response) == {}


async def test_a_profile_that_cannot_be_read_stops_no_other(rig: Rig) -> None:
    rig.cluster.server.put(PROFILES, "", "a-broken", spec={**SPEC, "probability": "often"})
    rig.cluster.server.put(PROFILES, "", "labels", spec={"labels": {"seen": "yes"}})
    await until(lambda: len(rig.cluster.view.admission().profiles) == 2)
    changes = patched(await rig.ask(MUTATE_POD, review("jobs")))
    assert changes["/spec/priority"] == 5000


async def test_what_cannot_be_is_refused(rig: Rig) -> None:
    labels = {"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "koord-prod"}
    response = await rig.ask(VALIDATE_POD, review("jobs", labels))
    assert response["allowed"] is False
    assert "koord-prod" in response["status"]["message"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"colocation-config": "{bad"}, "ParseConfigFail"),
        ({"colocation-config": '{"degradeTimeMinutes": 0}'}, "colocation-config.degradeTimeMinutes"),
        ({"koord-config": '{"clusterStrategy": {"cpuSuppress": {"policy": "psi"}}}'}, "policy: 'psi' is not one of"),
    ],
)
async def test_a_config_map_that_cannot_be_followed_is_refused(rig: Rig, data: dict[str, str], message: str) -> None:
    response = await rig.ask(VALIDATE_CONFIG_MAP, config_review(data))
    assert (response["allowed"], response["status"]["code"]) == (False, 400)
    assert message in response["status"]["message"]


async def test_a_config_map_is_judged_with_the_nodes_that_there_are(rig: Rig) -> None:
    rig.cluster.put_node("n1", labels={"a": "1", "b": "1"})
    await until(lambda: bool(rig.cluster.view.nodes.objects))
    entries = [{"name": key, "nodeSelector": {"matchLabels": {key: "1"}}} for key in ("a", "b")]
    document = config_review({"colocation-config": json.dumps({"nodeConfigs": entries})})
    response = await rig.ask(VALIDATE_CONFIG_MAP, document)
    assert '"exampleNodes":["n1"]' in response["status"]["message"]


@pytest.mark.parametrize(
    "document",
    [
        config_review({"colocation-config": '{"enable": true}'}),
        config_review({"colocation-config": "{bad"}, name="another"),
        config_review({"colocation-config": "{bad", "system-config": "{}"}, old={"colocation-config": "{bad"}),
    ],
    ids=["right", "another ConfigMap", "wrong before"],
)
async def test_a_config_map_that_passes(rig: Rig, document: dict[str, Any]) -> None:
    assert (await rig.ask(VALIDATE_CONFIG_MAP, document))["allowed"] is True


async def test_what_a_config_map_says_to_nobody_is_warned_of(rig: Rig) -> None:
    data = {"colocation-confg": "{}", "colocation-config": '{"enabled": true}', **{f"x{i}": "" for i in range(9)}}
    response = await rig.ask(VALIDATE_CONFIG_MAP, config_review(data))
    assert response["allowed"] is True
    assert response["warnings"] == [
        "colocation-confg: there is no such key (did you mean colocation-config?): it is ignored",
        *(f"x{i}: there is no such key: it is ignored" for i in range(4)),
        "and 6 more: koordctl lint lists them",
    ]


async def test_a_nodes_labels_are_judged_by_the_policy_in_force(rig: Rig) -> None:
    both = {"a": "1", "b": "1"}
    assert (await rig.ask(VALIDATE_NODE, node_review(both, {})))["allowed"] is True
    entries = [{"name": key, "nodeSelector": {"matchLabels": {key: "1"}}} for key in ("a", "b")]
    rig.cluster.put_config({"colocation-config": json.dumps({"nodeConfigs": entries})})
    await until(lambda: bool(rig.cluster.view.config.colocation.entries))
    response = await rig.ask(VALIDATE_NODE, node_review(both, {"a": "1"}))
    assert (response["allowed"], response["status"]["code"]) == (False, 400)
    assert '"strategies":["a","b"],"exampleNodes":["n1"]' in response["status"]["message"]


@pytest.mark.parametrize(
    ("flag", "allowing"),
    [
        ("", {MUTATE_NODE_STATUS, VALIDATE_NODE, VALIDATE_CONFIG_MAP}),
        ("PodMutatingWebhook=false", {MUTATE_POD, MUTATE_NODE_STATUS, VALIDATE_NODE, VALIDATE_CONFIG_MAP}),
        ("PodValidatingWebhook=false,NodeMutatingWebhook=true", {VALIDATE_POD, VALIDATE_NODE, VALIDATE_CONFIG_MAP}),
        ("ConfigMapValidatingWebhook=true", {MUTATE_NODE_STATUS, VALIDATE_NODE}),
        ("NodeValidatingWebhook=true", {MUTATE_NODE_STATUS, VALIDATE_CONFIG_MAP}),
        ("ElasticMutatingWebhook=false", {MUTATE_QUOTA, MUTATE_NODE_STATUS, VALIDATE_NODE, VALIDATE_CONFIG_MAP}),
        ("ElasticValidatingWebhook=false", {VALIDATE_QUOTA, MUTATE_NODE_STATUS, VALIDATE_NODE, VALIDATE_CONFIG_MAP}),
    ],
)
async def test_a_path_whose_gate_is_off_lets_everything_pass(rig: Rig, flag: str, allowing: set[str]) -> None:
    """Of what those whose gate is on refuse, whoever asks."""
    handlers = rig.others(f"--feature-gates={flag}").handlers
    answers: dict[str, Any] = {path: handler(UNREADABLE[path]) for path, handler in handlers.items()}
    responses = {path: answer for path, answer in answers.items() if isinstance(answer, AdmissionResponse)}
    assert {path for path, answer in responses.items() if answer.is_allowed} == allowing
    assert answers.keys() - responses.keys() <= {MUTATE_QUOTA, VALIDATE_QUOTA}, "which are refused a moment later"


async def test_nobody_is_told_of_quotas(rig: Rig) -> None:
    """Koordinator's manager shows all of them to whoever asks for ``/elasticQuota``."""
    assert all(path.startswith(("/mutate-", "/validate-")) for path in rig.webhooks.handlers)
