"""Kubernetes' objects: what is refused and what that costs, null as Go writes it, and that nothing known is lost."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model import core
from koord.model.core import Lease, Node, Pod

DEEP = b"[" * 100_000 + b"]" * 100_000
WEB = {"metadata": {"namespace": "default", "name": "web", "uid": "u1"}}


def listed(*items: Any) -> bytes:
    return json.dumps({"kind": "PodList", "items": items}).encode()


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"items": 3}', b'{"items": [{]}', b'{"items": [' + DEEP + b"]}"])
def test_lists_that_are_none(body: bytes) -> None:
    with pytest.raises(ValueError):
        core.read_list(Pod, body)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"metadata": "x"}', b'{"x": ' + DEEP + b"}"])
def test_objects_that_are_none(body: bytes) -> None:
    with pytest.raises(ValueError):
        core.read(Pod, body)


@pytest.mark.parametrize("body", [b'{"kind": "PodList"}', b'{"items": null}', b'{"items": []}'])
def test_empty_lists(body: bytes) -> None:
    assert core.read_list(Pod, body) == core.ObjectList(())


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ("x", "Pod 1 of the list cannot be read: Expected `object`, got `str`"),
        (None, "Pod 1 of the list cannot be read: Expected `object`, got `null`"),
        ({"metadata": 7}, "Pod 1 of the list cannot be read: Expected `object`, got `int` - at `$.metadata`"),
        (
            {"metadata": {"name": 7}},
            "Pod 1 of the list cannot be read: Expected `str`, got `int` - at `$.metadata.name`",
        ),
        (
            {"metadata": {"namespace": "a", "name": "b", "labels": {"c": 1}}},
            "Pod a/b cannot be read: Expected `str`, got `int` - at `$.metadata.labels[...]`",
        ),
        (
            {"metadata": {"name": "b"}, "spec": {"containers": [{"name": []}]}},
            "Pod b cannot be read: Expected `str`, got `array` - at `$.spec.containers[0].name`",
        ),
        (
            {"metadata": {"name": "b"}, "spec": {"priority": "high", "overhead": None}},
            "Pod b cannot be read: Expected `int | null`, got `str` - at `$.spec.priority`",
        ),
    ],
)
def test_an_object_that_does_not_fit_costs_itself_only_and_is_named(item: Any, problem: str) -> None:
    found = core.read_list(Pod, listed(WEB, item, WEB))
    assert [pod.metadata.name for pod in found.items] == ["web", "web"]
    assert found.problems == (problem,)


def test_text_that_is_not_utf_8_costs_its_object_only() -> None:
    body = listed(WEB, {"metadata": {"name": "bad", "labels": {"a": "?"}}}).replace(b'"?"', b'"\xff"')
    found = core.read_list(Pod, body)
    assert [pod.metadata.name for pod in found.items] == ["web"]
    assert "utf-8" in found.problems[0].lower()


@pytest.mark.parametrize(
    ("document", "plain"),
    [
        ({"metadata": {"creationTimestamp": None}}, {}),
        ({"metadata": None, "spec": None, "status": None}, {}),
        (
            {"metadata": {"labels": None, "ownerReferences": None}, "spec": {"containers": None, "hostNetwork": None}},
            {},
        ),
        ({"metadata": {"labels": {"a": None, "b": ""}}}, {"metadata": {"labels": {"b": ""}}}),
        ({"spec": {"containers": [{"resources": None}]}}, {"spec": {"containers": [{}]}}),
        ({"spec": {"overhead": {"cpu": None, "memory": "1Mi"}}}, {"spec": {"overhead": {"memory": "1Mi"}}}),
        ({"spec": {"volumes": [{"name": "a", "emptyDir": None}]}}, {"spec": {"volumes": [{"name": "a"}]}}),
    ],
)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")], ids=["compact", "spaced"])
def test_null_is_absent(document: Any, plain: Any, separators: tuple[str, str]) -> None:
    body = json.dumps(document, separators=separators).encode()
    assert core.read(Pod, body) == core.read(Pod, json.dumps(plain).encode())


@pytest.mark.parametrize(
    ("document", "shorter"),
    [
        (b'{"a":null}', b"{}"),
        (b'{"a":null,"b":1}', b'{"b":1}'),
        (b'{"b":1,"a":null}', b'{"b":1}'),
        (b'{"a":null,"b":null,"c":{"d":null},"e":null}', b'{"c":{}}'),
        (b'{"a":":null"}', None),
        (b'{"a":[null]}', b'{"a":[null]}'),
        (b'{"a":"\\":null,","b":null}', None),
        (b'{"a,":1,":null":2}', None),
        (b'{"a,":null}', None),
        (b'{"\\"a":null}', None),
        (b'{"":null}', None),
        (b'{"a": null}', b'{"a": null}'),
        (b'{"a":null }', None),
    ],
)
def test_members_that_are_null_are_cut_out_where_bytes_tell_them_from_text(document: bytes, shorter: bytes) -> None:
    assert core.without_null_members(document) == shorter


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('a,:{}[]"\\nul ', max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text('a,:{}[]"\\nul', max_size=6), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(_JSON)
def test_what_is_cut_out_is_what_was_null(value: Any) -> None:
    shorter = core.without_null_members(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())
    assert shorter is None or json.loads(shorter) == core._without_nulls(value)


def test_a_pod() -> None:
    document = {
        "metadata": {**WEB["metadata"], "resourceVersion": "7", "deletionTimestamp": "2026-11-23T09:00:30Z",
                     "ownerReferences": [{"kind": "A", "name": "a"}, {"kind": "Job", "name": "j", "controller": True}],
                     "managedFields": [{"manager": "kubelet"}]},
        "spec": {"nodeName": "n", "schedulerName": "s", "priority": -1, "priorityClassName": "koord-batch",
                 "hostNetwork": True, "runtimeClassName": "kata", "restartPolicy": "Never",
                 "overhead": {"cpu": "250m"}, "resources": {"limits": {"memory": "1Gi"}},
                 "initContainers": [{"name": "s", "restartPolicy": "Always"}],
                 "containers": [{"name": "c", "image": "x", "resources": {"requests": {"nvidia.com/gpu": 1}}}]},
        "status": {"phase": "Running", "qosClass": "Burstable", "startTime": "2026-11-23T09:00:00Z",
                   "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
                   "containerStatuses": [{"name": "c", "containerID": "containerd://abc", "restartCount": 2,
                                          "state": {"terminated": {"exitCode": 1, "startedAt": None}}}]},
    }  # fmt: skip
    pod = core.read(Pod, json.dumps(document).encode())
    meta, spec, status = pod.metadata, pod.spec, pod.status
    assert (meta.namespace, meta.name, meta.uid, meta.resource_version) == ("default", "web", "u1", "7")
    assert meta.controller == core.OwnerReference("Job", "j", "", True)
    assert (spec.node_name, spec.scheduler_name, spec.priority, spec.priority_class_name) == (
        "n",
        "s",
        -1,
        "koord-batch",
    )
    assert (spec.host_network, spec.runtime_class_name, spec.restart_policy) == (True, "kata", "Never")
    assert (spec.overhead, spec.resources.limits) == ({"cpu": "250m"}, {"memory": "1Gi"})
    assert spec.init_containers == (core.Container("s", restart_policy="Always"),)
    assert spec.containers == (core.Container("c", core.ResourceRequirements({"nvidia.com/gpu": 1})),)
    assert (status.phase, status.qos_class, status.start_time) == ("Running", "Burstable", "2026-11-23T09:00:00Z")
    assert [each.ip for each in status.pod_ips] == ["10.0.0.1", "fd00::1"]
    assert status.container_statuses == (
        core.ContainerStatus("c", "containerd://abc", 2, {"terminated": core.Source()}),
    )


@pytest.mark.parametrize(
    ("document", "kind", "volume"),
    [
        ({}, "", {}),
        ({"flexVolume": {"driver": "x"}}, "", {}),
        ({"emptyDir": {}}, "emptyDir", {"empty_dir": core.EmptyDir()}),
        (
            {"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
            "emptyDir",
            {"empty_dir": core.EmptyDir("Memory", "1Gi")},
        ),
        ({"hostPath": {"path": "/var", "type": ""}}, "hostPath", {"host_path": core.HostPath("/var")}),
        (
            {"persistentVolumeClaim": {"claimName": "data"}},
            "persistentVolumeClaim",
            {"persistent_volume_claim": core.PersistentVolumeClaimSource("data")},
        ),
        ({"csi": {"driver": "d"}}, "csi", {"csi": core.CSI("d")}),
        ({"downwardAPI": {"items": []}}, "downwardAPI", {"downward_api": core.Source()}),
        ({"projected": {"sources": [{"secret": {"name": "x"}}]}}, "projected", {"projected": core.Source()}),
    ],
)
def test_volumes(document: Any, kind: str, volume: dict[str, Any]) -> None:
    (found,) = core.read(Pod, json.dumps({"spec": {"volumes": [{"name": "v", **document}]}}).encode()).spec.volumes
    assert (found, found.kind) == (core.Volume("v", **volume), kind)


def test_a_node() -> None:
    document = {
        "metadata": {"name": "n", "annotations": {"a": "b"}, "creationTimestamp": None},
        "spec": {"podCIDR": "10.0.0.0/24", "unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {
            "capacity": {"cpu": "4", "kubernetes.io/batch-cpu": "2000"},
            "allocatable": {"cpu": "3800m"},
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": None, "reason": "KubeletReady"}],
        },
    }
    assert core.read(Node, json.dumps(document).encode()) == Node(
        core.ObjectMeta("n", annotations={"a": "b"}),
        core.NodeSpec(True, (core.Taint("k", effect="NoSchedule"),)),
        core.NodeStatus(
            {"cpu": "4", "kubernetes.io/batch-cpu": "2000"},
            {"cpu": "3800m"},
            (core.Condition("Ready", "True", "KubeletReady"),),
        ),
    )


def test_a_lease() -> None:
    document = {
        "metadata": {"namespace": "kube-system", "name": "koord-manager"},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-11-23T09:00:00.000001Z",
                 "leaseTransitions": 3},
    }  # fmt: skip
    lease = core.read(Lease, json.dumps(document).encode())
    assert lease == Lease(
        core.ObjectMeta("koord-manager", "kube-system"),
        core.LeaseSpec("a", 15, None, "2026-11-23T09:00:00.000001Z", 3),
    )
    assert core.unix_s(lease.spec.renew_time) == 1_795_424_400.000001


@pytest.mark.parametrize(
    ("time", "unix_s"),
    [
        (None, None),
        ("", None),
        ("yesterday", None),
        ("1970-01-01T00:00:00Z", 0.0),
        ("2026-11-23T10:00:00+01:00", 1_795_424_400.0),
    ],
)
def test_times(time: str | None, unix_s: float | None) -> None:
    assert core.unix_s(time) == unix_s


AMOUNTS = st.dictionaries(st.text(), st.one_of(st.text(), st.integers(0, 2**63 - 1)))
RESOURCES = st.builds(core.ResourceRequirements, AMOUNTS, AMOUNTS)
CONTAINERS = st.lists(st.builds(core.Container, resources=RESOURCES), max_size=3).map(tuple)
VOLUMES = st.lists(st.builds(core.Volume, empty_dir=st.none() | st.builds(core.EmptyDir, size_limit=st.none())))
SPECS = st.builds(
    core.PodSpec,
    CONTAINERS,
    CONTAINERS,
    VOLUMES.map(tuple),
    RESOURCES,
    AMOUNTS,
    st.none() | st.integers(-(2**31), 2**31),
)


@given(pod=st.builds(Pod, spec=SPECS))
def test_what_is_written_is_read_back_with_its_nulls_and_without(pod: Pod) -> None:
    document = msgspec.json.encode(pod)
    assert core.read(Pod, document) == pod
    assert core.read_list(Pod, b'{"items": [' + document + b',{"spec":null}]}').items == (pod, Pod())
