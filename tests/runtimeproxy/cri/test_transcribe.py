"""What is cut out of CRI's requests reads as what a conversion field by field gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.pb.cri import api_pb2 as cri
from koord.pb.hooks import api_pb2 as hooks
from runtimeproxy.cri.transcribe import PodFields, container_name, container_of, identity, pod_name, pod_to_run, with_id
from runtimeproxy.hooks.edits import ANNOTATIONS, CGROUP_PARENT, Slot
from runtimeproxy.wire.protowire import MalformedMessage, bytes_field

texts = st.text(max_size=8)
maps = st.dictionaries(texts, st.text(max_size=200), max_size=4)
numbers = st.integers(-(1 << 63), (1 << 63) - 1)
resources = st.builds(
    cri.LinuxContainerResources,
    cpu_quota=st.none() | numbers,
    cpu_shares=st.none() | numbers,
    cpuset_cpus=texts,
    unified=maps,
    hugepage_limits=st.lists(st.builds(cri.HugepageLimit, page_size=texts), max_size=2),
)
pods = st.builds(
    cri.PodSandboxConfig,
    metadata=st.builds(cri.PodSandboxMetadata, name=texts, uid=texts, namespace=texts),
    hostname=texts,
    labels=maps,
    annotations=maps,
    linux=st.none()
    | st.builds(
        cri.LinuxPodSandboxConfig, cgroup_parent=texts, overhead=st.none() | resources, resources=st.none() | resources
    ),
)
variables = st.lists(st.builds(cri.KeyValue, key=texts, value=st.binary(max_size=300)), max_size=5)
containers = st.builds(
    cri.ContainerConfig,
    metadata=st.builds(cri.ContainerMetadata, name=texts, attempt=st.integers(0, 9)),
    envs=variables,
    annotations=maps,
    linux=st.none() | st.builds(cri.LinuxContainerConfig, resources=st.none() | resources),
)


def same(resources: cri.LinuxContainerResources) -> hooks.LinuxContainerResources:
    return hooks.LinuxContainerResources.FromString(resources.SerializeToString())


def converted_pod(config: cri.PodSandboxConfig, handler: str) -> hooks.PodSandboxHookRequest:
    linux, meta = config.linux, config.metadata
    return hooks.PodSandboxHookRequest(
        pod_meta=hooks.PodSandboxMetadata.FromString(meta.SerializeToString()) if config.HasField("metadata") else None,
        runtime_handler=handler,
        labels=config.labels,
        annotations=config.annotations,
        cgroup_parent=linux.cgroup_parent,
        overhead=same(linux.overhead) if linux.HasField("overhead") else None,
        resources=same(linux.resources) if linux.HasField("resources") else None,
    )


@given(pods, texts)
def test_a_pod(config: cri.PodSandboxConfig, handler: str) -> None:
    request = cri.RunPodSandboxRequest(config=config, runtime_handler=handler)
    pod = pod_to_run(request.SerializeToString())
    assert hooks.PodSandboxHookRequest.FromString(pod.request) == converted_pod(config, handler)
    assert pod.cgroup_parent == pod.given_parent == config.linux.cgroup_parent
    assert identity(pod.request) == (config.metadata.uid, config.metadata.namespace)
    assert pod_name(pod.request) == f"pod {config.metadata.namespace}/{config.metadata.name}"


@given(pods, containers)
def test_a_container_with_its_pod(sandbox: cri.PodSandboxConfig, config: cri.ContainerConfig) -> None:
    own, hidden = container_of(config.SerializeToString())
    pod = PodFields.of_config(sandbox.SerializeToString(), [])
    request = hooks.ContainerResourceHookRequest.FromString(own + pod.in_container)
    assert hidden == {each.key for each in config.envs if not is_text(each.value)}
    assert dict(request.container_envs) == {each.key: each.value for each in config.envs if each.key not in hidden}
    assert dict(request.container_annotations) == dict(config.annotations)
    assert request.container_meta.name == config.metadata.name
    assert request.HasField("container_resources") == config.linux.HasField("resources")
    assert request.container_resources == same(config.linux.resources)
    told = converted_pod(sandbox, "")
    assert (request.pod_meta, request.pod_resources) == (told.pod_meta, told.resources)
    assert (dict(request.pod_labels), dict(request.pod_annotations)) == (dict(told.labels), dict(told.annotations))
    assert request.pod_cgroup_parent == told.cgroup_parent
    meta = sandbox.metadata
    assert container_name(own + pod.in_container) == f"container {meta.namespace}/{meta.name}/{config.metadata.name}"


def is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_messages_that_come_in_pieces_are_one() -> None:
    first = cri.PodSandboxConfig(metadata=cri.PodSandboxMetadata(name="a", uid="u"))
    second = cri.PodSandboxConfig(metadata=cri.PodSandboxMetadata(name="b"))
    second.linux.cgroup_parent = "/p"
    message = b"".join(bytes_field(1, each.SerializeToString()) for each in (first, second))
    whole = cri.RunPodSandboxRequest.FromString(message).config
    assert hooks.PodSandboxHookRequest.FromString(pod_to_run(message).request) == converted_pod(whole, "")


def test_edits_of_a_pod_keep_what_kubelet_gave_it() -> None:
    config = cri.PodSandboxConfig(annotations={"a": "1"})
    config.linux.cgroup_parent = "/kubepods"
    pod = PodFields.of_config(config.SerializeToString(), [])
    edited = pod.edited({Slot(CGROUP_PARENT): "/kubepods/koord", Slot(ANNOTATIONS, "a"): None})
    assert (edited.cgroup_parent, edited.given_parent) == ("/kubepods/koord", "/kubepods")
    assert not hooks.PodSandboxHookRequest.FromString(edited.request).annotations
    assert pod.edited({}) is pod


def test_a_container_gets_its_id() -> None:
    config = cri.ContainerConfig(metadata=cri.ContainerMetadata(name="main", attempt=3))
    own, _ = container_of(config.SerializeToString())
    meta = hooks.ContainerResourceHookRequest.FromString(with_id(own, "c1")).container_meta
    assert (meta.name, meta.attempt, meta.id) == ("main", 3, "c1")


@pytest.mark.parametrize("message", [b"\x0a\xff", b"\x0a\x02\x42\x05", b"\x08"])
def test_malformed_requests(message: bytes) -> None:
    with pytest.raises(MalformedMessage):
        pod_to_run(message)
