"""The CRI client against a runtime on a real socket: what it reads, and how it fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from koord.model import runtimestatus
from koord.pb.cri import api_pb2 as cri
from qosd.hooks.normalization import ANNOTATION
from qosd.model.pod import Resources
from qosd.pods.cri import CRIClient, Detail, RuntimeUnreachable, RuntimeVersion, detail_of_container, detail_of_sandbox
from tests.fakes.runtime import FakeRuntime


@asynccontextmanager
async def client_of(fake: FakeRuntime, socket: Path) -> AsyncIterator[CRIClient]:
    async with fake.serving(socket) as endpoint:
        runtime = CRIClient(endpoint, 2.0, asyncio.get_running_loop())
        try:
            yield runtime
        finally:
            runtime.close()


@pytest.mark.parametrize("failing", [True, False])
async def test_a_runtime_that_does_not_answer_is_named(tmp_path: Path, failing: bool) -> None:
    fake = FakeRuntime(tmp_path, failing=failing)
    if failing:
        async with client_of(fake, tmp_path / "s") as runtime:
            with pytest.raises(RuntimeUnreachable, match="s: ListContainers: gRPC status 14: server is not init"):
                await runtime.containers()
            with pytest.raises(RuntimeUnreachable, match="ContainerStatus"):
                await runtime.container_detail("x")
    else:
        runtime = CRIClient(f"unix://{tmp_path}/absent", 1.0, asyncio.get_running_loop())
        with pytest.raises(RuntimeUnreachable, match=r"absent: Version: .*cannot connect"):
            await runtime.version()


async def test_lists_and_details(tmp_path: Path) -> None:
    fake = FakeRuntime(tmp_path)
    pod = fake.pod("web", labels={"app": "web"}, annotations={"a": "b"}, handler="kata")
    main = fake.container(pod, "main", quota_us=150_000)
    async with client_of(fake, tmp_path / "s") as runtime:
        (sandbox,) = await runtime.sandboxes()
        assert (sandbox.id, sandbox.uid, sandbox.name, sandbox.state) == (pod, "uid-web", "web", "SANDBOX_READY")
        assert (sandbox.labels, sandbox.annotations) == ({"app": "web"}, {"a": "b"})
        assert sandbox.runtime_handler == "kata"
        (container,) = await runtime.containers()
        assert (container.id, container.sandbox_id, container.state) == (main, pod, "CONTAINER_CREATED")
        parent = "/kubepods/burstable/poduid-web"
        assert await runtime.sandbox_detail(pod) == Detail(
            f"{parent}/{pod}", parent, pod_requested=Resources(cpu_quota_us=60_000)
        )
        assert await runtime.container_detail(main) == Detail(
            f"{parent}/{main}", "", Resources(100_000, 150_000, 1 << 30)
        )
        assert await runtime.container_detail("gone") is None
        assert await runtime.sandbox_detail("gone") is None
        fake.silent = True
        assert await runtime.container_detail(main) == Detail()


async def test_lists_of_one_pod_and_of_one_sandbox(tmp_path: Path) -> None:
    fake = FakeRuntime(tmp_path)
    web, again, other = fake.pod("web"), fake.pod("web", attempt=1), fake.pod("other")
    main, _, _ = (fake.container(each, "main") for each in (web, again, other))
    async with client_of(fake, tmp_path / "s") as runtime:
        assert [one.id for one in await runtime.sandboxes("uid-web")] == [web, again]
        assert [one.id for one in await runtime.containers(web)] == [main]
        assert fake.listed == {web, again, main}
        assert (await runtime.sandboxes("uid-gone"), await runtime.containers("gone")) == ([], [])
        assert (len(await runtime.sandboxes()), len(await runtime.containers())) == (3, 3)


@pytest.mark.parametrize(("told", "driver"), [(None, None), (cri.CGROUPFS, "cgroupfs"), (cri.SYSTEMD, "systemd")])
async def test_the_cgroup_driver(tmp_path: Path, told: int | None, driver: str | None) -> None:
    async with client_of(FakeRuntime(tmp_path, driver=cast(Any, told)), tmp_path / "s") as runtime:
        assert await runtime.cgroup_driver() == driver


async def test_states_of_a_later_cri_are_numbers(tmp_path: Path) -> None:
    fake = FakeRuntime(tmp_path)
    fake.pod("web")
    next(iter(fake.sandboxes.values())).state = 7  # type: ignore[assignment]
    async with client_of(fake, tmp_path / "s") as runtime:
        assert [one.state for one in await runtime.sandboxes()] == ["7"]


@pytest.mark.parametrize(
    ("name", "version", "may"),
    [
        ("containerd", "1.6.20~ds1", True),  # answers Unimplemented
        ("containerd", "1.7.0", False),
        ("containerd", "v1.7.29", False),
        ("containerd", "v2.0.0-rc.1", True),
        ("containerd", "2.3.7", True),
        ("containerd", "", True),
        ("cri-o", "1.25.0", True),
        ("cri-o", "1.28.4", False),
        ("cri-o", "1.34.0", True),
        ("docker", "28.0", False),
        ("new", "9.9", False),
    ],
)
def test_only_runtimes_that_broadcast_are_listened_to(name: str, version: str, may: bool) -> None:
    assert RuntimeVersion(name, version).may_read_events is may


_CRIO_SCOPE = "kubepods-burstable-pod1_2.slice:crio:abc"


@pytest.mark.parametrize(
    ("document", "cgroup", "parent"),
    [
        ({}, "", ""),
        ({"runtimeSpec": None, "config": 3}, "", ""),
        ({"runtimeSpec": {"linux": {"cgroupsPath": "/kubepods/pod1/abc"}}}, "/kubepods/pod1/abc", "/kubepods/pod1"),
        (
            {"runtimeSpec": {"linux": {"cgroupsPath": _CRIO_SCOPE}}},
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/crio-abc.scope",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice",
        ),
        ({"config": {"linux": {"cgroup_parent": "/kubepods/pod1"}}}, "", "/kubepods/pod1"),
    ],
)
def test_what_verbose_says(document: dict[str, Any], cgroup: str, parent: str) -> None:
    told = detail_of_sandbox(document)
    assert (told.cgroup, told.cgroup_parent) == (cgroup, parent)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '"x"', "[" * 100_000])
def test_verbose_text_that_is_no_object(text: str) -> None:
    assert runtimestatus.parse_or_empty({"info": text}) == {}


@pytest.mark.parametrize(
    ("annotations", "marks"),
    [
        ({ANNOTATION: "50000/41667", "io.kubernetes.cri.container-type": "container"}, {ANNOTATION: "50000/41667"}),
        ({"io.kubernetes.cri.container-type": "container"}, {}),
        ({ANNOTATION: 3}, {}),
        ({ANNOTATION: ""}, {}),
        (None, {}),
        ([], {}),
    ],
)
def test_of_the_specs_annotations_only_our_own_are_taken(annotations: Any, marks: dict[str, str]) -> None:
    assert detail_of_container({"runtimeSpec": {"annotations": annotations}}).marks == marks


@pytest.mark.parametrize(("cpu", "cpus"), [({"cpus": "2-3"}, "2-3"), ({}, ""), ({"cpus": 3}, ""), (None, "")])
def test_the_cpu_set_of_the_spec(cpu: Any, cpus: str) -> None:
    assert detail_of_container({"runtimeSpec": {"linux": {"resources": {"cpu": cpu}}}}).cpus == cpus


def test_resources_that_are_no_numbers_are_absent() -> None:
    info = {"runtimeSpec": {"linux": {"resources": {"cpu": {"quota": True, "period": "1"}, "memory": []}}}}
    assert detail_of_container(info).requested == Resources()
