"""What the manager's caches have: the same objects in less memory, equal parts once, pods with what each counts."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from koord.kube.kind import Unstructured
from koord.model import core
from koord.model.core import ObjectMeta, Pod, PodStatus, ResourceRequirements
from koord.model.nodemetric import NodeMetric
from koord.overcommit import demand
from koord_manager import cache
from koord_manager.cache import PodSharing, SpecSharing
from tests.model.test_nodemetric import EVERY_FIELD, ONE_NODE
from tests.support import kubernetes
from tests.support.kubernetes import container


def pod(name: str = "web-1", node: str = "n1", **labels: str) -> Pod:
    owner = {"kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
    document = kubernetes.pod(
        container(requests={"cpu": "100m"}),
        name=name,
        namespace="shop",
        labels=labels,
        annotations={"note": "a"},
        metadata={"uid": name, "ownerReferences": [owner]},
        status={"phase": "Running", "qosClass": "Burstable", "containerStatuses": [{"name": "main"}]},
        volumes=[{"name": f"kube-api-access-{name}", "projected": {}}],
        nodeName=node,
        priority=9000,
    )
    return kubernetes.read(Pod, document)


def test_replicas_share_all_but_what_is_their_own() -> None:
    share = PodSharing()
    one, other = share(pod("web-1", "n1", app="web")), share(pod("web-2", "n2", app="web"))
    for part in ("namespace", "labels", "annotations", "owner_references"):
        assert getattr(one.metadata, part) is getattr(other.metadata, part), part
    assert one.spec.containers is other.spec.containers
    assert one.status is other.status
    assert one.demand.request is other.demand.request
    assert [(each.metadata.name, each.metadata.uid, each.spec.node_name) for each in (one, other)] == [
        ("web-1", "web-1", "n1"),
        ("web-2", "web-2", "n2"),
    ]


def test_replicas_with_an_annotation_of_their_own_share_the_others() -> None:
    share, came = PodSharing(), pod()
    one, other = (
        share(replace(came, metadata=replace(came.metadata, annotations={"note": "long text", "own": own})))
        for own in ("1", "2")
    )
    assert one.metadata.annotations["note"] is other.metadata.annotations["note"]
    assert [each.metadata.annotations["own"] for each in (one, other)] == ["1", "2"]


STATES = st.fixed_dictionaries(
    {
        "node": st.sampled_from(["", "n1", "n2"]),
        "labels": st.dictionaries(
            st.sampled_from(["app", "koordinator.sh/qosClass"]), st.sampled_from(["", "LS", "BE"])
        ),
        "cpu": st.sampled_from([{"cpu": "100m"}, {"cpu": "1"}, {"kubernetes.io/batch-cpu": "500"}, {}]),
        "owner": st.sampled_from(["", "u1", "u2"]),
        "priority": st.sampled_from([9000, 5000]),
        "phase": st.sampled_from(["Running", "Pending", "Failed"]),
        "start_time": st.sampled_from([None, "2026-11-23T09:00:00Z"]),
    }
)


def in_state(name: str, state: dict[str, Any]) -> Pod:
    came = pod(name, state["node"], **state["labels"])
    owners = tuple(replace(owner, uid=state["owner"]) for owner in came.metadata.owner_references if state["owner"])
    container = replace(came.spec.containers[0], resources=ResourceRequirements(state["cpu"]))
    return replace(
        came,
        metadata=replace(came.metadata, owner_references=owners),
        spec=replace(came.spec, containers=(container,), priority=state["priority"]),
        status=replace(came.status, phase=state["phase"], start_time=state["start_time"]),
    )


@pytest.mark.parametrize("most", [1, 3, 1000])
@given(st.lists(st.tuples(st.sampled_from("abc"), STATES), max_size=8))
def test_a_cached_pod_is_the_pod_without_what_has_no_use(most: int, seen: list[tuple[str, dict[str, Any]]]) -> None:
    share = PodSharing(most)
    for name, state in seen:
        came = in_state(name, state)
        cached = share(came)
        assert cached.metadata == came.metadata
        assert cached.spec == replace(came.spec, volumes=())
        assert cached.status == PodStatus(came.status.phase, "Burstable")
        assert cached.demand == demand.of_pod(came)


@pytest.mark.parametrize(("start_time", "cpu_milli"), [(None, 0), ("2026-11-23T09:00:00Z", 500)])
def test_a_cached_pod_counts_whether_kubelet_has_admitted_it(start_time: str | None, cpu_milli: int) -> None:
    came = pod()
    container = replace(came.spec.containers[0], resources=ResourceRequirements({"kubernetes.io/batch-cpu": "500"}))
    pending = replace(came.status, phase="Pending", start_time=start_time)
    cached = PodSharing()(replace(came, spec=replace(came.spec, containers=(container,)), status=pending))
    assert (cached.status, cached.demand.batch_held.cpu_milli) == (PodStatus("Pending", "Burstable"), cpu_milli)


def test_equal_texts_of_different_kinds_are_not_one() -> None:
    """An empty list of owners and an empty list of anything else read alike in JSON."""
    cached = PodSharing()(replace(pod(), metadata=replace(pod().metadata, owner_references=())))
    assert (cached.metadata.owner_references, cached.spec.init_containers) == ((), ())


def node_slo(name: str, **content: object) -> Unstructured:
    metadata = {"name": name, "managedFields": [{"manager": "somebody"}]}
    return Unstructured(ObjectMeta(name=name), {"metadata": metadata, **content})


def test_nodes_of_one_policy_share_its_spec() -> None:
    share = SpecSharing()
    one, other = (share(node_slo(name, spec={"cpuBurstStrategy": {"policy": "auto"}})) for name in ("n1", "n2"))
    assert one.content == {"spec": {"cpuBurstStrategy": {"policy": "auto"}}}
    assert one.content["spec"] is other.content["spec"]
    assert [each.metadata.name for each in (one, other)] == ["n1", "n2"]


@pytest.mark.parametrize("content", [{}, {"spec": None}, {"spec": "text"}], ids=str)
def test_a_spec_that_is_none_stays_what_it_is(content: dict[str, object]) -> None:
    assert SpecSharing()(node_slo("n1", **content)).content == content


@pytest.mark.parametrize(
    "document", [{}, {"metadata": {"name": "n1"}}, yaml.safe_load(ONE_NODE), EVERY_FIELD],
    ids=["empty", "no status", "seen", "every field"],
)  # fmt: skip
def test_what_is_unpacked_is_what_was_packed(document: dict[str, Any]) -> None:
    metric = core.read(NodeMetric, json.dumps(document).encode())
    packed = cache.packed(metric)
    assert packed.unpacked() == metric
    assert (packed.metadata, packed.spec, packed.update_time) == (
        metric.metadata,
        metric.spec,
        metric.status.update_time,
    )
