"""What the manager keeps of pods: the same pods, equal parts once, with what each counts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from koord.model import core
from koord.model.core import Pod, PodStatus, ResourceRequirements
from koord.overcommit import demand
from koord_manager.kept.parts import Parts
from koord_manager.kept.pods import PodSharing


def pod(name: str = "web-1", node: str = "n1", **labels: str) -> Pod:
    document: dict[str, Any] = {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": name,
            "labels": labels,
            "annotations": {"note": "a"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}],
        },
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "100m"}}}],
            "volumes": [{"name": f"kube-api-access-{name}", "projected": {}}],
            "nodeName": node,
            "priority": 9000,
        },
        "status": {"phase": "Running", "qosClass": "Burstable", "containerStatuses": [{"name": "main"}]},
    }
    return core.read(Pod, json.dumps(document).encode())


def test_replicas_share_all_but_what_is_their_own() -> None:
    share = PodSharing(Parts())
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


@pytest.mark.parametrize("max_parts", [1, 3, 1000])
@given(names=st.lists(st.sampled_from("abc")), data=st.data())
def test_a_kept_pod_is_the_pod_without_what_nobody_needs(max_parts: int, names: list[str], data: st.DataObject) -> None:
    share = PodSharing(Parts(max_parts))
    for name in names:
        came = pod(name, data.draw(st.sampled_from(["", "n1", "n2"])), **data.draw(st.dictionaries(
            st.sampled_from(["app", "tier"]), st.sampled_from(["", "x", "y"]))))  # fmt: skip
        spec = replace(came.spec, volumes=())
        kept = share(came)
        assert (kept.metadata, kept.spec, kept.status) == (came.metadata, spec, PodStatus("Running", "Burstable"))
        assert kept.demand == demand.of_pod(came)


@pytest.mark.parametrize(("start_time", "cpu_milli"), [(None, 0), ("2026-11-23T09:00:00Z", 500)])
def test_a_kept_pod_counts_whether_kubelet_has_admitted_it(start_time: str | None, cpu_milli: int) -> None:
    came = pod()
    container = replace(came.spec.containers[0], resources=ResourceRequirements({"kubernetes.io/batch-cpu": "500"}))
    pending = replace(came.status, phase="Pending", start_time=start_time)
    kept = PodSharing(Parts())(replace(came, spec=replace(came.spec, containers=(container,)), status=pending))
    assert (kept.status, kept.demand.batch_held.cpu_milli) == (PodStatus("Pending", "Burstable"), cpu_milli)


def test_equal_texts_of_different_kinds_are_not_one() -> None:
    """An empty list of owners and an empty list of anything else read alike in JSON."""
    kept = PodSharing(Parts())(replace(pod(), metadata=replace(pod().metadata, owner_references=())))
    assert (kept.metadata.owner_references, kept.spec.init_containers) == ((), ())
